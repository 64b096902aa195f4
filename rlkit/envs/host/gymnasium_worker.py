"""Builds and guards one Gymnasium environment, in this process or a worker. Must not import JAX."""

import copy
import dataclasses
import faulthandler
import multiprocessing
import os
import signal
import threading
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from rlkit.envs.host.actions import as_lists
from rlkit.envs.host.env_state import load_env, save_env
from rlkit.envs.host.masked_env import MaskedEnv
from rlkit.envs.host.watchdog import Pulse
from rlkit.envs.non_finite import LARGEST, TRIES, NonFinite, is_finite
from rlkit.envs.observations import check_observation
from rlkit.errors import EnvContractError, EnvStateError, require, shown

NUMBERS = "numbers"  # the only key of a guard's final info: ((name, number or array), ...)
BROKEN = "non_finite"  # a flag beside them, if NaN or infinity ended the episode
NO_INFO: dict[str, Any] = {}  # what a guard returns at every other step
ATARI = "ALE/"
FLAG_TYPES = {bool, np.bool_}
REWARD_TYPES = {float, int, bool, np.float64, np.float32}  # others are looked at more closely


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to build one environment, in this process or in a worker."""

    # a gymnasium EnvSpec, an Atari id, a class or callable, or a gymnasium.Env object
    env: Any
    kwargs: dict[str, Any]
    max_episode_steps: int | None
    rescale_actions: bool
    action_masks: bool
    render_mode: str | None
    non_finite: NonFinite = "raise"

    @property
    def is_instance(self) -> bool:
        """Whether `env` is an environment object, which the user has to close."""
        return isinstance(self.env, gymnasium.Env)

    def build(self) -> gymnasium.Env:
        """A new environment, or the object itself. Raises `EnvContractError` and its own errors."""
        kwargs = (
            dict(self.kwargs)
            if self.render_mode is None
            else {**self.kwargs, "render_mode": self.render_mode}
        )
        env, limit = self.env, self.max_episode_steps
        if isinstance(env, EnvSpec):
            # A spec instead of an id, because workers do not know the user's registrations.
            # Gymnasium's checker is off: rlkit has its own.
            env, limit = (
                gymnasium.make(env, max_episode_steps=limit, disable_env_checker=True, **kwargs),
                None,
            )
        elif isinstance(env, str):
            from rlkit.envs.host.atari import make_atari

            env, limit = make_atari(env, max_episode_steps=limit, **kwargs), None
        elif not self.is_instance:
            env = env(**kwargs)
        check_is_env(env)
        env = env if limit is None else gymnasium.wrappers.TimeLimit(env, limit)
        if self.rescale_actions:
            check_rescalable(env.action_space)
            env = gymnasium.wrappers.RescaleAction(env, np.float32(-1.0), np.float32(1.0))
        return MaskedEnv(env) if self.action_masks else env


def check_is_env(env: object) -> None:
    """Raises `EnvContractError` unless `env` is a `gymnasium.Env` with spaces, reset and step."""
    kind = type(env).__name__
    if not isinstance(env, gymnasium.Env):
        fix = (
            "see Gymnasium's docs on how to port it"
            if hasattr(env, "step")
            else "return a gymnasium.Env"
        )
        raise EnvContractError(f"{kind} is not a gymnasium.Env; {fix}")
    inner = env.unwrapped
    for method in ("reset", "step"):
        if getattr(type(inner), method) is getattr(gymnasium.Env, method):
            raise EnvContractError(f"{type(inner).__name__} has no method {method!r}; define it")
    for name in ("observation_space", "action_space"):
        space = getattr(env, name, None)
        if not isinstance(space, gymnasium.Space):
            raise EnvContractError(
                f"{kind}.{name} is {space!r}; set it to a gymnasium space in __init__"
            )


def check_rescalable(space: gymnasium.Space) -> None:
    """Raises `ConfigError` unless `space` is a Box with finite bounds, as rescaling needs."""
    box = isinstance(space, gymnasium.spaces.Box)
    require(
        box,
        f"rescale_actions=True, but the action space is {space}",
        "leave rescale_actions out: only Box actions can be rescaled",
    )
    finite = box and bool(np.isfinite(space.low).all() and np.isfinite(space.high).all())
    require(
        finite,
        f"rescale_actions=True needs finite bounds, but the action space is {space}",
        "declare bounds, or leave rescale_actions out",
    )


FIVE = "write `return obs, reward, terminated, truncated, info`"
FAILURES = (Exception, SystemExit)  # `sys.exit()` in an environment is no end of the run


@dataclasses.dataclass(frozen=True)
class Failure:
    """One environment's exception as text, which can be sent through a pipe."""

    index: int
    phase: str  # "construction", "reset", "step" or "render"
    steps: int  # steps of this environment since it was built, including the failed one
    action: str
    error: str
    traceback: str

    def __str__(self) -> str:
        when = f"step {self.steps} (action {self.action})" if self.phase == "step" else self.phase
        return f"environment {self.index} raised {self.error} in {when}"


