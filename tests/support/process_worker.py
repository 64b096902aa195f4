"""One of several processes that train a small run by the Python API, started by tests.

    python process_worker.py '{"name": "ppo", ...}' PORT COUNT INDEX

Prints, as JSON, digests of its own replica of the learner and of the evaluations that it returned.
With COUNT 1 nothing is started: the process trains alone, on `devices` of its own.
"""

import json
import sys
from typing import Any

import gymnasium
import numpy as np
from small_trainers import trainer_of
from stopping import StopAt

import rlkit
from rlkit.envs.host.gymnasium import GymnasiumAdapter
from rlkit.training.compile.placing import own_part
from rlkit.training.config import CheckpointerConfig
from rlkit.training.files.checkpoint_leaves import tree_digest
from rlkit.types import TrainState

NUM_ENVS = 8


class Fails(rlkit.Callback):
    """Raises after an outer iteration."""

    def __init__(self, iteration: int):
        self._iteration = iteration

    def on_iteration_end(self, trainer: Any, iteration: int, metrics: dict[str, float]) -> None:
        if iteration == self._iteration:
            raise OSError("no more paper")


class Breaks(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole, of which the environments of one process break after some steps."""

    steps_left = 10**9

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))

    def step(self, action: Any) -> Any:
        Breaks.steps_left -= 1
        if Breaks.steps_left < 0:
            raise OSError("broken joint")
        return super().step(action)


def digest(state: TrainState) -> str:
    """That of this process's replica of the learner, whatever the length of the run."""
    return tree_digest(own_part(state.learner.replace(total_steps=None)))


def main(wanted: dict[str, Any], port: str, count: int, index: int) -> None:
    """Trains what is wanted, in process `index` of `count`."""
    if count > 1:
        rlkit.start_processes(f"127.0.0.1:{port}", count, index, timeout=wanted.get("timeout", 10))
    name = wanted["name"]
    settings = wanted.get("settings", {}) | wanted.get("settings_of", {}).get(str(index), {})
    env: Any = None
    if wanted.get("host"):
        env = GymnasiumAdapter(wanted["host"], NUM_ENVS)
    if "breaks_in" in wanted:
        env = GymnasiumAdapter(Breaks, NUM_ENVS)
        Breaks.steps_left = 700 if index == wanted["breaks_in"] else Breaks.steps_left
    table = {"priority_exponent": 0.6, "capacity": 120} | wanted.get("table", {})
    callbacks: list[rlkit.Callback] = [StopAt(wanted["stop_at"])] if "stop_at" in wanted else []
    callbacks += [Fails(wanted["fails_at"])] if "fails_at" in wanted else []
    saving = CheckpointerConfig(save_replay=wanted.get("save_replay"))
    with trainer_of(
        name,
        num_envs=NUM_ENVS,
        env=env,
        table=table,
        others={"callbacks": callbacks},
        **({"checkpointer_config": saving} | settings),
    ) as trainer:
        restored = None
        if settings.get("restore_checkpoint"):
            restored = digest(trainer.init(0))
        history = trainer.run(None if restored else 0)
        found = {
            "learner": digest(trainer.state),
            "restored": restored,
            "returns": [np.asarray(each.get("return", 0.0)).tolist() for each in history],
            "iterations": trainer.outer_iteration,
            "env_steps": trainer.env_steps,
            "stop_reason": trainer.stop_reason,
        }
    sys.stderr.write(f"FOUND {json.dumps(found)}\n")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
