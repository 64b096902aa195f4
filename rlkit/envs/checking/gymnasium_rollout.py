"""Plays a Gymnasium environment at random for `check_env`: what happened, and mistakes in what it
returned on the way.
"""

import copy
import math
import sysconfig
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlkit.envs.checking.gymnasium_values import Problems, leaves, reset_problems, step_problems
from rlkit.envs.jittable.contract import Finding
from rlkit.spaces import Space

MANY = 1000  # episodes of this many steps are played to their end, whatever num_steps says


class Play:
    """Random steps of one environment, with resets: the record of them, and what was wrong with
    what it returned.

    It stops early at what hides the rest: an exception, or a result that is not what Gymnasium
    defines.
    """

    def __init__(self, env: gymnasium.Env, name: str) -> None:
        self.env, self.name = env, name
        self.findings: dict[str, Finding] = {}
        self.ends: list[
            tuple[int, bool, bool]
        ] = []  # (length, terminated, truncated) of every episode that ended
        self.longest = 0  # steps of the longest episode, ended or not
        self.seconds: list[float] = []  # of every step
        self.rewards = (math.inf, -math.inf)  # lowest and highest
        self.ranges: dict[
            str, tuple[Space, np.ndarray, np.ndarray]
        ] = {}  # by path: space, lowest and highest of each element
        self._held: list[
            tuple[str, np.ndarray, np.ndarray]
        ] = []  # the last observation: path, the array itself, a copy

    def run(self, num_steps: int, limit: int | None, *, seed: int, seconds: float) -> "Play":
        """`num_steps` steps; past two time limits of up to 1000 steps where that takes no more than
        `seconds`.
        """
        wanted = max(num_steps, 2 * limit + 2) if limit is not None and limit <= MANY else num_steps
        deadline = time.perf_counter() + seconds
        age = 0 if self._reset(seed=seed) else None
        for count, action in zip(range(wanted), actions(self.env.action_space, seed), strict=False):
            if age is None or (count >= num_steps and time.perf_counter() > deadline):
                break
            flags = self._step(action, f"step {count + 1}")
            if flags is None:
                break
            age += 1
            self.longest = max(self.longest, age)
            if any(flags):
                self.ends.append((age, *flags))
                age = 0 if self._reset() else None
        return self

    @property
    def broken(self) -> bool:
        """Whether there is an error among the findings."""
        return any(finding.severity == "error" for finding in self.findings.values())

    def _reset(self, **kwargs: Any) -> bool:
        """Whether the environment can be stepped now."""
        result = self._call("reset", lambda: self.env.reset(**kwargs))
        if result is None:
            return False
        self._compare_held("reset")
        ok = self._note(reset_problems(self.name, self.env.observation_space, result[0]))
        if ok:
            self._hold(result[0][0])
        return ok

    def _step(self, action: Any, moment: str) -> tuple[bool, bool] | None:
        given = np.array(action)
        start = time.perf_counter()
        result = self._call(
            "step", lambda: self.env.step(action), f" with the action {given.tolist()}, {moment}"
        )
        self.seconds.append(time.perf_counter() - start)
        if result is None:
            return None
        if not np.array_equal(given, action):
            cure = (
                "write action = np.clip(action, ...) instead of action[...] = or np.clip(...,"
                " out=action)"
            )
            what = f"{self.name}.step changes the array of the action that it is given"
            why = (
                "the caller may store that array: the action learned from would not be the one"
                " chosen"
            )
            self._note(iter([("action", Finding("warning", what, cure, why))]))
        self._compare_held("step")
        if not self._note(step_problems(self.name, self.env.observation_space, result[0], moment)):
            return None
        obs, reward, terminated, truncated, _ = result[0]
        self.rewards = min(self.rewards[0], float(reward)), max(self.rewards[1], float(reward))
        self._hold(obs)
        return bool(terminated), bool(truncated)

    def _call(self, method: str, call: Callable[[], Any], how: str = "") -> tuple[Any] | None:
        try:
            return (call(),)
        except Exception as error:
            self.findings.setdefault(method, raised(f"{self.name}.{method}", error, how))
            return None

    def _note(self, problems: Problems) -> bool:
        """Keeps the first of each kind; whether one can go on after them."""
        found = list(problems)
        for key, finding in found:
            self.findings.setdefault(key, finding)
        fatal = ("reset", "step", "info", "reward type", "terminated", "truncated")
        return not any(
            finding.severity == "error" and (key in fatal or key.endswith((" shape", " structure")))
            for key, finding in found
        )

    def _hold(self, obs: Any) -> None:
        self._held = []
        for path, space, value in leaves(self.env.observation_space, obs):
            if isinstance(value, np.ndarray):
                self._held.append((path, value, value.copy()))
            value = np.asarray(value)
            _, low, high = self.ranges.get(path, (space, value, value))
            self.ranges[path] = (space, np.minimum(low, value), np.maximum(high, value))

    def _compare_held(self, method: str) -> None:
        """Whether the observation from before the call is still what it was."""
        for path, array, was in self._held:
            if not np.array_equal(array, was, equal_nan=array.dtype.kind == "f"):
                what = (
                    f"{self.name}.{method} overwrites the observation{path} that the call before it"
                    " returned"
                )
                why = (
                    "rlkit copies every observation, but whoever stores them finds the same last"
                    " one everywhere"
                )
                finding = Finding("warning", what, "return a new array each time: obs.copy()", why)
                self.findings.setdefault(f"held{path}", finding)


def actions(space: Space, seed: int) -> Iterator[Any]:
    """Random actions without end; two of three in a bounded Box are on a bound, where agents go
    often.
    """
    space = copy.deepcopy(space)
    space.seed(seed)
    bounded = isinstance(space, spaces.Box) and space.is_bounded()
    while True:
        yield space.sample()
        if bounded:
            assert isinstance(space, spaces.Box)
            yield space.low.copy()
            yield space.sample()
            yield space.high.copy()


def raised(label: str, error: BaseException, how: str = "") -> Finding:
    """The finding that a call raised `error`, with the last line of the traceback that is the
    user's own.
    """
    others = (sysconfig.get_path("stdlib"), str(Path(__file__).parent), "<frozen")
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(others)
    ]
    own = [frame for frame in frames if "site-packages" not in frame.filename]
    at = f" at {Path(own[-1].filename).name}:{own[-1].lineno} `{own[-1].line}`" if own else ""
    reason = (str(error).strip().splitlines() or [""])[0]
    return Finding(
        "error",
        f"{label} raises {type(error).__name__}{at}: {reason}{how and f' ({how.strip()})'}",
        "correct it",
    )
