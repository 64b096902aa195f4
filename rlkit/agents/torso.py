"""The default torso, which encodes observations of any space, and networks built on a torso."""

from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from rlkit.agents.configs import NetworkConfig
from rlkit.agents.encoding import Encoder, EncodingConfig
from rlkit.agents.layers import CNN, LARGE_IMAGE, MLP, Linear
from rlkit.agents.memory import features_of, seen
from rlkit.agents.networks import (
    Network,
    TorsoBuilder,
    make_network,
    out_features,
    require_builder,
)
from rlkit.spaces import Space, abstract, is_image, leaf_tree, leaves, looks_channels_first
from rlkit.types import Carry, Obs, Sequences


class TorsoConfig(EncodingConfig, Protocol):
    """What the configs of agents say about their torso."""

    @property
    def hidden_sizes(self) -> tuple[int, ...]:
        """Widths of the fully connected layers."""
        ...

    @property
    def activation(self) -> str | None:
        """Non-linearity between layers; None: relu with convolutions, otherwise tanh."""
        ...

    @property
    def image_encoder(self) -> str:
        """How images are encoded, "cnn" or "flatten"."""
        ...


class Torso(nnx.Module):
    """The default torso: encodes observations [B, ...] as [B, hidden_sizes[-1]].

    Each leaf of the observation has its own `Encoder`, and images a CNN on top of it (unless
    `image_encoder` is "flatten"); what they return is joined and passes through an MLP. With
    `layer_norm`, all layers are normalised before their activation. `hidden_sizes=None`: those of
    the config.
    """

    def __init__(
        self,
        space: Space,
        config: TorsoConfig,
        *,
        layer_norm: bool = False,
        hidden_sizes: tuple[int, ...] | None = None,
    ):
        encoders = [Encoder(leaf, config) for leaf in leaves(space)]
        activation = activation_of(space, config)
        cnns = [
            CNN(leaf.shape or (), activation, layer_norm=layer_norm)
            if _is_convolved(leaf, config)
            else None
            for leaf in leaves(space)
        ]
        features = sum(
            cnn.out_features if cnn else encoder.out_features
            for encoder, cnn in zip(encoders, cnns, strict=True)
        )
        self.encoders, self.cnns = nnx.List(encoders), nnx.List(cnns)
        sizes = config.hidden_sizes if hidden_sizes is None else hidden_sizes
        self.mlp = MLP(features, sizes, activation, layer_norm=layer_norm)

    def __call__(self, obs: Obs) -> Array:
        return self.mlp(self._encoded(obs))

    def with_head(self, head: Linear, obs: Obs) -> Array:
        """`head(self(obs))`."""
        return self.mlp.with_head(head, self._encoded(obs))

    def _encoded(self, obs: Obs) -> Array:
        """What the MLP takes [B, F]."""
        parts = []
        for encoder, cnn, x in zip(self.encoders, self.cnns, jax.tree.leaves(obs), strict=True):
            x = encoder(x)
            parts.append(cnn(x) if cnn else x.reshape(x.shape[0], -1))
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=-1)


def activation_of(space: Space, config: TorsoConfig) -> str:
    """The name of the non-linearity between layers."""
    return config.activation or ("relu" if convolves(space, config) else "tanh")


def convolves(space: Space, config: TorsoConfig) -> bool:
    """Whether the default torso has convolutions."""
    return any(_is_convolved(leaf, config) for leaf in leaves(space))


def _is_convolved(leaf: Space, config: TorsoConfig) -> bool:
    return config.image_encoder == "cnn" and is_image(leaf)


