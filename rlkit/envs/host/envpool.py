"""EnvPool (an optional package): C++ simulators that step in threads of this process."""

from types import ModuleType
from typing import Any

import jax
import numpy as np
from gymnasium import spaces
from jax.typing import ArrayLike

from rlkit.envs.base import EnvSpec
from rlkit.envs.host.base import (
    WHOLE,
    HostState,
    check_finite,
    check_state,
    seeds,
)
from rlkit.envs.host.envpool_values import (
    action_range,
    broken_rows,
    convert,
    final_info,
    ignore_precision_warnings,
    observation,
    replace_rows,
    rescaled,
)
from rlkit.envs.ids import INSTALL
from rlkit.envs.non_finite import TRIES, NonFinite, chosen
from rlkit.errors import (
    ConfigError,
    EnvContractError,
    EnvFailedError,
    SpaceError,
    UnknownNameError,
    did_you_mean,
    require,
    require_positive_integer,
)
from rlkit.spaces import COMPOSITE, Space, check_action_space, check_observation_space
from rlkit.types import Key, Obs, TimeStep

NO_LIMIT = np.iinfo(np.int32).max  # EnvPool's value for "no time limit"
REFUSED = {  # arguments of envpool.make that would break the contract, and what to do instead
    "seed": "leave it out: reset(key) seeds every environment",
    "env_seed": "leave it out: reset(key) seeds every environment",
    "batch_size": "leave it out: all environments step together",
    "max_num_players": "leave it out: only single-agent environments are supported",
    "gym_reset_return_info": "leave it out",
    "render_mode": "create it as gymnasium/... to render it: EnvPool does not render here",
    "render_env_id": ("create it as gymnasium/... to render it: EnvPool does not render here"),
}


