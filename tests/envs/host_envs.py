"""Small Gymnasium environments for the host adapter tests. Worker processes import them: no JAX
here.
"""

import copy
import os
import signal
import time
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces


class Clock(gymnasium.Env):
    """Counts its steps: observation [t, 10 t], reward t; terminates after `length` steps.

    `max_episode_steps` truncates it.
    """

    def __init__(
        self, length: int = 3, max_episode_steps: int | None = None, render_mode: str | None = None
    ):
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = spaces.Discrete(2)
        self.length, self.render_mode = length, render_mode
        if max_episode_steps is not None:
            self.max_episode_steps = max_episode_steps
        self.buffer = np.zeros(2)
        self.closed = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.buffer[:] = 0.0
        return self.buffer, {"ignored": 1}

    def step(self, action: Any):
        self.buffer += (1.0, 10.0)
        t = int(self.buffer[0])
        info = {
            "t": t,
            "half": t / 2,
            "parts": np.arange(2) + t,
            "text": "no number",
            "deep": {"no": 1},
        }
        truncated = t >= getattr(self, "max_episode_steps", t + 1)
        return self.buffer, float(t), t >= self.length, truncated, info

    def render(self):
        return np.full((4, 5, 3), int(self.buffer[0]), np.uint8)

    def close(self):
        self.closed += 1


class Echo(gymnasium.Env):
    """Observes the last action and random values, in any spaces; ends with probability 0.1."""

    def __init__(self, observation_space: spaces.Space, action_space: spaces.Space):
        # Each seeds its own
        self.observation_space, self.action_space = (
            copy.deepcopy(observation_space),
            action_space,
        )
        self.actions: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any):
        assert self.action_space.contains(action), (
            f"{action!r} of {type(action)} is not in {self.action_space}"
        )
        self.actions.append(action)
        draw = self.np_random.random()
        return self.observation_space.sample(), draw, draw < 0.05, 0.05 < draw < 0.1, {}


NESTED = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (6, 5, 3), np.uint8),
        "body": spaces.Dict(
            {"joints": spaces.Box(-1.0, 1.0, (3,), np.float64), "contact": spaces.MultiBinary(2)}
        ),
        "both": spaces.Tuple((spaces.Discrete(4), spaces.Box(-1.0, 1.0, (), np.float32))),
    }
)


class NestedEcho(Echo):
    """Observations of every kind, nested."""

    def __init__(self):
        super().__init__(NESTED, spaces.MultiDiscrete([3, 2]))


class Faulty(gymnasium.Env):
    """Fails as `fault` says in the step whose action is 1, or in what `where` names.

    `where` is a reset, the constructor or close.
    """

    observation_space = spaces.Box(-10.0, 10.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(
        self,
        fault: str = "raise",
        where: str = "step",
        parent: int = 0,
        pid_file: str | None = None,
    ):
        self.fault, self.where, self.parent = fault, where, parent
        if pid_file is not None and os.getpid() != parent:
            with open(pid_file, "a") as file:
                file.write(f"{os.getpid()}\n")
        if where == "construction" and os.getpid() != parent:
            self._misbehave()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        if self.where == "reset" and os.getpid() != self.parent:
            self._misbehave()
        return np.zeros(2, np.float32), {}

    def step(self, action: Any):
        if self.where == "step" and action == 1:
            result = self._misbehave()
            if result is not None:
                return result
        return np.zeros(2, np.float32), 0.0, False, False, {}

    def close(self):
        if self.where == "close" and os.getpid() != self.parent:
            self._misbehave()

    def _misbehave(self):
        match self.fault:
            case "raise":
                raise ZeroDivisionError("the joint is broken")
            case "unpicklable":
                raise Unpicklable(lambda: 0)
            case "exit":
                os._exit(3)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                time.sleep(1000)
            case "spin":
                while True:
                    pass
            case "hang where no signal helps":
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGURG})
                time.sleep(1000)
            case "pause where no signal helps":
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGURG})
                time.sleep(2.5)
            case "pause":
                time.sleep(2.5)
            case "slow":
                time.sleep(0.3)
            case "nan observation":
                return np.array([0.0, np.nan], np.float32), 0.0, False, False, {}
            case "infinite reward":
                return np.zeros(2, np.float32), np.inf, False, False, {}
            case "no reward":
                return np.zeros(2, np.float32), None, False, False, {}
            case "shape":
                return np.zeros(3, np.float32), 0.0, False, False, {}
            case "four values":
                return np.zeros(2, np.float32), 0.0, False, {}
        return None


class Slow(gymnasium.Env):
    """Takes half a second to be built, or to be reset and shown in a window."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["human"]}
    observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, where: str = "reset", render_mode: str | None = None):
        self.where, self.render_mode = where, render_mode
        if where == "construction":
            time.sleep(0.5)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        if self.where == "reset":
            time.sleep(0.5)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any):
        return np.zeros(2, np.float32), 0.0, False, False, {}


class Unpicklable(Exception):
    """An exception that cannot be pickled."""


class LateShape(gymnasium.Env):
    """From its third step on, returns another shape, which broadcasting would accept."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(3, np.float32), {}

    def step(self, action: int):
        self.time += 1
        return np.full(3 if self.time < 3 else 1, 7, np.float32), 0.0, False, False, {}
