"""Checks on a random rollout of a jittable environment: values, time limits and resets."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from rlkit.action_masks import NO_ACTION, mask_in
from rlkit.envs.base import EnvAdapter
from rlkit.envs.checking.compiled_env import CompiledEnv, Tell
from rlkit.envs.checking.episode_findings import counting_on, fixed_length, only_length
from rlkit.envs.checking.integer_codes import code_findings
from rlkit.envs.jittable.contract import Finding
from rlkit.envs.non_finite import NonFinite, is_finite
from rlkit.spaces import Space, bounds, leaf_tree, nothing_allowed, sample, sample_allowed
from rlkit.types import Action, Key, Obs, PyTree

REPEATED = 20  # steps that are taken twice with the same arguments
MOST_ENDS = 20  # of which states are kept


@dataclasses.dataclass(frozen=True, kw_only=True)
class JaxRollout:
    """T consecutive steps of one environment as NumPy arrays, with a reset after each episode."""

    obs: PyTree  # [T, ...] the observation after the step, before any reset
    first_obs: PyTree  # [T, ...] what the policy saw before acting
    reward: np.ndarray  # [T]
    terminated: np.ndarray  # [T]
    truncated: np.ndarray  # [T]
    age: np.ndarray  # [T] steps since the episode started, including this one
    counts: dict[str, tuple[np.ndarray, np.ndarray]]
    """Single numbers of the state by path, [T] before and after each step."""
    ends: tuple[tuple[PyTree, PyTree], ...] = ()
    """States before and after the last step of some episodes."""
    is_repeatable: bool = True
    """Whether calls with the same arguments gave the same results."""

    @property
    def done(self) -> np.ndarray:
        """[T] whether the episode ended."""
        return self.terminated | self.truncated


@dataclasses.dataclass
class Recorder:
    """Collects what becomes a `JaxRollout`."""

    rows: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    counts: list[tuple[dict[str, Any], dict[str, Any]]] = dataclasses.field(default_factory=list)
    ends: list[tuple[PyTree, PyTree]] = dataclasses.field(default_factory=list)
    is_repeatable: bool = True

    def add(self, before: PyTree, after: PyTree, **row: Any) -> None:
        """A step: the states around it, whose numbers may count, and fields of the rollout."""
        self.rows.append(jax.tree.map(np.asarray, row))
        self.counts.append((_single_numbers(before), _single_numbers(after)))

    def rollout(self) -> JaxRollout:
        """What was collected."""
        fields = jax.tree.map(lambda *x: np.stack(x), *self.rows)
        counts = {
            path: tuple(np.stack([step[i][path] for step in self.counts]) for i in range(2))
            for path in self.counts[0][0]
        }
        return JaxRollout(
            **fields,
            counts=counts,  # pyright: ignore[reportArgumentType]
            ends=tuple(self.ends),
            is_repeatable=self.is_repeatable,
        )


def random_rollout(
    env: CompiledEnv, key: Key, num_steps: int, *, resets_broken: bool = False
) -> JaxRollout:
    """Random steps, those before `REPEATED` twice. Consumes the key.

    A third of the actions are lower bounds of the action space, a third upper bounds. With
    `resets_broken`, NaN and infinity end episodes as well.
    """
    auto_reset = getattr(env.env, "auto_reset", False)
    start_key, action_key, run_key = jax.random.split(key, 3)
    keys = jax.random.split(run_key, (num_steps, 3))
    actions = Actions(env.env.action_space, action_key, num_steps)
    found, age = Recorder(), 0
    state, first_obs = env.reset(start_key)
    for time in range(num_steps):
        action = actions.at(time, keys[time, 0], jax.tree.map(lambda x: x[None], first_obs))
        result = env.step(keys[time, 1], state, action)
        if time < REPEATED:
            found.is_repeatable &= same(result, env.step(keys[time, 1], state, action))
        after, obs, reward, terminated, truncated, info = result
        age, done = age + 1, bool(terminated | truncated)
        successor = info["final_observation"] if auto_reset else obs
        found.add(
            state,
            after,
            obs=successor,
            first_obs=first_obs,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            age=np.int32(age),
        )
        if done and len(found.ends) < MOST_ENDS:
            found.ends.append(jax.tree.map(np.asarray, without_typed_keys((state, after))))
        is_broken = resets_broken and not is_finite((obs, reward))
        state, first_obs = after, obs
        if is_broken or (done and not auto_reset):
            state, first_obs = env.reset(keys[time, 2])
        age = 0 if done or is_broken else age
    return found.rollout()


def random_adapter_rollout(env: EnvAdapter, key: Key, num_steps: int, tell: Tell) -> JaxRollout:
    """The same for the first environment of a jittable `EnvAdapter`. Consumes the key."""
    start_key, action_key, run_key = jax.random.split(key, 3)
    tell("compiling reset")
    state, obs = jax.jit(env.reset)(start_key)
    keys = jax.random.split(run_key, (num_steps, 2))
    actions = Actions(env.action_space, action_key, num_steps, batch=env.num_envs)
    compiled, found, age = jax.jit(env.step), Recorder(), 0
    tell("compiling step")
    for time in range(num_steps):
        before, first_obs = state, obs
        action = actions.at(time, keys[time, 0], obs)
        state, step = compiled(keys[time, 1], before, action)
        if time == 0:
            tell(f"playing {num_steps:,} random steps")
        age, obs = age + 1, step.obs
        told = {"obs": step.next_obs, "first_obs": first_obs, "reward": step.reward}
        told |= {"terminated": step.terminated, "truncated": step.truncated}
        row = jax.tree.map(lambda x: np.asarray(x)[0], told)
        found.add(*(_of_first(env.num_envs, x) for x in (before, state)), **row, age=np.int32(age))
        age = 0 if row["terminated"] or row["truncated"] else age
    return found.rollout()


class Actions:
    """Random actions of a single environment, or of a `batch`; those that masks allow."""

    def __init__(self, space: Space, key: Key, num_steps: int, batch: int | None = None) -> None:
        self._is_single, self._batch = batch is None, batch or 1
        self._all = jax.tree.map(np.asarray, _actions(space, key, num_steps * self._batch))
        self._allowed = jax.jit(functools.partial(sample_allowed, space))

    def at(self, time: int, key: Key, obs: Obs) -> Action:
        """Those of a step, for observations [B, ...]; the key is used where there are masks."""
        if mask_in(obs) is not None:
            chosen = self._allowed(key, obs)
        else:
            rows = slice(time * self._batch, (time + 1) * self._batch)
            chosen = jax.tree.map(lambda x: x[rows], self._all)
        return jax.tree.map(lambda x: x[0], chosen) if self._is_single else chosen


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


def value_findings(
    name: str, space: Space, rollout: JaxRollout, non_finite: NonFinite
) -> Iterator[Finding]:
    """Rewards and observations that are not finite, which is no error where environments are reset
    for it; and observations outside their space.
    """
    severity = "error" if non_finite == "raise" else "warning"
    bad = np.flatnonzero(~np.isfinite(rollout.reward))
    if bad.size:
        what = f"{name}.step reward is {rollout.reward[bad[0]]} at step {bad[0] + 1}"
        yield Finding(
            severity,
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
        finite = np.isfinite(values)
        if not finite.all():
            fix = "look for the division or root that causes it"
            values = values[finite.reshape(len(values), -1).all(1)]
            what = f"{label} is NaN or infinite"
            if len(values):
                yield Finding(severity, what, fix)
            else:
                yield Finding("error", f"{what} in every step", fix)
        if not len(values) or (severity == "error" and not finite.all()):
            continue
        yield from _leaf_findings(label, leaf, values)
        yield from code_findings(label, leaf, values.min(), values.max())


def _leaf_findings(label: str, space: Space, values: np.ndarray) -> Iterator[Finding]:
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
    ends = _ends(rollout)
    length = only_length(ends)
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
        elif length is not None:
            yield fixed_length(name, len(ends), length)
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
    if length is not None and length < limit:
        yield fixed_length(name, len(ends), length)
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


def _ends(rollout: JaxRollout) -> list[tuple[int, bool, bool]]:
    """(length, terminated, truncated) of the episodes that ended."""
    fields = (
        x[rollout.done].tolist() for x in (rollout.age, rollout.terminated, rollout.truncated)
    )
    return list(zip(*fields, strict=True))


def reset_findings(
    name: str, auto_reset: bool | None, rollout: JaxRollout, starts: PyTree
) -> Iterator[Finding]:
    """Environments that reset themselves without declaring it, or declare it but do not.

    `auto_reset` is what the environment declares; None: nothing. `starts` are the states of several
    resets.
    """
    if not rollout.done.any():
        return
    restarts = _counters(rollout, starts)
    going_on = [path for path, is_anew in restarts.items() if not is_anew]
    if auto_reset and restarts and len(going_on) == len(restarts):
        fix = "remove auto_reset, or reset inside step when an episode ends"
        yield Finding(
            "error",
            f"{name} sets auto_reset=True, but its step counter continues after an episode",
            fix,
        )
    elif auto_reset and going_on:
        yield counting_on(name, going_on)
    counted = len(going_on) < len(restarts)
    if auto_reset is None and (counted or _ends_at_start(rollout, starts)):
        what = (
            f"{name}.step seems to reset by itself: at the end of an episode it returns the state"
            " of a new one"
        )
        fix = (
            "return the true last state and observation (rlkit resets); or set auto_reset=True and"
            " put the true last observation into info['final_observation']; or set"
            " auto_reset=False if it is no new one"
        )
        yield Finding("error", what, fix)


def counter_findings(name: str, rollout: JaxRollout) -> Iterator[Finding]:
    """What an adapter's state counts on over the ends of episodes."""
    if not rollout.done.any():
        return
    going_on = [
        path for path, (before, after) in rollout.counts.items() if (after == before + 1).all()
    ]
    if going_on:
        yield counting_on(name, going_on)