class EnvPoolAdapter:
    """A `HostAdapter` over EnvPool environments; `env_id` is EnvPool's name, such as `Hopper-v5`.

    EnvPool spends a step on every reset and ignores its action. Here that step never happens:
    finished environments are reset immediately, and an unexpected reset row raises
    `EnvFailedError`.

    `max_episode_steps` replaces the environment's time limit. `rescale_actions` maps actions in
    [-1, 1] to the bounds of the Box. `num_threads` step the environments; `None`: one per core, at
    most `num_envs`. `non_finite` is as in `GymnasiumAdapter`. `kwargs` go to `envpool.make`.

    Images are [H, W, C] (EnvPool's are [C, H, W]), and spaces have the 32-bit dtypes of the
    observations. Each environment has its own seed, so results depend neither on its index nor on
    the number of threads.

    Limits of EnvPool: an episode that terminates exactly at its time limit is reported only as
    `truncated`; there is no timeout for a simulator, and an error in its C++ code ends the process.
    """

    is_jittable = False

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        *,
        spec: EnvSpec | None = None,
        max_episode_steps: int | None = None,
        rescale_actions: bool = False,
        num_threads: int | None = None,
        non_finite: NonFinite | None = None,
        **kwargs: Any,
    ) -> None:
        """Starts no simulator yet.

        Raises `ConfigError` if EnvPool is missing or refuses an argument, `UnknownNameError` for an
        unknown `env_id`, and `SpaceError` for unsupported spaces.
        """
        require_positive_integer("num_envs", num_envs, example=8)
        require_positive_integer(
            "max_episode_steps", max_episode_steps, example=500, none="the environment's own limit"
        )
        require_positive_integer("num_threads", num_threads, example=4, none="one per core")
        own = {"max_episode_steps": max_episode_steps, "num_threads": num_threads}
        self._recipe = {
            **kwargs,
            **{name: int(value) for name, value in own.items() if value is not None},
        }
        self._env_id = env_id.removeprefix("envpool/")
        self.name = f"envpool/{self._env_id}"
        self._rescale_actions = rescale_actions
        self.non_finite: NonFinite = chosen(non_finite, None)
        self.num_envs = int(num_envs)
        self.share = WHOLE
        self.spec = spec

        made = _make_spec(self._env_id, self._recipe)
        limit = getattr(made.config, "max_episode_steps", NO_LIMIT)
        self.max_episode_steps: int | None = None if limit >= NO_LIMIT else limit
        with ignore_precision_warnings():
            self._raw_space: Space = made.observation_space
            self._inner_action_space: Space = convert(made.action_space)
        self.observation_space: Space = convert(self._raw_space)
        check_observation_space(
            self.observation_space, f"observation space of envpool/{self._env_id}"
        )
        require(
            not isinstance(self._inner_action_space, COMPOSITE),
            f"the actions of envpool/{self._env_id} have parts: {self._inner_action_space}",
            "use an environment of Gymnasium or JAX, or one whose actions are a single array",
            SpaceError,
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
        """Creates a new pool and starts new episodes: (state, observations [N, ...]).

        `key` is [], or [S] with a block of N / S environments per key.
        """
        self.close()
        # The range that EnvPool accepts; Atari's seeds may not be negative.
        int32_seeds = [seed >> 1 for seed in seeds(key, self.num_envs, self.share)]
        try:
            with ignore_precision_warnings():
                # EnvPool seeds environments only when it creates them.
                self._pool = _envpool().make_gymnasium(
                    self._env_id, num_envs=self.num_envs, seed=int32_seeds, **self._recipe
                )
                obs = self._reset_rows(self._env_ids)
                obs = self._reset_broken(obs)
            self._check_finite(obs, np.zeros(self.num_envs, np.float32))
        except EnvFailedError:
            raise
        except Exception as error:
            raise self._failed("did not start", error) from error
        self._resets += 1
        return HostState(resets=np.asarray(self._resets, np.int32)), obs

    def step(
        self, key: Key | None, state: HostState, action: ArrayLike
    ) -> tuple[HostState, TimeStep]:
        """Steps every environment, resets included; `key` is ignored.

        Raises `EnvContractError` for a state from before the last `reset`, `ConfigError` for
        actions of a wrong shape or outside a discrete space, and `EnvFailedError` if an environment
        fails or returns NaN.
        """
        check_state(state, self._resets)
        self.step_async(action)
        return state, self.step_wait()

    def step_async(self, action: ArrayLike) -> None:
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
        """Waits for the step and returns its result; finished environments have been reset."""
        if not self._stepping:
            raise EnvContractError(
                f"envpool/{self._env_id} is not stepping; call step_async(action) first"
            )
        self._stepping = False
        try:
            raw, reward, terminated, truncated, info = self._pool.recv()
            self._check_rows(info, self._env_ids)
            next_obs, reward = observation(self._raw_space, raw), reward.astype(np.float32)
            broken = None
            if self.non_finite == "reset":
                broken = broken_rows(next_obs, reward)
                reward = np.where(broken, np.float32(0.0), reward)
                terminated, truncated = terminated | broken, truncated & ~broken
            done = terminated | truncated
            ended = np.flatnonzero(done).astype(np.int32)
            obs = next_obs
            if len(ended):
                obs = replace_rows(next_obs, ended, self._reset_rows(ended))
                obs = self._reset_broken(obs)
                self._check_finite(obs, reward)
            if broken is not None and broken.any():
                rows = np.flatnonzero(broken)
                next_obs = replace_rows(next_obs, rows, jax.tree.map(lambda x: x[rows], obs))
            self._check_finite(next_obs, reward)
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
            non_finite=broken,  # pyright: ignore[reportArgumentType]
        )

    def remake(self, num_envs: int) -> "EnvPoolAdapter":
        """A new adapter of the same kind with `num_envs` environments."""
        return EnvPoolAdapter(
            self._env_id,
            num_envs,
            spec=self.spec,
            rescale_actions=self._rescale_actions,
            non_finite=self.non_finite,
            **self._recipe,
        )

    def render(self) -> np.ndarray:
        """Raises `ConfigError`: EnvPool needs a display, and ends the process if there is none."""
        raise ConfigError(
            f"envpool/{self._env_id} cannot be rendered; create it as gymnasium/... with"
            " render_mode='rgb_array'"
        )

    def close(self) -> None:
        """Ends EnvPool's threads after their current step; `reset` starts new ones."""
        pool, self._pool, self._stepping = self._pool, None, False
        if pool is not None:
            pool.close()

    def _inner_action(self, action: np.ndarray) -> np.ndarray:
        """`action` as EnvPool takes it, checked: EnvPool itself checks only the first shape."""
        space, inner, shape = (
            self.action_space,
            self._inner_action_space,
            (self.num_envs, *(self.action_space.shape or ())),
        )
        require(
            action.shape == shape,
            f"action has the shape {action.shape}",
            f"pass an array of shape {shape}",
        )
        if isinstance(space, spaces.Box) and isinstance(inner, spaces.Box):
            action = np.clip(action, space.low, space.high)
            if self._rescale_actions:
                share = (action + 1) / 2
                # The two products hit both bounds exactly; the clip removes rounding errors in
                # between.
                action = np.clip(
                    inner.low * (1 - share) + inner.high * share, inner.low, inner.high
                )
            return action
        low, count = action_range(space)
        index = action - low
        inside = bool(
            np.issubdtype(action.dtype, np.integer) and ((index >= 0) & (index < count)).all()
        )
        require(
            inside, f"action {action.tolist()} is not in {space}", "pass integers in that range"
        )
        return action

    def _reset_rows(self, env_ids: np.ndarray) -> Obs:
        """First observations [len(env_ids), ...] of new episodes in these environments."""
        raw, info = self._pool.reset(env_ids)
        self._check_rows(info, env_ids, fresh=True)
        return observation(self._raw_space, raw)

    def _reset_broken(self, obs: Obs) -> Obs:
        """First observations, with those that are not finite from further resets if need be."""
        for _ in range(TRIES - 1 if self.non_finite == "reset" else 0):
            rows = np.flatnonzero(broken_rows(obs)).astype(np.int32)
            if not len(rows):
                break
            obs = replace_rows(obs, rows, self._reset_rows(rows))
        return obs

    def _check_rows(
        self, info: dict[str, Any], env_ids: np.ndarray, *, fresh: bool = False
    ) -> None:
        """Raises `EnvFailedError` unless rows match `env_ids`; all (`fresh`) or none are resets."""
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
        """Closes the pool and returns the error to raise."""
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
        raise ConfigError(f"EnvPool cannot be imported ({error}); {INSTALL['envpool']}") from error
    return envpool


