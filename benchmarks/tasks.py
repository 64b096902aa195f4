"""The tasks: hyperparameters that every contender uses.

Plain data, importable in every contender's environment.
"""

import dataclasses
from typing import Any, ClassVar, Literal


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnPolicyTask:
    """What algorithms that learn from whole rollouts share."""

    name: ClassVar[str]
    """Name of the algorithm."""
    suite: Literal["gymnax", "gymnasium", "navix", "craftax", "jumanji", "pgx", "xminigrid"] = (
        "gymnax"
    )
    env: str
    """Environment id without the suite."""
    num_envs: int
    num_steps: int
    num_updates: int
    """Number of rollouts, for a few seconds; final returns say nothing about learning."""
    learning_rate: float
    activation: str = "tanh"
    hidden: tuple[int, ...] = (64, 64)
    gamma: float = 0.99
    max_grad_norm: float = 0.5
    num_seeds: int = 1
    """Parallel seeds in one program; all other numbers are per seed."""

    @property
    def kind(self) -> tuple[str, ...]:
        """What a driver must support: algorithm, suite, and "seeds" if there are several."""
        return (self.name, self.suite, "seeds") if self.num_seeds > 1 else (self.name, self.suite)

    @property
    def env_steps(self) -> int:
        return self.num_envs * self.num_steps * self.num_updates

    @property
    def total_steps(self) -> int:
        """Environment steps of the whole run."""
        return self.env_steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class PPOTask(OnPolicyTask):
    """PPO: separate actor and critic networks, Adam, learning rate decayed linearly to zero."""

    name: ClassVar[str] = "ppo"
    num_minibatches: int
    num_epochs: int = 4
    gae_lambda: float = 0.95
    clip_epsilon: float = 0.2
    clip_value_loss: bool = True
    entropy_coef: float = 0.01
    value_coef: float = 0.5

    @property
    def gradient_steps(self) -> int:
        return self.num_updates * self.num_epochs * self.num_minibatches


@dataclasses.dataclass(frozen=True, kw_only=True)
class NormalizedPPOTask(PPOTask):
    """PPO on running statistics of observations and of discounted returns, both clipped to 10."""

    normalize_observations: bool = True
    normalize_rewards: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecurrentPPOTask(PPOTask):
    """PPO with a GRU: a layer, the memory, a layer; actor and critic share the memory."""

    name: ClassVar[str] = "recurrent_ppo"
    activation: str = "relu"
    memory_size: int = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvolutionalPPOTask(PPOTask):
    """PPO whose images go through a CNN; those of the other tasks are flattened."""

    name: ClassVar[str] = "convolutional_ppo"


@dataclasses.dataclass(frozen=True, kw_only=True)
class A2CTask(OnPolicyTask):
    """A2C: separate actor and critic networks, RMSprop, constant learning rate."""

    name: ClassVar[str] = "a2c"
    gae_lambda: float = 1.0
    entropy_coef: float = 0.0
    value_coef: float = 0.5

    @property
    def gradient_steps(self) -> int:
        return self.num_updates


