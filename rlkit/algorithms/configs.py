"""Settings of algorithms. Imports no JAX, so that the command line responds quickly.

Sizes (`num_envs`, minibatches) count all environments and devices together.
"""

import dataclasses
import math
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from rlkit.errors import require
from rlkit.optimizers.config import (
    OptimizerConfig,
    OptimizerName,
    ScheduleName,
    StepSize,
    UnitInterval,
)
from rlkit.validation import Count, LargeCount, PositiveInt

SEQUENCE_LENGTH, BURN_IN = 20, 10  # of replayed sequences


@dataclasses.dataclass(frozen=True, kw_only=True)
class PPOConfig(OptimizerConfig):
    """Proximal Policy Optimisation. Defaults are CleanRL's `ppo.py`.

    Presets for an environment override them.
    """

    num_steps: PositiveInt = 128
    """Steps that each environment takes in one iteration."""
    num_epochs: PositiveInt = 4
    """Passes over each rollout."""
    num_minibatches: PositiveInt = 4
    """Minibatches in each pass; must divide num_envs x num_steps (with memory: the sequences)."""
    sequence_length: PositiveInt | None = None
    """For agents with memory: the steps of a sequence, through which gradients flow back; divides
    num_steps. None: num_steps.
    """
    learning_rate: StepSize = 2.5e-4
    """Step size of the optimiser, which its schedule scales."""
    learning_rate_schedule: ScheduleName = "linear"
    """How the step size falls over the run. linear and cosine end at 0 (or at the floor);
    exponential, step and multistep multiply it by learning_rate_decay.
    """
    optimizer_epsilon: Annotated[float, Gt(0)] = 1e-5
    """Added to the denominator of adaptive update rules."""
    max_grad_norm: Annotated[float, Gt(0)] | None = 0.5
    """Largest global norm of the gradient; None: no clipping."""
    gamma: UnitInterval = 0.99
    """Discount factor."""
    gae_lambda: UnitInterval = 0.95
    """Mix of short and long advantage estimates."""
    clip_epsilon: Annotated[float, Gt(0)] = 0.2
    """How far the probability ratio may move from 1 before it stops counting."""
    clip_value_loss: bool = True
    """Also clip value predictions to within clip_epsilon of the old ones (no evidence it helps)."""
    entropy_coef: Annotated[float, Ge(0)] = 0.01
    """Weight of the entropy bonus."""
    value_coef: Annotated[float, Ge(0)] = 0.5
    """Weight of the value loss, half the squared error."""
    normalize_advantages: bool = True
    """Standardise advantages within each minibatch."""
    normalize_observations: bool = False
    """Standardise observations by running statistics, clipped to +-10."""
    normalize_rewards: bool = False
    """Divide rewards by the running std of the discounted return, clipped to +-10."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class A2CConfig(OptimizerConfig):
    """Advantage Actor-Critic. Defaults are Stable-Baselines3's."""

    num_steps: PositiveInt = 5
    """Steps that each environment takes in one iteration."""
    sequence_length: PositiveInt | None = None
    """For agents with memory: the steps of a sequence, through which gradients flow back; divides
    num_steps. None: num_steps.
    """
    learning_rate: StepSize = 7e-4
    """Step size of the optimiser, which its schedule scales."""
    optimizer: OptimizerName = "rmsprop"
    """Update rule."""
    optimizer_epsilon: Annotated[float, Gt(0)] = 1e-5
    """Added to the denominator of adaptive update rules."""
    max_grad_norm: Annotated[float, Gt(0)] | None = 0.5
    """Largest global norm of the gradient; None: no clipping."""
    gamma: UnitInterval = 0.99
    """Discount factor."""
    gae_lambda: UnitInterval = 1.0
    """Mix of short and long advantage estimates; 1: n-step returns."""
    entropy_coef: Annotated[float, Ge(0)] = 0.0
    """Weight of the entropy bonus."""
    value_coef: Annotated[float, Ge(0)] = 0.5
    """Weight of the value loss, the squared error."""
    normalize_advantages: bool = False
    """Standardise advantages within each rollout."""
    normalize_observations: bool = False
    """Standardise observations by running statistics, clipped to +-10."""
    normalize_rewards: bool = False
    """Divide rewards by the running std of the discounted return, clipped to +-10."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PQNConfig(OptimizerConfig):
    """Parallelised Q-Network. Defaults are CleanRL's `pqn.py`.

    Exploration belongs to the agent, see `QNetworkConfig`.
    """

    num_steps: PositiveInt = 128
    """Steps that each environment takes in one iteration."""
    num_epochs: PositiveInt = 4
    """Passes over each rollout."""
    num_minibatches: PositiveInt = 4
    """Minibatches in each pass; must divide num_envs x num_steps (with memory: the sequences)."""
    sequence_length: PositiveInt | None = None
    """For agents with memory: the steps of a sequence, through which gradients flow back; divides
    num_steps. None: num_steps.
    """
    learning_rate: StepSize = 2.5e-4
    """Step size of the optimiser, which its schedule scales."""
    learning_rate_schedule: ScheduleName = "linear"
    """How the step size falls over the run. linear and cosine end at 0 (or at the floor);
    exponential, step and multistep multiply it by learning_rate_decay.
    """
    optimizer: OptimizerName = "radam"
    """Update rule."""
    max_grad_norm: Annotated[float, Gt(0)] | None = 10.0
    """Largest global norm of the gradient; None: no clipping."""
    gamma: UnitInterval = 0.99
    """Discount factor."""
    q_lambda: UnitInterval = 0.65
    """Mix of short and long returns; 0: one-step Q-learning, 1: rewards to the rollout's end."""
    normalize_observations: bool = False
    """Standardise observations by running statistics, clipped to +-10."""
    normalize_rewards: bool = False
    """Divide rewards by the running std of the discounted return, clipped to +-10."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OffPolicyConfig(OptimizerConfig):
    """Settings that off-policy algorithms have in common."""

    num_steps: PositiveInt = 1
    """Steps that each environment takes in one iteration, before the updates."""
    prefill_steps: Count = 1000
    """Random steps before learning, over all environments; rounded up to whole rollouts."""
    capacity: LargeCount = 1_000_000
    """Transitions kept, over all environments; new ones overwrite the oldest."""
    batch_size: PositiveInt = 256
    """Transitions in a gradient step; with memory, rounded up to whole sequences."""
    sequence_length: Annotated[PositiveInt, Ge(2)] | None = None
    """For agents with memory: the steps of a sequence that are learned from, through which
    gradients flow back. None: 20.
    """
    burn_in: Count | None = None
    """For agents with memory: the steps before them, which only bring the stored memory up to date.
    None: 10.
    """
    updates_per_step: Annotated[float, Gt(0)] = 1.0
    """Gradient steps per environment step, over all environments; exact over the run: a fraction
    with a denominator up to 1000, or 1/n with n up to 65,536.
    """
    n_step: PositiveInt = 1
    """Number of rewards summed before bootstrapping; fewer where an episode ends."""
    priority_exponent: UnitInterval | None = None
    """How strongly replay prefers large errors (0.6 in the paper); None: no prioritised replay."""
    importance_exponent: UnitInterval = 0.4
    """Initial exponent of prioritised replay's importance weights; rises linearly to 1."""
    gamma: UnitInterval = 0.99
    """Discount factor."""
    normalize_observations: bool = False
    """Standardise observations by running statistics, clipped to +-10."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DQNConfig(OffPolicyConfig):
    """Deep Q-Network. Defaults are CleanRL's `dqn.py`, except for double Q-learning."""

    prefill_steps: Count = 10_000
    """Random steps before learning, over all environments; rounded up to whole rollouts."""
    capacity: LargeCount = 10_000
    """Transitions kept, over all environments; new ones overwrite the oldest."""
    batch_size: PositiveInt = 128
    """Transitions in a gradient step; with memory, rounded up to whole sequences."""
    updates_per_step: Annotated[float, Gt(0)] = 0.1
    """Gradient steps per environment step, over all environments."""
    learning_rate: StepSize = 2.5e-4
    """Step size of the optimiser, which its schedule scales."""
    target_period: PositiveInt = 500
    """Environment steps between two copies to the target network, over all environments."""
    double: bool = True
    """Double Q-learning: the online network picks the next action, the target network values it."""
    loss: Literal["mse", "huber"] = "mse"
    """Squared error, or Huber loss: half the squared error, but linear beyond 1."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class QRDQNConfig(OffPolicyConfig):
    """Quantile-regression DQN.

    Defaults are those of Stable-Baselines3-Contrib before 2.3: the paper's, for Atari.
    """

    num_steps: PositiveInt = 4
    """Steps that each environment takes in one iteration, before the updates."""
    prefill_steps: Count = 50_000
    """Random steps before learning, over all environments; rounded up to whole rollouts."""
    batch_size: PositiveInt = 32
    """Transitions in a gradient step; with memory, rounded up to whole sequences."""
    updates_per_step: Annotated[float, Gt(0)] = 0.25
    """Gradient steps per environment step, over all environments."""
    learning_rate: StepSize = 5e-5
    """Step size of the optimiser, which its schedule scales."""
    optimizer_epsilon: Annotated[float, Gt(0)] = 0.01 / 32
    """Added to the denominator of adaptive update rules."""
    target_period: PositiveInt = 10_000
    """Environment steps between two copies to the target network, over all environments."""
    double: bool = False
    """Double Q-learning: the online network picks the next action, the target network values it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SACConfig(OffPolicyConfig):
    """Soft Actor-Critic. Defaults are Stable-Baselines3's, except for CleanRL's longer prefill."""

    prefill_steps: Count = 5000
    """Random steps before learning, over all environments; rounded up to whole rollouts."""
    tau: Annotated[float, Gt(0), Le(1)] = 0.005
    """Fraction by which the target critics move towards the critics after every update."""
    temperature: Annotated[float, Ge(0)] | None = None
    """Weight of the entropy; None: learned, starting at the agent's initial_temperature."""
    target_entropy: float | None = None
    """Target entropy of actions in [-1, 1]; None: minus the number of action dimensions."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TD3Config(OffPolicyConfig):
    """Twin Delayed DDPG. Defaults are Stable-Baselines3's, except for our SAC's longer prefill."""

    prefill_steps: Count = 5000
    """Random steps before learning, over all environments; rounded up to whole rollouts."""
    learning_rate: StepSize = 1e-3
    """Step size of the optimiser, which its schedule scales."""
    tau: Annotated[float, Gt(0), Le(1)] = 0.005
    """Fraction by which all targets move towards their networks whenever the actor steps."""
    policy_delay: Annotated[PositiveInt, Le(65_536)] = 2
    """Critic updates per update of the actor and of all targets."""
    target_noise: Annotated[float, Ge(0)] = 0.2
    """Standard deviation of the noise on target actions, for actions in [-1, 1]."""
    target_noise_clip: Annotated[float, Ge(0)] = 0.5
    """Bound to which the noise on target actions is clipped."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiscreteSACConfig(OffPolicyConfig):
    """Soft Actor-Critic for discrete actions.

    Defaults are CleanRL's `sac_atari.py`, except for targets that follow slowly.
    """

    prefill_steps: Count = 20_000
    """Random steps before learning, over all environments; rounded up to whole rollouts."""
    batch_size: PositiveInt = 64
    """Transitions in a gradient step; with memory, rounded up to whole sequences."""
    updates_per_step: Annotated[float, Gt(0)] = 0.25
    """Gradient steps per environment step, over all environments."""
    optimizer_epsilon: Annotated[float, Gt(0)] = 1e-4
    """Added to the denominator of adaptive update rules."""
    tau: Annotated[float, Gt(0), Le(1)] = 0.005
    """Fraction by which the target critics move towards the critics after every update."""
    temperature: Annotated[float, Ge(0)] | None = None
    """Weight of the entropy; None: learned, starting at the agent's initial_temperature."""
    target_entropy_ratio: UnitInterval = 0.89
    """Target entropy, as a fraction of that of uniformly random actions."""