class EnvRaised(Exception):
    """An environment raised; `args[0]` is the `Failure`."""

    @property
    def failure(self) -> Failure:
        """The failure inside; Gymnasium wraps a worker's exception in another of the same type."""
        return self.args[0].failure if isinstance(self.args[0], EnvRaised) else self.args[0]


class Guard:
    """Wraps one environment for a vector environment, which builds it at the first reset.

    Exceptions become `EnvRaised`. The last observation of an episode is copied, because an
    environment may return the same array every time and the next reset would overwrite it. Infos
    are dropped, except for the numbers in the last one of an episode. It has its own `metadata`,
    because vector environments write into the class's.

    If the recipe says so, NaN or infinity ends the episode, with the flag `BROKEN`.
    """

    def __init__(
        self,
        recipe: Recipe,
        index: int,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        pulse: Pulse,
        *,
        in_worker: bool = False,
    ):
        self.observation_space = observation_space
        self.action_space = action_space
        self.metadata: dict[str, Any] = {}
        self.render_mode = recipe.render_mode
        self._recipe = recipe
        self._resets_broken = recipe.non_finite == "reset"
        self._index = index
        self._pulse = pulse
        self._steps = 0
        # shared memory broadcasts what does not fit; in one process Gymnasium raises
        self._checks_always = in_worker
        self._env: gymnasium.Env | None = None
        self._env_step: Callable[[Any], Any] = lambda action: None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode and returns its first observation."""
        pulse = self._pulse
        pulse.index, pulse.phase, pulse.beats = self._index, "reset", pulse.beats + 1
        phase = "construction" if self._env is None else "reset"
        try:
            if self._env is None:
                pulse.phase = ""  # it may download something
            env = self._built()
            phase = pulse.phase = "reset"
            obs = _first(env.reset(seed=seed, options=options))
            for _ in range(TRIES - 1 if self._resets_broken else 0):
                if is_finite(obs):
                    break
                obs = _first(env.reset(options=options))
            check_observation(self.observation_space, obs, bounds=self._steps == 0)
        except FAILURES as error:
            raise self._raised(phase, error) from error
        pulse.phase = "step"  # SAME_STEP continues with the other environments' steps
        return obs, NO_INFO

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step; this is the hot path."""
        pulse = self._pulse
        pulse.index = self._index
        pulse.beats += 1
        self._steps += 1
        try:
            found = self._env_step(action)
            try:
                obs, reward, terminated, truncated, info = found
            except (TypeError, ValueError):
                told = f"step must return five values, got {shown(found)}; {FIVE}"
                raise EnvContractError(told) from None
            if self._steps == 1 or self._checks_always:
                check_observation(self.observation_space, obs, bounds=self._steps == 1)
            if type(reward) not in REWARD_TYPES:
                check_reward(reward)
            if type(terminated) not in FLAG_TYPES or type(truncated) not in FLAG_TYPES:
                check_flag("terminated", terminated)
                check_flag("truncated", truncated)
            if self._resets_broken and not (is_finite(reward) and is_finite(obs)):
                return copy.deepcopy(obs), 0.0, True, False, {NUMBERS: numbers(info), BROKEN: True}
            if terminated or truncated:
                # It is in no batch: the adapter alone writes it into a row, which broadcasts.
                check_observation(self.observation_space, obs)
                return copy.deepcopy(obs), reward, terminated, truncated, {NUMBERS: numbers(info)}
        except FAILURES as error:
            raise self._raised("step", error, action) from error
        return obs, reward, terminated, truncated, NO_INFO

    def save(self) -> np.ndarray | str:
        """The state of the environment as bytes, or why it cannot be saved.

        An exception would end a worker process.
        """
        pulse = self._pulse
        pulse.index, pulse.beats = self._index, pulse.beats + 1
        try:
            return save_env(self._built())
        except FAILURES as error:
            return f"environment {self._index}: {_text(error)}"

    def load(self, states: Sequence[np.ndarray]) -> str:
        """Puts the environment where it was saved; `states` are those of all environments.

        Returns why that is not possible, "" if it is.
        """
        pulse = self._pulse
        pulse.index, pulse.beats = self._index, pulse.beats + 1
        try:
            load_env(self._built(), states[self._index])
        except FAILURES as error:
            return f"environment {self._index}: {_text(error)}"
        return ""

    def render(self) -> Any:
        """An image of this environment."""
        try:
            return None if self._env is None else self._env.render()
        except FAILURES as error:
            raise self._raised("render", error) from error

    def close(self) -> None:
        """Closes the environment, unless the user passed it as an object."""
        env, self._env = self._env, None
        if env is not None and not self._recipe.is_instance:
            env.close()

    def get_wrapper_attr(self, name: str) -> Any:
        """WorkerEnvs look up `render`, `save` and `load` here."""
        return getattr(self, name)

    def _built(self) -> gymnasium.Env:
        if self._env is None:
            env = self._recipe.build()
            for name in ("observation_space", "action_space"):
                if getattr(env, name) != getattr(self, name):
                    raise EnvContractError(
                        f"its {name} is {getattr(env, name)}, but that of the first one built is"
                        f" {getattr(self, name)}; give every copy the same spaces"
                    )
            if not self._recipe.is_instance:
                self._claim(env)
            self._env, self._env_step = env, env.step
        return self._env

    def _claim(self, env: gymnasium.Env) -> None:
        """Raises `EnvContractError` if another guard steps the same object."""
        inner = env.unwrapped
        other = _guards.get(id(inner))
        require(
            other is None or other._env is None or other._env.unwrapped is not inner,
            f"the function that makes it returned one {type(inner).__name__} for two environments,"
            " which would play the same episode",
            "create a new environment in each call",
            EnvContractError,
        )
        _guards[id(inner)] = self

    def _raised(self, phase: str, error: BaseException, action: object = None) -> EnvRaised:
        self._pulse.phase = ""
        text = "".join(traceback.format_exception(error))
        shown = repr(as_lists(action))
        return EnvRaised(
            Failure(
                self._index, phase, self._steps, shown, f"{type(error).__name__}: {error}", text
            )
        )