@dataclasses.dataclass(frozen=True, kw_only=True)
class PQNTask(OnPolicyTask):
    """PQN: layers normalised, rectified Adam, learning rate decayed linearly to zero."""

    name: ClassVar[str] = "pqn"
    num_minibatches: int
    num_epochs: int
    q_lambda: float
    epsilon_start: float = 1.0
    epsilon_end: float
    exploration_fraction: float
    """Fraction of the run over which epsilon falls linearly."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OffPolicyTask:
    """SAC, TD3 or DQN: a gradient step per step of the environments, Adam, constant learning rate.

    SAC learns its temperature, starting at 1, for a target entropy of minus the number of action
    dimensions. TD3 has a policy delay of 2 and the usual target noise. DQN is not double and uses
    the squared error (but see `ZooDQNTask`).
    """

    algorithm: Literal["sac", "td3", "dqn"]
    suite: Literal["gymnax", "gymnasium"] = "gymnax"
    env: str
    """Environment id without the suite."""
    num_envs: int = 1
    num_updates: int
    """Gradient steps, for a few seconds, as for PPO."""
    prefill_steps: int = 1000
    """Environment steps before learning, over all environments."""
    capacity: int
    """Capacity of the replay memory in transitions, over all environments."""
    batch_size: int = 256
    learning_rate: float = 3e-4
    activation: str = "relu"
    hidden: tuple[int, ...] = (256, 256)
    gamma: float = 0.99
    tau: float = 0.005
    """SAC: Polyak step of the target critics after every gradient step. TD3: of all targets,
    whenever the actor steps.
    """
    exploration_noise: float = 0.1
    """TD3: standard deviation of the noise on unit actions."""
    target_period: int = 500
    """DQN: environment steps between two copies of the network to the target network."""
    epsilon_start: float = 1.0
    epsilon_end: float = 0.05
    exploration_fraction: float = 0.5
    """DQN: fraction of the run, prefill included, over which epsilon falls linearly."""
    num_seeds: ClassVar[int] = 1

    @property
    def kind(self) -> tuple[str, ...]:
        """As in `PPOTask`."""
        return self.algorithm, self.suite

    @property
    def env_steps(self) -> int:
        """Environment steps while learning, without the prefill."""
        return self.num_envs * self.num_updates

    @property
    def total_steps(self) -> int:
        """Environment steps of the whole run."""
        return self.prefill_steps + self.env_steps

    @property
    def gradient_steps(self) -> int:
        return self.num_updates


@dataclasses.dataclass(frozen=True, kw_only=True)
class ZooDQNTask(OffPolicyTask):
    """DQN as rl-baselines3-zoo trains it: several gradient steps at once, and Huber's loss.

    An update is a round of gradient steps.
    """

    num_steps: int
    """Steps of each environment between two updates."""
    steps_per_update: int
    """Gradient steps in an update."""
    max_grad_norm: float = 10.0
    loss: str = "huber"

    @property
    def env_steps(self) -> int:
        return self.num_envs * self.num_steps * self.num_updates

    @property
    def gradient_steps(self) -> int:
        return self.num_updates * self.steps_per_update


Task = OnPolicyTask | OffPolicyTask

# PureJaxRL's own settings.
CARTPOLE_SETTINGS: dict[str, Any] = dict(
    env="CartPole-v1", num_envs=4, num_steps=128, num_minibatches=4, learning_rate=2.5e-4
)
CARTPOLE = PPOTask(num_updates=970, **CARTPOLE_SETTINGS)
# PureJaxRL's MinAtar settings: the images are flattened for an MLP.
BREAKOUT_SETTINGS: dict[str, Any] = dict(
    env="Breakout-MinAtar",
    num_steps=128,
    num_minibatches=8,
    learning_rate=5e-3,
    activation="relu",
)

TASKS: dict[str, Task] = {
    "cartpole-4x128": CARTPOLE,
    "cartpole-4x128-4-seeds": dataclasses.replace(CARTPOLE, num_seeds=4, num_updates=300),
    "cartpole-4x128-16-seeds": dataclasses.replace(CARTPOLE, num_seeds=16, num_updates=100),
    "cartpole-4x128-64-seeds": dataclasses.replace(CARTPOLE, num_seeds=64, num_updates=30),
    # PureJaxRL's ppo_rnn.py, whose settings are the same.
    "cartpole-4x128-memory": RecurrentPPOTask(num_updates=200, **CARTPOLE_SETTINGS),
    "cartpole-512x64": PPOTask(
        env="CartPole-v1",
        num_envs=512,
        num_steps=64,
        num_updates=40,
        num_minibatches=8,
        learning_rate=1e-3,
    ),
    "breakout-64x128": PPOTask(num_envs=64, num_updates=40, **BREAKOUT_SETTINGS),
    # Navix's own settings, with 4 epochs. Both networks see codes as numbers, as Navix's do.
    "navix-16x128": PPOTask(
        suite="navix",
        env="Navix-Empty-5x5-v0",
        num_envs=16,
        num_steps=128,
        num_updates=100,
        num_minibatches=8,
        learning_rate=2.5e-4,
    ),
    # Craftax_Baselines' own settings, but for Classic, fewer environments and narrower layers.
    "craftax-64x64": PPOTask(
        suite="craftax",
        env="Craftax-Classic-Symbolic-v1",
        num_envs=64,
        num_steps=64,
        num_updates=20,
        num_minibatches=8,
        learning_rate=2e-4,
        gae_lambda=0.8,
        max_grad_norm=1.0,
        hidden=(128, 128, 128),
    ),
    # XLand-MiniGrid's own settings, but for fewer environments and a smaller network.
    "xminigrid-512x16": RecurrentPPOTask(
        suite="xminigrid",
        env="MiniGrid-Empty-5x5",
        num_envs=512,
        num_steps=16,
        num_updates=50,
        num_minibatches=16,
        num_epochs=1,
        learning_rate=1e-3,
    ),
    # Pgx's own settings, but for fewer environments and flat images; its learning rate is constant.
    "pgx-64x128": PPOTask(
        suite="pgx",
        env="minatar-breakout",
        num_envs=64,
        num_steps=128,
        num_updates=40,
        num_minibatches=8,
        num_epochs=3,
        learning_rate=3e-4,
    ),
    # Jumanji's own settings, but for smaller networks and RMSprop.
    "jumanji-32x50": A2CTask(
        suite="jumanji",
        env="Game2048-v1",
        num_envs=32,
        num_steps=50,
        num_updates=200,
        learning_rate=2e-4,
        gae_lambda=0.95,
        entropy_coef=0.01,
        value_coef=1.0,
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
    "sac-pendulum": OffPolicyTask(
        algorithm="sac", env="Pendulum-v1", num_updates=3000, capacity=20_000
    ),
    # The cost of a memory of the usual size, mostly unused.
    "sac-pendulum-1m": OffPolicyTask(
        algorithm="sac", env="Pendulum-v1", num_updates=3000, capacity=1_000_000
    ),
    # CleanRL's and PureJaxRL's own settings.
    "dqn-cartpole": OffPolicyTask(
        algorithm="dqn",
        env="CartPole-v1",
        num_envs=10,
        num_updates=49_000,
        prefill_steps=10_000,
        capacity=10_000,
        batch_size=128,
        learning_rate=2.5e-4,
        hidden=(120, 84),
    ),
    "sac-halfcheetah": OffPolicyTask(
        algorithm="sac",
        suite="gymnasium",
        env="HalfCheetah-v5",
        num_updates=2000,
        capacity=1_000_000,
    ),
}

SAC_PENDULUM = dataclasses.replace(
    TASKS["sac-pendulum"], capacity=1_024_000, prefill_steps=1024, num_updates=2000
)
DQN_CARTPOLE = TASKS["dqn-cartpole"]

# For GPUs: many environments, many seeds, and small tasks, where starting kernels takes the time.
GPU_TASKS: dict[str, Task] = {
    "gpu-cartpole-4x128": dataclasses.replace(CARTPOLE, num_updates=100),
    "gpu-cartpole-512x128": dataclasses.replace(CARTPOLE, num_envs=512, num_updates=100),
    "gpu-cartpole-4096x128": dataclasses.replace(CARTPOLE, num_envs=4096, num_updates=50),
    "gpu-cartpole-65536x32": dataclasses.replace(
        CARTPOLE, num_envs=65_536, num_steps=32, num_updates=20
    ),
    "gpu-cartpole-4x128-256-seeds": dataclasses.replace(CARTPOLE, num_seeds=256, num_updates=50),
    "gpu-breakout-4096x128": dataclasses.replace(
        TASKS["breakout-64x128"], num_envs=4096, num_updates=10
    ),
    "gpu-breakout-cnn-1024x128": ConvolutionalPPOTask(
        num_envs=1024, num_updates=10, **BREAKOUT_SETTINGS
    ),
    "gpu-sac-pendulum-1": SAC_PENDULUM,
    "gpu-sac-pendulum-64": dataclasses.replace(SAC_PENDULUM, num_envs=64),
    "gpu-sac-pendulum-4096": dataclasses.replace(
        SAC_PENDULUM, num_envs=4096, prefill_steps=8192, num_updates=1000
    ),
    "gpu-dqn-cartpole-1": dataclasses.replace(DQN_CARTPOLE, num_envs=1, num_updates=5000),
    "gpu-dqn-cartpole-64": dataclasses.replace(
        DQN_CARTPOLE, num_envs=64, num_updates=5000, prefill_steps=12_800, capacity=64_000
    ),
    "gpu-dqn-cartpole-4096": dataclasses.replace(
        DQN_CARTPOLE,
        num_envs=4096,
        num_updates=2000,
        prefill_steps=16_384,
        capacity=409_600,
        target_period=40_960,
    ),
}
TASKS |= GPU_TASKS
