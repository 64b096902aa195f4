"""Rules for primitives that compute each element on its own."""

from typing import Any

import numpy as np

from rlkit.training.export.onnx.graph import Graph
from rlkit.training.export.onnx.rule import Rule, Unsupported, dtype_of

# What ONNX Runtime computes in; the others are computed in int32.
_WIDE = ("float32", "float64", "int32", "int64")


def _unary(op: str) -> Rule:
    return lambda graph, eqn, x: graph.add(op, x)


def _binary(op: str, **attributes: int) -> Rule:
    def rule(graph: Graph, eqn: Any, *inputs: str) -> str:
        dtype = dtype_of(eqn.invars[0])
        if dtype.name in _WIDE:
            return graph.add(op, *inputs, **attributes)
        wide = (graph.cast(x, np.int32) for x in inputs)
        return graph.cast(graph.add(op, *wide, **attributes), dtype)

    return rule


def _comparison(op: str, *, negate: bool = False) -> Rule:
    def rule(graph: Graph, eqn: Any, *inputs: str) -> str:
        if dtype_of(eqn.invars[0]).name not in _WIDE:
            inputs = tuple(graph.cast(x, np.int32) for x in inputs)
        found = graph.add(op, *inputs)
        return graph.add("Not", found) if negate else found

    return rule


def _logical(op: str) -> Rule:
    def rule(graph: Graph, eqn: Any, *inputs: str) -> str:
        is_bool = dtype_of(eqn.invars[0]) == np.bool_
        return graph.add(op if is_bool else f"Bitwise{op}", *inputs)

    return rule


def _with_constant(op: str, number: float, *, first: bool = False) -> Rule:
    """`op` of the tensor and a number, or of the number and the tensor."""

    def rule(graph: Graph, eqn: Any, x: str) -> str:
        constant = graph.constant(np.asarray(number, dtype_of(eqn.invars[0])))
        return graph.add(op, constant, x) if first else graph.add(op, x, constant)

    return rule


def _rsqrt(graph: Graph, eqn: Any, x: str) -> str:
    return graph.add("Reciprocal", graph.add("Sqrt", x))


def _expm1(graph: Graph, eqn: Any, x: str) -> str:
    """exp(x) - 1, which ONNX has no operator for: exact to 6e-8, but not relative to a small x."""
    return _with_constant("Sub", 1.0)(graph, eqn, graph.add("Exp", x))


def _log1p(graph: Graph, eqn: Any, x: str) -> str:
    """log(1 + x), as exact as `_expm1`."""
    return graph.add("Log", _with_constant("Add", 1.0)(graph, eqn, x))


def _integer_pow(graph: Graph, eqn: Any, x: str) -> str:
    return _with_constant("Pow", eqn.params["y"])(graph, eqn, x)


def _square(graph: Graph, eqn: Any, x: str) -> str:
    return _binary("Mul")(graph, eqn, x, x)


def _clamp(graph: Graph, eqn: Any, low: str, x: str, high: str) -> str:
    return graph.add("Min", graph.add("Max", x, low), high)


def _round(graph: Graph, eqn: Any, x: str) -> str:
    if int(eqn.params["rounding_method"]) != 1:
        raise Unsupported("away from zero at one half")
    return graph.add("Round", x)


def _is_finite(graph: Graph, eqn: Any, x: str) -> str:
    return graph.add("Not", graph.add("Or", graph.add("IsInf", x), graph.add("IsNaN", x)))


def _select(graph: Graph, eqn: Any, which: str, *cases: str) -> str:
    """`cases[which]`; ONNX has it for two cases, and not for booleans or small integers."""
    if dtype_of(eqn.invars[0]) != np.bool_:
        raise Unsupported("of more than two cases")
    dtype = dtype_of(eqn.invars[1])
    if dtype.name in _WIDE:
        return graph.add("Where", which, cases[1], cases[0])
    off, on = (graph.cast(case, np.int32) for case in cases)
    return graph.cast(graph.add("Where", which, on, off), dtype)


def _convert(graph: Graph, eqn: Any, x: str) -> str:
    wanted = np.dtype(eqn.params["new_dtype"])
    return x if dtype_of(eqn.invars[0]) == wanted else graph.cast(x, wanted)


def _unchanged(graph: Graph, eqn: Any, x: str) -> str:
    return x


RULES: dict[str, Rule] = {
    "abs": _unary("Abs"),
    "acos": _unary("Acos"),
    "acosh": _unary("Acosh"),
    "add": _binary("Add"),
    "add_any": _binary("Add"),
    "and": _logical("And"),
    "asin": _unary("Asin"),
    "asinh": _unary("Asinh"),
    "atan": _unary("Atan"),
    "atanh": _unary("Atanh"),
    "ceil": _unary("Ceil"),
    "clamp": _clamp,
    "convert_element_type": _convert,
    "copy": _unchanged,
    "copy_p": _unchanged,
    "cos": _unary("Cos"),
    "cosh": _unary("Cosh"),
    "div": _binary("Div"),
    "eq": _comparison("Equal"),
    "erf": _unary("Erf"),
    "exp": _unary("Exp"),
    "exp2": _with_constant("Pow", 2.0, first=True),
    "expm1": _expm1,
    "floor": _unary("Floor"),
    "ge": _comparison("GreaterOrEqual"),
    "gt": _comparison("Greater"),
    "integer_pow": _integer_pow,
    "is_finite": _is_finite,
    "le": _comparison("LessOrEqual"),
    "log": _unary("Log"),
    "log1p": _log1p,
    "logistic": _unary("Sigmoid"),
    "lt": _comparison("Less"),
    "max": _binary("Max"),
    "min": _binary("Min"),
    "mul": _binary("Mul"),
    "ne": _comparison("Equal", negate=True),
    "neg": _unary("Neg"),
    "not": _logical("Not"),
    "optimization_barrier": _unchanged,
    "or": _logical("Or"),
    "pow": _binary("Pow"),
    "rem": _binary("Mod", fmod=1),
    "round": _round,
    "rsqrt": _rsqrt,
    "select_n": _select,
    "sign": _unary("Sign"),
    "sin": _unary("Sin"),
    "sinh": _unary("Sinh"),
    "sqrt": _unary("Sqrt"),
    "square": _square,
    "stop_gradient": _unchanged,
    "sub": _binary("Sub"),
    "tan": _unary("Tan"),
    "tanh": _unary("Tanh"),
    "xor": _logical("Xor"),
}
