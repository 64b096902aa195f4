"""XLand-MiniGrid: grids of symbols, and tasks that are data; `make` returns one as a `JaxEnv`."""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from xminigrid.benchmarks import (  # pyright: ignore[reportMissingImports]
    load_benchmark,
    registered_benchmarks,
)
from xminigrid.core import constants, goals, rules  # pyright: ignore[reportMissingImports]
from xminigrid.registration import make as registered  # pyright: ignore[reportMissingImports]
from xminigrid.types import RuleSet  # pyright: ignore[reportMissingImports]

from rlkit.envs.base import JaxStep
from rlkit.errors import ConfigError, did_you_mean, require, require_positive_integer, shown
from rlkit.ops.strong_types import strong_types
from rlkit.spaces import Space
from rlkit.types import Action, EnvState, Key, Obs

_PARTS = {  # of a ruleset, and the length of their rows
    "goal": goals.MAX_GOAL_ENCODING_LEN,
    "rules": rules.MAX_RULE_ENCODING_LEN,
    "init_tiles": constants.NUM_LAYERS,
}


@dataclasses.dataclass(frozen=True, eq=False)  # hashed by identity: it holds arrays
class XMiniGridEnv:
    """One of XLand-MiniGrid's environments; its `TimeStep` is the state."""

    env: Any
    own_params: Any  # sizes and the limit, which shape the program, and the ruleset
    observation_space: Space
    action_space: Space
    max_episode_steps: int
    benchmark: Any = None  # rulesets, one of which is drawn for each episode
    render_fps: ClassVar[int] = 10

    def reset(self, key: Key) -> tuple[EnvState, Obs]:
        """Starts an episode. Consumes the key."""
        params = self.own_params
        if self.benchmark is not None:
            key, task_key = jax.random.split(key)
            params = params.replace(ruleset=self.benchmark.sample_ruleset(task_key))
        timestep = strong_types(self.env.reset(params, key))
        return timestep, self._observed(timestep)

    def step(self, key: Key, state: EnvState, action: Action) -> JaxStep:
        """One step; nothing is random."""
        timestep = strong_types(self.env.step(self.own_params, state, action))
        terminated = timestep.discount == 0
        truncated = timestep.state.step_num >= self.max_episode_steps
        reward = jnp.float32(timestep.reward)
        return timestep, self._observed(timestep), reward, terminated, truncated, {}

    def render(self, state: EnvState) -> np.ndarray:
        """The whole grid; what the agent sees is lighter."""
        return np.asarray(self.env.render(self.own_params, state), np.uint8)

    def _observed(self, timestep: Any) -> Obs:
        state, space = timestep.state, self.observation_space
        if not isinstance(space, spaces.Dict):
            return timestep.observation
        parts = {
            "grid": timestep.observation,
            "direction": state.agent.direction,
            "goal": state.goal_encoding,
            "rules": state.rule_encoding,
        }
        return {name: parts[name] for name in space.spaces}


