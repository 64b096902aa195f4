"""An update: gradient steps in order on one batch, then the targets."""

import dataclasses
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from rlkit.agents.base import Agent
from rlkit.algorithms.gradient_step import GradientStep
from rlkit.algorithms.loss_output import ERROR
from rlkit.algorithms.metrics import SKIPPED, as_floats, not_measured
from rlkit.algorithms.parameter_groups import group_names, replace_group, select_group
from rlkit.algorithms.target_update import TargetUpdate
from rlkit.algorithms.update_interval import only_every
from rlkit.errors import require
from rlkit.types import Key, LearnerState, Metrics, Params, PyTree


@dataclasses.dataclass(frozen=True, kw_only=True)
class Updater:
    """Takes gradient steps in order on the same batch; each loss sees what earlier steps left.

    If they are `simultaneous`, all losses see the parameters from before the update, so that a
    device can compute the steps in parallel; each step then needs its own groups. A step whose loss
    or gradient is not finite changes nothing; `sum/skipped_updates` counts the updates with such a
    step. A step that is not due (`every`) is not computed, except under `vmap`, which turns the
    choice into a select.
    """

    steps: tuple[GradientStep, ...]
    target: TargetUpdate | None = None
    simultaneous: bool = False

    def __post_init__(self) -> None:
        names = [name for step in self.steps for name in group_names(step.group)]
        require(
            not self.simultaneous
            or len(self.steps) == 1
            or (None not in names and len(set(names)) == len(names)),
            "simultaneous steps share parameters: their groups are"
            f" {[step.group for step in self.steps]}",
            "give each step its own groups, or leave out simultaneous",
        )

    def init(self, params: Params) -> tuple[PyTree, Params]:
        """(optimiser state, target parameters).

        They share no buffer with `params`, which may be donated.
        """
        opt_state = tuple(step.init(params) for step in self.steps)
        return opt_state, () if self.target is None else self.target.init(params)

    def step(
        self,
        agent: Agent,
        learner: LearnerState,
        batch: PyTree,
        key: Key,
        axis_name: str | None = None,
    ) -> tuple[LearnerState, Metrics, Array | None]:
        """(learner, metrics, errors [M]) after one batch; the key is consumed.

        The errors are those of the last loss that returns any. Gradients are averaged over devices.
        """
        metrics: Metrics = {}
        learner = before = learner.replace(updates=learner.updates.add(1))
        keys = jax.random.split(key, len(self.steps))
        for index in range(len(self.steps)):
            seen = before if self.simultaneous else learner
            descend = partial(
                self.steps[index].descend,
                agent,
                seen,
                learner.opt_state[index],
                batch,
                keys[index],
                axis_name,
            )
            learner, new = self._take_if_due(index, learner, descend)
            skipped = metrics.get(SKIPPED, 0.0), new[SKIPPED]
            metrics |= new | {SKIPPED: jnp.maximum(*skipped)}
        error = metrics.pop(ERROR, None)
        if self.target is not None:
            learner = self.target.polyak_update(learner)
        return learner, metrics, error

    def periodic_target_update(self, before: LearnerState, after: LearnerState) -> LearnerState:
        """See `TargetUpdate.periodic_update`."""
        return after if self.target is None else self.target.periodic_update(before, after)

    def _take_if_due(
        self,
        index: int,
        learner: LearnerState,
        descend: Callable[[], tuple[PyTree, PyTree, Metrics]],
    ) -> tuple[LearnerState, Metrics]:
        """`learner` and metrics after the step at that index, if it is due in this update.

        `descend` computes the step. The update is already counted.
        """
        step = self.steps[index]

        def due() -> tuple[PyTree, PyTree, Metrics]:
            part, opt_state, metrics = descend()
            return part, opt_state, as_floats(metrics)

        def not_due(shapes: PyTree) -> tuple[PyTree, PyTree, Metrics]:
            part, opt_state = select_group(learner.params, step.group), learner.opt_state[index]
            return part, opt_state, not_measured(shapes[2])

        part, opt_state, metrics = only_every(step.every, learner.updates, due, not_due)
        opt_states = (*learner.opt_state[:index], opt_state, *learner.opt_state[index + 1 :])
        params = replace_group(learner.params, step.group, part)
        return learner.replace(params=params, opt_state=opt_states), metrics