def _counters(rollout: JaxRollout, starts: PyTree) -> dict[str, bool]:
    """The numbers of the state that count steps: whether they begin anew with each episode."""
    first, running, found = _single_numbers(starts, axes=1), ~rollout.done, {}
    for path, (before, after) in rollout.counts.items():
        start = first[path]
        if not running.any() or (start != start[0]).any():
            continue
        if (after[running] == before[running] + 1).all():
            moved = rollout.done & (before != start[0])
            ends, old = after[moved], before[moved]
            found[path] = bool(ends.size and (ends == start[0]).all() and (ends != old + 1).all())
    return found


def _single_numbers(state: PyTree, axes: int = 0) -> dict[str, np.ndarray]:
    """The leaves of a state that are single numbers, by path; behind so many `axes`."""
    return {
        f"state{jax.tree_util.keystr(path)}": np.asarray(x)
        for path, x in jax.tree.leaves_with_path(state)
        if x.ndim == axes and jnp.issubdtype(x.dtype, jnp.number)
    }


def _of_first(num_envs: int, state: PyTree) -> PyTree:
    """What a batch's state holds for the first of its environments."""
    return jax.tree.map(lambda x: x[0] if x.shape == (num_envs,) else np.zeros(1), state)


def _ends_at_start(rollout: JaxRollout, starts: PyTree) -> bool:
    """Whether each episode ends in the state that all resets return, after moving away from it."""
    firsts = jax.tree.leaves(starts)
    if not firsts or not rollout.ends or any((x != x[0]).any() for x in firsts):
        return False
    ends = [tuple(map(jax.tree.leaves, end)) for end in rollout.ends]
    at_start = all(_are(after, [x[0] for x in firsts]) for _, after in ends)
    return at_start and not any(_are(before, after) for before, after in ends)


def _are(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return all(map(np.array_equal, one, other))


def same(a: PyTree, b: PyTree) -> bool:
    """Whether all leaves are equal in every element (NaN equals NaN)."""
    pairs = zip(*(jax.tree.leaves(without_typed_keys(tree)) for tree in (a, b)), strict=True)
    return all(
        np.array_equal(x, y, equal_nan=x.dtype.kind == "f")
        for x, y in (map(np.asarray, pair) for pair in pairs)
    )


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
