"""EnvPool (an optional package): C++ simulators that step in threads of this process, many to a
core and without Python.
"""

from types import ModuleType
from typing import Any

import numpy as np
from gymnasium import spaces

from rlkit.envs.host.base import (
    HostState,
    check_finite,
    check_num_envs,
    check_state,
    seeds,
)
from rlkit.envs.host.envpool_values import (
    action_range,
    convert,
    final_info,
    observation,
    quiet,
    replaced,
    rescaled,
)
from rlkit.errors import (
    ConfigError,
    EnvContractError,
    EnvFailedError,
    UnknownNameError,
    did_you_mean,
    require,
)
from rlkit.spaces import Space, check_action_space, check_observation_space
from rlkit.types import Key, Obs, TimeStep

NO_LIMIT = np.iinfo(np.int32).max  # what EnvPool writes where episodes have no time limit
REFUSED = {  # arguments of envpool.make that would break the contract, and what to do instead
    "seed": "leave it out: reset(key) seeds every environment",
    "env_seed": "leave it out: reset(key) seeds every environment",
    "batch_size": "leave it out: all environments step together",
    "max_num_players": "leave it out: one agent acts in each environment",
    "gym_reset_return_info": "leave it out",
    "render_mode": "make the environment as gymnasium/... to see it: EnvPool does not render here",
    "render_env_id": (
        "make the environment as gymnasium/... to see it: EnvPool does not render here"
    ),
}


