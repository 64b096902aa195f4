"""Laws of an environment by itself. Each takes an id, a class, a function, an object or a batch.

A `gymnasium.Env` object is played alone, everything else as a batch. `env_arguments` go to the
constructor of an id, a class or a function.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium
import jax
import numpy as np

from rlkit.envs.base import EnvAdapter
from rlkit.envs.checking.check_env import check_env
from rlkit.envs.jittable.vectorized import VectorizedEnv
from rlkit.errors import ConfigError, require
from rlkit.testing.comparison import assert_same
from rlkit.testing.play import Env, Play, batch_of, play
from rlkit.types import PyTree

Arguments = Mapping[str, Any] | None
MOST_STEPS = 5000  # to wait for a time limit
ROUNDING = {"rtol": 1e-5, "atol": 1e-6}  # XLA compiles sums in another order


def check_contract(env: Env, *, env_arguments: Arguments = None, num_steps: int = 200) -> None:
    """`rlkit.check_env` finds no error (warnings may be intended)."""
    if isinstance(env, type) and not issubclass(env, gymnasium.Env):
        env, env_arguments = env(**(env_arguments or {})), None
    report = check_env(env, env_arguments=env_arguments, num_steps=num_steps, raise_on_error=False)
    if not report.ok:
        raise AssertionError(str(report))


def same_seed_same_episode(
    env: Env, *, env_arguments: Arguments = None, num_steps: int = 100, seed: int = 0
) -> None:
    """Two copies show the same for the same seed and actions, bit by bit."""
    with batch_of(env, env_arguments) as batch:
        first = play(batch, num_steps, seed)
    with batch_of(env, env_arguments) as batch:
        second = play(batch, num_steps, seed)
    _assert_same_play(first, second, "two copies with the same seed and actions differ")


def resets_restart(
    env: Env, *, env_arguments: Arguments = None, num_steps: int = 200, seed: int = 0
) -> None:
    """Whatever was played before, a reset begins the same episode; only an end leads to one."""
    with batch_of(env, env_arguments) as batch:
        first = play(batch, num_steps, seed)
        again = play(batch, num_steps, seed)
        limit = batch.max_episode_steps
    _require_an_end(first, num_steps)
    _assert_same_play(first, again, "what was played before a reset changes what follows")
    for index, (step, ended) in enumerate(zip(first.steps, first.ended, strict=True)):
        obs, after = (
            jax.tree.map(lambda x, on=~ended: x[on], o) for o in (step.obs, step.next_obs)
        )
        assert_same(obs, after, f"step {index + 1}: obs is not next_obs, and no episode ended")
    longest = int(first.age.max())
    if limit is not None and longest > limit:
        raise AssertionError(f"an episode went on for {longest} steps, beyond its limit of {limit}")


def time_limit_truncates(
    env: Env, *, env_arguments: Arguments = None, num_steps: int | None = None, seed: int = 0
) -> None:
    """Episodes that reach `max_episode_steps` are truncated then, also if the task ends there.

    `num_steps` (None: twice the limit, at most 5000) random steps must reach it: make it short, by
    `env_arguments`, where random actions end episodes early.
    """
    with batch_of(env, env_arguments) as batch:
        limit = batch.max_episode_steps
        if limit is None:
            raise AssertionError("it declares no max_episode_steps; declare one, or leave this out")
        played = play(batch, num_steps or min(2 * limit, MOST_STEPS), seed)
    if played.age.max() > limit:
        raise AssertionError(f"step {limit}, the time limit, neither terminated nor truncated")
    reached = played.age == limit
    if not reached.any():
        raise AssertionError(
            f"no episode lasted until the time limit of {limit} steps (the longest was"
            f" {played.age.max()}), so this says nothing; make the limit shorter by env_arguments,"
            " or play more steps"
        )
    truncated = np.stack([step.truncated for step in played.steps])
    if not truncated[reached].all():
        raise AssertionError(
            f"step {limit}, the time limit, terminated an episode without truncating it: agents"
            " would learn that nothing follows; set truncated there"
        )


def jit_equals_eager(
    env: Env, *, env_arguments: Arguments = None, num_steps: int = 20, seed: int = 0
) -> None:
    """A compiled step computes what Python does, up to rounding. For jittable environments."""
    with batch_of(env, env_arguments) as batch:
        _require_jittable(batch)
        played = play(batch, num_steps, seed)
        for index in {0, num_steps // 2, num_steps - 1}:  # eager steps are slow
            eager = batch.step(played.keys[index], played.states[index], played.actions[index])
            compiled = played.states[index + 1], played.steps[index]
            what = f"step {index + 1} differs when it is compiled"
            assert_same(compiled, jax.device_get(eager), what, **ROUNDING)


def vmap_equals_loop(
    env: Env, *, env_arguments: Arguments = None, num_steps: int = 20, seed: int = 0
) -> None:
    """Steps of a batch are those of single environments, up to rounding. For a `JaxEnv`."""
    with batch_of(env, env_arguments) as batch:
        _require_jittable(batch)
        if not isinstance(batch, VectorizedEnv):
            raise ConfigError("vmap_equals_loop needs a JaxEnv, got a batch; pass what it holds")
        played = play(batch, num_steps, seed)
        step, batched = jax.jit(batch.env.step), jax.jit(jax.vmap(batch.env.step))
        for index in range(num_steps):
            keys = jax.random.split(played.keys[index], batch.num_envs)
            given = keys, played.states[index].envs, played.actions[index]
            together = batched(*given)
            for row in range(batch.num_envs):
                alone = step(*_rows(given, row))
                what = f"step {index + 1} of environment {row} differs in a batch"
                assert_same(_rows(together, row), alone, what, **ROUNDING)


def _rows(tree: PyTree, rows: Any) -> Any:
    return jax.tree.map(lambda x: x[rows], tree)


def _require_jittable(batch: EnvAdapter) -> None:
    fix = "leave this law out: list_laws('host') has those for environments on the host"
    require(batch.is_jittable, "this law is for jittable environments", fix)


def _require_an_end(played: Play, num_steps: int) -> None:
    if not played.ended.any():
        raise AssertionError(
            f"no episode ended in {num_steps} random steps, so this says nothing; pass a larger"
            " num_steps, or env_arguments with a short time limit"
        )


def _assert_same_play(one: Play, other: Play, what: str) -> None:
    assert_same(one.first, other.first, f"{what}, in the first observation: ")
    for index, steps in enumerate(zip(one.steps, other.steps, strict=True)):
        assert_same(*steps, f"{what}, in step {index + 1}: ")
