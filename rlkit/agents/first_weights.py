"""Initial weights as data: layers declare them, one function draws those of a whole network.

Layers declare orthogonal kernels and constant biases. `redescribed` makes another distribution of
them, for a whole network at a time.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from rlkit.agents.configs import WeightInit
from rlkit.agents.orthogonal_weights import as_kernel, draw_frames, frame_shape
from rlkit.errors import require
from rlkit.types import Key

Name = TypeVar("Name", bound=Hashable)
Path = tuple[Any, ...]  # of a parameter, which ends in its name in its layer
Shape = tuple[int, ...]
Distribution = Literal["orthogonal", "constant", "truncated_normal", "uniform"]
ROWS = "rows"  # name of a parameter of which each value reads one row
# standard deviation of a standard normal variable that is drawn again outside of ±2
TRUNCATED_STD = 0.87962566


@dataclasses.dataclass(frozen=True)
class FirstWeights:
    """How a parameter of `shape` is initialised.

    "orthogonal": orthonormal rows or columns times `scale`, for each of `blocks` kernels that stand
    side by side, such as those of a recurrent layer's gates; "constant": every number is `scale`;
    "truncated_normal": of standard deviation `scale`, none beyond 2.27 of them; "uniform": within
    ±`scale`.
    """

    shape: Shape
    distribution: Distribution
    scale: float
    blocks: int = 1
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
    shape: Shape,
    distribution: Literal["orthogonal", "constant"],
    scale: float,
    *,
    blocks: int = 1,
    is_exact: bool = False,
) -> nnx.Param:
    """A parameter initialised as by `FirstWeights`, for modules that `make_network` builds.

    One that `is_exact` stays float32 whatever the network computes with.
    """
    wanted = FirstWeights(shape, distribution, float(scale), blocks)  # hashable, for `draw`
    unknown = jnp.full(shape, jnp.nan, jnp.float32)
    return DescribedParam(unknown, first_weights=wanted, is_exact=is_exact)


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


def redescribed(
    wanted: Mapping[Path, tuple[FirstWeights, Shape]], weight_init: WeightInit
) -> dict[Path, tuple[FirstWeights, Shape]]:
    """The same parameters, with their kernels, and for "pytorch" their biases, as `weight_init`.

    "lecun_normal" is LeCun et al. 1998 as in `jax.nn.initializers`, "pytorch" what PyTorch's linear
    and convolutional layers do by default. Both go by the number of a layer's inputs alone, which
    is 1 for a table of rows: scales that layers declare, such as 0.01 of a policy's last one, do
    not count.
    """
    if weight_init == "orthogonal":
        return dict(wanted)
    return {path: (_other(path, wanted, weight_init), wanted[path][1]) for path in wanted}


def _other(
    path: Path, wanted: Mapping[Path, tuple[FirstWeights, Shape]], weight_init: WeightInit
) -> FirstWeights:
    first = wanted[path][0]
    kernel = first
    if first.distribution == "constant":  # a bias, if there is a kernel beside it
        kernel = wanted.get((*path[:-1], "kernel"), wanted[path])[0]
    if kernel.distribution == "constant" or (kernel is not first and weight_init != "pytorch"):
        return first
    bound = 1.0 if path[-1] == ROWS else 1.0 / math.sqrt(math.prod(kernel.shape[:-1]))
    distribution = "uniform" if weight_init == "pytorch" else "truncated_normal"
    return dataclasses.replace(first, distribution=distribution, scale=bound)


def draw(key: Key, wanted: Mapping[Name, tuple[FirstWeights, Shape]]) -> dict[Name, Array]:
    """The initial weights of all parameters that `descriptions` lists; the key is consumed.

    All that is random shares one draw; a network has one distribution besides constants.
    """
    # equal shapes are drawn from the last layer to the first
    names = sorted(wanted, key=lambda name: wanted[name][0].number, reverse=True)
    return dict(zip(names, _drawn(key, tuple(wanted[name] for name in names)), strict=True))


@functools.partial(jax.jit, static_argnums=1)
def _drawn(key: Key, wanted: tuple[tuple[FirstWeights, Shape], ...]) -> list[Array]:
    """One program, also where `init` is not compiled: each operation would be one of its own."""
    by_distribution: dict[Distribution, dict[int, tuple[FirstWeights, Shape]]] = {}
    for place, (first, shape) in enumerate(wanted):
        by_distribution.setdefault(first.distribution, {})[place] = (first, shape)
    weights: dict[int, Array] = {}
    for distribution, parts in by_distribution.items():
        weights |= _DRAW[distribution](key, parts)
    return [weights[place] for place in range(len(wanted))]


def _orthogonal(key: Key, wanted: Mapping[Name, tuple[FirstWeights, Shape]]) -> dict[Name, Array]:
    shapes = [
        frame_shape(_block(first))
        for first, shape in wanted.values()
        for _ in range(_num_members(first, shape) * first.blocks)
    ]
    frames = iter(draw_frames(key, shapes))
    return {
        name: _kernel(
            list(itertools.islice(frames, _num_members(first, shape) * first.blocks)), first, shape
        )
        for name, (first, shape) in wanted.items()
    }


def _constant(key: Key, wanted: Mapping[Name, tuple[FirstWeights, Shape]]) -> dict[Name, Array]:
    return {
        name: jnp.full(shape, first.scale, jnp.float32) for name, (first, shape) in wanted.items()
    }


def _truncated_normal(
    key: Key, wanted: Mapping[Name, tuple[FirstWeights, Shape]]
) -> dict[Name, Array]:
    unit = jax.random.truncated_normal(key, -2.0, 2.0, (_size(wanted),), jnp.float32)
    return _scaled_pieces(unit / TRUNCATED_STD, wanted)


def _uniform(key: Key, wanted: Mapping[Name, tuple[FirstWeights, Shape]]) -> dict[Name, Array]:
    unit = jax.random.uniform(key, (_size(wanted),), jnp.float32, -1.0, 1.0)
    return _scaled_pieces(unit, wanted)


_DRAW = {
    "orthogonal": _orthogonal,
    "constant": _constant,
    "truncated_normal": _truncated_normal,
    "uniform": _uniform,
}


def _size(wanted: Mapping[Name, tuple[FirstWeights, Shape]]) -> int:
    return sum(math.prod(shape) for _, shape in wanted.values())


def _scaled_pieces(
    unit: Array, wanted: Mapping[Name, tuple[FirstWeights, Shape]]
) -> dict[Name, Array]:
    """Numbers drawn for all parameters together, cut into each one's and scaled."""
    weights, end = {}, 0
    for name, (first, shape) in wanted.items():
        begin, end = end, end + math.prod(shape)
        weights[name] = first.scale * unit[begin:end].reshape(shape)
    return weights


def _num_members(first: FirstWeights, shape: Shape) -> int:
    return math.prod(shape[: len(shape) - len(first.shape)])


def _block(first: FirstWeights) -> Shape:
    """The shape of one of the kernels that stand side by side."""
    return (*first.shape[:-1], first.shape[-1] // first.blocks)


def _kernel(frames: Sequence[Array], first: FirstWeights, shape: Shape) -> Array:
    """One kernel, or all members of a mapped layer."""
    blocks = [as_kernel(frame, _block(first), first.scale) for frame in frames]
    if first.blocks == 1:
        kernels = blocks
    else:
        starts = range(0, len(blocks), first.blocks)
        kernels = [jnp.concatenate(blocks[i : i + first.blocks], axis=-1) for i in starts]
    return kernels[0] if shape == first.shape else jnp.stack(kernels).reshape(shape)
