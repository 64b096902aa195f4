"""Target parameters, which follow the parameters slowly."""

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from rlkit.algorithms.parameter_groups import select_group
from rlkit.algorithms.update_interval import check_every, only_every
from rlkit.errors import require, require_counts
from rlkit.types import LearnerState, Params


@dataclasses.dataclass(frozen=True, kw_only=True)
class TargetUpdate:
    """Target parameters: a copy of the parameters, or of their top-level `groups`.

    They follow slowly. With `period`, they are copied every `period` environment steps, at the end
    of the iteration that passes a multiple of it. Otherwise, a Polyak update moves them by `tau` of
    the distance after every update, or with `every=n` after every n-th one, as for a
    `GradientStep`.
    """

    groups: tuple[str, ...] | None = None
    tau: float | Array = 0.005
    period: int | None = None
    every: int = 1

    def __post_init__(self) -> None:
        check_every("TargetUpdate", self.every)
        require(
            self.groups is None or not isinstance(self.groups, str),
            f"groups={self.groups!r} of TargetUpdate is a single name",
            f"write groups=({self.groups!r},)",
        )
        if self.period is not None:
            require_counts(self, period=1)
        require(
            not isinstance(self.tau, (int, float)) or 0 < self.tau <= 1,
            f"tau={self.tau} of TargetUpdate is outside (0, 1]",
            "use 0.005, for instance",
        )
        require(
            self.period is None or self.every == 1,
            f"TargetUpdate was given both period={self.period} and every={self.every}",
            "leave one out: period counts environment steps, every counts updates",
        )

    def init(self, params: Params) -> Params:
        """The first targets: copies, since `params` may be donated."""
        return jax.tree.map(jnp.copy, select_group(params, self.groups))

    def polyak_update(self, learner: LearnerState) -> LearnerState:
        """Moves the targets by `tau` towards the parameters after an update, if that is due.

        The update is already counted.
        """
        if self.period is not None:
            return learner
        tau = jnp.asarray(self.tau, jnp.float32)
        params, targets = select_group(learner.params, self.groups), learner.target_params

        def moved() -> Params:
            return jax.tree.map(
                lambda old, new: old + tau.astype(old.dtype) * (new - old), targets, params
            )

        return learner.replace(
            target_params=only_every(self.every, learner.updates, moved, lambda _: targets)
        )

    def periodic_update(self, before: LearnerState, after: LearnerState) -> LearnerState:
        """`after`, with new copies as targets if it passed a multiple of `period` since `before`.

        Counted in environment steps.
        """
        if self.period is None:
            return after
        passed = after.env_steps.passed_multiple(before.env_steps, self.period)
        return after.replace(
            target_params=jax.tree.map(
                lambda new, old: jnp.where(passed, new, old),
                select_group(after.params, self.groups),
                after.target_params,
            )
        )
