"""`Evaluations`: over the planned number of episodes, or any other."""

import contextlib

import numpy as np

from rlkit.envs.base import EnvAdapter
from rlkit.errors import ConfigError, SpaceError, require, shown
from rlkit.training.compile.aot_compile import Compiler
from rlkit.training.core.evaluator import EVALUATION_SEED, make_evaluator
from rlkit.training.core.module import Module, RLModule, share_state
from rlkit.training.programs.evaluation import Evaluation
from rlkit.training.programs.players import make_player
from rlkit.training.run_parts import EnvSource, RunParts, as_adapter
from rlkit.types import Measurements, PyTree


class Evaluations:
    """The evaluations of a run, each compiled on first call."""

    def __init__(self, parts: RunParts, compiler: Compiler):
        self._parts, self._compiler = parts, compiler
        self.planned = Evaluation(parts.module, compiler)
        """The evaluation between outer iterations."""
        self._of_episodes: dict[int, Evaluation] = {}

    def of(self, episodes: int | None) -> Evaluation:
        """The evaluation over `episodes` episodes (None: as many as configured).

        Raises `ConfigError` without an environment to evaluate in, or for a number of episodes if
        the module is no `RLModule`.
        """
        module = self._parts.module
        if not isinstance(module, RLModule):
            require(
                episodes is None,
                f"this module evaluates itself, and knows nothing of episodes={shown(episodes)}",
                "leave it out, or call the module's own methods",
            )
            return self.planned
        episodes = module.evaluation_episodes if episodes is None else episodes
        if episodes == module.evaluation_episodes and module.eval_env is not None:
            return self.planned
        if episodes not in self._of_episodes:
            module = self._parts.evaluation_module(episodes)
            self._of_episodes[episodes] = Evaluation(module, self._compiler)
        return self._of_episodes[episodes]

    def elsewhere(
        self,
        ts: PyTree,
        module: Module,
        episodes: int | None,
        env: EnvSource | None,
        seed: int | None,
    ) -> Measurements:
        """What the policy of a state reaches in `env`, in the episodes of `seed`.

        None stands for the usual ones. `module` is what is trained now: phases with environments of
        their own may share these evaluations. Compiles on every call. Raises `ConfigError` if it is
        no `RLModule`, `SpaceError` if the environment has other spaces than that of the training.
        """
        if not isinstance(module, RLModule):
            raise ConfigError(
                "this module evaluates itself; leave out env and seed, or call its own methods"
            )
        known = seed is None or (isinstance(seed, int | np.integer) and 0 <= seed < 2**32)
        require(known, f"seed must be an integer in [0, 2**32), got {seed!r}", "pass seed=1")
        made: list[EnvAdapter] = []  # to be closed
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: [env.close() for env in made])
            if env is None:
                chosen = self._parts.evaluation_module().eval_env
                assert chosen is not None
            else:
                chosen = as_adapter(env, made)
                _require_same_spaces(module.env, chosen)
                require(
                    not share_state(module.env, chosen),
                    "this is the environment of the training, which evaluation would reset",
                    "pass another one",
                )
            evaluator = make_evaluator(
                chosen,
                module.agent,
                num_episodes=module.evaluation_episodes if episodes is None else episodes,
                max_steps=module.max_evaluation_steps,
                seed=EVALUATION_SEED if seed is None else seed,
            )
            player = stack.enter_context(contextlib.closing(make_player(evaluator, self._compiler)))
            return player.evaluate(ts.learner.policy)

    def close(self) -> None:
        """Frees the environments made for the evaluations."""
        for evaluation in (self.planned, *self._of_episodes.values()):
            evaluation.close()


def _require_same_spaces(trained: EnvAdapter, chosen: EnvAdapter) -> None:
    for kind in ("observation_space", "action_space"):
        wanted, given = getattr(trained, kind), getattr(chosen, kind)
        require(
            wanted == given,
            f"the agent was trained with the {kind} {wanted}, this environment has {given}",
            "evaluate in an environment with the same spaces",
            SpaceError,
        )
