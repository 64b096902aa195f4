"""From a batch to new parameters: loss → gradient → update."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from rlkit.agents.base import Agent
from rlkit.algorithms.finite import is_finite_update
from rlkit.algorithms.loss_output import ERROR, split_loss
from rlkit.algorithms.metrics import SKIPPED, over_devices
from rlkit.algorithms.parameter_groups import Group, group_names, replace_group, select_group
from rlkit.algorithms.update_interval import check_every
from rlkit.errors import require
from rlkit.ops.over_devices import pmean
from rlkit.optimizers import current_learning_rate
from rlkit.types import Key, LearnerState, Metrics, Params, PyTree
from rlkit.xla_cpu.conditional_update import renewed_if
from rlkit.xla_cpu.packing import NO_PACKING, NoPacking, Packing, global_norm

LossFn = Callable[[Any, Params, Params, PyTree, Key], PyTree]
"""A loss: (agent, params, target_params, batch, key) -> loss, (loss, metrics) or a dict.

The dict is {"loss": loss, **metrics}; (loss, array) also does, and logs the mean as "auxiliary".
The loss is a scalar; metrics are scalars or arrays, whose mean is logged. The metric "td_error" [M]
has the errors from which prioritised replay takes its priorities, and is not logged.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GradientStep:
    """One descent of a loss, in all parameters or in one or several top-level groups of them.

    If the optimiser's `update` takes extra arguments, it gets `progress` and, for this batch,
    `value`, `grad` and `value_fn`. With `every=n` the step is only taken in every n-th update,
    counted over the whole run by `LearnerState.updates`: `every=2` means the second, the fourth and
    so on. `checks_update` may be False for an optimiser whose step is finite whenever the gradient
    is, such as those of `create_optimizer`. The metrics of a step that is not taken are NaN, or 0
    if named `sum/…`. Parameters are changed in the form of `packing`, in which a loop carries them;
    the result is the same.
    """

    loss: LossFn
    optimizer: optax.GradientTransformation
    group: Group = None
    process_gradients: Callable[[PyTree], PyTree] | None = None
    every: int = 1
    checks_update: bool = True
    packing: Packing | NoPacking = NO_PACKING

    def __post_init__(self) -> None:
        check_every("GradientStep", self.every)

    def init(self, params: Params) -> PyTree:
        """The optimiser state."""
        return self.optimizer.init(select_group(params, self.group))

    def descend(
        self,
        agent: Agent,
        learner: LearnerState,
        opt_state: PyTree,
        batch: PyTree,
        key: Key,
        axis_name: str | None = None,
    ) -> tuple[PyTree, PyTree, Metrics]:
        """(parameters of the group, optimiser state, metrics) after the step; the key is consumed.

        A loss or gradient that is not finite changes nothing and is counted; so does a step to
        parameters that are not, if it `checks_update`. Losses, metrics and gradients are averaged
        over devices.
        """
        params = select_group(learner.params, self.group)

        def loss_fn(params: PyTree) -> tuple[Array, Metrics]:
            everything = replace_group(learner.params, self.group, params)
            return split_loss(self.loss(agent, everything, learner.target_params, batch, key))

        loss, metrics, gradients = differentiate(loss_fn, params, axis_name)
        grad_norm = global_norm(gradients)
        is_finite = jnp.isfinite(loss) & jnp.isfinite(grad_norm)
        processed = self._processed(gradients)
        if processed is not gradients:
            is_finite &= jnp.isfinite(global_norm(processed))
        extra = {
            "value": loss,
            "grad": gradients,
            "value_fn": _value_fn(loss_fn, axis_name),
            "progress": learner.progress,
        }
        arguments = self.optimizer, processed, params, opt_state, self.packing
        if self.checks_update:
            params, opt_state, is_finite = _updated_if_finite(is_finite, *arguments, **extra)
        else:
            params, opt_state = updated_if(is_finite, *arguments, **extra)
        name = "" if self.group is None else f"{group_names(self.group)[0]}_"
        metrics = {f"{name}loss": loss, **metrics, f"{name}grad_norm": grad_norm}
        if (rate := current_learning_rate(opt_state)) is not None:
            metrics[f"{name}learning_rate"] = rate
        metrics[SKIPPED] = 1.0 - is_finite.astype(jnp.float32)
        return params, opt_state, metrics

    def _processed(self, gradients: PyTree) -> PyTree:
        """The gradients from `process_gradients`, in their original shapes and dtypes.

        `process_gradients` may return a number in place of an array. Raises `ConfigError` if it
        returns anything else that does not match.
        """
        if self.process_gradients is None:
            return gradients
        processed = self.process_gradients(gradients)
        before, after = jax.tree.structure(gradients), jax.tree.structure(processed)
        require(
            before == after,
            f"process_gradients was given {before} and returned {after}",
            "return the same structure",
        )

        def like(path: jax.tree_util.KeyPath, x: PyTree, given: Array) -> Array:
            require(
                jnp.shape(x) in ((), given.shape),
                f"process_gradients returned shape {jnp.shape(x)} for the gradient of"
                f" {jax.tree_util.keystr(path)}",
                f"return {given.shape}, or a number for all of it",
            )
            return jnp.broadcast_to(jnp.asarray(x, given.dtype), given.shape)

        return jax.tree.map_with_path(like, processed, gradients)


