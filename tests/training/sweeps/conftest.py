"""Sweeps of a second or two."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from algorithm_rows import config_of, network_of, registered, training_env
from blank_curves import blank_curves, real_curves  # noqa: F401 - fixtures

TRAINER = {
    "num_checkpoints": 2,
    "epochs_per_checkpoint": 1,
    "evaluation_episodes": 2,
    "max_evaluation_steps": 20,
    "debug": False,
    "logger_config": {"console": False},
}


@dataclasses.dataclass
class Sweeps:
    """Makes and trains sweeps in directories of their own; keeps what they said."""

    root: Path
    said: list[str] = dataclasses.field(default_factory=list)

    def run_config(self, algorithm: str = "ppo", env: str | None = None, **trainer: Any) -> Any:
        from rlkit.training.config import TrainerConfig
        from rlkit.training.run_config import EnvConfig, RunConfig
        from rlkit.validation import from_dict

        return RunConfig(
            algorithm=registered(algorithm),
            env=EnvConfig(id=env or training_env(algorithm), num_envs=2),
            hyperparameters=config_of(algorithm),
            network=network_of(algorithm),
            trainer=from_dict(TrainerConfig, TRAINER | trainer),
        )

    def config(
        self,
        algorithm: str = "ppo",
        *,
        grid: Mapping[str, Any] | None = None,
        env: str | None = None,
        sweep: Mapping[str, Any] | None = None,
        **trainer: Any,
    ) -> Any:
        from rlkit.training.sweeps.config import SweepConfig

        grid = {"learning_rate": (1e-3, 1e-2), "gamma": (0.9, 0.99)} if grid is None else grid
        run = self.run_config(algorithm, env, **trainer)
        return SweepConfig(run=run, grid=grid, **(sweep or {}))

    def run(self, config: Any, name: str = "sweep", **more: Any) -> Any:
        from rlkit.training.sweeps.sweep import run_sweep

        return run_sweep(config, self.root / name, say=self.said.append, **more)

    def alone(self, config: Any, trial: int, name: str = "alone") -> Any:
        """The state of a trial that is trained as a run of its own."""
        from rlkit.training.from_config import build

        run = config.trial(config.trial_settings()[trial])
        trainer = dataclasses.replace(run.trainer, run_dir=str(self.root / name))
        with build(dataclasses.replace(run, trainer=trainer)) as built:
            built.run(run.seed)
            return built.state

    def state_of(self, sweep: Any, trial: int) -> Any:
        """The state of a trial, read back from its run directory."""
        from rlkit.training.from_config import reopen

        with reopen(sweep.trial_directory(trial)) as trainer:
            return trainer.state


@pytest.fixture
def sweeps(tmp_path: Path) -> Sweeps:
    return Sweeps(tmp_path)
