"""Whether the episodes of a Gymnasium environment follow from its seed: they are played several
times and compared.
"""

import contextlib
import random
import time
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

from rlkit.envs.checking.gymnasium_rollout import actions
from rlkit.envs.checking.gymnasium_values import leaves
from rlkit.envs.jittable.contract import Finding

COURSE_SECONDS = 0.5  # that one course may take
SEEDING = (
    "def reset(self, *, seed=None, options=None): super().reset(seed=seed), then draw from"
    " self.np_random"
)
UNREPEATABLE = "runs cannot be repeated, and errors cannot be reproduced"


def seeding_findings(env: gymnasium.Env, name: str, num_steps: int, seed: int) -> Iterator[Finding]:
    """Episodes that cannot be repeated, are all the same, or disturb other users of the global
    generators.
    """

    def play(episode_seed: int | None, world: int) -> list[Any]:
        return course(env, num_steps, seed=episode_seed, action_seed=seed, world=world)

    def same(a: list[Any], b: list[Any]) -> bool:
        return first_difference(a, b) is None

    first = play(seed, 1)
    state = _generators()
    again = play(seed, 2)
    if any(old == new for old, new in zip(state, _generators(), strict=True)):
        what = f"{name} seeds the global generators np.random or random"
        why = (
            "environments that share a process then disturb each other, and your own random numbers"
            " repeat"
        )
        yield Finding("warning", what, SEEDING, why)
    if not same(first, again):
        yield _not_repeatable(
            env, name, first_difference(first, again), uses_global=same(first, play(seed, 1))
        )
        return
    # Several times, for with two possible starts any two episodes are often the same one.
    if all(same(first, play(seed + 1 + other, 2)) for other in range(5)):
        what = f"{name} gives the same episode for the same actions whatever the seed"
        why = (
            "fine for a task without chance; else reset ignores its seed, and all environments of a"
            " batch are copies"
        )
        yield Finding("info", what, SEEDING, why)
        return
    unseeded = play(None, 2)
    if all(same(unseeded, play(None, 3 + other)) for other in range(5)):
        what = f"{name}.reset() without a seed starts the same episode every time"
        why = "rlkit gives a seed at the start alone: the agent would see a single episode for ever"
        yield Finding(
            "error", what, f"make a new generator only if seed is not None: {SEEDING}", why
        )


def _not_repeatable(
    env: gymnasium.Env, name: str, parted: int | None, *, uses_global: bool
) -> Finding:
    if uses_global:
        what = f"{name} draws from the global generators np.random or random"
        return Finding(
            "error",
            what,
            SEEDING,
            f"{UNREPEATABLE}; workers forked from one process may all draw the same numbers",
        )
    declared = env.spec is not None and env.spec.nondeterministic
    if parted == 0:
        what = f"{name}.reset with the same seed gives another observation"
        return Finding(
            "info" if declared else "error",
            what,
            f"{SEEDING}, from no clock or other generator",
            UNREPEATABLE,
        )
    if parted == 1:
        what = (
            f"{name}.reset() gives another observation each time it follows the same"
            " reset(seed=...)"
        )
        cure = f"make a new generator only if seed is not None: {SEEDING}"
        return Finding("info" if declared else "warning", what, cure, UNREPEATABLE)
    what = (
        f"{name} gives another episode for the same seed and actions, though it starts alike (call"
        f" {parted} differs)"
    )
    cure = (
        "draw from self.np_random in step too; if it is a simulator that keeps something over"
        " resets, build that anew in reset"
    )
    return Finding("info" if declared else "warning", what, cure, UNREPEATABLE)


def course(
    env: gymnasium.Env, num_steps: int, *, seed: int | None, action_seed: int, world: int
) -> list[Any]:
    """What `num_steps` steps give, resets included; the global generators of Python and NumPy are
    seeded with `world`.

    A list of lists of arrays: first the observations of `reset(seed=seed)` and of the `reset()`
    after it, from which the steps start. It ends early where that takes long.
    """
    random.seed(world)
    np.random.seed(world)
    deadline = time.perf_counter() + COURSE_SECONDS
    obs, _ = env.reset() if seed is None else env.reset(seed=seed)
    seen = [_arrays(env, obs), _arrays(env, env.reset()[0])]
    for _, action in zip(range(num_steps), actions(env.action_space, action_seed), strict=False):
        obs, reward, terminated, truncated, _ = env.step(action)
        seen.append(
            [*_arrays(env, obs), np.array(reward), np.array(terminated), np.array(truncated)]
        )
        if terminated or truncated:
            obs, _ = env.reset()
            seen.append(_arrays(env, obs))
        if time.perf_counter() > deadline:
            break
    return seen


def first_difference(a: list[Any], b: list[Any]) -> int | None:
    """Where two courses part, counted in what the environment returned; a shorter one is compared
    as far as it goes.
    """
    for index, (left, right) in enumerate(zip(a, b, strict=False)):
        if len(left) != len(right) or not all(
            np.array_equal(x, y, equal_nan=x.dtype.kind == "f" == y.dtype.kind)
            for x, y in zip(left, right, strict=True)
        ):
            return index
    return None


@contextlib.contextmanager
def kept_generators() -> Iterator[None]:
    """The global generators are afterwards what they were before."""
    numpy_state, python_state = np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        np.random.set_state(numpy_state)
        random.setstate(python_state)


def _generators() -> tuple[Any, Any]:
    """What the states of the global generators are, of NumPy and of Python."""
    state = np.random.get_state(legacy=False)
    assert isinstance(state, dict)
    return (bytes(state["state"]["key"]), state["state"]["pos"]), random.getstate()


def _arrays(env: gymnasium.Env, obs: Any) -> list[np.ndarray]:
    return [np.array(value) for _, _, value in leaves(env.observation_space, obs)]
