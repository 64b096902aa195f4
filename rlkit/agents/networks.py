"""Flax NNX modules, and the one place that turns a module into `Network(init, apply)` on plain
pytrees.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from gymnasium import spaces
from jax import Array

from rlkit.agents.initializers import Shape, draw_frames, frames_from, orthogonal_kernel
from rlkit.errors import ConfigError, SpaceError, require
from rlkit.spaces import Space, is_image, leaves
from rlkit.types import Key, Obs, Params
from rlkit.xla_cpu.matmul import matmul

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "elu": jax.nn.elu,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
}
ModuleBuilder = Callable[[nnx.Rngs], nnx.Module]


@dataclasses.dataclass(frozen=True)
class Network:
    """A pair of pure functions: `init(key) -> params` and `apply(params, *inputs) -> outputs`."""

    init: Callable[[Key], Params]
    apply: Callable[..., Any]


def make_network(build: ModuleBuilder) -> Network:
    """The module that `build(rngs)` returns, as a `Network` whose params are plain nested dicts.

    Raises `ConfigError` if the module keeps anything but `nnx.Param` (batch statistics, dropout
    keys): a policy must be a pure function of its parameters.
    """
    shapes: list[
        Shape
    ] = []  # of the orthogonal weights, in the order in which `build` asks for them

    def note(shape: Shape) -> Array:
        shapes.append(shape)
        return jnp.zeros(shape)

    def note_shapes() -> nnx.Module:
        with frames_from(note):
            return build(nnx.Rngs(0))

    abstract = nnx.eval_shape(note_shapes)
    graphdef, _params, rest = nnx.split(abstract, nnx.Param, ...)
    found = sorted({type(variable).__name__ for _, variable in nnx.to_flat_state(rest)})
    require(
        not found,
        f"{type(abstract).__name__} keeps {', '.join(found)} beside its parameters",
        "use layers whose only state is nnx.Param (LayerNorm rather than BatchNorm, no Dropout)",
    )

    def init(key: Key) -> Params:
        frames_key, others_key = jax.random.split(key)
        frames: dict[Shape, list[Array]] = {}
        for shape, frame in zip(shapes, draw_frames(frames_key, shapes), strict=True):
            frames.setdefault(shape, []).append(frame)

        def supply(shape: Shape) -> Array | None:
            left = frames.get(shape)  # `build` may ask for others than before
            return left.pop() if left else None

        with frames_from(supply):
            module = build(nnx.Rngs(others_key))
        return nnx.to_pure_dict(nnx.state(module, nnx.Param))

    def apply(params: Params, *inputs: Any) -> Any:
        module: Any = nnx.merge(graphdef, params)
        return module(*inputs)

    return Network(init, apply)


class Activation(nnx.Module):
    """What follows a layer of `features`: the non-linearity, with `layer_norm` behind a
    normalisation over the last axis.

    Of images that is each pixel's channels, as in purejaxql (CleanRL's PQN for Atari normalises
    over pixels as well).
    """

    def __init__(self, name: str, features: int, *, layer_norm: bool, rngs: nnx.Rngs):
        self.name = name
        self.norm = nnx.LayerNorm(features, rngs=rngs) if layer_norm else None

    def __call__(self, x: Array) -> Array:
        return ACTIVATIONS[self.name](self.norm(x) if self.norm else x)


class Linear(nnx.Module):
    """A linear layer, [..., in_features] -> [..., out_features], of orthogonal weights times
    `scale`, computed by `xla_cpu.matmul`.

    Its parameters are called as those of `nnx.Linear`, which is slower to trace.
    """

    def __init__(self, in_features: int, out_features: int, *, scale: float = 1.0, rngs: nnx.Rngs):
        self.kernel = nnx.Param(orthogonal_kernel(rngs.params, (in_features, out_features), scale))
        self.bias = nnx.Param(jnp.zeros(out_features, jnp.float32))

    def __call__(self, x: Array) -> Array:
        bias = self.bias[...].reshape((1,) * (x.ndim - 1) + (-1,))
        return matmul(x, self.kernel[...]) + bias


class MLP(nnx.Module):
    """Fully connected layers, each followed by the activation: [..., in_features] -> [...,
    hidden_sizes[-1]].
    """

    def __init__(
        self,
        in_features: int,
        hidden_sizes: Sequence[int],
        activation: str,
        *,
        layer_norm: bool = False,
        rngs: nnx.Rngs,
    ):
        sizes = [in_features, *hidden_sizes]
        self.layers = nnx.List(
            [Linear(a, b, scale=math.sqrt(2), rngs=rngs) for a, b in itertools.pairwise(sizes)]
        )
        self.activations = nnx.List(
            [Activation(activation, n, layer_norm=layer_norm, rngs=rngs) for n in hidden_sizes]
        )

    def __call__(self, x: Array) -> Array:
        for layer, activation in zip(self.layers, self.activations, strict=True):
            x = activation(layer(x))
        return x


class Conv(nnx.Module):
    """A convolution without padding as one matrix product over patches: [B, H, W, C] -> [B, h, w,
    out_channels].

    Equal to `nnx.Conv(padding="VALID")` with the same kernel. On a CPU, XLA's own convolution and
    above all its gradient are far slower inside a compiled loop (measured in docs/design.md).
    Kernels that are a multiple of their stride are first folded into channels.
    """

    def __init__(
        self, channels: int, out_channels: int, kernel: int, stride: int, *, rngs: nnx.Rngs
    ):
        shape = (kernel, kernel, channels, out_channels)
        self.kernel = nnx.Param(orthogonal_kernel(rngs.params, shape, math.sqrt(2)))
        self.bias = nnx.Param(jnp.zeros(out_channels, jnp.float32))
        self.size, self.stride = kernel, stride

    def __call__(self, x: Array) -> Array:
        k, s = self.size, self.stride
        kernel = self.kernel[...]
        height, width = (x.shape[1] - k) // s + 1, (x.shape[2] - k) // s + 1
        x = x[:, : (height - 1) * s + k, : (width - 1) * s + k]
        if s > 1 and k % s == 0:
            x, kernel, k, s = _fold_image(x, s), _fold_kernel(kernel, s), k // s, 1
        patches = [
            x[:, i : i + s * (height - 1) + 1 : s, j : j + s * (width - 1) + 1 : s]
            for i in range(k)
            for j in range(k)
        ]
        return (
            jnp.concatenate(patches, axis=-1) @ kernel.reshape(-1, kernel.shape[-1])
            + self.bias[...]
        )


def _fold_image(x: Array, s: int) -> Array:
    """[B, H, W, C] -> [B, H/s, W/s, s·s·C]"""
    b, h, w, c = x.shape
    return (
        x.reshape(b, h // s, s, w // s, s, c)
        .transpose(0, 1, 3, 2, 4, 5)
        .reshape(b, h // s, w // s, s * s * c)
    )


def _fold_kernel(kernel: Array, s: int) -> Array:
    """[k, k, C, O] -> [k/s, k/s, s·s·C, O]"""
    k, _, c, o = kernel.shape
    return (
        kernel.reshape(k // s, s, k // s, s, c, o)
        .transpose(0, 2, 1, 3, 4, 5)
        .reshape(k // s, k // s, s * s * c, o)
    )


class CNN(nnx.Module):
    """Convolutions over images [B, H, W, C], flattened to [B, features].

    From 36 pixels a side: three strided layers, as in the DQN of Mnih et al. (2015). Smaller: one
    3x3 layer of 16 channels, as for MinAtar (Young & Tian 2019).
    """

    def __init__(
        self,
        image_shape: tuple[int, ...],
        activation: str,
        *,
        layer_norm: bool = False,
        rngs: nnx.Rngs,
    ):
        height, width, channels = image_shape
        large = min(height, width) >= 36
        plan = (
            ((32, 8, 4), (64, 4, 2), (64, 3, 1)) if large else ((16, 3, 1),)
        )  # (channels, kernel, stride)
        require(
            min(height, width) >= 3,
            f"images {image_shape} are too small to convolve",
            'set image_encoder="flatten", or give the agent a torso of your own',
        )
        layers = []
        for out_channels, kernel, stride in plan:
            layers.append(Conv(channels, out_channels, kernel, stride, rngs=rngs))
            height, width, channels = (
                (height - kernel) // stride + 1,
                (width - kernel) // stride + 1,
                out_channels,
            )
        self.layers = nnx.List(layers)
        self.activations = nnx.List(
            [Activation(activation, n, layer_norm=layer_norm, rngs=rngs) for n, _, _ in plan]
        )
        self.out_features = height * width * channels

    def __call__(self, x: Array) -> Array:
        for layer, activation in zip(self.layers, self.activations, strict=True):
            x = activation(layer(x))
        return x.reshape(x.shape[0], -1)


class Torso(nnx.Module):
    """The default torso: one encoder for each leaf of the observation, joined, then an MLP: [B,
    ...] -> [B, hidden_sizes[-1]].

    Images pass through a CNN (unless `image_encoder` is "flatten"; uint8 is scaled to [0, 1]),
    Discrete values become one-hot vectors, everything else is flattened. With `layer_norm`, all
    layers are normalised before their activation.
    """

    def __init__(
        self,
        space: Space,
        hidden_sizes: Sequence[int],
        activation: str,
        *,
        image_encoder: str = "cnn",
        layer_norm: bool = False,
        rngs: nnx.Rngs,
    ):
        self.leaves = tuple(leaves(space))
        convolved = [image_encoder == "cnn" and is_image(leaf) for leaf in self.leaves]
        self.cnns = nnx.List(
            [
                (
                    CNN(leaf.shape or (), activation, layer_norm=layer_norm, rngs=rngs)
                    if conv
                    else None
                )
                for leaf, conv in zip(self.leaves, convolved, strict=True)
            ]
        )
        features = sum(
            cnn.out_features if cnn else _flat_size(leaf)
            for leaf, cnn in zip(self.leaves, self.cnns, strict=True)
        )
        self.mlp = MLP(features, hidden_sizes, activation, layer_norm=layer_norm, rngs=rngs)

    def __call__(self, obs: Obs) -> Array:
        parts = []
        for space, cnn, x in zip(self.leaves, self.cnns, jax.tree.leaves(obs), strict=True):
            x = encode(space, x)
            parts.append(cnn(x) if cnn else x.reshape(x.shape[0], -1))
        return self.mlp(parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=-1))


class WithHead(nnx.Module):
    """A torso with a linear layer on top: obs [B, ...] -> [B, out_features]."""

    def __init__(
        self,
        torso: nnx.Module,
        in_features: int,
        out_features: int,
        scale: float,
        *,
        rngs: nnx.Rngs,
    ):
        self.torso = torso
        self.head = Linear(in_features, out_features, scale=scale, rngs=rngs)

    def __call__(self, obs: Obs) -> Array:
        torso: Any = self.torso
        return self.head(torso(obs))


class Twins(nnx.Module):
    """Two networks that share nothing: inputs [B, ...] -> both outputs [2, B, ...].

    Two networks rather than one under `vmap`: on a CPU an update of SAC is 4 % faster so.
    """

    def __init__(self, first: nnx.Module, second: nnx.Module):
        self.first, self.second = first, second

    def __call__(self, *inputs: Any) -> Array:
        return jnp.stack([network(*inputs) for network in (self.first, self.second)])  # pyright: ignore[reportCallIssue]


def acts_elsewhere(agent: str, needed: str, space: Space) -> SpaceError:
    """The error of an agent that cannot act in `space`."""
    return SpaceError(
        f"{agent} needs {needed} actions, got {space}; use actor_critic (PPO, A2C), which takes all"
        " kinds, or see in `rlkit list algorithms` which others learn such actions"
    )


def encode(space: Space, x: Array) -> Array:
    """One leaf of a batch of observations as floats: images [B, H, W, C] keep their axes, all else
    becomes [B, features].
    """
    if isinstance(space, spaces.Discrete):
        return jax.nn.one_hot(x - int(space.start), int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        flat, start = x.reshape(x.shape[0], -1), space.start.ravel()
        return jnp.concatenate(
            [
                jax.nn.one_hot(flat[:, i] - int(start[i]), int(n))
                for i, n in enumerate(space.nvec.ravel())
            ],
            axis=-1,
        )
    if x.dtype == jnp.uint8:
        x = x.astype(jnp.float32) / 255.0
    x = x.astype(jnp.float32)
    return x if is_image(space) else x.reshape(x.shape[0], -1)


def out_features(build: ModuleBuilder, example: Obs) -> int:
    """The last axis of what the module built by `build` returns for a batch like `example`; runs
    nothing.

    Raises `ConfigError` if it is not one array [B, features].
    """

    def outputs(obs: Obs) -> Any:
        with frames_from(jnp.zeros):
            module: Any = build(nnx.Rngs(0))
        return module(obs)

    try:
        out = jax.eval_shape(outputs, example)
    except Exception as error:
        raise ConfigError(
            f"the torso fails on a batch of observations: {error}; it must map obs [B, ...] to [B,"
            " features]"
        ) from error
    batch = jax.tree.leaves(example)[0].shape[0]
    shape = getattr(out, "shape", None)
    require(
        shape is not None and len(shape) == 2 and shape[0] == batch,
        f"the torso maps a batch of {batch} observations to {shape}",
        "return one array [B, features]",
    )
    return out.shape[-1]


def _flat_size(space: Space) -> int:
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    if space.shape is None:
        raise SpaceError(
            f"observations of {space} have no fixed size; use Box, Discrete, MultiDiscrete,"
            " MultiBinary, Dict or Tuple"
        )
    return math.prod(space.shape)
