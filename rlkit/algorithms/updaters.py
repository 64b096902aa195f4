"""From a batch to new parameters: losses, gradients, optax."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from rlkit.algorithms.metrics import not_measured
from rlkit.errors import ConfigError, require
from rlkit.ops.counters import StepCounter
from rlkit.optimizers import Elementwise, current_learning_rate
from rlkit.types import Key, LearnerState, Metrics, Params, PyTree
from rlkit.xla_cpu.conditional_update import renewed_if
from rlkit.xla_cpu.matmul import computes_little
from rlkit.xla_cpu.packing import NoPacking, Packing

LossFn = Callable[[Any, Params, Params, Any, Key], Any]
"""(agent, params, target_params, batch, key) -> loss, (loss, metrics) or {"loss": loss, **metrics};
loss and metrics are scalars, but for the metric "td_error" [M]: the errors by which prioritised
replay chooses, not logged.
"""
ERROR = "td_error"
MOST_SELDOM = 2**16  # the largest `every`, see `StepCounter.remainder`
# Numbers of a parameter that joins others in a vector; measured in docs/design.md. Checkpoints hold
# optimiser states in this form: another value makes the runs that are there impossible to resume.
LONGEST_SMALL = 2**14


@dataclasses.dataclass(frozen=True, kw_only=True)
class GradientStep:
    """One descent of a loss: in all parameters, or in one or several top-level groups of them.

    If the optimiser's `update` takes extra arguments, it gets `progress`, and of this batch
    `value`, `grad` and `value_fn`. An `elementwise` one gets `progress` alone, and parameters and
    gradients in another form: the small ones as one vector. With `every=n` it is taken in each n-th
    update alone, counted over the whole run by `LearnerState.updates`: with 2 in the second, the
    fourth and so on. The metrics of a step that is not taken are NaN, those named `sum/…` 0.
    """

    loss: LossFn
    optimizer: optax.GradientTransformation
    group: str | tuple[str, ...] | None = None
    process_gradients: Callable[[PyTree], PyTree] | None = None
    every: int = 1

    def __post_init__(self) -> None:
        _check_every("GradientStep", self.every)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TargetUpdate:
    """Target parameters: a copy of the parameters, or of the top-level `groups` of them, that
    follows slowly.

    With `period`, it is renewed whole every so many environment steps, at the end of the iteration
    that passes them; else it moves by `tau` of the distance after every update, or with `every=n`
    after each n-th one, as for a `GradientStep`.
    """

    groups: tuple[str, ...] | None = None
    tau: float | Array = 0.005
    period: int | None = None
    every: int = 1

    def __post_init__(self) -> None:
        _check_every("TargetUpdate", self.every)
        require(
            self.groups is None or not isinstance(self.groups, str),
            f"groups={self.groups!r} of TargetUpdate is one name",
            f"write groups=({self.groups!r},)",
        )
        require(
            self.period is None or self.period >= 1,
            f"period={self.period} of TargetUpdate is not positive",
            "use 1 or more",
        )
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

    def select(self, params: Params) -> Params:
        """What targets are kept of."""
        return params if self.groups is None else {group: params[group] for group in self.groups}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Updater:
    """Gradient steps in order, on the same batch; each loss sees the parameters that the earlier
    steps left.

    With `at_once` all see those from before the update, so that a device can compute the steps side
    by side; each then has groups of its own. A step whose loss or gradient is not finite changes
    nothing; `sum/skipped_updates` counts the updates with such a step. One that is not taken
    (`every`) is not computed either; only under `vmap`, which makes a select of the choice, it is,
    and thrown away.
    """

    steps: tuple[GradientStep, ...]
    target: TargetUpdate | None = None
    at_once: bool = False

    def __post_init__(self) -> None:
        groups = [group for step in self.steps for group in _groups(step.group)]
        require(
            not self.at_once
            or len(self.steps) == 1
            or (None not in groups and len(set(groups)) == len(groups)),
            "steps taken at_once share parameters: their groups are"
            f" {[step.group for step in self.steps]}",
            "give each step groups of its own, or leave out at_once",
        )

    def init(self, params: Params) -> tuple[PyTree, Params]:
        """(optimiser state, target parameters); these share no buffer with `params`, which may be
        donated.
        """

        def init(step: GradientStep) -> PyTree:
            part = _select(params, step.group)
            return step.optimizer.init(_packing(step, part).pack(part))

        opt_state = tuple(init(step) for step in self.steps)
        return opt_state, (
            () if self.target is None else jax.tree.map(jnp.copy, self.target.select(params))
        )

    def packing(self, params: Params, rows: Callable[[], int]) -> Packing | NoPacking:
        """The form in which `params` go through a loop of updates by batches of `rows()` rows.

        On a CPU and with small networks it is that of the optimiser, where this is an `elementwise`
        one and all parameters are descended in together: the small ones, which each turn of the
        loop gives the next, are one array then (docs/speed.md).
        """
        step = self.steps[0]
        is_joint = (
            len(self.steps) == 1 and step.group is None and isinstance(step.optimizer, Elementwise)
        )
        return (
            _packing(step, params) if is_joint and computes_little(params, rows()) else NoPacking()
        )

    def renew_targets(self, before: LearnerState, after: LearnerState) -> LearnerState:
        """`after` with targets renewed if, since `before`, the environment steps passed a multiple
        of the period.
        """
        if self.target is None or self.target.period is None:
            return after
        period = jnp.uint32(self.target.period)
        passed = (before.env_steps.low // period != after.env_steps.low // period) | (
            before.env_steps.high != after.env_steps.high
        )
        source = self.target.select(after.params)
        return after.replace(
            target_params=jax.tree.map(
                lambda new, old: jnp.where(passed, new, old), source, after.target_params
            )
        )

    def step(
        self,
        agent: Any,
        learner: LearnerState,
        batch: Any,
        key: Key,
        axis_name: str | None = None,
        joined: bool = False,
    ) -> tuple[LearnerState, Metrics, Array | None]:
        """(learner, metrics, errors [M]) after one batch; the errors are those of the last loss
        that returns them, if any.

        Gradients are averaged over devices. The key is consumed. `joined`: the parameters are
        unpacked from what `packing` made of them, and go back there, so that they are changed in
        that form; the result is the same.
        """
        metrics: Metrics = {}
        learner = learner.replace(updates=learner.updates.add(1))
        before = learner
        keys = jax.random.split(key, len(self.steps))
        for index in range(len(self.steps)):
            seen = before if self.at_once else learner
            descend = partial(
                self._descend, index, agent, seen, batch, keys[index], axis_name, joined
            )
            learner, found = self._take(index, learner, descend)
            skipped = jnp.maximum(
                metrics.get("sum/skipped_updates", 0.0), found["sum/skipped_updates"]
            )
            metrics |= found | {"sum/skipped_updates": skipped}
        error = metrics.pop(ERROR, None)
        return self._follow(learner), metrics, error

    def _take(
        self,
        index: int,
        learner: LearnerState,
        descend: Callable[[], tuple[PyTree, PyTree, Metrics]],
    ) -> tuple[LearnerState, Metrics]:
        """The step of that index, which `descend` computes, if it is due in this update, which is
        counted already.

        The counter is equal on all devices, so that they agree on whether there are gradients to
        average.
        """
        step = self.steps[index]

        def taken() -> tuple[PyTree, PyTree, Metrics]:
            part, opt_state, metrics = descend()
            floats = {
                name: x if name.startswith("sum/") else jnp.asarray(x, jnp.result_type(x, float))
                for name, x in metrics.items()
            }
            return part, opt_state, floats

        def left_out() -> tuple[PyTree, PyTree, Metrics]:
            return (
                _select(learner.params, step.group),
                learner.opt_state[index],
                not_measured(jax.eval_shape(taken)[2]),
            )

        part, opt_state, metrics = _only_every(step.every, learner.updates, taken, left_out)
        opt_states = (*learner.opt_state[:index], opt_state, *learner.opt_state[index + 1 :])
        params = _with(learner.params, step.group, part)
        return learner.replace(params=params, opt_state=opt_states), metrics

    def _follow(self, learner: LearnerState) -> LearnerState:
        """Moves the targets towards the parameters, where they follow step by step and are due in
        this update.
        """
        if self.target is None or self.target.period is not None:
            return learner
        tau = jnp.asarray(self.target.tau, jnp.float32)
        source, targets = self.target.select(learner.params), learner.target_params

        def moved() -> Params:
            return jax.tree.map(
                lambda old, new: old + tau.astype(old.dtype) * (new - old), targets, source
            )

        return learner.replace(
            target_params=_only_every(self.target.every, learner.updates, moved, lambda: targets)
        )

    def _descend(
        self,
        index: int,
        agent: Any,
        learner: LearnerState,
        batch: Any,
        key: Key,
        axis_name: str | None,
        joined: bool,
    ) -> tuple[PyTree, PyTree, Metrics]:
        """(parameters of the step's group, its optimiser state, metrics) after the step."""
        step = self.steps[index]
        part, opt_state = _select(learner.params, step.group), learner.opt_state[index]

        def loss_fn(part: PyTree) -> tuple[Array, Metrics]:
            params = _with(learner.params, step.group, part)
            return split_loss(step.loss(agent, params, learner.target_params, batch, key))

        def differentiate(part: PyTree) -> tuple[Array, Metrics, PyTree, Array | None]:
            (loss, metrics), gradients = jax.value_and_grad(loss_fn, has_aux=True)(part)
            error = metrics.pop(ERROR, None)  # of this device's own batch
            found = loss, metrics, gradients
            return *(found if axis_name is None else jax.lax.pmean(found, axis_name)), error

        def value_fn(part: PyTree, progress: Array | None = None) -> Array:
            del (
                progress
            )  # optax insists that this function takes all extra arguments that are not its own
            return loss_fn(part)[0] if axis_name is None else _with_gradient(part, differentiate)

        loss, metrics, gradients, error = differentiate(part)
        extra: dict[str, Any] = {"progress": learner.progress}
        if not isinstance(step.optimizer, Elementwise):
            extra |= {
                "value": loss,
                "grad": gradients,
                "value_fn": value_fn,
            }  # `grad` of `value`: before `process_gradients`
        packing = _packing(step, part)
        given = packed = packing.pack(gradients)
        if step.process_gradients:
            packed = packing.pack(_processed(step.process_gradients, gradients))
        optimizer = optax.with_extra_args_support(step.optimizer)
        norm = optax.tree.norm(given)
        finite = jnp.isfinite(loss) & jnp.isfinite(norm) & jnp.isfinite(optax.tree.norm(packed))

        def renew(opt_state: PyTree) -> tuple[PyTree, PyTree]:
            change, opt_state = optimizer.update(packed, opt_state, packing.pack(part), **extra)
            return opt_state, change

        opt_state, change = renewed_if(finite, opt_state, renew)
        form = packing if joined else NoPacking()
        old = form.pack(part)
        new = optax.apply_updates(old, change if joined else packing.unpack(change))
        part = form.unpack(jax.tree.map(lambda new, old: jnp.where(finite, new, old), new, old))
        prefix = "" if step.group is None else f"{_groups(step.group)[0]}_"
        metrics = {f"{prefix}loss": loss, **metrics, f"{prefix}grad_norm": norm} | (
            {} if error is None else {ERROR: error}
        )
        rate = current_learning_rate(opt_state)
        if rate is not None:
            metrics[f"{prefix}learning_rate"] = rate
        metrics["sum/skipped_updates"] = 1.0 - finite.astype(jnp.float32)
        return part, opt_state, metrics


def _packing(step: GradientStep, part: PyTree) -> Packing | NoPacking:
    """The form in which the step's optimiser is given gradients and parameters."""
    return (
        Packing(part, longest=LONGEST_SMALL)
        if isinstance(step.optimizer, Elementwise)
        else NoPacking()
    )


def _processed(process: Callable[[PyTree], PyTree], gradients: PyTree) -> PyTree:
    """What `process_gradients` makes of them, in their shapes and dtypes; it may return a number in
    place of an array.

    Raises `ConfigError` where it returns something else.
    """
    found = process(gradients)
    before, after = jax.tree.structure(gradients), jax.tree.structure(found)
    require(
        before == after,
        f"process_gradients was given {before} and returned {after}",
        "return the same structure",
    )

    def like(path: Any, x: Any, given: Array) -> Array:
        require(
            jnp.shape(x) in ((), given.shape),
            f"process_gradients returned shape {jnp.shape(x)} for the gradient of"
            f" {jax.tree_util.keystr(path)}",
            f"return {given.shape}, or a number for all of it",
        )
        return jnp.broadcast_to(jnp.asarray(x, given.dtype), given.shape)

    return jax.tree.map_with_path(like, found, gradients)


def split_loss(output: Any) -> tuple[Array, Metrics]:
    """(loss, metrics) from whatever form a `LossFn` returns. Raises `ConfigError` for any other."""
    if isinstance(output, dict):
        if "loss" not in output:
            raise ConfigError(
                f"a loss returned a dict with keys {sorted(output)}; put the scalar to minimise"
                ' under "loss"'
            )
        loss, metrics = (
            output["loss"],
            {name: value for name, value in output.items() if name != "loss"},
        )
    elif isinstance(output, tuple) and len(output) == 2 and isinstance(output[1], dict):
        loss, metrics = output
    elif isinstance(output, tuple):
        raise ConfigError(
            f"a loss returned a tuple of {len(output)}; return a scalar, (loss, metrics dict) or a"
            " dict with 'loss'"
        )
    else:
        loss, metrics = output, {}
    if not _is_number(loss):
        raise ConfigError(
            f"a loss returned {loss!r}; return a scalar, (loss, metrics dict) or a dict with 'loss'"
        )
    if jnp.shape(loss) != ():
        raise ConfigError(
            f"a loss returned an array of shape {jnp.shape(loss)}; reduce it to a scalar, such as"
            " its .mean()"
        )
    if not jnp.issubdtype(jnp.result_type(loss), jnp.floating):
        raise ConfigError(
            f"a loss returned a scalar of {jnp.result_type(loss)}, which has no gradient; make it a"
            " float"
        )
    for name, value in metrics.items():
        if not _is_number(value):
            raise ConfigError(
                f"a loss returned the metric {name!r} as a {type(value).__name__}; return scalars"
                " as metrics"
            )
        if name == ERROR:
            require(
                jnp.ndim(value) == 1,
                f"a loss returned {ERROR!r} with shape {jnp.shape(value)}",
                "return one for each transition of the batch, [M]",
            )
        elif jnp.shape(value) != ():
            raise ConfigError(
                f"a loss returned the metric {name!r} with shape {jnp.shape(value)}; reduce it to a"
                " scalar, such as its .mean()"
            )
    return jnp.asarray(loss), metrics


def _only_every(
    every: int, updates: StepCounter, taken: Callable[[], PyTree], left_out: Callable[[], PyTree]
) -> PyTree:
    """What `taken` returns if `every` divides the count of updates, else what `left_out` does; the
    other is not computed.
    """
    return taken() if every == 1 else jax.lax.cond(updates.remainder(every) == 0, taken, left_out)


def _check_every(name: str, every: Any) -> None:
    require(
        isinstance(every, int) and not isinstance(every, bool) and 1 <= every <= MOST_SELDOM,
        f"{name}.every is a whole number of updates from 1 to {MOST_SELDOM}, got {every!r}",
        "use 1 for every update, 2 for every second one",
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or (hasattr(value, "dtype") and hasattr(value, "shape"))


def _with_gradient(
    part: PyTree, differentiate: Callable[[PyTree], tuple[Array, Metrics, PyTree, Array | None]]
) -> Array:
    """The loss averaged over devices, such that its gradient is averaged as well: that of a `pmean`
    is each device's own.
    """
    loss, _, gradients, _ = jax.lax.stop_gradient(differentiate(jax.lax.stop_gradient(part)))
    return loss + optax.tree.vdot(
        gradients, jax.tree.map(lambda x: x - jax.lax.stop_gradient(x), part)
    )


def _groups(group: str | tuple[str, ...] | None) -> tuple[str | None, ...]:
    """The names of the groups of a step, one None for all parameters."""
    return group if isinstance(group, tuple) else (group,)


def _select(params: Params, group: str | tuple[str, ...] | None) -> PyTree:
    """The parameters of a group, or by name of several."""
    if group is None:
        return params
    return params[group] if isinstance(group, str) else {name: params[name] for name in group}


def _with(params: Params, group: str | tuple[str, ...] | None, part: PyTree) -> Params:
    """`params` with what `_select` took from them replaced."""
    if group is None:
        return part
    return {**params, **({group: part} if isinstance(group, str) else part)}