def image_notes(space: Space, config: NetworkConfig) -> list[str]:
    """Sentences on images that networks read otherwise than they seem to be meant."""
    if config.image_encoder != "cnn":
        return []
    named = [
        (f"observation{jax.tree_util.keystr(path)} {leaf.shape}", leaf)
        for path, leaf in jax.tree.leaves_with_path(leaf_tree(space))
    ]
    first = [name for name, leaf in named if looks_channels_first(leaf)]
    flat = [name for name, leaf in named if _looks_like_flat_image(leaf)]
    told = []
    if first:
        told.append(
            f"{', '.join(first)}: read as images [height, width, channels]; if their channels come"
            " first, move them to the end (np.moveaxis(obs, 0, -1)), in the space too"
        )
    if flat:
        told.append(
            f"{', '.join(flat)}: read without convolutions, which are for images [height, width,"
            " channels]; if these are images, give them three axes, with all frames and colours in"
            " the last one"
        )
    return told


def _looks_like_flat_image(space: Space) -> bool:
    """Whether bytes have the sides of a picture, but not the three axes of one."""
    sides = [size for size in space.shape or () if size >= LARGE_IMAGE]
    return space.dtype == np.uint8 and not is_image(space) and len(sides) >= 2


def torso_of(
    config: TorsoConfig,
    space: Space,
    own: TorsoBuilder | None = None,
    *,
    layer_norm: bool = False,
    hidden_sizes: tuple[int, ...] | None = None,
) -> tuple[TorsoBuilder, int]:
    """(builder, number of features) of the torso that a config describes, or of a user's `own`.

    Raises `ConfigError` if the user's does not fit the observations.
    """

    def default(_: nnx.Rngs) -> Torso:
        return Torso(space, config, layer_norm=layer_norm, hidden_sizes=hidden_sizes)

    if own is not None:
        require_builder(own)
    return (own or default), out_features(own or default, abstract(space, (2,)))


class WithHead(nnx.Module):
    """A torso with a linear layer on top: obs [B, ...] -> [B, out_features].

    With `keep_features`, those of the torso follow: [B, out_features + in_features].
    """

    def __init__(
        self,
        torso: Callable[[Obs], Array],
        in_features: int,
        out_features: int,
        scale: float,
        *,
        keep_features: bool = False,
    ):
        self.torso = torso
        self.head = Linear(in_features, out_features, scale=scale, is_last=True)
        self.keep_features = keep_features

    def __call__(self, obs: Obs) -> Array:
        return self.remembering(obs)[1]

    def remembering(self, obs: Obs | Sequences) -> tuple[Carry, Array]:
        """The same with the memory after the last step; see `features_of`."""
        torso: Any = self.torso  # a subclass may compute something else
        if type(torso) is Torso and type(torso.mlp) is MLP and not self.keep_features:
            return (), torso.with_head(self.head, seen(obs))
        carry, features = features_of(self.torso, obs)
        return carry, outputs(self.head, features, keep_features=self.keep_features)


def make_remembering(
    build: Callable[[nnx.Rngs], WithHead], config: NetworkConfig
) -> Network[tuple[Carry, Array]]:
    """obs [B, ...] or `Sequences` -> (memory after the last step, outputs [B, out_features])."""
    network: Any = make_network(build, config, method="remembering")
    return network


def outputs(head: Linear, features: Array, *, keep_features: bool) -> Array:
    """Those of a head for features [B, F], which follow them if they are kept."""
    out = head(features)
    return jnp.concatenate([out, features], axis=-1) if keep_features else out


def custom_torsos(torso: TorsoBuilder | None, critic_torso: TorsoBuilder | None) -> tuple[str, ...]:
    """The names of those that a user passed."""
    given = {"torso": torso, "critic_torso": critic_torso}
    return tuple(name for name, build in given.items() if build is not None)


class Twins(nnx.Module):
    """Two separate networks: obs [B, ...] -> both outputs [2, B, ...].

    Not one network under `vmap`: on a CPU, an update of SAC is 4 % faster this way.
    """

    def __init__(self, first: Callable[[Obs], Array], second: Callable[[Obs], Array]):
        self.first, self.second = first, second

    def __call__(self, obs: Obs) -> Array:
        return jnp.stack([self.first(obs), self.second(obs)])
