"""Whether an environment can be saved amid an episode, and goes on where it was."""

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np

from rlkit.envs.checking.gymnasium_rollout import Chooser
from rlkit.envs.checking.gymnasium_seeding import first_difference
from rlkit.envs.checking.gymnasium_values import leaves
from rlkit.envs.host.env_state import NO_HOOKS, load_env, save_env
from rlkit.envs.jittable.contract import Finding
from rlkit.errors import EnvStateError

HOOKS = "return all that changes as numbers, text, arrays, lists or dicts, and put it back"
NEW_EPISODES = "a resumed run starts new episodes"
BEFORE = 7  # steps before the state is saved


def state_findings(env: gymnasium.Env, name: str, num_steps: int, seed: int) -> Iterator[Finding]:
    """What keeps `env` from going on where it was saved, with the same actions.

    Nothing if it, or one of its wrappers, has no hooks: they are optional.
    """
    chooser, last = Chooser(env, seed), env.reset(seed=seed)
    _, _, last = _play(env, BEFORE, lambda _, last: chooser(*last), last)
    try:
        saved = save_env(env)
    except EnvStateError as error:
        if NO_HOOKS not in str(error):
            yield Finding("warning", f"{name} cannot be saved: {error}", HOOKS, NEW_EPISODES)
        return
    wanted, steps, _ = _play(env, num_steps, lambda _, last: chooser(*last), last)
    try:
        load_env(env, saved)
    except EnvStateError as error:
        what = f"{name} cannot be put where it was saved: {error}"
        yield Finding("error", what, HOOKS, "a run on it could not be resumed")
        return
    again, _, _ = _play(env, num_steps, lambda step, _: steps[step], last)
    difference = first_difference(wanted, again)
    if difference is not None:
        what = (
            f"{name} goes on differently after set_state(get_state()): with the same actions, call"
            f" {difference + 1} returns something else"
        )
        why = "a resumed run would not be the run that was never stopped"
        yield Finding("warning", what, f"{HOOKS}; draw random numbers from self.np_random", why)


def _play(
    env: gymnasium.Env, num_steps: int, choose: Callable[[int, Any], Any], last: Any
) -> tuple[list[list[np.ndarray]], list[Any], Any]:
    """(what each step returns, and each reset between episodes; the actions; the last observation
    and info), with actions by step, and by the observation and info before.
    """
    seen, played = [], []
    for step in range(num_steps):
        played.append(choose(step, last))
        obs, reward, terminated, truncated, info = env.step(played[-1])
        seen.append([*_arrays(env, obs), *map(np.array, (reward, terminated, truncated))])
        last = obs, info
        if terminated or truncated:
            last = env.reset()
            seen.append(_arrays(env, last[0]))
    return seen, played, last


def _arrays(env: gymnasium.Env, obs: object) -> list[np.ndarray]:
    return [np.array(value) for _, _, value in leaves(env.observation_space, obs)]
