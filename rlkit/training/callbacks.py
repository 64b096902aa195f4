"""Callbacks: user code between outer iterations, on the host."""

from typing import TYPE_CHECKING, Any

from tqdm import tqdm

if TYPE_CHECKING:
    from rlkit.training.trainer import Trainer


class Callback:
    """Override what you need; every method does nothing by default.

    To end training early call `trainer.request_stop("reason")`. It takes effect one outer iteration
    late at most (in general `max_queued - 1`), because the next one is already running when results
    arrive.
    """

    def on_run_start(self, trainer: "Trainer") -> None:
        """Before the first outer iteration of a `run`."""

    def on_iteration_end(self, trainer: "Trainer", iteration: int, metrics: dict[str, Any]) -> None:
        """After outer iteration `iteration` (from 1); `metrics` are those of its training record,
        without prefix.
        """

    def on_evaluation(self, trainer: "Trainer", iteration: int, evaluation: dict[str, Any]) -> None:
        """After an evaluation; `evaluation` as in `trainer.history`."""

    def on_checkpoint(self, trainer: "Trainer", iteration: int) -> None:
        """After a checkpoint was handed to the checkpointer."""

    def on_run_end(self, trainer: "Trainer") -> None:
        """After the last outer iteration, also of a run that stops early or fails."""


class ProgressBar(Callback):
    """A bar over environment steps, with the latest return."""

    def __init__(self) -> None:
        self._bar: tqdm | None = None

    def on_run_start(self, trainer: "Trainer") -> None:
        """Opens the bar where the run stands."""
        self._bar = tqdm(
            total=trainer.steps_at(trainer.plan.num_checkpoints),
            initial=trainer.env_steps,
            unit="step",
            unit_scale=True,
            desc="training",
            smoothing=0.1,
        )

    def on_iteration_end(self, trainer: "Trainer", iteration: int, metrics: dict[str, Any]) -> None:
        """Moves the bar."""
        if self._bar is not None:
            self._bar.update(trainer.steps_at(iteration) - self._bar.n)

    def on_evaluation(self, trainer: "Trainer", iteration: int, evaluation: dict[str, Any]) -> None:
        """Shows the mean evaluation return."""
        if self._bar is not None and "return" in evaluation:
            self._bar.set_postfix(eval_return=f"{evaluation['return'].mean():.1f}", refresh=False)

    def on_run_end(self, trainer: "Trainer") -> None:
        """Closes the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
