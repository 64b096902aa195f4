"""`GymnasiumAdapter`: any `gymnasium.Env` on the host, in this process or in worker processes."""

import contextlib
import copy
import dataclasses
import inspect
import os
import select
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper

from rlkit.action_masks import ACTION_MASK, check_mask, has_mask, num_choices
from rlkit.envs.base import EnvSpec
from rlkit.envs.host.actions import valid_actions
from rlkit.envs.host.base import (
    WHOLE,
    HostState,
    check_allowed,
    check_finite,
    check_state,
    seeds,
)
from rlkit.envs.host.gymnasium_batches import cast, check_wide, final_numbers, put, wide_parts
from rlkit.envs.host.gymnasium_build import build, check_spec, resolve, time_limit
from rlkit.envs.host.gymnasium_vector import InProcessEnvs, WorkerEnvs, close
from rlkit.envs.host.gymnasium_worker import BROKEN, NUMBERS, GuardFactory, Recipe
from rlkit.envs.host.watchdog import Pulse
from rlkit.envs.non_finite import NonFinite, chosen
from rlkit.envs.pictures import checked_picture
from rlkit.errors import (
    ConfigError,
    EnvContractError,
    EnvStateError,
    did_you_mean,
    require,
    require_positive_integer,
)
from rlkit.spaces import (
    Space,
    check_action_space,
    check_observation_space,
    jax_dtype,
    leaf_tree,
    map_space,
)
from rlkit.types import Action, Key, Obs, TimeStep

VECTORIZATIONS = ("sync", "async")
CONTEXTS = ("forkserver", "spawn")
SHARED_FLOATS = (np.float32, np.float64)  # that memory of several processes may hold
# The adapter that owns each environment passed as an object, by its id, which holds while the
# adapter has it: two adapters stepping the same one would mix their episodes.
_owners: "weakref.WeakValueDictionary[int, GymnasiumAdapter]" = weakref.WeakValueDictionary()


