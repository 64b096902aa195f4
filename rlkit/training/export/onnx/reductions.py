"""Rules for primitives that sum or choose over axes: reductions, products, convolutions."""

import string
from typing import Any

import numpy as np

from rlkit.training.export.onnx.graph import Graph
from rlkit.training.export.onnx.rule import Rule, Unsupported, dtype_of, shape_of


def _reduce(op: str) -> Rule:
    def rule(graph: Graph, eqn: Any, x: str) -> str:
        axes = graph.integers([int(axis) for axis in eqn.params["axes"]])
        return graph.add(op, x, axes, keepdims=0)

    return rule


def _reduce_bool(op: str) -> Rule:
    def rule(graph: Graph, eqn: Any, x: str) -> str:
        reduced = _reduce(op)(graph, eqn, graph.cast(x, np.int32))
        return graph.cast(reduced, dtype_of(eqn.invars[0]))

    return rule


def _index_of(op: str) -> Rule:
    """The first index of the largest or smallest element, as in JAX."""

    def rule(graph: Graph, eqn: Any, x: str) -> str:
        (axis,) = eqn.params["axes"]
        found = graph.add(op, x, axis=int(axis), keepdims=0)
        return graph.cast(found, eqn.params["index_dtype"])

    return rule


def _dot_general(graph: Graph, eqn: Any, left: str, right: str) -> str:
    (contract_left, contract_right), (batch_left, batch_right) = eqn.params["dimension_numbers"]
    left_rank, right_rank = (len(shape_of(x)) for x in eqn.invars)
    is_plain = not batch_left and right_rank == 2 and tuple(contract_right) == (0,)
    if is_plain and tuple(contract_left) == (left_rank - 1,):
        return graph.add("MatMul", left, right)
    letters = iter(string.ascii_lowercase)
    of_left = [next(letters) for _ in range(left_rank)]
    of_right = [next(letters) for _ in range(right_rank)]
    for pairs in ((batch_left, batch_right), (contract_left, contract_right)):
        for i, j in zip(*pairs, strict=True):
            of_right[j] = of_left[i]
    free_left = [c for i, c in enumerate(of_left) if i not in (*batch_left, *contract_left)]
    free_right = [c for j, c in enumerate(of_right) if j not in (*batch_right, *contract_right)]
    out = [*(of_left[i] for i in batch_left), *free_left, *free_right]
    equation = f"{''.join(of_left)},{''.join(of_right)}->{''.join(out)}"
    return graph.add("Einsum", left, right, equation=equation)


def _convolution(graph: Graph, eqn: Any, x: str, kernel: str) -> str:
    """A convolution in any order of axes: ONNX has [N, C, ...] and [out, in, ...]."""
    params, numbers = eqn.params, eqn.params["dimension_numbers"]
    if params["batch_group_count"] != 1 or any(d != 1 for d in params["lhs_dilation"]):
        raise Unsupported("that is transposed")
    padding = params["padding"]
    if any(low < 0 or high < 0 for low, high in padding):
        raise Unsupported("with negative padding")
    convolved = graph.add(
        "Conv",
        graph.add("Transpose", x, perm=list(numbers.lhs_spec)),
        graph.add("Transpose", kernel, perm=list(numbers.rhs_spec)),
        strides=list(params["window_strides"]),
        dilations=list(params["rhs_dilation"]),
        group=params["feature_group_count"],
        pads=[*(int(low) for low, _ in padding), *(int(high) for _, high in padding)],
    )
    back = np.argsort(numbers.out_spec).tolist()
    return graph.add("Transpose", convolved, perm=back)


RULES: dict[str, Rule] = {
    "argmax": _index_of("ArgMax"),
    "argmin": _index_of("ArgMin"),
    "conv_general_dilated": _convolution,
    "dot_general": _dot_general,
    "reduce_and": _reduce_bool("ReduceMin"),
    "reduce_max": _reduce("ReduceMax"),
    "reduce_min": _reduce("ReduceMin"),
    "reduce_or": _reduce_bool("ReduceMax"),
    "reduce_prod": _reduce("ReduceProd"),
    "reduce_sum": _reduce("ReduceSum"),
}