def updated_if(
    is_valid: Array,
    optimizer: optax.GradientTransformation,
    gradients: PyTree,
    params: PyTree,
    opt_state: PyTree,
    packing: Packing | NoPacking = NO_PACKING,
    **extra: Any,
) -> tuple[PyTree, PyTree]:
    """(parameters, optimiser state) after an update, or both unchanged unless `is_valid` ([] bool).

    As `optax.apply_if_finite`, but the caller says what is valid, and the state has no wrapper.
    Parameters are changed in the form of `packing`; the result is the same. `extra` arguments are
    the optimiser's.
    """
    update = optax.with_extra_args_support(optimizer).update

    def renew(opt_state: PyTree) -> tuple[PyTree, PyTree]:
        change, opt_state = update(gradients, opt_state, params, **extra)
        return opt_state, change

    opt_state, change = renewed_if(is_valid, opt_state, renew)
    # Replacing the change by zeros would be simpler, but then XLA could not contract the
    # optimiser's last product with this sum.
    old = packing.pack(params)
    new = optax.apply_updates(old, packing.pack(change))
    new = jax.tree.map(lambda new, old: jnp.where(is_valid, new, old), new, old)
    return packing.unpack(new), opt_state


def _updated_if_finite(
    is_valid: Array,
    optimizer: optax.GradientTransformation,
    gradients: PyTree,
    params: PyTree,
    opt_state: PyTree,
    packing: Packing | NoPacking,
    **extra: Any,
) -> tuple[PyTree, PyTree, Array]:
    """As `updated_if`, and unchanged also if the results are not finite; and whether they are."""
    always = jnp.bool_(True)
    new = updated_if(always, optimizer, gradients, params, opt_state, packing, **extra)
    is_valid &= is_finite_update(*new)
    kept = jax.tree.map(lambda new, old: jnp.where(is_valid, new, old), new, (params, opt_state))
    return *kept, is_valid


def differentiate(
    loss_fn: Callable[[PyTree], tuple[Array, Metrics]], params: PyTree, axis_name: str | None
) -> tuple[Array, Metrics, PyTree]:
    """(loss, metrics, gradients), averaged over devices.

    The errors of transitions are not averaged: they are those of this device's own batch.
    """
    (loss, metrics), gradients = jax.value_and_grad(loss_fn, has_aux=True)(params)
    if axis_name is None:
        return loss, metrics, gradients
    own = {name: x for name, x in metrics.items() if name == ERROR}
    common = {name: x for name, x in metrics.items() if name != ERROR}
    loss, gradients = pmean((loss, gradients), axis_name)
    return loss, over_devices(common, axis_name) | own, gradients


def _value_fn(
    loss_fn: Callable[[PyTree], tuple[Array, Metrics]], axis_name: str | None
) -> Callable[..., Array]:
    """The loss as line searches call it, averaged over devices.

    Its gradient is averaged as well; that of a plain `pmean` would be each device's own.
    """

    def value_fn(params: PyTree, progress: Array | None = None) -> Array:
        del progress  # optax passes this function all extra arguments that are not its own
        if axis_name is None:
            return loss_fn(params)[0]
        fixed = jax.lax.stop_gradient(params)
        loss, _, gradients = jax.lax.stop_gradient(differentiate(loss_fn, fixed, axis_name))
        return loss + optax.tree.vdot(gradients, jax.tree.map(jnp.subtract, params, fixed))

    return value_fn