class EnvPoolAdapter:
    """`num_envs` environments of EnvPool, as `HostAdapter` describes; `env_id` is its own name,
    such as `Hopper-v5`.

    EnvPool spends a step on every reset, in which it ignores the action. That step never happens
    here: environments whose episode ended are reset at once, and a row that is a reset all the same
    raises `EnvFailedError`.

    `max_episode_steps` replaces the environment's time limit. `rescale_actions` maps actions in
    [-1, 1] to the bounds of the Box. `num_threads` steps them, None: as many as there are cores, at
    most `num_envs`. `kwargs` go to `envpool.make`.

    Frames come as [H, W, C] (EnvPool's are [C, H, W]) and spaces in the 32-bit types that
    observations have. Each environment has a seed of its own, so what it does depends neither on
    its index nor on the number of threads.

    What EnvPool does not tell: an episode that terminates in the very step of its time limit is
    only `truncated`. It waits for a simulator without end, and an error inside its C++ ends the
    process.
    """

    is_jittable = False

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        *,
        spec: tuple[str, dict[str, Any]] | None = None,
        max_episode_steps: int | None = None,
        rescale_actions: bool = False,
        num_threads: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Starts no simulator. Raises `ConfigError` if EnvPool is missing or refuses an argument,
        `UnknownNameError` for an unknown `env_id`, `SpaceError` for spaces that agents cannot act
        or learn in.
        """
        check_num_envs(num_envs)
        _check_count("max_episode_steps", max_episode_steps)
        _check_count("num_threads", num_threads)
        own = {"max_episode_steps": max_episode_steps, "num_threads": num_threads}
        self._recipe = {
            **kwargs,
            **{name: value for name, value in own.items() if value is not None},
        }
        self._env_id = env_id.removeprefix("envpool/")
        self._rescale_actions = rescale_actions
        self.num_envs = num_envs
        self.spec = spec

        made = _make_spec(self._env_id, self._recipe)
        limit = getattr(made.config, "max_episode_steps", NO_LIMIT)
        self.max_episode_steps: int | None = None if limit >= NO_LIMIT else limit
        with quiet():
            self._raw_space: Space = made.observation_space
            self._inner_action_space: Space = convert(made.action_space)
        self.observation_space: Space = convert(self._raw_space)
        check_observation_space(
            self.observation_space, f"observation space of envpool/{self._env_id}"
        )
        check_action_space(self._inner_action_space)
        self.action_space: Space = (
            rescaled(self._inner_action_space) if rescale_actions else self._inner_action_space
        )

        self._env_ids = np.arange(num_envs, dtype=np.int32)
        self._pool: Any = None
        self._resets = 0
        self._stepping = False

    def reset(self, key: Key) -> tuple[HostState, Obs]:
        """New pool, new episodes: (state, observations [N, ...]). `key` is [], or [S] with a block
        of N / S for each.
        """
        self.close()
        int32_seeds = [
            seed >> 1 for seed in seeds(key, self.num_envs)
        ]  # all that EnvPool takes; Atari's may not be negative
        try:
            with quiet():
                # EnvPool seeds environments when it makes them and never again.
                self._pool = _envpool().make_gymnasium(
                    self._env_id, num_envs=self.num_envs, seed=int32_seeds, **self._recipe
                )
                obs = self._reset_rows(self._env_ids)
            self._check_finite(obs, np.zeros(self.num_envs, np.float32))
        except EnvFailedError:
            raise
        except Exception as error:
            raise self._failed("did not start", error) from error
        self._resets += 1
        return HostState(resets=np.asarray(self._resets, np.int32)), obs

    def step(self, key: Key | None, state: HostState, action: Any) -> tuple[HostState, TimeStep]:
        """One step of every environment, resets included; `key` is ignored. Raises
        `EnvContractError` for a state from before the last `reset`, `ConfigError` for actions of
        another shape or outside of a discrete space, `EnvFailedError` when an environment fails or
        returns NaN.
        """
        check_state(state, self._resets)
        self.step_async(action)
        return state, self.step_wait()

    def step_async(self, action: Any) -> None:
        """Starts a step of every environment in EnvPool's threads; `action` is [N, ...]."""
        if self._pool is None or self._stepping:
            missing = (
                "is not running; call reset(key) first"
                if self._pool is None
                else "is stepping; call step_wait() first"
            )
            raise EnvContractError(f"envpool/{self._env_id} {missing}")
        action = self._inner_action(np.asarray(action))
        try:
            self._pool.send(action)
        except Exception as error:
            raise self._failed("refused a step", error) from error
        self._stepping = True

    def step_wait(self) -> TimeStep:
        """What the step that was started did; finished environments have been reset."""
        if not self._stepping:
            raise EnvContractError(
                f"envpool/{self._env_id} is not stepping; call step_async(action) first"
            )
        self._stepping = False
        try:
            raw, reward, terminated, truncated, info = self._pool.recv()
            self._check_rows(info, self._env_ids)
            next_obs, reward = observation(self._raw_space, raw), reward.astype(np.float32)
            self._check_finite(next_obs, reward)
            done = terminated | truncated
            ended = np.flatnonzero(done).astype(np.int32)
            obs = next_obs
            if len(ended):
                obs = replaced(next_obs, ended, self._reset_rows(ended))
                self._check_finite(obs, reward)
        except EnvFailedError:
            raise
        except Exception as error:
            raise self._failed("failed in a step", error) from error
        return TimeStep(
            obs=obs,
            reward=reward,  # pyright: ignore[reportArgumentType]
            terminated=terminated,
            truncated=truncated,
            next_obs=next_obs,
            info=final_info(info, done) if len(ended) else {},
        )

    def remake(self, num_envs: int) -> "EnvPoolAdapter":
        """A fresh adapter of the same kind with `num_envs` environments."""
        return EnvPoolAdapter(
            self._env_id,
            num_envs,
            spec=self.spec,
            rescale_actions=self._rescale_actions,
            **self._recipe,
        )

    def render(self) -> np.ndarray:
        """Raises `ConfigError`: EnvPool needs a display for that, and ends the process where it
        finds none.
        """
        raise ConfigError(
            f"envpool/{self._env_id} does not render; make it as gymnasium/... with"
            " render_mode='rgb_array'"
        )

    def close(self) -> None:
        """Ends EnvPool's threads, after the step they are in; `reset` starts afresh."""
        pool, self._pool, self._stepping = self._pool, None, False
        if pool is not None:
            pool.close()

    def _inner_action(self, action: np.ndarray) -> np.ndarray:
        """`action` as EnvPool takes it. Checked here: EnvPool looks at shapes in the first step
        only, at ranges never.
        """
        space, inner, shape = (
            self.action_space,
            self._inner_action_space,
            (self.num_envs, *(self.action_space.shape or ())),
        )
        require(
            action.shape == shape,
            f"action has the shape {action.shape}",
            f"pass one of shape {shape}",
        )
        if isinstance(space, spaces.Box) and isinstance(inner, spaces.Box):
            action = np.clip(action, space.low, space.high)
            if self._rescale_actions:
                share = (action + 1) / 2
                # The two products meet both bounds exactly; the clip takes what rounding adds
                # between them.
                action = np.clip(
                    inner.low * (1 - share) + inner.high * share, inner.low, inner.high
                )
            return action
        low, count = action_range(space)
        index = action - low
        inside = bool(
            np.issubdtype(action.dtype, np.integer) and ((index >= 0) & (index < count)).all()
        )
        require(inside, f"action {action.tolist()} is not in {space}", "pass integers inside of it")
        return action

    def _reset_rows(self, env_ids: np.ndarray) -> Obs:
        """First observations [len(env_ids), ...] of new episodes in these environments."""
        raw, info = self._pool.reset(env_ids)
        self._check_rows(info, env_ids, fresh=True)
        return observation(self._raw_space, raw)

    def _check_rows(
        self, info: dict[str, Any], env_ids: np.ndarray, *, fresh: bool = False
    ) -> None:
        """Raises `EnvFailedError` unless the rows belong to `env_ids`, and all are resets (`fresh`)
        or none is.
        """
        if not np.array_equal(info["env_id"], env_ids):
            raise self._failed(
                f"returned rows of the environments {info['env_id'].tolist()}, not"
                f" {env_ids.tolist()}"
            )
        wrong = (info["elapsed_step"] == 0) != fresh
        if wrong.any():
            index = env_ids[wrong.argmax()]
            raise self._failed(
                f"{'did not reset' if fresh else 'spent a step on a reset of'} environment {index}"
            )

    def _check_finite(self, obs: Obs, reward: np.ndarray) -> None:
        try:
            check_finite(obs, reward)
        except EnvFailedError:
            self.close()
            raise

    def _failed(self, what: str, error: Exception | None = None) -> EnvFailedError:
        """Closes the pool; the error to raise."""
        self.close()
        cause = f": {type(error).__name__}: {error}" if error is not None else ""
        name = self._env_id
        return EnvFailedError(
            f"envpool/{name} {what}{cause}; upgrade envpool, or use gymnasium/{name}"
        )


