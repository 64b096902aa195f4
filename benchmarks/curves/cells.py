"""The cells: an algorithm on a task, beside a reference with the same hyperparameters.

Plain data, importable in every contender's environment.
"""

import dataclasses

from tasks import TASKS, A2CTask, NormalizedPPOTask, PQNTask, Task, ZooDQNTask

OURS = "rlkit"
PARTS = 10
"""A curve has so many points: the mean training return of each tenth of the run."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """What rlkit and the reference both train, and on how many seeds each."""

    task: Task
    reference: str
    """The contender that rlkit is held against; its driver is `drivers/curve_<reference>.py`."""
    seeds: int = 8
    variants: dict[str, dict[str, object]] = dataclasses.field(default_factory=dict)
    """Other contenders, which are rlkit with changes, by what they show."""

    def changes(self, contender: str) -> dict[str, object] | None:
        """The settings that make rlkit this contender; None for the reference."""
        return {} if contender == OURS else self.variants.get(contender)

    @property
    def contenders(self) -> tuple[str, ...]:
        """Those that are trained on all seeds."""
        return (OURS, self.reference, *self.variants)


def settings(cell: Cell) -> dict[str, object]:
    """The task as plain data, by which a record tells whether it belongs to the cell."""
    return dataclasses.asdict(cell.task)


# PureJaxRL's own settings of ppo.py and dqn.py.
_PPO, _DQN = TASKS["cartpole-4x128"], TASKS["dqn-cartpole"]
# Its ppo_rnn.py, whose layers and memory are all of this width.
_RECURRENT = dataclasses.replace(
    TASKS["cartpole-4x128-memory"], num_updates=970, hidden=(128, 128), memory_size=128
)
# A quarter of its ten million steps on MinAtar, over which the learning rate falls.
_MINATAR = dataclasses.replace(TASKS["breakout-64x128"], num_updates=310)
_SAC = dataclasses.replace(TASKS["sac-pendulum"], num_updates=20_000, capacity=21_000)
_TD3 = dataclasses.replace(_SAC, algorithm="td3", learning_rate=1e-3)
# rl-baselines3-zoo's for MuJoCo.
_MUJOCO = dataclasses.replace(
    _SAC,
    suite="gymnasium",
    env="HalfCheetah-v5",
    num_updates=90_000,
    prefill_steps=10_000,
    capacity=1_000_000,
)
# Stable-Baselines3's PPO on the host, with the value loss not clipped, its default.
_HOST_PPO = dataclasses.replace(
    _PPO, suite="gymnasium", num_envs=8, num_updates=490, clip_value_loss=False
)
# Half of CleanRL's million steps on MuJoCo, with the value loss not clipped.
_MUJOCO_PPO = NormalizedPPOTask(
    suite="gymnasium",
    env="HalfCheetah-v5",
    num_envs=1,
    num_steps=2048,
    num_updates=240,
    num_minibatches=32,
    num_epochs=10,
    learning_rate=3e-4,
    clip_value_loss=False,
    entropy_coef=0.0,
)
# Half of rl-baselines3-zoo's million steps, with a learning rate that falls.
_CAR_PPO = dataclasses.replace(
    _MUJOCO_PPO,
    env="MountainCar-v0",
    num_envs=16,
    num_steps=16,
    num_updates=1950,
    num_minibatches=4,
    num_epochs=4,
    gae_lambda=0.98,
)
# rl-baselines3-zoo's, with a prefill and a length of whole rounds.
_CAR_DQN = ZooDQNTask(
    algorithm="dqn",
    suite="gymnasium",
    env="MountainCar-v0",
    num_updates=7440,
    prefill_steps=1008,
    capacity=10_000,
    batch_size=128,
    learning_rate=4e-3,
    gamma=0.98,
    target_period=600,
    epsilon_end=0.07,
    exploration_fraction=0.2,
    num_steps=16,
    steps_per_update=8,
)
# Stable-Baselines3's defaults, in 8 environments.
_A2C = A2CTask(
    suite="gymnasium",
    env="CartPole-v1",
    num_envs=8,
    num_steps=5,
    num_updates=12_500,
    learning_rate=7e-4,
)
# purejaxql's for CartPole and Acrobot, with rewards as they are.
_PQN = PQNTask(
    env="CartPole-v1",
    num_envs=32,
    num_steps=64,
    num_updates=240,
    num_epochs=4,
    num_minibatches=16,
    learning_rate=1e-4,
    activation="relu",
    hidden=(256, 256),
    max_grad_norm=10.0,
    q_lambda=0.95,
    epsilon_end=0.2,
    exploration_fraction=0.2,
)


def _on(task: Task, env: str, **changes: object) -> Task:
    return dataclasses.replace(task, env=env, **changes)  # type: ignore[arg-type]


# What rejax's networks start from; actor-critics of rlkit start orthogonal, as most references do.
_LECUN: dict[str, dict[str, object]] = {
    "rlkit, LeCun-normal weights": {"weight_init": "lecun_normal"}
}
# What the reference does, and what we hold for wrong.
_LIMITS: dict[str, dict[str, object]] = {
    "rlkit, time limits terminate": {"time_limits_terminate": True}
}
# SBX's TD3 moves the targets in every update; the paper's, and ours, in every second.
_FAST_TARGETS: dict[str, dict[str, object]] = {"rlkit, targets twice as fast": {"tau": 0.01}}
# Its heads see the memory alone, and it starts from other weights.
_MEMORY: dict[str, dict[str, object]] = {
    "rlkit, the reference's network": {"purejaxrl_memory": True}
}

CELLS: dict[str, Cell] = {
    "dqn-cartpole": Cell(task=_DQN, reference="purejaxrl", seeds=16, variants=_LIMITS),
    "dqn-acrobot": Cell(task=_on(_DQN, "Acrobot-v1"), reference="purejaxrl"),
    "dqn-cartpole-rejax": Cell(task=_DQN, reference="rejax", variants=_LIMITS),
    "ppo-cartpole": Cell(task=_PPO, reference="purejaxrl"),
    "ppo-acrobot": Cell(task=_on(_PPO, "Acrobot-v1"), reference="purejaxrl"),
    "ppo-cartpole-rejax": Cell(task=_PPO, reference="rejax", variants=_LECUN),
    "ppo-acrobot-rejax": Cell(task=_on(_PPO, "Acrobot-v1"), reference="rejax", variants=_LECUN),
    "ppo-gru-cartpole": Cell(task=_RECURRENT, reference="purejaxrl"),
    "ppo-gru-memorychain": Cell(
        task=_on(_RECURRENT, "MemoryChain-bsuite", num_envs=32, num_updates=120),
        reference="purejaxrl",
        variants=_MEMORY,
    ),
    "ppo-breakout": Cell(task=_MINATAR, reference="purejaxrl"),
    "ppo-asterix": Cell(task=_on(_MINATAR, "Asterix-MinAtar"), reference="purejaxrl"),
    "ppo-spaceinvaders": Cell(task=_on(_MINATAR, "SpaceInvaders-MinAtar"), reference="purejaxrl"),
    "pqn-cartpole": Cell(task=_PQN, reference="purejaxql", variants=_LIMITS),
    "pqn-acrobot": Cell(task=_on(_PQN, "Acrobot-v1"), reference="purejaxql", variants=_LIMITS),
    "sac-pendulum": Cell(task=_SAC, reference="rejax"),
    "td3-pendulum": Cell(task=_TD3, reference="rejax"),
    "ppo-cartpole-host": Cell(task=_HOST_PPO, reference="sb3", seeds=5),
    "ppo-acrobot-host": Cell(task=_on(_HOST_PPO, "Acrobot-v1"), reference="sb3", seeds=5),
    "ppo-halfcheetah": Cell(task=_MUJOCO_PPO, reference="sb3", seeds=5),
    "ppo-hopper": Cell(task=_on(_MUJOCO_PPO, "Hopper-v5"), reference="sb3", seeds=5),
    "ppo-walker2d": Cell(task=_on(_MUJOCO_PPO, "Walker2d-v5"), reference="sb3", seeds=5),
    "a2c-cartpole-host": Cell(task=_A2C, reference="sb3", seeds=5),
    "a2c-acrobot-host": Cell(task=_on(_A2C, "Acrobot-v1"), reference="sb3", seeds=5),
    "dqn-cartpole-host": Cell(
        task=dataclasses.replace(_DQN, suite="gymnasium"), reference="sb3", seeds=5
    ),
    "dqn-mountaincar-host": Cell(task=_CAR_DQN, reference="sb3", seeds=5),
    "ppo-mountaincar-host": Cell(task=_CAR_PPO, reference="sb3", seeds=5),
    "sac-halfcheetah": Cell(task=_MUJOCO, reference="sbx", seeds=5),
    "sac-hopper": Cell(task=_on(_MUJOCO, "Hopper-v5"), reference="sbx", seeds=5),
    "sac-walker2d": Cell(task=_on(_MUJOCO, "Walker2d-v5"), reference="sbx", seeds=5),
    "td3-halfcheetah": Cell(
        task=_on(_MUJOCO, "HalfCheetah-v5", algorithm="td3"), reference="sbx", seeds=5
    ),
    "td3-hopper": Cell(
        task=_on(_MUJOCO, "Hopper-v5", algorithm="td3"),
        reference="sbx",
        seeds=5,
        variants=_FAST_TARGETS,
    ),
    "td3-walker2d": Cell(
        task=_on(_MUJOCO, "Walker2d-v5", algorithm="td3"), reference="sbx", seeds=5
    ),
}
