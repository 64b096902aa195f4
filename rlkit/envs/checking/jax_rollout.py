"""What `check_env` learns from running an environment: random steps are recorded, and the record is
searched for mistakes.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from rlkit.envs.base import EnvAdapter, JaxEnv
from rlkit.envs.jittable.contract import Finding
from rlkit.envs.jittable.vectorized import like, strong
from rlkit.spaces import Space, bounds, map_space, sample
from rlkit.types import Key, PyTree


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """T steps of one environment, as NumPy arrays; it is reset whenever an episode ends."""

    before: PyTree  # [T, ...] states acted in
    after: PyTree  # [T, ...] states that `step` returned; () where an adapter hides them
    obs: PyTree  # [T, ...] true successors
    first_obs: PyTree  # [T, ...] what the policy saw before acting
    reward: np.ndarray  # [T]
    terminated: np.ndarray  # [T]
    truncated: np.ndarray  # [T]
    age: np.ndarray  # [T] steps of the episode, this one included
    repeatable: np.ndarray  # [T] whether a second call with the same arguments gave the same

    @property
    def done(self) -> np.ndarray:
        """[T]."""
        return self.terminated | self.truncated


def record(env: JaxEnv, key: Key, num_steps: int) -> Record:
    """`num_steps` random steps of a `JaxEnv`, every third action on a bound; one compiled scan. The
    key is consumed.
    """
    auto_reset = getattr(env, "auto_reset", False)
    start_key, action_key, run_key = jax.random.split(key, 3)

    def body(carry: tuple[Any, Any, Array], x: tuple[Key, Array]) -> tuple[Any, Any]:
        state, first_obs, age = carry
        step_key, reset_key = jax.random.split(x[0])
        result, again = env.step(step_key, state, x[1]), env.step(step_key, state, x[1])
        after, obs, reward, terminated, truncated, info = result
        after, terminated, truncated = (
            like(state, strong(after)),
            jnp.bool_(terminated),
            jnp.bool_(truncated),
        )
        obs, done = like(first_obs, obs), terminated | truncated
        successor = info["final_observation"] if auto_reset else obs
        fresh = (after, obs) if auto_reset else env.reset(reset_key)
        fresh = (like(after, fresh[0]), like(obs, fresh[1]))
        state_next, obs_next = jax.lax.cond(done, lambda: fresh, lambda: (after, obs))
        row = (
            plain(state),
            plain(after),
            successor,
            first_obs,
            jnp.float32(reward),
            terminated,
            truncated,
            age + 1,
            same(result, again),
        )
        return (state_next, obs_next, jnp.where(done, 0, age + 1)), row

    state, obs = strong(env.reset(start_key))
    xs = (jax.random.split(run_key, num_steps), _actions(env.action_space, action_key, num_steps))
    _, rows = jax.lax.scan(body, (state, obs, jnp.int32(0)), xs)
    names = [field.name for field in dataclasses.fields(Record)]
    return Record(**dict(zip(names, jax.tree.map(np.asarray, rows), strict=True)))


def record_adapter(env: EnvAdapter, key: Key, num_steps: int) -> Record:
    """The same for the first environment of a jittable `EnvAdapter`. The key is consumed."""
    start_key, action_key, run_key = jax.random.split(key, 3)
    actions = _actions(env.action_space, action_key, num_steps * env.num_envs)
    actions = actions.reshape(num_steps, env.num_envs, *actions.shape[1:])

    def body(carry: tuple[Any, Any, Array], x: tuple[Key, Array]) -> tuple[Any, Any]:
        state, first_obs, age = carry
        state, step = env.step(x[0], state, x[1])
        row = (step.next_obs, first_obs, step.reward, step.terminated, step.truncated)
        age = age + 1
        return (state, step.obs, jnp.where(step.terminated[0] | step.truncated[0], 0, age)), (
            row,
            age,
        )

    state, obs = env.reset(start_key)
    _, (rows, age) = jax.lax.scan(
        body, (state, obs, jnp.int32(0)), (jax.random.split(run_key, num_steps), actions)
    )
    next_obs, first_obs, reward, terminated, truncated = jax.tree.map(
        lambda x: np.asarray(x)[:, 0], rows
    )
    return Record(
        before=(),
        after=(),
        obs=next_obs,
        first_obs=first_obs,
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        age=np.asarray(age),
        repeatable=np.ones(num_steps, bool),
    )


def value_findings(name: str, space: Space, seen: Record) -> Iterator[Finding]:
    """Rewards and observations that are not numbers, and observations outside their space."""
    bad = np.flatnonzero(~np.isfinite(seen.reward))
    if bad.size:
        what = f"{name}.step reward is {seen.reward[bad[0]]} at step {bad[0] + 1}"
        yield Finding(
            "error",
            what,
            "look for a division by zero, a log or a root of a negative number, an action on its"
            " bound",
        )
    spaces_by_path = jax.tree.leaves_with_path(map_space(lambda leaf: leaf, space))
    for (path, leaf), first, after in zip(
        spaces_by_path, jax.tree.leaves(seen.first_obs), jax.tree.leaves(seen.obs), strict=True
    ):
        yield from _leaf_findings(
            f"{name} observation{jax.tree_util.keystr(path)}", leaf, np.concatenate([first, after])
        )


def _leaf_findings(label: str, space: Space, values: np.ndarray) -> Iterator[Finding]:
    if not np.isfinite(values).all():
        yield Finding(
            "error", f"{label} is NaN or infinite", "look for the division or root that makes it"
        )
        return
    low, high = bounds(space)
    outside = np.argwhere((values < low - 1e-4) | (values > high + 1e-4))
    if outside.size:
        index, where = tuple(outside[0]), list(map(int, outside[0][1:]))
        limits = (
            f"[{np.broadcast_to(low, values.shape)[index]},"
            f" {np.broadcast_to(high, values.shape)[index]}]"
        )
        what = f"{label}{where or ''} is {values[index]}, outside {limits}"
        # Bounds of float Boxes are hints to networks; integers out of range are lost in one-hot
        # encodings.
        soft = np.issubdtype(values.dtype, np.floating)
        yield Finding(
            "warning" if soft else "error",
            what,
            "widen the bounds of observation_space, or clip what is observed",
        )


def limit_findings(name: str, limit: int | None, seen: Record) -> Iterator[Finding]:
    """Time limits that are declared and not kept, or kept and not declared."""
    if limit is None:
        if seen.truncated.any():
            age = seen.age[seen.truncated][0]
            what = (
                f"{name}.step truncated an episode after {age} steps, but max_episode_steps is not"
                " declared"
            )
            yield Finding(
                "warning", what, f"declare max_episode_steps = {age} if that is the time limit"
            )
        elif not seen.done.any():
            what = (
                f"{name} ended no episode in {len(seen.done)} random steps and declares no"
                " max_episode_steps"
            )
            yield Finding(
                "warning",
                what,
                f"wrap it in TimeLimit(env, {len(seen.done)}), or evaluation may never end",
            )
        return
    at_limit = seen.age == limit
    declared = f"{name}.max_episode_steps is {limit}, but"
    if (at_limit & ~seen.done).any():
        cure = (
            "set truncated = time >= max_episode_steps in step, or wrap in TimeLimit and declare no"
            " limit yourself"
        )
        yield Finding(
            "error",
            f"{declared} step {limit} of an episode sets neither terminated nor truncated",
            cure,
        )
    elif (at_limit & ~seen.truncated).any():
        what = (
            f"{declared} step {limit} says terminated alone: learners would take the time limit for"
            " the end of the task"
        )
        yield Finding(
            "error",
            what,
            "leave terminated to the task, and set truncated = time >= max_episode_steps",
        )
    early = seen.truncated & (seen.age < limit)
    if early.any():
        what = f"{declared} an episode was truncated after {seen.age[early][0]} steps"
        yield Finding(
            "warning", what, "make both agree, unless step truncates for another reason too"
        )


def reset_findings(name: str, auto_reset: bool, seen: Record, starts: PyTree) -> Iterator[Finding]:
    """Environments that reset themselves without saying so, or say so and do not; `starts` are
    states of several resets.
    """
    if not seen.done.any():
        return
    counted = _counter_goes_back(seen, starts)
    if auto_reset and counted is False:
        cure = "remove auto_reset, or reset inside step where an episode ends"
        yield Finding(
            "error",
            f"{name} says auto_reset=True, but its step counter runs on after an episode",
            cure,
        )
    if not auto_reset and (counted or _lands_on_start(seen, starts)):
        what = (
            f"{name}.step seems to reset by itself: where an episode ends it returns the state of a"
            " new one"
        )
        cure = (
            "return the true last state and observation (resetting is ours), or say auto_reset=True"
            " and put the true last "
        )
        yield Finding("error", what, cure + "observation into info['final_observation']")


def _counter_goes_back(seen: Record, starts: PyTree) -> bool | None:
    """Whether a state leaf that counts steps starts anew where episodes end; `None` where no leaf
    counts.
    """
    answers = []
    for start, before, after in zip(
        *map(jax.tree.leaves, (starts, seen.before, seen.after)), strict=True
    ):
        running = ~seen.done
        if (
            before.ndim != 1
            or not running.any()
            or not np.issubdtype(before.dtype, np.number)
            or (start != start[0]).any()
        ):
            continue
        if (after[running] == before[running] + 1).all():
            ends, old = (
                after[seen.done & (before != start[0])],
                before[seen.done & (before != start[0])],
            )
            answers.append(bool(ends.size and (ends == start[0]).all() and (ends != old + 1).all()))
    return any(answers) if answers else None


def _lands_on_start(seen: Record, starts: PyTree) -> bool:
    """Whether every state where an episode ends equals the one that all resets give, although it
    moved before.
    """
    pairs = list(zip(*map(jax.tree.leaves, (starts, seen.before, seen.after)), strict=True))
    if not pairs or any((start != start[0]).any() for start, _, _ in pairs):
        return False
    at_start = np.all([_rows(after[seen.done] == start[0]) for start, _, after in pairs], axis=0)
    stayed = np.all([_rows(before == after)[seen.done] for _, before, after in pairs], axis=0)
    return bool(at_start.all() and not stayed.any())


def same(a: PyTree, b: PyTree) -> Array:
    """Whether all leaves agree in every element, NaN with NaN; [] bool."""
    pairs = zip(jax.tree.leaves(plain(strong(a))), jax.tree.leaves(plain(strong(b))), strict=True)
    return jnp.all(
        jnp.array(
            [
                jnp.array_equal(x, y, equal_nan=jnp.issubdtype(x.dtype, jnp.inexact))
                for x, y in pairs
            ]
        )
    )


def _rows(equal: np.ndarray) -> np.ndarray:
    return np.asarray(equal.reshape(len(equal), -1).all(axis=1))


def _actions(space: Space, key: Key, num: int) -> Array:
    actions = sample(space, key, num)
    if isinstance(space, spaces.Box) and space.is_bounded():
        turn = (jnp.arange(num) % 3).reshape(num, *[1] * len(space.shape))
        actions = jnp.where(turn == 1, space.low, jnp.where(turn == 2, space.high, actions))
    return actions


def plain(tree: PyTree) -> PyTree:
    """The tree with typed keys as the integers they hold."""
    return jax.tree.map(
        lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x,
        tree,
    )
