"""Optimisers that skip invalid updates."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.extend.core import Literal

from rlkit.errors import require
from rlkit.xla_cpu.packing import NoPacking, Packing
from rlkit.xla_cpu.switch import may_be_on

PyTree = Any


def skip_invalid(
    optimizer: optax.GradientTransformation,
) -> optax.GradientTransformationExtraArgs:
    """Wraps `optimizer` to skip updates that the caller says are invalid.

    As `optax.apply_if_finite`, but validity comes from the extra argument `is_valid` [] bool. If it
    is false, the state stays, and the updates mean nothing: `apply_valid_updates` drops them. The
    state is that of `optimizer`, without a wrapper.
    """
    optimizer = optax.with_extra_args_support(optimizer)

    def update(
        updates: PyTree, state: PyTree, params: PyTree = None, **extra: Any
    ) -> tuple[PyTree, PyTree]:
        is_valid = extra.pop("is_valid")

        def renew(state: PyTree) -> tuple[PyTree, PyTree]:
            change, state = optimizer.update(updates, state, params, **extra)
            return state, change

        state, change = renewed_if(is_valid, state, renew)
        return change, state

    return optax.GradientTransformationExtraArgs(optimizer.init, update)


def apply_valid_updates(
    is_valid: Array, params: PyTree, updates: PyTree, packing: Packing | NoPacking
) -> PyTree:
    """`optax.apply_updates(params, updates)` if `is_valid`, else `params`.

    Computed in the form of `packing`; the result is the same. Replacing the updates by zeros would
    be simpler, but then XLA could not contract the optimiser's last product with this sum.
    """
    old = packing.pack(params)
    new = optax.apply_updates(old, packing.pack(updates))
    return packing.unpack(jax.tree.map(lambda new, old: jnp.where(is_valid, new, old), new, old))


def renewed_if(
    valid: Array, old: PyTree, renew: Callable[[PyTree], tuple[PyTree, PyTree]]
) -> tuple[PyTree, PyTree]:
    """`(new state, result)` of `renew(old)` if `valid` ([] bool), else the old state and garbage.

    Equal to `jnp.where(valid, new, old)` on every leaf afterwards. But where an equation of its own
    makes a leaf of the new state, everything computed from that leaf uses the chosen one. Otherwise
    XLA makes two states, one to keep and one for the result; it recomputes the second in every
    kernel that reads it, and keeps a copy of the old state for that (benchmarks/notes.md). Raises
    `ConfigError` if the new state differs from the old one in structure. Names of scopes within
    `renew` are lost.
    """
    old = jax.tree.map(jnp.asarray, old)
    traced, shapes = jax.make_jaxpr(renew, return_shape=True)(old)
    structure = jax.tree.structure(old)
    require(
        jax.tree.structure(shapes[0]) == structure,
        f"a state of {structure} was renewed to one of {jax.tree.structure(shapes[0])}",
        "let the optimiser's `update` return a state of the structure that it is given",
    )
    if not may_be_on("conditional-update"):
        new, result = renew(old)
        return jax.tree.map(lambda new, old: jnp.where(valid, new, old), new, old), result
    jaxpr, old_leaves = traced.jaxpr, jax.tree.leaves(old)
    state_variables, result_variables = (
        jaxpr.outvars[: len(old_leaves)],
        jaxpr.outvars[len(old_leaves) :],
    )
    olds = {
        variable: x
        for variable, x in zip(state_variables, old_leaves, strict=True)
        if not isinstance(variable, Literal)
        and (variable.aval.shape, variable.aval.dtype) == (x.shape, x.dtype)
    }
    computed: dict[Any, Any] = dict(
        zip([*jaxpr.constvars, *jaxpr.invars], [*traced.consts, *old_leaves], strict=True)
    )
    chosen = dict(computed)

    def read(values: dict[Any, Any], variable: Any) -> Any:
        return variable.val if isinstance(variable, Literal) else values[variable]

    for equation in jaxpr.eqns:  # as JAX evaluates them, except for the choice
        inputs = [read(chosen, variable) for variable in equation.invars]
        with equation.ctx.manager:
            outputs = equation.primitive.bind(
                *inputs, **equation.primitive.get_bind_params(equation.params)
            )
        for variable, x in zip(
            equation.outvars,
            outputs if equation.primitive.multiple_results else [outputs],
            strict=True,
        ):
            computed[variable] = x
            chosen[variable] = jnp.where(valid, x, olds[variable]) if variable in olds else x

    def choice(variable: Any, x: Array) -> Array:
        is_made = not isinstance(variable, Literal) and chosen[variable] is not computed[variable]
        return (
            chosen[variable]
            if is_made and olds[variable] is x
            else jnp.where(valid, read(computed, variable), x)
        )

    state = [choice(variable, x) for variable, x in zip(state_variables, old_leaves, strict=True)]
    return jax.tree.unflatten(
        jax.tree.structure(shapes), state + [read(chosen, v) for v in result_variables]
    )