class GymnasiumAdapter:
    """`num_envs` copies of a Gymnasium environment as a `HostAdapter`.

    `env` is an id ("HalfCheetah-v5", "ALE/Breakout-v5"), a `gymnasium.Env` class, a callable that
    returns an environment, or an environment object (only with `num_envs=1` in this process; you
    close it). Other keyword arguments go to `gymnasium.make` or the callable.

    - `vectorization`: "sync" steps the environments one by one in this process; "async" runs each
      in its own process, which pays off if a step takes much longer than the 0.1 ms that
      communication takes.
    - `context`: how processes start, "forkserver" or "spawn". They import your script, so it needs
      `if __name__ == "__main__":`. Classes defined in your script are sent by value, those from
      modules by name, so that processes must be able to import the module (otherwise, as in a
      test, `cloudpickle.register_pickle_by_value(module)` sends them by value too).
    - `step_timeout`: seconds after which a reset or step counts as hanging; `None`: never. Its
      stack is printed, and `EnvFailedError` names it. Worker processes that hang are ended. In
      this process, an environment that waits in C cannot be interrupted: that is printed, and the
      `rlkit` command ends with exit code 70. `render_mode="human"` is not watched.
    - `max_episode_steps`: time limit; `None`: the environment's own.
    - `rescale_actions`: actions in [-1, 1] are scaled to the bounds of the environment's Box.
    - `action_masks`: observations with the mask in `info["action_mask"]`, or of the environment's
      method `action_masks()`, so that agents choose among allowed actions (`rlkit.action_masks`).
    - `non_finite`: "raise", NaN or infinity in an observation or reward is an error; "reset", it
      ends the episode, `terminated` and with reward 0. `None`: the environment's attribute of this
      name, otherwise "raise".
    - `render_mode`: "rgb_array" for `render`.

    Raises `UnknownNameError`, `ConfigError`, `SpaceError`, `EnvContractError` or, if building the
    environment fails for another reason, `EnvFailedError`; all before any process starts.
    """

    is_jittable = False

    def __init__(
        self,
        env: (str | type[gymnasium.Env] | Callable[..., gymnasium.Env] | gymnasium.Env),
        num_envs: int,
        *,
        spec: EnvSpec | None = None,
        vectorization: str = "sync",
        context: str = "forkserver",
        step_timeout: float | None = 300.0,
        max_episode_steps: int | None = None,
        rescale_actions: bool = False,
        action_masks: bool = False,
        non_finite: NonFinite | None = None,
        render_mode: str | None = None,
        **kwargs: Any,
    ):
        require_positive_integer("num_envs", num_envs, example=8)
        _check_settings(vectorization, context, step_timeout, max_episode_steps)
        named = render_mode is None or isinstance(render_mode, str)
        require(
            named,
            f"render_mode must be a string or None, got {render_mode!r}",
            "pass 'rgb_array' or None",
        )
        if isinstance(env, gymnasium.Env):
            unchanged = (
                num_envs == 1 and vectorization == "sync" and not kwargs and render_mode is None
            )
            require(
                unchanged,
                "a gymnasium.Env object cannot be copied or changed",
                "pass its class or a function, or only num_envs=1",
            )
        self.recipe = Recipe(
            env=resolve(env),
            kwargs=kwargs,
            max_episode_steps=None if max_episode_steps is None else int(max_episode_steps),
            rescale_actions=rescale_actions,
            action_masks=action_masks,
            render_mode=render_mode,
        )
        unnamed = type(getattr(env, "unwrapped", env)).__name__ if spec is None else spec[0]
        self.name = env if isinstance(env, str) else getattr(env, "__name__", unnamed)
        self.vectorization, self._context, self._step_timeout = vectorization, context, step_timeout
        self._pulse = Pulse()
        self.num_envs = int(num_envs)
        self.spec = spec
        self.observation_space, self.action_space, self.max_episode_steps = self._read_spaces(
            non_finite
        )
        if vectorization == "async":
            self._check_picklable()
            self._check_shareable()
        self.share = WHOLE
        self._clear()
        self._resets = 0

    @property
    def non_finite(self) -> NonFinite:
        """What NaN and infinity do."""
        return self.recipe.non_finite

    @property
    def instance(self) -> gymnasium.Env | None:
        """The innermost environment, if an object was passed."""
        return self.recipe.env.unwrapped if self.recipe.is_instance else None

    def reset(self, key: Key) -> tuple[HostState, Obs]:
        """Starts new episodes in all environments, and the simulators if they are not running.

        `key` is [], or [S] for S seeds.
        """
        if self.instance is not None:
            _owners[id(self.instance)] = self
        env_seeds = seeds(key, self.num_envs, self.share)
        if self._pending:
            self.step_wait()
        with self._stop_on_error():
            if self._run is None:
                self._start()
            assert self._run is not None
            buffers = self._run.reset([*env_seeds])
            check_wide(buffers, self._wide)
            obs = cast(buffers, self._dtypes)
            check_finite(obs, np.zeros(self.num_envs, np.float32))
            check_allowed(obs, self._choices)
        self._resets += 1
        return HostState(resets=np.asarray(self._resets, np.int32)), obs

    def step(self, key: Key | None, state: HostState, action: Action) -> tuple[HostState, TimeStep]:
        """Steps every environment; those whose episode ends start a new one. `key` is ignored."""
        check_state(state, self._resets)
        self.step_async(action)
        return state, self.step_wait()

    def step_async(self, action: Action) -> None:
        """Starts a step of every environment; `action` is [N, ...], clipped to the bounds."""
        if self._run is None or self._pending:
            fix = "call step_wait first" if self._pending else "call reset first"
            raise EnvContractError(f"{self.name} cannot start a step now; {fix}")
        if self.instance is not None and _owners.get(id(self.instance)) is not self:
            raise EnvContractError(
                f"{self.name} was reset through another adapter, so another run or evaluation uses"
                " it too; create an environment for each"
            )
        action = valid_actions(self.action_space, action, self.num_envs)
        try:  # without the context manager, because this is the hot path
            self._run.step_async(action)
        except BaseException:
            self._stop(graceful=False)
            raise
        self._pending = True

    def step_wait(self) -> TimeStep:
        """Waits for the step and returns its result.

        Do not write into `next_obs`: it is the same array as `obs` when no episode ended.
        """
        if self._run is None or not self._pending:
            raise EnvContractError(f"{self.name} has no step to wait for; call step_async first")
        try:
            time_step = self._time_step(*self._run.step_wait())
        except BaseException:
            self._stop(graceful=False)
            raise
        self._pending = False
        return time_step

    def get_state(self) -> list[np.ndarray]:
        """The state of each environment between two steps, as bytes [B] uint8.

        Raises `EnvStateError` if an environment or one of its wrappers cannot be saved.
        """
        with self._between_steps("saved") as run:
            states = run.save()
        problem = next((state for state in states if isinstance(state, str)), None)
        if problem is not None:
            raise EnvStateError(problem)
        return [state for state in states if not isinstance(state, str)]

    def set_state(self, states: Sequence[np.ndarray]) -> None:
        """Puts the environments, which must have been reset, where `get_state` found them.

        Raises `EnvStateError` for states of others; the environments may then be anywhere.
        """
        count = len(states) if isinstance(states, list) else 0
        fits = count == self.num_envs and all(isinstance(state, np.ndarray) for state in states)
        cure = "use the settings that they were saved with"
        what = f"these are not the states of {self.num_envs} environments"
        require(fits, what, cure, EnvStateError)
        with self._between_steps("loaded") as run:
            problems = run.load(states)
        problem = next((problem for problem in problems if problem), None)
        if problem is not None:
            raise EnvStateError(problem)

    def remake(self, num_envs: int) -> "GymnasiumAdapter":
        """A new adapter with the same settings; `ConfigError` if an object was passed as `env`."""
        require_positive_integer("num_envs", num_envs, example=8)
        fix = "pass its class, or a function that returns a new one"
        require(
            not self.recipe.is_instance,
            f"{self.name} was passed as an object, which cannot be created again",
            fix,
        )
        fresh = copy.copy(self)
        fresh.num_envs = int(num_envs)
        fresh._pulse = Pulse()
        fresh._clear()
        fresh._resets = 0
        return fresh

    def filmed(self) -> "GymnasiumAdapter":
        """One environment of the same kind, in this process, which `render` shows.

        Raises `ConfigError` if an object was passed as `env`, or if it takes no `render_mode`.
        """
        fresh = self.remake(1)
        fresh.vectorization, fresh.spec = "sync", None
        fresh.recipe = dataclasses.replace(self.recipe, render_mode="rgb_array")
        try:
            fresh._read_spaces(self.non_finite)
        except ConfigError as error:
            if "render_mode" not in str(error):
                raise
            raise ConfigError(
                f"{self.name} draws no pictures: it takes no render_mode='rgb_array'; film another"
                " environment, or let this one take it and return arrays from render"
            ) from error
        return fresh

    def render(self) -> np.ndarray:
        """Images of all environments, [N, H, W, 3] uint8.

        Raises `ConfigError` without `render_mode="rgb_array"`, and for what is no picture.
        """
        mode = self.render_mode
        require(
            mode == "rgb_array",
            f"{self.name} has render_mode={mode!r}",
            "pass render_mode='rgb_array' to render it",
        )
        with self._between_steps("rendered") as run:
            call = f"{self.name}.render()"
            return np.stack([checked_picture(frame, call) for frame in run.render()])

    def close(self) -> None:
        """Stops the simulators; the next reset starts new ones."""
        self._stop(graceful=True)

    def _time_step(
        self,
        buffers: Obs,
        reward: Any,
        terminated: Any,
        truncated: Any,
        infos: dict[str, Any],
    ) -> TimeStep:
        """Copies the vector environment's buffers into a `TimeStep` and checks them."""
        if self._wide:
            check_wide(buffers, self._wide)
        obs = next_obs = cast(buffers, self._dtypes)
        info: Any = {}
        reward = reward.astype(np.float32)
        broken = np.zeros(self.num_envs, bool) if self.non_finite == "reset" else None
        if "_final_obs" in infos:
            next_obs = cast(buffers, self._dtypes)
            broken = infos["final_info"].get(BROKEN, broken)
            ended = infos["_final_obs"] if broken is None else infos["_final_obs"] & ~broken
            for index in ended.nonzero()[0]:
                last = infos["final_obs"][index]
                check_wide(last, self._wide)
                put(next_obs, index, last)
            info = final_numbers(infos["final_info"][NUMBERS], self.num_envs)
            check_finite(obs, reward)
            cut = np.flatnonzero(truncated & ~terminated)
            if self._choices and len(cut):  # whose value counts, by what is allowed there
                check_allowed({ACTION_MASK: next_obs[ACTION_MASK][cut]}, self._choices)
        check_finite(next_obs, reward)
        check_allowed(obs, self._choices)
        return TimeStep(
            obs=obs,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            next_obs=next_obs,
            info=info,
            non_finite=broken,  # pyright: ignore[reportArgumentType]  # NumPy's, as all here
        )

    def _start(self) -> None:
        pulse = self._pulse if self.vectorization == "sync" else None
        factories = [
            GuardFactory(
                self.recipe, index, self.observation_space, self.action_space, os.getpid(), pulse
            )
            for index in range(self.num_envs)
        ]
        if pulse is not None:
            is_watched = self.render_mode != "human"  # a window waits for whoever drags it
            limit = self._step_timeout if is_watched else None
            self._run = InProcessEnvs(factories, pulse, limit)
        else:
            self._run = WorkerEnvs(factories, self._context, self._step_timeout)
        self._finalizer = weakref.finalize(self, self._run.stop, graceful=True)

    def _stop(self, *, graceful: bool) -> None:
        run, finalizer = self._run, self._finalizer
        self._clear()
        if run is not None and finalizer is not None:
            finalizer.detach()
            run.stop(graceful=graceful)

    def _clear(self) -> None:
        self._run: InProcessEnvs | WorkerEnvs | None = None
        self._finalizer: weakref.finalize[..., Any] | None = None
        self._pending = False

    @contextlib.contextmanager
    def _between_steps(self, done: str) -> Iterator[InProcessEnvs | WorkerEnvs]:
        """The running environments; stops them after any error."""
        if self._run is None or self._pending:
            raise EnvContractError(
                f"{self.name} cannot be {done} now; call reset or step_wait first"
            )
        with self._stop_on_error():
            yield self._run

    @contextlib.contextmanager
    def _stop_on_error(self) -> Iterator[None]:
        """Stops all simulators after any error, so that no late answer or process remains."""
        try:
            yield
        except BaseException:
            self._stop(graceful=False)
            raise

    def _read_spaces(self, non_finite: NonFinite | None) -> tuple[Space, Space, int | None]:
        """The spaces and time limit, from one environment that is created and closed again."""
        env = build(self.name, self.recipe, inspect.signature(GymnasiumAdapter).parameters)
        try:
            check_spec(env)
            check_observation_space(env.observation_space)
            check_action_space(env.action_space)
            check_mask(env.observation_space, env.action_space)
            self._choices = num_choices(env.action_space) if has_mask(env.observation_space) else ()
            self.render_mode = env.render_mode
            self.render_fps = env.metadata.get("render_fps")
            self._dtypes = map_space(jax_dtype, env.observation_space)
            self._wide = list(wide_parts(env.observation_space))
            setting = chosen(non_finite, env.unwrapped)
            self.recipe = dataclasses.replace(self.recipe, non_finite=setting)
            return env.observation_space, env.action_space, time_limit(env)
        finally:
            if not self.recipe.is_instance:
                close(env, 0)

    def _check_picklable(self) -> None:
        try:
            CloudpickleWrapper(self.recipe).__getstate__()  # pyright: ignore[reportArgumentType]
        except Exception as error:
            raise ConfigError(
                f"{self.name} cannot be sent to worker processes ({type(error).__name__}:"
                f" {error}); create such objects inside the function, or use vectorization='sync'"
            ) from error

    def _check_shareable(self) -> None:
        for path, leaf in jax.tree.leaves_with_path(leaf_tree(self.observation_space)):
            is_shared = leaf.dtype.kind != "f" or leaf.dtype.type in SHARED_FLOATS
            require(
                is_shared,
                f"{self.name} observation{jax.tree_util.keystr(path)} is {leaf.dtype}, which worker"
                " processes cannot send",
                "use vectorization='sync', or return float32",
            )


def _check_settings(
    vectorization: str, context: str, step_timeout: float | None, max_episode_steps: int | None
) -> None:
    require(
        vectorization in VECTORIZATIONS,
        f"unknown vectorization {vectorization!r}",
        did_you_mean(vectorization, VECTORIZATIONS),
    )
    possible = vectorization == "sync" or hasattr(select, "poll")
    require(possible, "vectorization='async' needs Linux or macOS", "use vectorization='sync'")
    require(
        context != "fork",
        "context='fork' copies a process without its JAX threads, and hangs",
        "use 'forkserver'",
    )
    require(context in CONTEXTS, f"unknown context {context!r}", did_you_mean(context, CONTEXTS))
    number = (
        isinstance(step_timeout, (int, float))
        and not isinstance(step_timeout, bool)
        and step_timeout > 0
    )
    require(
        step_timeout is None or number,
        f"step_timeout must be positive or None, got {step_timeout!r}",
        "pass a number of seconds, or None for no limit",
    )
    require_positive_integer(
        "max_episode_steps", max_episode_steps, example=500, none="the environment's own limit"
    )
