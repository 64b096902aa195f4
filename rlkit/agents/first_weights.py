"""Initial weights as data: layers declare them, one function draws those of a whole network."""

import dataclasses
import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import jax.numpy as jnp
from flax import nnx
from jax import Array

from rlkit.agents.orthogonal_weights import as_kernel, draw_frames, frame_shape
from rlkit.errors import require
from rlkit.types import Key

Name = TypeVar("Name", bound=Hashable)
Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class FirstWeights:
    """How a parameter of `shape` is initialised.

    "orthogonal": orthonormal rows or columns times `scale`; "constant": every number is `scale`.
    """

    shape: Shape
    distribution: Literal["orthogonal", "constant"]
    scale: float
    # counts layers in the order of their construction, which decides that of their draws
    number: int = dataclasses.field(default_factory=itertools.count().__next__, compare=False)


class DescribedParam(nnx.Param):
    """A parameter that knows how it is initialised; NaN until `make_network` draws it.

    A module that sets a whole value itself keeps that value.
    """

    def set_value(self, value: object, **index: Any) -> None:
        if self.has_metadata("first_weights"):
            self.del_metadata("first_weights")
        super().set_value(value, **index)


def described(
    shape: Shape, distribution: Literal["orthogonal", "constant"], scale: float
) -> nnx.Param:
    """A parameter initialised as by `FirstWeights`, for modules that `make_network` builds."""
    wanted = FirstWeights(shape, distribution, scale)
    return DescribedParam(jnp.full(shape, jnp.nan, jnp.float32), first_weights=wanted)


def descriptions(
    params: Mapping[Name, nnx.Variable],
) -> dict[Name, tuple[FirstWeights, Shape]]:
    """How to initialise each parameter, and its shape; leaves out those that have a value.

    The shape has leading axes if `vmap` mapped the layer. Raises `ConfigError` for a layer that was
    mapped along another axis.
    """
    wanted = {
        name: (first, param.shape)
        for name, param in params.items()
        if (first := param.get_metadata("first_weights", None)) is not None
    }
    for first, shape in wanted.values():
        require(
            shape[len(shape) - len(first.shape) :] == first.shape,
            f"weights {list(first.shape)} of a layer were mapped to {list(shape)}",
            "put the mapped axis first (out_axes=0)",
        )
    return wanted


def replaced(params: Mapping[Name, nnx.Variable]) -> list[Name]:
    """The parameters of rlkit's layers that have a value already, set by a module of the user's."""
    return [
        name
        for name, param in params.items()
        if isinstance(param, DescribedParam) and not param.has_metadata("first_weights")
    ]


def draw(key: Key, wanted: Mapping[Name, tuple[FirstWeights, Shape]]) -> dict[Name, Array]:
    """The initial weights of all parameters that `descriptions` lists; the key is consumed."""
    orthogonal = sorted(
        (name for name, (first, _) in wanted.items() if first.distribution == "orthogonal"),
        key=lambda name: wanted[name][0].number,
        reverse=True,  # equal shapes are drawn from the last layer to the first
    )
    shapes = [
        frame_shape(wanted[name][0].shape)
        for name in orthogonal
        for _ in range(_num_members(*wanted[name]))
    ]
    frames = iter(draw_frames(key, shapes))
    weights = {
        name: jnp.full(shape, first.scale, jnp.float32)
        for name, (first, shape) in wanted.items()
        if first.distribution == "constant"
    }
    for name in orthogonal:
        first, shape = wanted[name]
        members = list(itertools.islice(frames, _num_members(first, shape)))
        weights[name] = _kernel(members, first, shape)
    return weights


def _num_members(first: FirstWeights, shape: Shape) -> int:
    return math.prod(shape[: len(shape) - len(first.shape)])


def _kernel(frames: Sequence[Array], first: FirstWeights, shape: Shape) -> Array:
    """One kernel, or all members of a mapped layer."""
    kernels = [as_kernel(frame, first.shape, first.scale) for frame in frames]
    return kernels[0] if shape == first.shape else jnp.stack(kernels).reshape(shape)
