"""Checks on a random rollout of a jittable environment: values, time limits and resets."""

import dataclasses
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from rlkit.action_masks import NO_ACTION, mask_in
from rlkit.envs.base import EnvAdapter, JaxEnv
from rlkit.envs.checking.integer_codes import code_findings
from rlkit.envs.jittable.casts import cast_like
from rlkit.envs.jittable.contract import Finding
from rlkit.ops.strong_types import strong_types
from rlkit.spaces import Space, bounds, leaf_tree, nothing_allowed, sample, sample_allowed
from rlkit.types import Action, EnvState, Key, Obs, PyTree


@dataclasses.dataclass(frozen=True, kw_only=True)
class JaxRollout:
    """T consecutive steps of one environment as NumPy arrays, with a reset after each episode."""

    before: PyTree  # [T, ...] states before the step
    after: PyTree  # [T, ...] states that `step` returned; () for adapters, which hide them
    obs: PyTree  # [T, ...] the observation after the step, before any reset
    first_obs: PyTree  # [T, ...] what the policy saw before acting
    reward: np.ndarray  # [T]
    terminated: np.ndarray  # [T]
    truncated: np.ndarray  # [T]
    age: np.ndarray  # [T] steps since the episode started, including this one
    repeatable: np.ndarray  # [T] whether a second call with the same arguments gave the same result

    @property
    def done(self) -> np.ndarray:
        """[T] whether the episode ended."""
        return self.terminated | self.truncated


def random_rollout(env: JaxEnv, key: Key, num_steps: int) -> JaxRollout:
    """Random steps of a `JaxEnv` in one compiled scan. Consumes the key.

    A third of the actions are lower bounds of the action space, a third upper bounds.
    """
    auto_reset = getattr(env, "auto_reset", False)
    start_key, action_key, run_key = jax.random.split(key, 3)

    def body(carry: tuple[EnvState, Obs, Array], x: tuple[Key, Action]) -> tuple[PyTree, PyTree]:
        state, first_obs, age = carry
        step_key, reset_key = jax.random.split(x[0])
        action = x[1]
        if mask_in(first_obs) is not None:
            one = jax.tree.map(lambda x: x[None], first_obs)
            action = sample_allowed(env.action_space, jax.random.fold_in(x[0], 2), one)[0]
        result, again = env.step(step_key, state, action), env.step(step_key, state, action)
        after, obs, reward, terminated, truncated, info = result
        after, terminated, truncated = (
            cast_like(state, strong_types(after)),
            jnp.bool_(terminated),
            jnp.bool_(truncated),
        )
        obs, done = cast_like(first_obs, obs), terminated | truncated
        successor = info["final_observation"] if auto_reset else obs
        fresh = (after, obs) if auto_reset else env.reset(reset_key)
        fresh = (cast_like(after, fresh[0]), cast_like(obs, fresh[1]))
        state_next, obs_next = jax.lax.cond(done, lambda: fresh, lambda: (after, obs))
        row = (
            without_typed_keys(state),
            without_typed_keys(after),
            successor,
            first_obs,
            jnp.float32(reward),
            terminated,
            truncated,
            age + 1,
            same(result, again),
        )
        return (state_next, obs_next, jnp.where(done, 0, age + 1)), row

    state, obs = strong_types(env.reset(start_key))
    xs = (jax.random.split(run_key, num_steps), _actions(env.action_space, action_key, num_steps))
    _, rows = jax.lax.scan(body, (state, obs, jnp.int32(0)), xs)
    names = [field.name for field in dataclasses.fields(JaxRollout)]
    return JaxRollout(**dict(zip(names, jax.tree.map(np.asarray, rows), strict=True)))


