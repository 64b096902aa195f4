"""What is measured between outer iterations."""

from rlkit.training.compile.aot_compile import Compiler
from rlkit.training.core.module import Module, RLModule, evaluate
from rlkit.training.programs.players import Player, make_player
from rlkit.types import Measurements, PyTree


class Evaluation:
    """What a module measures between outer iterations, for all seeds; call it with a state."""

    def __init__(self, module: Module, compiler: Compiler):
        self._player: Player | None = None
        if isinstance(module, RLModule) and module.eval_env is not None:
            player = self._player = make_player(module.evaluator(), compiler)
            self._measure = lambda ts: player.evaluate(ts.learner.policy)
        elif isinstance(module, RLModule):
            self._measure = lambda ts: {}
        else:
            self._measure = compiler.parallel_seeds(lambda ts: evaluate(module, ts))

    def __call__(self, ts: PyTree) -> Measurements:
        """Measurements by name, arrays [E] ([S, E]) over episodes.

        Of several processes, each plays all of them.
        """
        return self._measure(ts)

    def close(self) -> None:
        """Frees the environments made for it."""
        if self._player is not None:
            self._player.close()
