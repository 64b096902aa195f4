"""`Graph`: ONNX nodes as they are added, and the model made of them."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

OPSET = 18  # the first whose reductions all take their axes as an input; runtimes of 2023 have it
IR_VERSION = 8  # that of the same year; the helpers of onnx would write their newest one
BATCH = "batch"

Dim = Any  # an int, or a symbolic dimension of JAX


@dataclasses.dataclass(frozen=True)
class _Node:
    op: str
    inputs: tuple[str, ...]
    output: str
    attributes: dict[str, Any]


class Graph:
    """Tensors are names. Whatever is added may use all that was added before it."""

    def __init__(self, inputs: Sequence[tuple[str, np.dtype, tuple[int, ...]]]):
        """`inputs`: the name, dtype and shape [...] of each; a batch axis comes first."""
        self._inputs = list(inputs)
        self._nodes: list[_Node] = []
        self._constants: dict[str, np.ndarray] = {}
        self._names: dict[tuple[object, ...], str] = {}  # of constants, by what they are
        self._batch: str | None = None

    def add(self, op: str, *inputs: str, **attributes: int | str | list[int]) -> str:
        """Adds a node and returns its output."""
        output = f"{op.lower()}_{len(self._nodes)}"
        self._nodes.append(_Node(op, inputs, output, attributes))
        return output

    def constant(self, value: Any) -> str:
        """A tensor of these values; equal ones are stored once."""
        array = np.asarray(value)
        key = (array.dtype, array.shape, array.tobytes())
        if key not in self._names:
            self._names[key] = f"constant_{len(self._names)}"
            self._constants[self._names[key]] = array
        return self._names[key]

    def value(self, name: str) -> np.ndarray | None:
        """The values of a constant; None for other tensors."""
        return self._constants.get(name)

    def integers(self, values: Sequence[int]) -> str:
        """A constant of int64, as axes and shapes are."""
        return self.constant(np.asarray(values, np.int64))

    def cast(self, tensor: str, dtype: Any) -> str:
        """The tensor in another dtype."""
        return self.add("Cast", tensor, to=_element_type(np.dtype(dtype)))

    def shape(self, dims: Sequence[Dim]) -> str:
        """A shape as a tensor; dimensions that are no integers must be the size of the batch."""
        if all(isinstance(dim, int) for dim in dims):
            return self.integers(list(dims))
        if self._batch is None:
            self._batch = self.add("Shape", self._inputs[0][0], start=0, end=1)
        parts = [self.integers([dim]) if isinstance(dim, int) else self._batch for dim in dims]
        return self.add("Concat", *parts, axis=0)

    def reshape(self, tensor: str, dims: Sequence[Dim]) -> str:
        """The tensor in another shape, of which one dimension may depend on the batch."""
        unknown = [dim for dim in dims if not isinstance(dim, int)]
        if len(unknown) > 1:
            return self.add("Reshape", tensor, self.shape(dims))
        sizes = [dim if isinstance(dim, int) else -1 for dim in dims]
        return self.add("Reshape", tensor, self.integers(sizes))

    def model(self, outputs: Sequence[tuple[str, str, np.dtype, tuple[int, ...]]]) -> bytes:
        """The serialised model; `outputs` are the tensor, name, dtype and shape of each."""
        import onnx
        from onnx import helper, numpy_helper

        def described(name: str, dtype: np.dtype, shape: tuple[int, ...]) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(name, _element_type(dtype), [BATCH, *shape])

        named = [(name, dtype, shape) for _, name, dtype, shape in outputs]
        self._nodes += [_Node("Identity", (tensor,), name, {}) for tensor, name, _, _ in outputs]
        used = {name for node in self._nodes for name in node.inputs}
        graph = helper.make_graph(
            [
                helper.make_node(node.op, node.inputs, [node.output], **node.attributes)
                for node in self._nodes
            ],
            "policy",
            [described(*each) for each in self._inputs],
            [described(*each) for each in named],
            [
                numpy_helper.from_array(array, constant)
                for constant, array in self._constants.items()
                if constant in used  # a rule may have read its values
            ],
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="rlkit",
        )
        onnx.checker.check_model(model, full_check=True)
        return model.SerializeToString()


def _element_type(dtype: np.dtype) -> int:
    from onnx import helper

    return helper.np_dtype_to_tensor_dtype(dtype)