def random_adapter_rollout(env: EnvAdapter, key: Key, num_steps: int) -> JaxRollout:
    """The same for the first environment of a jittable `EnvAdapter`. Consumes the key."""
    start_key, action_key, run_key = jax.random.split(key, 3)
    actions = _actions(env.action_space, action_key, num_steps * env.num_envs)
    actions = jax.tree.map(lambda x: x.reshape(num_steps, env.num_envs, *x.shape[1:]), actions)

    def body(carry: tuple[EnvState, Obs, Array], x: tuple[Key, Action]) -> tuple[PyTree, PyTree]:
        state, first_obs, age = carry
        action = x[1]
        if mask_in(first_obs) is not None:
            action = sample_allowed(env.action_space, jax.random.fold_in(x[0], 2), first_obs)
        state, step = env.step(x[0], state, action)
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
    return JaxRollout(
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


def mask_findings(name: str, action_space: Space, rollout: JaxRollout) -> Iterator[Finding]:
    """States in which a mask allows nothing though it matters: to act, or at a time limit."""
    stuck = nothing_allowed(rollout.first_obs, action_space)
    after = nothing_allowed(rollout.obs, action_space)
    if stuck is None or after is None:
        return
    stuck = stuck | (after & rollout.truncated & ~rollout.terminated)
    if stuck.any():
        count = int(stuck.sum())
        yield Finding("error", f"{name} allows no action in {count} states", NO_ACTION)


def value_findings(name: str, space: Space, rollout: JaxRollout) -> Iterator[Finding]:
    """Non-finite rewards and observations, and observations outside their space."""
    bad = np.flatnonzero(~np.isfinite(rollout.reward))
    if bad.size:
        what = f"{name}.step reward is {rollout.reward[bad[0]]} at step {bad[0] + 1}"
        yield Finding(
            "error",
            what,
            "look for a division by zero, the log or root of a negative number, or an action on"
            " its bound",
        )
    spaces_by_path = jax.tree.leaves_with_path(leaf_tree(space))
    for (path, leaf), first, after in zip(
        spaces_by_path,
        jax.tree.leaves(rollout.first_obs),
        jax.tree.leaves(rollout.obs),
        strict=True,
    ):
        label, values = (
            f"{name} observation{jax.tree_util.keystr(path)}",
            np.concatenate([first, after]),
        )
        yield from _leaf_findings(label, leaf, values)
        yield from code_findings(label, leaf, values.min(), values.max())


def _leaf_findings(label: str, space: Space, values: np.ndarray) -> Iterator[Finding]:
    if not np.isfinite(values).all():
        yield Finding(
            "error", f"{label} is NaN or infinite", "look for the division or root that causes it"
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
            "widen the bounds of observation_space, or clip the observation",
        )


def limit_findings(name: str, limit: int | None, rollout: JaxRollout) -> Iterator[Finding]:
    """Time limits that are declared but not enforced, or enforced but not declared."""
    if limit is None:
        if rollout.truncated.any():
            age = rollout.age[rollout.truncated][0]
            what = (
                f"{name}.step truncated an episode after {age} steps, but max_episode_steps is not"
                " declared"
            )
            yield Finding(
                "warning", what, f"declare max_episode_steps = {age} if that is the time limit"
            )
        elif not rollout.done.any():
            what = (
                f"{name} ended no episode in {len(rollout.done)} random steps and declares no"
                " max_episode_steps"
            )
            yield Finding(
                "warning",
                what,
                f"wrap it in TimeLimit(env, {len(rollout.done)}), or evaluation may never end",
            )
        return
    at_limit = rollout.age == limit
    declared = f"{name}.max_episode_steps is {limit}, but"
    if (at_limit & ~rollout.done).any():
        fix = (
            "set truncated = time >= max_episode_steps in step, or use TimeLimit and remove your"
            " own max_episode_steps"
        )
        yield Finding(
            "error",
            f"{declared} step {limit} of an episode sets neither terminated nor truncated",
            fix,
        )
    elif (at_limit & ~rollout.truncated).any():
        what = (
            f"{declared} step {limit} sets terminated alone: agents would learn that the task ends"
            " there"
        )
        yield Finding(
            "error",
            what,
            "set terminated only where the task ends, and truncated = time >= max_episode_steps",
        )
    early = rollout.truncated & (rollout.age < limit)
    if early.any():
        what = f"{declared} an episode was truncated after {rollout.age[early][0]} steps"
        yield Finding(
            "warning", what, "make them agree, unless step also truncates for another reason"
        )


def reset_findings(
    name: str, auto_reset: bool, rollout: JaxRollout, starts: PyTree
) -> Iterator[Finding]:
    """Environments that reset themselves without declaring it, or declare it but do not.

    `starts` are the states of several resets.
    """
    if not rollout.done.any():
        return
    counted = _counter_restarts(rollout, starts)
    if auto_reset and counted is False:
        fix = "remove auto_reset, or reset inside step when an episode ends"
        yield Finding(
            "error",
            f"{name} sets auto_reset=True, but its step counter continues after an episode",
            fix,
        )
    if not auto_reset and (counted or _ends_at_start(rollout, starts)):
        what = (
            f"{name}.step seems to reset by itself: at the end of an episode it returns the state"
            " of a new one"
        )
        fix = (
            "return the true last state and observation (rlkit resets), or set auto_reset=True and"
            " put the true last "
        )
        yield Finding("error", what, fix + "observation into info['final_observation']")


def _counter_restarts(rollout: JaxRollout, starts: PyTree) -> bool | None:
    """Whether a state leaf that counts steps restarts with each episode; `None` if none counts."""
    answers = []
    for start, before, after in zip(
        *map(jax.tree.leaves, (starts, rollout.before, rollout.after)), strict=True
    ):
        running = ~rollout.done
        if (
            before.ndim != 1
            or not running.any()
            or not np.issubdtype(before.dtype, np.number)
            or (start != start[0]).any()
        ):
            continue
        if (after[running] == before[running] + 1).all():
            ends, old = (
                after[rollout.done & (before != start[0])],
                before[rollout.done & (before != start[0])],
            )
            answers.append(bool(ends.size and (ends == start[0]).all() and (ends != old + 1).all()))
    return any(answers) if answers else None


def _ends_at_start(rollout: JaxRollout, starts: PyTree) -> bool:
    """Whether each episode ends in the state that all resets return, after moving away from it."""
    pairs = list(zip(*map(jax.tree.leaves, (starts, rollout.before, rollout.after)), strict=True))
    if not pairs or any((start != start[0]).any() for start, _, _ in pairs):
        return False
    at_start = np.all([_rows(after[rollout.done] == start[0]) for start, _, after in pairs], axis=0)
    stayed = np.all([_rows(before == after)[rollout.done] for _, before, after in pairs], axis=0)
    return bool(at_start.all() and not stayed.any())


def same(a: PyTree, b: PyTree) -> Array:
    """Whether all leaves are equal in every element (NaN equals NaN); [] bool."""
    pairs = zip(
        jax.tree.leaves(without_typed_keys(strong_types(a))),
        jax.tree.leaves(without_typed_keys(strong_types(b))),
        strict=True,
    )
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


def _actions(space: Space, key: Key, num: int) -> Action:
    def some_on_bounds(leaf: Space, actions: Array) -> Array:
        if not (isinstance(leaf, spaces.Box) and leaf.is_bounded()):
            return actions
        kind = (jnp.arange(num) % 3).reshape(num, *[1] * len(leaf.shape))
        return jnp.where(kind == 1, leaf.low, jnp.where(kind == 2, leaf.high, actions))

    return jax.tree.map(some_on_bounds, leaf_tree(space), sample(space, key, num))


def without_typed_keys(tree: PyTree) -> PyTree:
    """The tree with typed keys replaced by their integers."""
    return jax.tree.map(
        lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x,
        tree,
    )
