"""Small runs of any algorithm by the Python API."""

from typing import Any

import algorithm_rows

from rlkit.envs.base import EnvAdapter
from rlkit.envs.registry import make_env
from rlkit.training.config import LoggerConfig, TrainerConfig
from rlkit.training.trainer import Trainer
from rlkit.validation import PlainData

NUM_ENVS, OUTER = 4, 3
SETTINGS: dict[str, Any] = {
    "num_checkpoints": OUTER,
    "epochs_per_checkpoint": 1,
    "evaluation_episodes": 3,
    "max_evaluation_steps": 16,
    "debug": False,
    "logger_config": LoggerConfig(console=False),
}


def trainer_of(
    name: str = "ppo",
    *,
    num_envs: int = NUM_ENVS,
    env: EnvAdapter | None = None,
    table: PlainData | None = None,
    others: PlainData | None = None,
    **settings: Any,
) -> Trainer:
    """A trainer for a name of `algorithm_rows`, in `env` or else where that algorithm trains.

    `table` are settings of the algorithm, as far as it has them, `others` arguments of the Trainer.
    """
    env = env or make_env(algorithm_rows.training_env(name), num_envs)
    known = algorithm_rows.known(algorithm_rows.entry(name).config, table or {})
    return Trainer(
        env,
        None,
        algorithm_rows.agent_of(name, env),
        algorithm_rows.algorithm_of(name, **known),
        TrainerConfig(**(SETTINGS | settings)),
        **(others or {}),
    )
