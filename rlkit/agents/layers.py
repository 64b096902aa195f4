"""Layers: `Linear` and `MLP`, `Conv` and `CNN`. `make_network` draws their initial weights."""

import itertools
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from rlkit.agents.first_weights import described
from rlkit.errors import require
from rlkit.xla_cpu.matmul import matmul
from rlkit.xla_gpu.fused_layers import are_fused, fused_layers, may_fuse

LARGE_IMAGE = 36  # pixels a side, from which on `CNN` has three layers
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "elu": jax.nn.elu,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
}


class Activation(nnx.Module):
    """The activation after a layer of `features`, preceded by layer norm if `layer_norm`.

    The norm is over the last axis: each pixel's channels for images, as in purejaxql (CleanRL's PQN
    for Atari normalises over pixels as well).
    """

    def __init__(self, name: str, features: int, *, layer_norm: bool):
        self.name = name
        self.norm = _layer_norm(features) if layer_norm else None

    def __call__(self, x: Array) -> Array:
        return ACTIVATIONS[self.name](self.norm(x) if self.norm else x)


def _layer_norm(features: int) -> nnx.LayerNorm:
    norm = nnx.LayerNorm(features, rngs=nnx.Rngs(0))  # which it takes, and does not use
    norm.scale = described((features,), "constant", 1.0)
    norm.bias = described((features,), "constant", 0.0)
    return norm


class Linear(nnx.Module):
    """A linear layer, [..., in_features] -> [..., out_features].

    Its weights are NaN until `make_network` draws them: orthogonal, times `scale`. Its parameters
    are named like those of `nnx.Linear`, which is slower to trace. One that `is_last` computes in
    float32 whatever the precision of the network: bfloat16 has no number between 200 and 201, and
    the values of two actions are often closer than that.
    """

    def __init__(
        self, in_features: int, out_features: int, *, scale: float = 1.0, is_last: bool = False
    ):
        shape = (in_features, out_features)
        self.kernel = described(shape, "orthogonal", scale, is_exact=is_last)
        self.bias = described((out_features,), "constant", 0.0, is_exact=is_last)

    def __call__(self, x: Array) -> Array:
        return linear(x, self.kernel[...], self.bias[...])


def linear(x: Array, kernel: Array, bias: Array | None) -> Array:
    """`x @ kernel + bias` in the type of the kernel, [..., I] -> [..., O], by `xla_cpu.matmul`."""
    out = matmul(x.astype(kernel.dtype), kernel)
    return out if bias is None else out + bias.reshape((1,) * (x.ndim - 1) + (-1,))


class MLP(nnx.Module):
    """Fully connected layers, each followed by the activation.

    [..., in_features] -> [..., hidden_sizes[-1]].
    """

    def __init__(
        self,
        in_features: int,
        hidden_sizes: Sequence[int],
        activation: str,
        *,
        layer_norm: bool = False,
    ):
        sizes = [in_features, *hidden_sizes]
        self.layers = nnx.List(
            [Linear(a, b, scale=math.sqrt(2)) for a, b in itertools.pairwise(sizes)]
        )
        self.activations = nnx.List(
            [Activation(activation, n, layer_norm=layer_norm) for n in hidden_sizes]
        )

    def __call__(self, x: Array) -> Array:
        fused = self._fused(x, ())
        return self._one_by_one(x) if fused is None else fused

    def with_head(self, head: Linear, x: Array) -> Array:
        """`head(self(x))`."""
        fused = self._fused(x, (head,))
        return head(self._one_by_one(x)) if fused is None else fused

    def _one_by_one(self, x: Array) -> Array:
        for layer, activation in zip(self.layers, self.activations, strict=True):
            x = activation(layer(x))
        return x

    def _fused(self, x: Array, last: tuple[Linear, ...]) -> Array | None:
        """All layers and those that follow without activation, if one kernel does it."""
        layers, activations = [*self.layers, *last], list(self.activations)
        if not may_fuse() or not all(type(layer) is Linear for layer in layers):
            return None
        if not all(type(a) is Activation and a.norm is None for a in activations):
            return None
        names = [a.name for a in activations] + [None] * len(last)
        parameters = [(layer.kernel[...], layer.bias[...]) for layer in layers]
        return fused_layers(x, parameters, names) if are_fused(x, parameters, names) else None


class Conv(nnx.Module):
    """A convolution without padding: [B, H, W, C] -> [B, h, w, out_channels].

    Computed as one matrix product over patches; equal to `nnx.Conv(padding="VALID")` with the same
    kernel. On a CPU, XLA's own convolution and above all its gradient are far slower inside a
    compiled loop (measured in benchmarks/notes.md). Kernels whose size is a multiple of the stride
    are first folded into channels.
    """

    def __init__(self, channels: int, out_channels: int, kernel_size: int, stride: int):
        shape = (kernel_size, kernel_size, channels, out_channels)
        self.kernel = described(shape, "orthogonal", math.sqrt(2))
        self.bias = described((out_channels,), "constant", 0.0)
        self.kernel_size, self.stride = kernel_size, stride

    def __call__(self, x: Array) -> Array:
        k, s = self.kernel_size, self.stride
        kernel = self.kernel[...]
        x = x.astype(kernel.dtype)
        height, width = (_out_size(size, k, s) for size in x.shape[1:3])
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


def _out_size(size: int, kernel_size: int, stride: int) -> int:
    return (size - kernel_size) // stride + 1


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

    Images of at least 36 pixels a side pass through three strided layers, as in the DQN of Mnih et
    al. (2015); smaller ones through one 3x3 layer of 16 channels, as for MinAtar
    (Young & Tian 2019).
    """

    def __init__(
        self,
        image_shape: tuple[int, ...],
        activation: str,
        *,
        layer_norm: bool = False,
    ):
        height, width, channels = image_shape
        large = min(height, width) >= LARGE_IMAGE
        # (channels, kernel size, stride)
        plan = ((32, 8, 4), (64, 4, 2), (64, 3, 1)) if large else ((16, 3, 1),)
        require(
            min(height, width) >= 3,
            f"images [height, width, channels] of {image_shape} are too small to convolve",
            "move the channels to the last axis if they come first; otherwise set"
            ' image_encoder="flatten", or give the agent your own torso',
        )
        layers = []
        for out_channels, kernel_size, stride in plan:
            layers.append(Conv(channels, out_channels, kernel_size, stride))
            height, width = (_out_size(size, kernel_size, stride) for size in (height, width))
            channels = out_channels
        self.layers = nnx.List(layers)
        self.activations = nnx.List(
            [Activation(activation, n, layer_norm=layer_norm) for n, _, _ in plan]
        )
        self.out_features = height * width * channels

    def __call__(self, x: Array) -> Array:
        for layer, activation in zip(self.layers, self.activations, strict=True):
            x = activation(layer(x))
        return x.reshape(x.shape[0], -1)
