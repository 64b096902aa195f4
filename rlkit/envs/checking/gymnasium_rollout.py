"""A random rollout of a Gymnasium environment, and the mistakes found on the way."""

import copy
import dataclasses
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

from rlkit.action_masks import (
    ACTION_MASK,
    METHOD,
    NO_ACTION,
    first_without_choice,
    flat_mask,
    mask_in,
    num_choices,
    random_allowed,
)
from rlkit.envs.checking.gymnasium_values import Problems, leaves, reset_problems, step_problems
from rlkit.envs.host.actions import arrays_of, as_lists
from rlkit.envs.jittable.contract import Finding
from rlkit.envs.non_finite import NonFinite, is_finite
from rlkit.spaces import Space, map_space
from rlkit.spaces import leaves as spaces_in

ASSERTED = (
    "look at what that line asserts: actions may be any of action_space, its bounds included, and"
    " episodes begin anywhere that reset can"
)
ENDS_EPISODE = "with non_finite='reset' the episode ends there, and is counted"
LONGEST_LIMIT = 1000  # num_steps is raised to reach declared time limits up to this one


class EnvRollout:
    """Random steps of one environment, with resets: statistics, and mistakes in returned values.

    Stops at the first exception or result that Gymnasium does not allow, since it would hide
    others.
    """

    def __init__(self, env: gymnasium.Env, name: str, non_finite: NonFinite = "raise") -> None:
        self.env, self.name = env, name
        self._resets_broken = non_finite == "reset"
        self._is_cut = False  # whether NaN or infinity ended the episode
        self.findings: dict[str, Finding] = {}
        self.ends: list[
            tuple[int, bool, bool]
        ] = []  # (length, terminated, truncated) of every finished episode
        self.longest = 0  # steps of the longest episode, finished or not
        self.seconds: list[float] = []  # of each step
        self.rewards = (math.inf, -math.inf)  # lowest and highest reward
        self.ranges: dict[
            str, tuple[Space, np.ndarray, np.ndarray]
        ] = {}  # by path: space, elementwise minimum and maximum
        self.unseen_masks = False  # whether the environment gives masks beside its observations
        self.counters = Counters(env)
        self._last: Any = None  # the last observation and info
        self._returned: list[
            tuple[str, np.ndarray, np.ndarray]
        ] = []  # last observation: path, the array itself, a copy

    def run(self, num_steps: int, limit: int | None, *, seed: int, seconds: float) -> "EnvRollout":
        """Runs `num_steps` steps, or up to `seconds` more to pass a time limit <= 1000 twice."""
        wanted = (
            max(num_steps, 2 * limit + 2)
            if limit is not None and limit <= LONGEST_LIMIT
            else num_steps
        )
        deadline = time.perf_counter() + seconds
        chooser = Chooser(self.env, seed)
        age = 0 if self._reset(seed=seed) else None
        for count in range(wanted):
            if age is None or (count >= num_steps and time.perf_counter() > deadline):
                break
            action = chooser(*self._last)
            if chooser.is_stuck:
                what = f"{self.name} allows no action in a running episode"
                self.findings["mask"] = Finding("error", what, NO_ACTION)
                break
            flags = self._step(action, f"step {count + 1}")
            if flags is None:
                break
            age += 1
            self.longest = max(self.longest, age)
            if any(flags):
                if not self._is_cut:
                    self.ends.append((age, *flags))
                age = 0 if self._reset() else None
        self.unseen_masks = chooser.unseen_masks
        return self

    @property
    def has_errors(self) -> bool:
        """Whether any finding is an error."""
        return any(finding.severity == "error" for finding in self.findings.values())

    def _reset(self, **kwargs: Any) -> bool:
        """Resets; returns whether the environment can be stepped now."""
        result = self._call("reset", lambda: self.env.reset(**kwargs))
        if result is None:
            return False
        self._check_unchanged("reset")
        ok = self._collect(reset_problems(self.name, self.env.observation_space, result[0]))
        if ok:
            self.counters.see_reset()
            self._remember(result[0][0])
            self._last = result[0]
        return ok

    def _step(self, action: Any, moment: str) -> tuple[bool, bool] | None:
        given, arrays = copy.deepcopy(action), arrays_of(action)
        start = time.perf_counter()
        result = self._call(
            "step", lambda: self.env.step(action), f" with action {as_lists(given)}, {moment}"
        )
        self.seconds.append(time.perf_counter() - start)
        if result is None:
            return None
        if not _are(arrays, arrays_of(action), arrays_of(given)):
            fix = (
                "write action = np.clip(action, ...) instead of action[...] = or np.clip(...,"
                " out=action), and copy a dict before changing it"
            )
            what = f"{self.name}.step changes the action in place"
            why = "the caller may store it and would learn from an action that was not chosen"
            self._collect(iter([("action", Finding("warning", what, fix, why))]))
        self._check_unchanged("step")
        if not self._collect(
            step_problems(self.name, self.env.observation_space, result[0], moment)
        ):
            return None
        self.counters.see_step()
        obs, reward, terminated, truncated, info = result[0]
        self._is_cut = self._resets_broken and not (is_finite(obs) and is_finite(reward))
        if self._is_cut:
            return True, False
        self._last = obs, info
        self.rewards = min(self.rewards[0], float(reward)), max(self.rewards[1], float(reward))
        self._remember(obs)
        return bool(terminated), bool(truncated)

    def _call(self, method: str, call: Callable[[], Any], how: str = "") -> tuple[Any] | None:
        try:
            return (call(),)
        except Exception as error:
            self.findings.setdefault(method, exception_finding(f"{self.name}.{method}", error, how))
            return None

    def _collect(self, problems: Problems) -> bool:
        """Keeps the first finding of each kind; returns whether the rollout can continue."""
        findings = list(problems)
        for key, finding in findings:
            if self._resets_broken and key.endswith(" finite"):
                finding = dataclasses.replace(finding, severity="warning", why=ENDS_EPISODE)
            self.findings.setdefault(key, finding)
        fatal = ("reset", "step", "info", "reward type", "terminated", "truncated")
        return not any(
            finding.severity == "error" and (key in fatal or key.endswith((" shape", " structure")))
            for key, finding in findings
        )

    def _remember(self, obs: object) -> None:
        self._returned = []
        for path, space, value in leaves(self.env.observation_space, obs):
            if isinstance(value, np.ndarray):
                self._returned.append((path, value, value.copy()))
            value = np.asarray(value)
            _, low, high = self.ranges.get(path, (space, value, value))
            self.ranges[path] = (space, np.minimum(low, value), np.maximum(high, value))

    def _check_unchanged(self, method: str) -> None:
        """Reports an observation of the previous call that has changed since."""
        for path, array, was in self._returned:
            if not np.array_equal(array, was, equal_nan=array.dtype.kind == "f"):
                what = (
                    f"{self.name}.{method} overwrites the observation{path} that the previous call"
                    " returned"
                )
                why = (
                    "rlkit copies every observation, but code that stores them would hold the same"
                    " one everywhere"
                )
                finding = Finding("warning", what, "return a new array each time: obs.copy()", why)
                self.findings.setdefault(f"held{path}", finding)


