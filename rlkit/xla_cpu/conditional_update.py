"""States that are renewed only if what renews them is valid."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import Literal

from rlkit.errors import require
from rlkit.xla_cpu.switch import is_on

PyTree = Any


def renewed_if(
    valid: Array, old: PyTree, renew: Callable[[PyTree], tuple[PyTree, PyTree]]
) -> tuple[PyTree, PyTree]:
    """`(new state, result)` of `renew(old)` where `valid` ([] bool); else the old state, beside a
    result of no use.

    As `jnp.where(valid, new, old)` of every leaf afterwards, but where an equation of its own makes
    a leaf of the new state, what follows from it is computed from the chosen one. Else XLA has two
    states to make, one to keep and one for the result, computes the second anew in every kernel
    that reads it, and keeps a copy of the old state for that (docs/speed.md). Raises `ConfigError`
    if the new state has another structure than the old one. Names of scopes within `renew` are
    lost.
    """
    old = jax.tree.map(jnp.asarray, old)
    traced, shapes = jax.make_jaxpr(renew, return_shape=True)(old)
    structure = jax.tree.structure(old)
    require(
        jax.tree.structure(shapes[0]) == structure,
        f"a state of {structure} was renewed to one of {jax.tree.structure(shapes[0])}",
        "let `update` of the optimiser return a state of the structure that it is given",
    )
    if not is_on("conditional-update"):
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

    for equation in jaxpr.eqns:  # as JAX evaluates them, but for the choice
        inputs = [read(chosen, variable) for variable in equation.invars]
        with equation.ctx.manager:
            found = equation.primitive.bind(
                *inputs, **equation.primitive.get_bind_params(equation.params)
            )
        for variable, x in zip(
            equation.outvars, found if equation.primitive.multiple_results else [found], strict=True
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
