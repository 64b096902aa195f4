"""A new state if it is valid, else the old one: chosen where the new one is made."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import Literal, Var

from rlkit.errors import require
from rlkit.xla_cpu.packing import PyTree
from rlkit.xla_cpu.switch import may_be_on


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
    if not may_be_on("conditional-update"):
        new, result = renew(old)
        _require_structure(old, new)
        return jax.tree.map(lambda new, old: jnp.where(valid, new, old), new, old), result
    traced, shapes = jax.make_jaxpr(renew, return_shape=True)(old)
    _require_structure(old, shapes[0])
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
    computed: dict[Var, Array] = dict(
        zip([*jaxpr.constvars, *jaxpr.invars], [*traced.consts, *old_leaves], strict=True)
    )
    chosen = dict(computed)

    def read(values: dict[Var, Array], variable: Var | Literal) -> Array:
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

    def choice(variable: Var | Literal, x: Array) -> Array:
        if (
            not isinstance(variable, Literal)
            and olds.get(variable) is x
            and chosen[variable] is not computed[variable]
        ):
            return chosen[variable]
        return jnp.where(valid, read(computed, variable), x)

    state = [choice(variable, x) for variable, x in zip(state_variables, old_leaves, strict=True)]
    return jax.tree.unflatten(
        jax.tree.structure(shapes), state + [read(chosen, v) for v in result_variables]
    )


def _require_structure(old: PyTree, new: PyTree) -> None:
    wanted, found = jax.tree.structure(old), jax.tree.structure(new)
    require(
        found == wanted,
        f"a state of {wanted} was renewed to one of {found}",
        "let the optimiser's `update` return a state of the structure that it is given",
    )
