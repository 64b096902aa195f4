"""`Evaluations`: over the planned number of episodes, or any other."""

from rlkit.training.compile.aot_compile import Compiler
from rlkit.training.core.module import RLModule
from rlkit.training.programs.evaluation import Evaluation
from rlkit.training.run_parts import RunParts


class Evaluations:
    """The evaluations of a run, each compiled on first call."""

    def __init__(self, parts: RunParts, compiler: Compiler):
        self._parts, self._compiler = parts, compiler
        self.planned = Evaluation(parts.module, compiler)
        """The evaluation between outer iterations."""
        self._of_episodes: dict[int, Evaluation] = {}

    def of(self, episodes: int | None) -> Evaluation:
        """The evaluation over `episodes` episodes (None: as many as configured).

        Raises `ConfigError` without an environment to evaluate in.
        """
        module = self._parts.module
        if not isinstance(module, RLModule):
            return self.planned
        episodes = module.evaluation_episodes if episodes is None else episodes
        if episodes == module.evaluation_episodes and module.eval_env is not None:
            return self.planned
        if episodes not in self._of_episodes:
            module = self._parts.evaluation_module(episodes)
            self._of_episodes[episodes] = Evaluation(module, self._compiler)
        return self._of_episodes[episodes]

    def close(self) -> None:
        """Frees the environments made for the evaluations."""
        for evaluation in (self.planned, *self._of_episodes.values()):
            evaluation.close()
