"""Settings of agents. Imports no JAX."""

import dataclasses
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Len

from rlkit.errors import require
from rlkit.validation import PositiveInt

Activation = Literal["tanh", "relu", "elu", "gelu", "silu"]
Precision = Literal["float32", "bfloat16"]
WeightInit = Literal["orthogonal", "lecun_normal", "pytorch"]
NoiseColor = Literal["white", "pink"]
Memory = Literal["gru", "lstm", "min_gru"]
MEMORY_SIZE = 64
LogStd = Annotated[float, Ge(-20), Le(2)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """Settings that the networks of all agents have in common."""

    image_encoder: Literal["cnn", "flatten"] = "cnn"
    """How images are encoded: CNN, or flattened (as good and faster on 10x10 MinAtar frames)."""
    embedding_threshold: PositiveInt = 1024
    """Integers (Discrete, each of MultiDiscrete) of more values are read from a learned table."""
    embedding_size: PositiveInt = 64
    """Width of such a table; integers of fewer values become one-hot vectors."""
    precision: Precision = "float32"
    """Numbers that the networks compute with. bfloat16 is faster on GPUs and TPUs, and slower on
    CPUs; parameters, losses and the optimiser stay float32.
    """
    weight_init: WeightInit = "orthogonal"
    """How kernels are drawn. orthogonal: by layers, √2 before an activation; lecun_normal: variance
    1 / inputs, Flax's default; pytorch: uniform within ±1 / √inputs, biases too, PyTorch's default.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActorCriticConfig(NetworkConfig):
    """Networks of an actor-critic agent. Defaults are CleanRL's."""

    hidden_sizes: Annotated[tuple[PositiveInt, ...], Len(1)] = (64, 64)
    """Widths of the fully connected layers (after the convolutions, for image observations)."""
    activation: Activation | None = None
    """Non-linearity between layers; None: relu where images are convolved, otherwise tanh."""
    share_torso: bool | None = None
    """Actor and critic share all but the last layer, which halves the work; with `memory`, all but
    what comes after it. None: they do not: with large returns, the critic's gradient would drown
    the policy's.
    """
    initial_std: Annotated[float, Gt(0)] = 1.0
    """Initial standard deviation of continuous actions; learned, and the same in every state."""
    use_sde: bool = False
    """Generalised state-dependent exploration (gSDE): smooth noise for the actions of a Box, a
    linear function of the policy's features that is drawn once in a while.
    """
    sde_sample_freq: PositiveInt | None = None
    """Steps of an episode after which gSDE draws a new function; None: once an episode."""
    log_std_init: LogStd = -2.0
    """Initial logarithm of gSDE's standard deviation, for each feature; takes the place of
    initial_std.
    """
    memory: Memory | None = None
    """Recurrent layer before the last hidden layer, for what one observation does not show. min_gru
    computes the steps of a sequence in parallel, which is faster where sequences are long.
    """
    memory_size: PositiveInt = MEMORY_SIZE
    """Numbers that the memory keeps."""

    def __post_init__(self) -> None:
        _check_sde(self.use_sde, self.sde_sample_freq)
        _check_memory(self.memory, self.memory_size)
        is_default = not isinstance(self.initial_std, float | int) or self.initial_std == 1.0
        require(
            is_default or not self.use_sde,
            f"initial_std={self.initial_std} has no effect with use_sde=True",
            "set it to its default (--initial-std 1), and log_std_init in its place",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class QNetworkConfig(NetworkConfig):
    """An ε-greedy Q-network for discrete actions. Defaults are CleanRL's `dqn_jax.py`."""

    weight_init: WeightInit = "lecun_normal"
    """How kernels are drawn. orthogonal: by layers, √2 before an activation; lecun_normal: variance
    1 / inputs, Flax's default; pytorch: uniform within ±1 / √inputs, biases too, PyTorch's default.
    """
    hidden_sizes: Annotated[tuple[PositiveInt, ...], Len(1)] = (120, 84)
    """Widths of the fully connected layers (after the convolutions, for image observations)."""
    activation: Activation = "relu"
    """Non-linearity between layers."""
    layer_norm: bool = False
    """Normalise each hidden layer before its activation (for images, each pixel's channels)."""
    dueling: bool = False
    """Dueling network: sum the state's value and the actions' advantages."""
    epsilon_start: Annotated[float, Ge(0), Le(1)] = 1.0
    """Probability of a random action at the start."""
    epsilon_end: Annotated[float, Ge(0), Le(1)] = 0.05
    """Probability of a random action at the end."""
    exploration_fraction: Annotated[float, Gt(0), Le(1)] = 0.5
    """Fraction of the run over which that probability falls, linearly."""
    memory: Memory | None = None
    """Recurrent layer before the last hidden layer, for what one observation does not show. min_gru
    computes the steps of a sequence in parallel, which is faster where sequences are long.
    """
    memory_size: PositiveInt = MEMORY_SIZE
    """Numbers that the memory keeps."""

    def __post_init__(self) -> None:
        _check_memory(self.memory, self.memory_size)
        start, end = self.epsilon_start, self.epsilon_end
        known = all(isinstance(x, float | int) for x in (start, end))  # neither traced nor text
        if known and 0 <= start <= 1 and 0 <= end <= 1:  # else `validate` says what is wrong
            problem = f"epsilon_end={end} is above epsilon_start={start}: exploration would grow"
            require(end <= start, problem, "exchange them, or lower epsilon_end")


@dataclasses.dataclass(frozen=True, kw_only=True)
class NormalizedQNetworkConfig(QNetworkConfig):
    """A Q-network that learns without a target network. Defaults are CleanRL's `pqn.py`."""

    layer_norm: bool = True
    """Normalise each hidden layer before its activation (for images, each pixel's channels)."""
    weight_init: WeightInit = "orthogonal"
    """How kernels are drawn. orthogonal: by layers, √2 before an activation; lecun_normal: variance
    1 / inputs, Flax's default; pytorch: uniform within ±1 / √inputs, biases too, PyTorch's default.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuantileNetworkConfig(QNetworkConfig):
    """A Q-network that learns the distribution of the return."""

    num_quantiles: PositiveInt = 200
    """Number of quantiles learned for each action; 200 in the paper."""
    weight_init: WeightInit = "orthogonal"
    """How kernels are drawn. orthogonal: by layers, √2 before an activation; lecun_normal: variance
    1 / inputs, Flax's default; pytorch: uniform within ±1 / √inputs, biases too, PyTorch's default.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class _SoftNetworks(NetworkConfig):
    """What soft actor-critics of all actions have in common."""

    hidden_sizes: Annotated[tuple[PositiveInt, ...], Len(1)] = (256, 256)
    """Widths of the fully connected layers (after the convolutions, for image observations)."""
    activation: Activation = "relu"
    """Non-linearity between layers."""
    initial_temperature: Annotated[float, Gt(0)] = 1.0
    """Initial weight of the entropy, if it is learned."""
    memory: Memory | None = None
    """Recurrent layer before the last hidden layer, for what one observation does not show; one in
    the actor and one in each critic. min_gru computes the steps of a sequence in parallel, which is
    faster where sequences are long.
    """
    memory_size: PositiveInt = MEMORY_SIZE
    """Numbers that the memory keeps."""

    def __post_init__(self) -> None:
        _check_memory(self.memory, self.memory_size)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiscreteSoftActorCriticConfig(_SoftNetworks):
    """Networks of a soft actor-critic agent of discrete actions."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SoftActorCriticConfig(_SoftNetworks):
    """Networks of a soft actor-critic agent, and how it explores.

    Defaults are those of the paper, CleanRL and Stable-Baselines3.
    """

    noise_color: NoiseColor = "white"
    """Noise of the actions while collecting: independent from step to step, or pink (1/f), which
    explores further.
    """
    use_sde: bool = False
    """Generalised state-dependent exploration (gSDE): smooth noise, a linear function of the
    policy's features that is drawn once in a while.
    """
    sde_sample_freq: PositiveInt | None = None
    """Steps of an episode after which gSDE draws a new function; None: once an episode."""
    log_std_init: LogStd = -3.0
    """Initial logarithm of gSDE's standard deviation, for each feature."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_sde(self.use_sde, self.sde_sample_freq)
        require(
            not (self.use_sde and self.noise_color == "pink"),
            'use_sde=True and noise_color="pink" are two ways to correlate the same noise',
            "leave one of them out",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeterministicActorCriticConfig(NetworkConfig):
    """Networks of a deterministic actor-critic agent, and how it explores.

    Defaults are those of the TD3 authors' code.
    """

    hidden_sizes: Annotated[tuple[PositiveInt, ...], Len(1)] = (256, 256)
    """Widths of the fully connected layers (after the convolutions, for image observations)."""
    activation: Activation = "relu"
    """Non-linearity between layers."""
    exploration_noise: Annotated[float, Ge(0)] = 0.1
    """Standard deviation of the Gaussian noise added while collecting, for actions in [-1, 1]."""
    noise_color: NoiseColor = "white"
    """That noise is independent from step to step, or pink (1/f), which explores further."""


def _check_memory(memory: str | None, size: int) -> None:
    """Raises `ConfigError` for a size that nothing uses; `validate` says if it is none."""
    require(
        memory is not None or not _is_count(size) or size == MEMORY_SIZE,
        f"memory_size={size} has no effect without memory",
        f"set it to its default (--memory-size {MEMORY_SIZE}), or set a memory (--memory gru)",
    )


def _check_sde(use_sde: bool, sde_sample_freq: int | None) -> None:
    """Raises `ConfigError` for a frequency that nothing uses; `validate` says if it is none."""
    require(
        use_sde or not _is_count(sde_sample_freq),
        f"sde_sample_freq={sde_sample_freq} has no effect without gSDE",
        "set it to None (--sde-sample-freq None), or set use_sde=True as well",
    )


def _is_count(value: object) -> bool:
    return type(value) is int and 1 <= value < 2**31
