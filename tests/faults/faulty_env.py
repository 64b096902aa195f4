"""`Walk`, an environment of which one copy misbehaves once. Worker processes import it: no JAX."""

import os
import sys
import time
from typing import Any

import numpy as np
from gymnasium import spaces

from tests.envs.host_envs import Faulty


class Walk(Faulty):
    """Observes its last action and the time, in episodes of five steps.

    The first copy that takes `at` steps misbehaves: it does what `Faulty` does for `fault`, after
    it has written the time to the file `record`.
    """

    observation_space = spaces.Box(-99.0, 99.0, (2,), np.float32)
    max_episode_steps = 5

    def __init__(self, record: str, fault: str = "none", at: int = 75, continuous: bool = False):
        super().__init__(fault)
        self.record, self.at, self.steps = record, at, 0
        if continuous:
            self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        self.time = 0
        return super().reset(seed=seed)

    def step(self, action: Any):
        self.time += 1
        self.steps += 1
        if self.steps == self.at and self.fault != "none" and self._is_first():
            result = self._misbehave()
            if result is not None:
                return result
        push = float(np.sum(action))
        obs = np.array([push, self.time], np.float32)
        return obs, push - self.time, False, self.time == self.max_episode_steps, {}

    def _is_first(self) -> bool:
        try:
            record = os.open(self.record, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return False
        os.write(record, f"{time.time()}".encode())
        os.close(record)
        return True

    def _misbehave(self) -> Any:
        match self.fault:
            case "sys.exit":
                sys.exit(0)
            case "text":
                return np.array(["a", "b"]), 0.0, False, False, {}
            case "nan reward":
                return np.zeros(2, np.float32), np.nan, False, False, {}
        return super()._misbehave()