def make(
    name: str,
    *,
    view_size: int | None = None,
    max_steps: int | None = None,
    observe_direction: bool = False,
    observe_task: bool = False,
    ruleset: dict[str, Any] | None = None,
    benchmark: str | None = None,
) -> XMiniGridEnv:
    """The environment `name`, such as `MiniGrid-Empty-5x5`.

    `view_size` is how many squares the agent sees ahead and across, an odd number; `max_steps` the
    time limit. `observe_direction` adds to observations where the agent is heading. `XLand-…`
    environments have a task only if they get one: `ruleset`, which has the lists of numbers `goal`,
    `rules` and `init_tiles` as XLand-MiniGrid encodes them, or the name of a `benchmark`, which is
    downloaded, and one of whose rulesets is drawn for each episode. `observe_task` adds goal and
    rules to observations. Raises `ConfigError` for arguments that do not fit.
    """
    env_id = f"xminigrid/{name}"
    env, params = registered(name)
    for label, value, example in (("view_size", view_size, 7), ("max_steps", max_steps, 100)):
        require_positive_integer(f"{env_id} {label}", value, example=example, none="its own")
    params = params.replace(
        view_size=view_size or params.view_size, max_steps=max_steps or params.max_steps
    )
    require(
        params.view_size % 2 == 1 and params.view_size >= 3,
        f"{env_id} view_size must be an odd number from 3 on, got {params.view_size}",
        "pass one such as view_size=7: the agent stands in the middle of the last row",
    )
    for flag, value in (("observe_direction", observe_direction), ("observe_task", observe_task)):
        require(isinstance(value, bool), f"{flag} is {value!r}", "pass true or false")
    given = {"ruleset": ruleset, "benchmark": benchmark, "observe_task": observe_task or None}
    needless = [label for label, value in given.items() if value is not None]
    require(
        hasattr(params, "ruleset") or not needless,
        f"{env_id} has a task of its own, and got {', '.join(needless)}",
        "leave these out, or take an environment called XLand-…",
    )
    require(
        ruleset is None or benchmark is None,
        f"{env_id} got a ruleset and a benchmark",
        "leave one of them out",
    )
    if ruleset is not None:
        params = params.replace(ruleset=_ruleset(env_id, ruleset))
    tasks = None if benchmark is None else _benchmark(env_id, benchmark)
    space = _observation_space(params, tasks, observe_direction, observe_task)
    actions = spaces.Discrete(env.num_actions(params))
    return XMiniGridEnv(env, params, space, actions, params.max_steps, tasks)


def _observation_space(params: Any, tasks: Any, with_direction: bool, with_task: bool) -> Space:
    """Codes of tiles and colours; in a Dict with more if there is more."""
    square = np.array([constants.NUM_TILES, constants.NUM_COLORS])
    parts: dict[str, Space] = {
        "grid": _codes(np.tile(square, (params.view_size, params.view_size, 1)))
    }
    if with_direction:
        parts["direction"] = spaces.Discrete(len(constants.DIRECTIONS))
    if with_task:
        task = params.ruleset if tasks is None else tasks.get_ruleset(0)
        # Kinds of goals and rules, tiles, colours and positions.
        most = max(goals.NUM_GOALS, constants.NUM_TILES, params.height, params.width)
        parts["goal"] = _codes(np.full(task.goal.shape, most))
        parts["rules"] = _codes(np.full(task.rules.shape, most))
    return spaces.Dict(parts) if len(parts) > 1 else parts["grid"]


def _codes(sizes: np.ndarray) -> Space:
    return spaces.MultiDiscrete(sizes, dtype=np.uint8)


def _ruleset(env_id: str, numbers: dict[str, Any]) -> RuleSet:
    require(
        isinstance(numbers, dict) and numbers.keys() == _PARTS.keys(),
        f"{env_id} got the ruleset {shown(numbers)}",
        f"pass a dict with lists of numbers for {', '.join(_PARTS)}",
    )
    arrays = {}
    for name, length in _PARTS.items():
        shape = (length,) if name == "goal" else (-1, length)
        try:
            arrays[name] = jnp.asarray(numbers[name], jnp.uint8).reshape(shape)
        except (TypeError, ValueError, OverflowError):
            arrays[name] = None
        rows = f"{length} numbers" if name == "goal" else f"rows of {length} numbers"
        require(
            arrays[name] is not None and arrays[name].size > 0,
            f"{env_id} got {shown(numbers[name])} as {name} of its ruleset",
            f"pass {rows} from 0 to 255",
        )
    return RuleSet(**arrays)


def _benchmark(env_id: str, name: str) -> Any:
    """By name only: the file of a benchmark is a pickle, and a run's configuration may come from
    somebody else.
    """
    known = registered_benchmarks()
    require(name in known, f"{env_id} knows no benchmark {name!r}", did_you_mean(name, known))
    try:
        return load_benchmark(name)
    except OSError as error:
        raise ConfigError(
            f"{env_id} could not download the benchmark {name!r} ({error}); connect to the network"
            " once, or pass a ruleset"
        ) from error
