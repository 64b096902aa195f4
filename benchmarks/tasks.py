"""The tasks: hyper-parameters that every contender runs with. Plain data, importable in every contender's environment."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True, kw_only=True)
class PPOTask:
    """PPO: separate actor and critic networks, Adam, a learning rate that falls linearly to zero."""

    suite: Literal["gymnax", "gymnasium"] = "gymnax"
    env: str
    """The id, without the suite."""
    num_envs: int
    num_steps: int
    num_updates: int
    """Rollouts; a few seconds' worth, so what a task ends with is no statement about learning."""
    num_minibatches: int
    learning_rate: float
    activation: str = "tanh"
    hidden: tuple[int, ...] = (64, 64)
    num_epochs: int = 4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_epsilon: float = 0.2
    clip_value_loss: bool = True
    entropy_coef: float = 0.01
    value_coef: float = 0.5
    max_grad_norm: float = 0.5

    @property
    def env_steps(self) -> int:
        return self.num_envs * self.num_steps * self.num_updates

    @property
    def gradient_steps(self) -> int:
        return self.num_updates * self.num_epochs * self.num_minibatches


TASKS = {
    # PureJaxRL's own settings.
    "cartpole-4x128": PPOTask(
        env="CartPole-v1", num_envs=4, num_steps=128, num_updates=970, num_minibatches=4, learning_rate=2.5e-4
    ),
    "cartpole-512x64": PPOTask(
        env="CartPole-v1", num_envs=512, num_steps=64, num_updates=40, num_minibatches=8, learning_rate=1e-3
    ),
    # PureJaxRL's MinAtar settings: the images are flattened for an MLP.
    "breakout-64x128": PPOTask(
        env="Breakout-MinAtar",
        num_envs=64,
        num_steps=128,
        num_updates=40,
        num_minibatches=8,
        learning_rate=5e-3,
        activation="relu",
    ),
    # Stable-Baselines3 does not clip the value loss by default, and SBX cannot.
    "gymnasium-cartpole-8x128": PPOTask(
        suite="gymnasium",
        env="CartPole-v1",
        num_envs=8,
        num_steps=128,
        num_updates=98,
        num_minibatches=4,
        learning_rate=2.5e-4,
        clip_value_loss=False,
    ),
}
