"""Settings of agents. Imports no JAX."""

import dataclasses
from typing import Annotated, Literal

from annotated_types import Gt, Len

Activation = Literal["tanh", "relu", "elu", "gelu", "silu"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActorCriticConfig:
    """Networks of an actor-critic agent. Defaults are CleanRL's."""

    hidden_sizes: Annotated[tuple[Annotated[int, Gt(0)], ...], Len(1)] = (64, 64)
    """Widths of the fully connected layers (behind the convolutions, where observations are images)."""
    activation: Activation = "tanh"
    """Non-linearity between layers."""
    image_encoder: Literal["cnn", "flatten"] = "cnn"
    """How images are read: convolutions, or flattened as any other vector (as good and faster on 10x10 MinAtar frames)."""
    share_torso: bool | None = None
    """Actor and critic share all but their last layer; None: only where there are convolutions, as is usual."""
    initial_std: Annotated[float, Gt(0)] = 1.0
    """Standard deviation of continuous actions at the start; learned, and the same in every state."""