def _envpool() -> ModuleType:
    try:
        import envpool
    except ImportError as error:
        raise ConfigError(
            f'EnvPool cannot be imported ({error}); pip install "rlkit[envpool]"'
        ) from error
    return envpool


def _make_spec(env_id: str, recipe: dict[str, Any]) -> Any:
    """EnvPool's description of an environment; starts none."""
    for name, cure in REFUSED.items():
        require(name not in recipe, f"envpool/{env_id} cannot take {name}", cure)
    envpool = _envpool()
    known = envpool.list_all_envs()
    if env_id not in known:
        hint = did_you_mean(env_id, [f"envpool/{name}" for name in known])
        hint = (
            hint
            if hint.startswith("did you mean")
            else f"envpool.list_all_envs() names all {len(known)}"
        )
        raise UnknownNameError(f"there is no environment 'envpool/{env_id}'; {hint}")
    try:
        made = envpool.make_spec(env_id, **recipe)
    except ImportError as error:
        raise ConfigError(
            f"envpool/{env_id} does not load: {error}; install what it names"
        ) from error
    except Exception as error:
        reason = str(error).partition("\n")[0]  # then pybind11 writes out C++ signatures
        raise ConfigError(
            f"envpool/{env_id} refuses its arguments: {reason}; {_arguments(env_id)}"
        ) from error
    players = getattr(made.config, "max_num_players", 1)
    require(
        players == 1,
        f"envpool/{env_id} is a game of {players} players",
        "choose an environment for one agent",
    )
    return made


def _arguments(env_id: str) -> str:
    """The arguments that an environment takes, as a cure."""
    defaults = _envpool().make_spec(env_id).config._asdict()
    own = {"num_envs", "thread_affinity_offset", "base_path", "reward_threshold", "task", *REFUSED}
    return "it takes " + ", ".join(
        f"{name}={value!r}" for name, value in defaults.items() if name not in own
    )


def _check_count(name: str, value: int | None) -> None:
    positive = value is None or (
        isinstance(value, int) and not isinstance(value, bool) and value >= 1
    )
    require(
        positive,
        f"{name} must be a positive integer or None, got {value!r}",
        f"pass {name}=4, for instance",
    )
