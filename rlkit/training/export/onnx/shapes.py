"""Rules for primitives that move elements: shapes, slices, joins, look-ups."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlkit.training.export.onnx.graph import BATCH, Dim, Graph
from rlkit.training.export.onnx.rule import Rule, Unsupported, dtype_of, shape_of

_END = np.iinfo(np.int64).max  # of a slice: as far as the axis goes


def _to_shape_of_output(graph: Graph, eqn: Any, x: str) -> str:
    return graph.reshape(x, shape_of(eqn.outvars[0]))


def _reshape(graph: Graph, eqn: Any, x: str) -> str:
    if eqn.params["dimensions"] is not None:
        raise Unsupported("with an order of axes")
    return _to_shape_of_output(graph, eqn, x)


def _broadcast(graph: Graph, eqn: Any, x: str) -> str:
    given, wanted = shape_of(eqn.invars[0]), eqn.params["shape"]
    aligned: list[Dim] = [1] * len(wanted)
    for axis, dim in zip(eqn.params["broadcast_dimensions"], given, strict=True):
        aligned[axis] = dim
    if aligned != list(given):
        x = graph.reshape(x, aligned)
    return x if aligned == list(wanted) else _expand(graph, x, wanted)


def _expand(graph: Graph, x: str, dims: Sequence[Dim]) -> str:
    """Broadcast to `dims`, of which those that are no integers must be the size of the batch."""
    if not all(isinstance(dim, int) or str(dim) == BATCH for dim in dims):
        raise Unsupported(f"to the shape {tuple(map(str, dims))}")
    return graph.add("Expand", x, graph.shape(dims))


def _iota(graph: Graph, eqn: Any) -> str:
    shape, axis = eqn.params["shape"], eqn.params["dimension"]
    if not isinstance(shape[axis], int):
        raise Unsupported("over the batch")
    counted = np.arange(shape[axis], dtype=eqn.params["dtype"])
    aligned = counted.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return _expand(graph, graph.constant(aligned), shape)


def _transpose(graph: Graph, eqn: Any, x: str) -> str:
    return graph.add("Transpose", x, perm=[int(axis) for axis in eqn.params["permutation"]])


def _concatenate(graph: Graph, eqn: Any, *inputs: str) -> str:
    return graph.add("Concat", *inputs, axis=int(eqn.params["dimension"]))


def _stack(graph: Graph, eqn: Any, *inputs: str) -> str:
    axis = int(eqn.params["axis"])
    axes = graph.integers([axis])
    return graph.add("Concat", *(graph.add("Unsqueeze", x, axes) for x in inputs), axis=axis)


def _split(graph: Graph, eqn: Any, x: str) -> list[str]:
    """As slices: the nodes of a `Graph` have one output each."""
    ends = np.cumsum([int(size) for size in eqn.params["sizes"]]).tolist()
    axis = int(eqn.params["axis"])
    return [
        _window(graph, x, [start], [end], [axis])
        for start, end in zip([0, *ends], ends, strict=False)
    ]


def _slice(graph: Graph, eqn: Any, x: str) -> str:
    dims = shape_of(eqn.invars[0])
    starts, ends = eqn.params["start_indices"], eqn.params["limit_indices"]
    strides = eqn.params["strides"] or [1] * len(dims)
    axes = [
        axis
        for axis, dim in enumerate(dims)
        if not (starts[axis] == 0 and ends[axis] == dim and strides[axis] == 1)
    ]
    limits = [ends[axis] if ends[axis] != dims[axis] else _END for axis in axes]
    if not all(isinstance(each, int) for each in (*(starts[axis] for axis in axes), *limits)):
        raise Unsupported("of the batch")
    step = [int(strides[axis]) for axis in axes]
    return _window(graph, x, [int(starts[axis]) for axis in axes], limits, axes, step)


def _window(
    graph: Graph,
    x: str,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int],
    steps: Sequence[int] = (),
) -> str:
    if not axes:
        return x
    where = (starts, ends, axes, steps or [1] * len(axes))
    return graph.add("Slice", x, *map(graph.integers, where))


def _gather(graph: Graph, eqn: Any, x: str, indices: str) -> str:
    """The two forms that indexing and `take` make of a batch: a window, and rows of a table."""
    numbers = eqn.params["dimension_numbers"]
    starts = graph.value(indices)
    if numbers.operand_batching_dims:
        raise Unsupported("in batches")
    if starts is not None and starts.ndim == 1:
        return _window_at(graph, eqn, x, starts)
    sizes, dims = eqn.params["slice_sizes"], shape_of(eqn.invars[0])
    is_row = sizes[0] == 1 and sizes[1:] == dims[1:]
    whole = tuple(range(len(shape_of(eqn.outvars[0]))))[-(len(dims) - 1) :]
    if not (
        is_row
        and numbers.start_index_map == numbers.collapsed_slice_dims == (0,)
        and numbers.offset_dims == whole
    ):
        raise Unsupported(f"with {numbers}")
    return _rows(graph, eqn, x, indices)


def _window_at(graph: Graph, eqn: Any, x: str, starts: np.ndarray) -> str:
    """A window that begins at known indices, as in `x[:, i]`."""
    numbers, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    axes = list(numbers.start_index_map)
    if not all(isinstance(sizes[axis], int) for axis in axes):
        raise Unsupported("of the batch")
    begins = [int(start) for start in starts]
    ends = [begin + sizes[axis] for begin, axis in zip(begins, axes, strict=True)]
    cut = _window(graph, x, begins, ends, axes)
    return _to_shape_of_output(graph, eqn, cut) if numbers.collapsed_slice_dims else cut


def _rows(graph: Graph, eqn: Any, table: str, indices: str) -> str:
    """Rows of a table [V, ...] at indices [..., 1]; what is out of range as the mode says."""
    last = shape_of(eqn.invars[0])[0] - 1
    index = graph.reshape(indices, shape_of(eqn.invars[1])[:-1])
    index = graph.cast(index, np.int64)
    zero, top = graph.constant(np.int64(0)), graph.constant(np.int64(last))
    inside = graph.add("Min", graph.add("Max", index, zero), top)
    rows = graph.add("Gather", table, inside, axis=0)
    mode = str(eqn.params["mode"])
    if "FILL_OR_DROP" not in mode:
        return rows
    dtype = dtype_of(eqn.outvars[0])
    fill = eqn.params["fill_value"]
    if dtype != np.float32 and fill is None:
        raise Unsupported(f"of {dtype.name} that fills")
    filled = graph.constant(np.asarray(np.nan if fill is None else fill, dtype))
    known = graph.add("Equal", index, inside)
    ones = [1] * (len(shape_of(eqn.invars[0])) - 1)
    known = graph.reshape(known, [*shape_of(eqn.invars[1])[:-1], *ones])
    return graph.add("Where", known, rows, filled)


def _dynamic_slice(graph: Graph, eqn: Any, x: str, *starts: str) -> str:
    known = [graph.value(start) for start in starts]
    sizes, dims = eqn.params["slice_sizes"], shape_of(eqn.invars[0])
    axes = [axis for axis, dim in enumerate(dims) if sizes[axis] != dim]
    if any(known[axis] is None or not isinstance(sizes[axis], int) for axis in axes):
        raise Unsupported("at an index that is computed")
    begins = [
        int(np.clip(int(np.asarray(known[axis])), 0, dims[axis] - sizes[axis])) for axis in axes
    ]
    return _window(
        graph, x, begins, [b + sizes[a] for b, a in zip(begins, axes, strict=True)], axes
    )


def _pad(graph: Graph, eqn: Any, x: str, value: str) -> str:
    config = eqn.params["padding_config"]
    if any(low < 0 or high < 0 or inner for low, high, inner in config):
        raise Unsupported("that cuts or spreads")
    ends = [*(int(low) for low, _, _ in config), *(int(high) for _, high, _ in config)]
    return graph.add("Pad", x, graph.integers(ends), value, mode="constant")


RULES: dict[str, Rule] = {
    "broadcast_in_dim": _broadcast,
    "concatenate": _concatenate,
    "dynamic_slice": _dynamic_slice,
    "expand_dims": _to_shape_of_output,
    "gather": _gather,
    "iota": _iota,
    "pad": _pad,
    "reshape": _reshape,
    "slice": _slice,
    "split": _split,
    "squeeze": _to_shape_of_output,
    "stack": _stack,
    "transpose": _transpose,
}