# Whose each environment in this process is, by its id, which holds while its guard has it. It
# catches functions that return one object again and again.
_guards: weakref.WeakValueDictionary[int, Guard] = weakref.WeakValueDictionary()


def _text(error: BaseException) -> str:
    return str(error) if isinstance(error, EnvStateError) else f"{type(error).__name__}: {error}"


@dataclasses.dataclass(frozen=True)
class GuardFactory:
    """Creates the guard of environment `index`; a vector environment or its worker calls it."""

    recipe: Recipe
    index: int
    observation_space: gymnasium.Space
    action_space: gymnasium.Space
    parent: int  # process id of the adapter's process
    pulse: Pulse | None = None  # None: create one

    def __call__(self) -> Any:  # a Guard, typed as the Env that Gymnasium expects
        in_worker = os.getpid() != self.parent
        if in_worker:
            set_up_worker()
        pulse = self.pulse or Pulse()
        return Guard(
            self.recipe,
            self.index,
            self.observation_space,
            self.action_space,
            pulse,
            in_worker=in_worker,
        )


def set_up_worker() -> None:
    """Sets up a worker process: ignores Ctrl-C, prints crashes, dies with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    if hasattr(signal, "SIGUSR1"):
        faulthandler.register(signal.SIGUSR1, all_threads=True)
    threading.Thread(target=_die_with_parent, name="rlkit-parent-watch", daemon=True).start()


def _die_with_parent() -> None:
    """Ends this worker if its parent dies, which a worker in a long step would not notice."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _first(found: object) -> Any:
    """The observation that `reset` returned, with a dict of information as Gymnasium has it."""
    if isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], Mapping):
        return found[0]
    raise EnvContractError(
        f"reset must return an observation and a dict, got {shown(found)}; write `return obs, {{}}`"
    )


def numbers(info: dict[Any, Any]) -> tuple[tuple[str, Any], ...]:
    """The numbers and arrays of numbers in `info`, by name.

    Without names that are not text, and integers beyond float32. Raises `EnvContractError` unless
    it is a dict.
    """
    if not isinstance(info, Mapping):
        raise EnvContractError(f"step returned {shown(info)} as its info; return a dict, or {{}}")
    return tuple(
        (name, value) for name, value in info.items() if isinstance(name, str) and _is_number(value)
    )


def _is_number(value: Any) -> bool:
    if isinstance(value, int):
        return abs(value) <= LARGEST
    is_array = isinstance(value, np.ndarray) and value.dtype.kind in "biuf"
    return is_array or isinstance(value, (float, np.number, np.bool_))


def check_flag(name: str, value: Any) -> None:
    """Raises `EnvContractError` unless `value` is True or False, or 1 or 0."""
    is_one = np.ndim(value) == 0 and np.asarray(value).dtype.kind in "biu"
    if not is_one or value not in (0, 1):
        raise EnvContractError(f"{name} is {value!r}; return True or False")


def check_reward(reward: Any) -> None:
    """Raises `EnvContractError` unless `reward` is a single number."""
    if np.ndim(reward) != 0 or np.asarray(reward).dtype.kind not in "biuf":
        raise EnvContractError(f"the reward is {reward!r}; return a single float")
