"""Whether episodes are determined by their seed: they are repeated several times and compared."""

import contextlib
import random
import time
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

from rlkit.envs.checking.gymnasium_rollout import Chooser
from rlkit.envs.checking.gymnasium_values import leaves
from rlkit.envs.jittable.contract import Finding

TRAJECTORY_SECONDS = 0.5  # time limit of one trajectory
SEEDING = (
    "def reset(self, *, seed=None, options=None): super().reset(seed=seed), then use self.np_random"
)
UNREPEATABLE = "runs cannot be repeated, and errors cannot be reproduced"


def seeding_findings(env: gymnasium.Env, name: str, num_steps: int, seed: int) -> Iterator[Finding]:
    """Episodes that cannot be repeated, are all the same, or disturb the global generators."""

    def run(episode_seed: int | None, global_seed: int) -> list[Any]:
        return trajectory(
            env, num_steps, seed=episode_seed, action_seed=seed, global_seed=global_seed
        )

    def same(a: list[Any], b: list[Any]) -> bool:
        return first_difference(a, b) is None

    first = run(seed, 1)
    state = _generators()
    again = run(seed, 2)
    if any(old == new for old, new in zip(state, _generators(), strict=True)):
        what = f"{name} seeds the global generators np.random or random"
        why = (
            "environments in the same process then disturb each other, and your own random numbers"
            " repeat"
        )
        yield Finding("warning", what, SEEDING, why)
    if not same(first, again):
        yield _not_repeatable(
            env, name, first_difference(first, again), uses_global=same(first, run(seed, 1))
        )
        return
    # Five other seeds, because two episodes are often equal when there are only two possible
    # starts.
    if all(same(first, run(seed + 1 + other, 2)) for other in range(5)):
        what = f"{name} gives the same episode for the same actions, whatever the seed"
        why = (
            "fine for a deterministic task; otherwise reset ignores its seed, and all environments"
            " of a batch are copies"
        )
        yield Finding("info", what, SEEDING, why)
        return
    unseeded = run(None, 2)
    if all(same(unseeded, run(None, 3 + other)) for other in range(5)):
        what = f"{name}.reset() without a seed starts the same episode every time"
        why = (
            "rlkit passes a seed only to the first reset: the agent would see the same episode"
            " forever"
        )
        yield Finding(
            "error", what, f"create a new generator only if seed is not None: {SEEDING}", why
        )


def _not_repeatable(
    env: gymnasium.Env, name: str, difference: int | None, *, uses_global: bool
) -> Finding:
    if uses_global:
        what = f"{name} draws from the global generators np.random or random"
        return Finding(
            "error",
            what,
            SEEDING,
            f"{UNREPEATABLE}; workers forked from one process may all draw the same numbers",
        )
    declared = getattr(env.spec, "nondeterministic", False)
    if difference == 0:
        what = f"{name}.reset returns different observations for the same seed"
        return Finding(
            "info" if declared else "error",
            what,
            f"{SEEDING}, and no clock or other generator",
            UNREPEATABLE,
        )
    if difference == 1:
        what = (
            f"{name}.reset() returns a different observation each time it follows the same"
            " reset(seed=...)"
        )
        fix = f"create a new generator only if seed is not None: {SEEDING}"
        return Finding("info" if declared else "warning", what, fix, UNREPEATABLE)
    what = (
        f"{name} gives different episodes for the same seed and actions, though they start the"
        f" same (call {difference} differs)"
    )
    fix = (
        "use self.np_random in step too; if a simulator keeps state across resets, recreate it in"
        " reset"
    )
    return Finding("info" if declared else "warning", what, fix, UNREPEATABLE)


def trajectory(
    env: gymnasium.Env, num_steps: int, *, seed: int | None, action_seed: int, global_seed: int
) -> list[Any]:
    """Everything that `num_steps` steps return, resets included, as a list of lists of arrays.

    It starts with the observations of `reset(seed=seed)` and of a second `reset()`, which the steps
    follow. The global generators of Python and NumPy are seeded with `global_seed`. Stops early if
    that takes longer than `TRAJECTORY_SECONDS`.
    """
    random.seed(global_seed)
    np.random.seed(global_seed)
    deadline = time.perf_counter() + TRAJECTORY_SECONDS
    obs, _ = env.reset() if seed is None else env.reset(seed=seed)
    arrays = [_arrays(env, obs)]
    obs, info = env.reset()
    arrays.append(_arrays(env, obs))
    chooser = Chooser(env, action_seed)
    for _ in range(num_steps):
        obs, reward, terminated, truncated, info = env.step(chooser(obs, info))
        arrays.append(
            [*_arrays(env, obs), np.array(reward), np.array(terminated), np.array(truncated)]
        )
        if terminated or truncated:
            obs, info = env.reset()
            arrays.append(_arrays(env, obs))
        if time.perf_counter() > deadline:
            break
    return arrays


def first_difference(a: list[Any], b: list[Any]) -> int | None:
    """Index of the first call where two trajectories differ (up to the shorter one's length)."""
    for index, (left, right) in enumerate(zip(a, b, strict=False)):
        if len(left) != len(right) or not all(
            np.array_equal(x, y, equal_nan=x.dtype.kind == "f" == y.dtype.kind)
            for x, y in zip(left, right, strict=True)
        ):
            return index
    return None


@contextlib.contextmanager
def preserve_generators() -> Iterator[None]:
    """Restores the states of the global generators at the end."""
    numpy_state, python_state = np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        np.random.set_state(numpy_state)
        random.setstate(python_state)


def _generators() -> tuple[Any, Any]:
    """The states of the global generators of NumPy and of Python."""
    state = np.random.get_state(legacy=False)
    assert isinstance(state, dict)
    return (bytes(state["state"]["key"]), state["state"]["pos"]), random.getstate()


def _arrays(env: gymnasium.Env, obs: object) -> list[np.ndarray]:
    return [np.array(value) for _, _, value in leaves(env.observation_space, obs)]
