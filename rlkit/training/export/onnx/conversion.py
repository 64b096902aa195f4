"""`to_onnx`: a function in JAX, traced over a symbolic batch, as a model in ONNX.

A converter of our own: the one that is maintained, jax2onnx, asks for an Orbax older than ours and
for two dozen packages that nothing here uses. Agents need about forty primitives.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, export
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from rlkit.errors import ExportError, require
from rlkit.training.export.onnx import elementwise, reductions, shapes
from rlkit.training.export.onnx.graph import BATCH, Graph
from rlkit.training.export.onnx.rule import Rule, Unsupported, dtype_of

RULES: dict[str, Rule] = {**elementwise.RULES, **shapes.RULES, **reductions.RULES}
# Primitives that hold a program, by the parameter that does.
_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
}
_OTHER_FORMAT = 'export it with --format stablehlo (format="stablehlo")'
_Value = Any  # the name of a tensor, or an array that is known now


def to_onnx(
    function: Callable[..., tuple[Array, ...]],
    inputs: Sequence[tuple[str, np.dtype, tuple[int, ...]]],
    outputs: Sequence[str],
) -> bytes:
    """The serialised model of `function`, which maps arrays [N, ...] to others [N, ...].

    `inputs` are the name, dtype and shape without N of each argument, `outputs` the names of the
    results. Raises `ExportError` that names the first primitive for which there is no rule.
    """
    (batch,) = export.symbolic_shape(BATCH)
    arguments = [jax.ShapeDtypeStruct((batch, *shape), dtype) for _, dtype, shape in inputs]
    traced = jax.make_jaxpr(function)(*arguments)
    graph = Graph(inputs)
    names = [name for name, _, _ in inputs]
    results = _Converter(graph).run(traced.jaxpr, traced.consts, names, [True] * len(outputs))
    found = [
        (_tensor(graph, result), name, np.dtype(aval.dtype), aval.shape[1:])
        for result, name, aval in zip(results, outputs, traced.out_avals, strict=True)
    ]
    return graph.model(found)


class _Converter:
    """Adds the equations of a program to a graph; what is known is computed instead."""

    def __init__(self, graph: Graph):
        self._graph = graph

    def run(
        self, jaxpr: Jaxpr, consts: Sequence[Any], inputs: Sequence[_Value], wanted: Sequence[bool]
    ) -> list[_Value]:
        """The values of the outputs; those that are not wanted are None."""
        values: dict[Any, _Value] = dict(zip(jaxpr.constvars, consts, strict=True))
        values |= dict(zip(jaxpr.invars, inputs, strict=True))

        def read(atom: Any) -> _Value:
            if isinstance(atom, Literal):  # whose value may be a Python number
                return np.asarray(atom.val, dtype_of(atom))
            return values[atom]

        outputs = [x for x, is_wanted in zip(jaxpr.outvars, wanted, strict=True) if is_wanted]
        for eqn, needed in _live(jaxpr, outputs):
            found = self._equation(eqn, [read(x) for x in eqn.invars], needed)
            values |= dict(zip(eqn.outvars, found, strict=True))
        return [
            read(x) if is_wanted else None
            for x, is_wanted in zip(jaxpr.outvars, wanted, strict=True)
        ]

    def _equation(self, eqn: Any, inputs: list[_Value], needed: list[bool]) -> list[_Value]:
        name = eqn.primitive.name
        require(
            all(getattr(x.aval, "dtype", None) != jnp.bfloat16 for x in eqn.outvars),
            "the network computes in bfloat16, in which ONNX Runtime does not on a CPU",
            _OTHER_FORMAT,
            ExportError,
        )
        if name in _CALLS:
            inner = eqn.params[_CALLS[name]]
            closed = isinstance(inner, ClosedJaxpr)
            jaxpr, consts = (inner.jaxpr, inner.consts) if closed else (inner, ())
            return self.run(jaxpr, consts, inputs, needed)
        if _is_known(eqn, inputs):
            found = eqn.primitive.bind(*inputs, **eqn.params)
            return list(found) if eqn.primitive.multiple_results else [found]
        if name == "optimization_barrier":
            return inputs
        if name not in RULES:
            raise _unsupported(name)
        tensors = [_tensor(self._graph, value) for value in inputs]
        try:
            found = RULES[name](self._graph, eqn, *tensors)
        except Unsupported as form:
            raise _unsupported(f"{name} {form}") from None
        return found if isinstance(found, list) else [found]


def _live(jaxpr: Jaxpr, outputs: Sequence[Any]) -> list[tuple[Any, list[bool]]]:
    """The equations that the outputs depend on, in order, and which of their results are needed."""
    needed = {x for x in outputs if not isinstance(x, Literal)}
    found = []
    for eqn in reversed(jaxpr.eqns):
        used = [x in needed for x in eqn.outvars]
        if any(used):
            needed |= {x for x in eqn.invars if not isinstance(x, Literal)}
            found.append((eqn, used))
    return found[::-1]


def _is_known(eqn: Any, inputs: Sequence[_Value]) -> bool:
    """Whether an equation can be computed now: it does not depend on observations."""
    sizes = [dim for x in eqn.outvars for dim in x.aval.shape]
    return all(isinstance(dim, int) for dim in sizes) and not any(
        isinstance(value, str) for value in inputs
    )


def _tensor(graph: Graph, value: _Value) -> str:
    return value if isinstance(value, str) else graph.constant(np.asarray(value))


def _unsupported(what: str) -> ExportError:
    return ExportError(
        f"ONNX export has no rule for the primitive {what}, which the network uses; {_OTHER_FORMAT}"
    )