def _make_spec(env_id: str, recipe: dict[str, Any]) -> Any:
    """EnvPool's description of an environment; starts no simulator."""
    for name, fix in REFUSED.items():
        require(name not in recipe, f"envpool/{env_id} does not take {name}", fix)
    envpool = _envpool()
    known = envpool.list_all_envs()
    if env_id not in known:
        hint = did_you_mean(env_id, [f"envpool/{name}" for name in known])
        hint = (
            hint
            if hint.startswith("did you mean")
            else f"envpool.list_all_envs() lists all {len(known)}"
        )
        raise UnknownNameError(f"there is no environment 'envpool/{env_id}'; {hint}")
    try:
        made = envpool.make_spec(env_id, **recipe)
    except ImportError as error:
        raise ConfigError(
            f"envpool/{env_id} cannot be loaded: {error}; install what is missing"
        ) from error
    except Exception as error:
        reason = str(error).partition("\n")[0]  # in this case pybind11 prints C++ signatures
        raise ConfigError(
            f"envpool/{env_id} rejects its arguments: {reason}; {_arguments(env_id)}"
        ) from error
    players = getattr(made.config, "max_num_players", 1)
    require(
        players == 1,
        f"envpool/{env_id} is a game for {players} players",
        "choose a single-agent environment",
    )
    return made


def _arguments(env_id: str) -> str:
    """The arguments that an environment takes, for an error message."""
    defaults = _envpool().make_spec(env_id).config._asdict()
    own = {"num_envs", "thread_affinity_offset", "base_path", "reward_threshold", "task", *REFUSED}
    return "it takes " + ", ".join(
        f"{name}={value!r}" for name, value in defaults.items() if name not in own
    )
