"""Settings of agents. Imports no JAX."""

import dataclasses
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Len

Activation = Literal["tanh", "relu", "elu", "gelu", "silu"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActorCriticConfig:
    """Networks of an actor-critic agent. Defaults are CleanRL's."""

    hidden_sizes: Annotated[tuple[Annotated[int, Gt(0)], ...], Len(1)] = (64, 64)
    """Widths of the fully connected layers (behind the convolutions, where observations are
    images).
    """
    activation: Activation = "tanh"
    """Non-linearity between layers."""
    image_encoder: Literal["cnn", "flatten"] = "cnn"
    """How images are read: convolutions, or flattened as any other vector (as good and faster on
    10x10 MinAtar frames).
    """
    share_torso: bool | None = None
    """Actor and critic share all but their last layer; None: only where there are convolutions, as
    is usual.
    """
    initial_std: Annotated[float, Gt(0)] = 1.0
    """Standard deviation of continuous actions at the start; learned, and the same in every state.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class QNetworkConfig:
    """A network that values discrete actions, and how they are explored. Defaults are CleanRL's
    `dqn.py`.
    """

    hidden_sizes: Annotated[tuple[Annotated[int, Gt(0)], ...], Len(1)] = (120, 84)
    """Widths of the fully connected layers (behind the convolutions, where observations are
    images).
    """
    activation: Activation = "relu"
    """Non-linearity between layers."""
    image_encoder: Literal["cnn", "flatten"] = "cnn"
    """How images are read: convolutions, or flattened as any other vector."""
    layer_norm: bool = False
    """Normalise what each layer but the last gives, before the non-linearity (of images each
    pixel's channels).
    """
    dueling: bool = False
    """Add up a value of the state and the advantages of its actions."""
    epsilon_start: Annotated[float, Ge(0), Le(1)] = 1.0
    """Share of random actions at the start."""
    epsilon_end: Annotated[float, Ge(0), Le(1)] = 0.05
    """Share of random actions at the end."""
    exploration_fraction: Annotated[float, Gt(0), Le(1)] = 0.5
    """Share of the run over which it falls, linearly."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NormalizedQNetworkConfig(QNetworkConfig):
    """A network that values discrete actions and learns without a target network. Defaults are
    CleanRL's `pqn.py`.
    """

    layer_norm: bool = True
    """Normalise what each layer but the last gives, before the non-linearity (of images each
    pixel's channels).
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuantileNetworkConfig(QNetworkConfig):
    """A Q-network that knows the distribution of the return."""

    num_quantiles: Annotated[int, Gt(0)] = 200
    """Quantiles of the return that are learned for each action; 200 in the paper."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SoftActorCriticConfig:
    """Networks of a soft actor-critic agent. Defaults are those of the paper, CleanRL and
    Stable-Baselines3.
    """

    hidden_sizes: Annotated[tuple[Annotated[int, Gt(0)], ...], Len(1)] = (256, 256)
    """Widths of the fully connected layers (behind the convolutions, where observations are
    images).
    """
    activation: Activation = "relu"
    """Non-linearity between layers."""
    image_encoder: Literal["cnn", "flatten"] = "cnn"
    """How images are read: convolutions, or flattened as any other vector."""
    initial_temperature: Annotated[float, Gt(0)] = 1.0
    """Weight of the entropy at the start, where it is learned."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeterministicActorCriticConfig:
    """Networks of a deterministic actor-critic agent, and how it explores. Defaults are those of
    the code of TD3's paper.
    """

    hidden_sizes: Annotated[tuple[Annotated[int, Gt(0)], ...], Len(1)] = (256, 256)
    """Widths of the fully connected layers (behind the convolutions, where observations are
    images).
    """
    activation: Activation = "relu"
    """Non-linearity between layers."""
    image_encoder: Literal["cnn", "flatten"] = "cnn"
    """How images are read: convolutions, or flattened as any other vector."""
    exploration_noise: Annotated[float, Ge(0)] = 0.1
    """Standard deviation of the Gaussian noise on actions while collecting, of actions in [-1, 1].
    """