class Counters:
    """Attributes of an environment that count its steps, and whether resets set them back."""

    def __init__(self, env: gymnasium.Env) -> None:
        self._env = env.unwrapped
        self._last: dict[str, int] = {}  # of those that count, so far
        self._steps = self._resets = 0

    @property
    def going_on(self) -> list[str]:
        """Those that counted on over the end of an episode, as parts of a sentence."""
        is_told = self._resets > 1 and self._steps > self._resets  # else nothing need have counted
        return [f"self.{name}" for name in self._last] if is_told else []

    def see_step(self) -> None:
        """Keeps what has grown by one."""
        self._steps += 1
        self._keep(1)

    def see_reset(self) -> None:
        """Keeps what a reset left as it was."""
        self._resets += 1
        if self._resets == 1:
            self._last = self._numbers()
        else:
            self._keep(0)

    def _keep(self, growth: int) -> None:
        last, now = self._last, self._numbers()
        self._last = {name: x for name, x in now.items() if last.get(name) == x - growth}

    def _numbers(self) -> dict[str, int]:
        own = getattr(self._env, "__dict__", {})
        return {
            name: int(x)
            for name, x in own.items()
            if isinstance(x, int | np.integer) and not isinstance(x, bool)
        }


class Chooser:
    """Random actions of an environment, of those that it allows: by its observations, by its infos
    or by a method.
    """

    def __init__(self, env: gymnasium.Env, seed: int) -> None:
        self._env, self._random = env, actions(env.action_space, seed)
        self._space, self._dice = env.action_space, np.random.default_rng(seed)
        self.is_stuck = False  # whether nothing was allowed
        self.unseen_masks = False  # whether there was a mask beside the observations

    def __call__(self, obs: Any, info: Any) -> Any:
        """An action after this observation and info."""
        action, mask = next(self._random), mask_in(obs)
        if not isinstance(self._space, spaces.Discrete | spaces.MultiDiscrete):
            return action
        if mask is None:
            mask = info.get(ACTION_MASK) if isinstance(info, dict) else None
            if mask is None and self._env.has_wrapper_attr(METHOD):
                mask = self._env.get_wrapper_attr(METHOD)()
            self.unseen_masks |= mask is not None
        choices = num_choices(self._space)
        flat = None if mask is None else flat_mask(mask)
        if flat is None or flat.size != sum(choices):  # the size is checked elsewhere
            return action
        if first_without_choice(flat[None], choices) is not None:
            self.is_stuck = True
            return action
        return random_allowed(flat[None], self._space, self._dice)[0]


def actions(space: Space, seed: int) -> Iterator[Any]:
    """Endless random actions; half of those in a bounded Box are on its bounds."""
    space = copy.deepcopy(space)
    space.seed(seed)

    def at(bound: str) -> Any:
        return map_space(
            lambda leaf: getattr(leaf, bound).copy() if _is_bounded(leaf) else leaf.sample(), space
        )

    some_bounds = any(map(_is_bounded, spaces_in(space)))
    while True:
        yield space.sample()
        if some_bounds:
            yield at("low")
            yield space.sample()
            yield at("high")


def _is_bounded(space: Space) -> bool:
    return isinstance(space, spaces.Box) and space.is_bounded()


def exception_finding(label: str, error: BaseException, how: str = "") -> Finding:
    """The finding for a call that raised `error`, with the last line of the user's own code."""
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
        ASSERTED if isinstance(error, AssertionError) else "fix it",
    )


def _are(before: list[Any], after: list[Any], values: list[Any]) -> bool:
    """Whether arrays are the same objects after a step as before it, with these values."""
    same = [id(x) for x in before] == [id(x) for x in after]
    return same and all(map(np.array_equal, after, values))