def check_rollout(
    config: PPOConfig | A2CConfig | PQNConfig, num_envs: int, *, has_memory: bool
) -> None:
    """Raises `ConfigError` unless a rollout can be cut into sequences and minibatches."""
    steps, length = config.num_steps, config.sequence_length
    require(has_memory or length is None, *_without_memory("sequence_length", length))
    require_divides("sequence_length", length or steps, steps, f"num_steps={steps}")
    if isinstance(config, A2CConfig):
        return
    sequences = num_envs * steps // (length or steps)
    size = sequences if has_memory else num_envs * steps
    what = "sequences" if has_memory else "samples"
    require_divides(
        "num_minibatches",
        config.num_minibatches,
        size,
        f"the {size} {what} of a rollout (num_envs={num_envs} x num_steps={steps}"
        f"{f', in sequences of {length or steps} for the memory' if has_memory else ''})",
        ", or more environments, or a shorter sequence_length" if has_memory else "",
    )


def check_sequences(config: OffPolicyConfig, *, has_memory: bool) -> None:
    """Raises `ConfigError` for settings of sequences that an agent without memory does not use."""
    for name in ("sequence_length", "burn_in"):
        value = getattr(config, name)
        require(has_memory or value is None, *_without_memory(name, value))


def _without_memory(name: str, value: int | None) -> tuple[str, str]:
    return (
        f"{name}={value} has no effect on an agent without memory",
        f"set it to None (--{name.replace('_', '-')} None), or give the agent memory"
        ' (memory="gru", --memory gru)',
    )


def require_divides(name: str, value: int, size: int, whole: str, other_fix: str = "") -> None:
    """Raises `ConfigError` unless the setting `name` cuts the `size` parts of `whole` equally."""
    require(
        size % value == 0,
        f"{name}={value} does not divide {whole}",
        f"use {name}={_nearest_divisors(size, value)}{other_fix}",
    )


def _nearest_divisors(size: int, wanted: int) -> str:
    """The three divisors of `size` that are nearest to `wanted`."""
    small = [n for n in range(1, math.isqrt(size) + 1) if size % n == 0]
    divisors = {*small, *(size // n for n in small)}
    return " or ".join(map(str, sorted(sorted(divisors, key=lambda n: (abs(n - wanted), n))[:3])))
