"""`RunProgress`: what a run has done so far."""

import dataclasses

from rlkit.training.config import Plan

KeyData = list[int] | list[list[int]]  # of one key, or of one per seed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parent:
    """The checkpoint of another run that a run continued from."""

    directory: str  # of the checkpoints, absolute
    step: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunProgress:
    """What a run has done so far. Steps and updates are those of one seed."""

    outer_iteration: int
    """Finished outer iterations."""
    env_steps: int
    """Environment steps of the outer iterations, the prefill, and outside the plan.

    Those outside the plan come from `train_step` and from refilling a replay memory.
    """
    updates: int
    """Gradient steps at the last report, with those that were skipped."""
    skipped_updates: int = 0
    """Updates skipped because something was not finite, of the seed with most in each iteration."""
    skipped_in_a_row: tuple[float, ...] = ()
    """Updates that each seed skipped in a row by now, see `finite_checks`; (): none."""
    non_finite_steps: int = 0
    """Steps of all seeds in which an environment returned NaN or infinity and was reset."""
    seed_returns: tuple[float, ...] | None
    """Mean return of each seed in the last evaluation; None: there was none."""
    return_std: float | None
    """Standard deviation of the last evaluation: over seeds, or with one seed over episodes."""
    seed_peaks: tuple[float, ...] | None = None
    """Highest mean return of each seed in any evaluation after the first outer iteration."""
    wall_seconds: float
    """Seconds spent in `Trainer.run`, excluding a call that is still running."""
    seed: int | None
    """The seed that the run was started from; None: it was started from a key."""
    keys: KeyData | None
    """The data of the keys that the run was started from; None: there were none."""
    parent: Parent | None
    """The checkpoint the run continued from; None: it started from scratch."""

    @classmethod
    def start(
        cls, plan: Plan, *, seed: int | None = None, keys: KeyData | None = None
    ) -> "RunProgress":
        """The progress of a run that has not trained yet."""
        return cls(
            outer_iteration=0,
            env_steps=plan.prefill_steps,
            updates=0,
            seed_returns=None,
            return_std=None,
            wall_seconds=0.0,
            seed=seed,
            keys=keys,
            parent=None,
        )

    def steps_at(self, iteration: int, plan: Plan) -> int:
        """Environment steps after `iteration` outer iterations, in the past or the future."""
        so_far = plan.steps_up_to(self.outer_iteration)
        return self.env_steps + plan.steps_up_to(iteration) - so_far

    def after_outer_iteration(self, plan: Plan) -> "RunProgress":
        """The progress one outer iteration later."""
        return dataclasses.replace(
            self,
            outer_iteration=self.outer_iteration + 1,
            env_steps=self.env_steps + plan.steps_per_checkpoint,
        )

    def after_steps(self, env_steps: int) -> "RunProgress":
        """The progress after `env_steps` environment steps outside the plan."""
        return dataclasses.replace(self, env_steps=self.env_steps + env_steps)
