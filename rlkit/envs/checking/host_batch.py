"""`check_env` for a host adapter: the contract of the batch, and that of ONE of its environments
where it can build one.
"""

import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import jax
import numpy as np
from gymnasium import spaces

from rlkit.envs.base import EnvAdapter
from rlkit.envs.checking.gymnasium_env import BUDGET, host_findings, limit_findings, space_findings
from rlkit.envs.checking.gymnasium_rollout import MANY, actions, raised
from rlkit.envs.checking.gymnasium_seeding import UNREPEATABLE
from rlkit.envs.host.gymnasium_worker import Recipe
from rlkit.envs.jittable.contract import Finding, finding_of
from rlkit.errors import EnvContractError, RlkitError
from rlkit.spaces import bounds, jax_dtype, map_space
from rlkit.types import Key, PyTree, TimeStep

COURSE = 20  # steps that are played twice
MIN_STEPS = 10  # of a batch whose environment was played by itself already; more as time allows
FRESH = "copy what is returned: a later step must not change it"


def host_adapter_findings(
    adapter: EnvAdapter, name: str, num_steps: int, seed: int
) -> tuple[list[Finding], dict[str, float]]:
    """(findings, what was measured) of the batch; closes it."""
    found, measured = _one_findings(adapter, name, num_steps, seed)
    if not any(finding.severity == "error" for finding in found):
        play = BatchPlay(
            adapter,
            name,
            seed,
            with_repeats=not any(UNREPEATABLE in finding.why for finding in found),
        )
        found += play.run(MIN_STEPS if measured else num_steps, with_limits=not measured)
        measured = measured or play.measured()
    return [*found, *_close_findings(adapter, name)], measured


def _one_findings(
    adapter: EnvAdapter, name: str, num_steps: int, seed: int
) -> tuple[list[Finding], dict[str, float]]:
    """Of ONE environment of the adapter; of its spaces alone where it cannot make one."""
    recipe = getattr(adapter, "recipe", None)
    if not isinstance(recipe, Recipe):
        return list(space_findings(adapter, name)), {}
    try:
        env = recipe.build()
    except Exception as error:
        return [raised(f"building {name}", error)], {}
    return host_findings(env, name, num_steps, seed, sent=recipe)


class BatchPlay:
    """Random steps of a host adapter; stops at the first mistake that hides others."""

    def __init__(self, adapter: EnvAdapter, name: str, seed: int, *, with_repeats: bool) -> None:
        self.adapter, self.name, self.seed, self.with_repeats = adapter, name, seed, with_repeats
        self.num_envs = adapter.num_envs
        self.ends: list[tuple[int, bool, bool]] = []
        self.longest = self.steps = 0
        self.seconds: list[float] = []
        self.moved = self.lost = (
            0  # ends at which obs and next_obs differ, and at which they are the same
        )
        self._held: list[tuple[str, np.ndarray, np.ndarray]] = []

    def run(self, num_steps: int, *, with_limits: bool) -> list[Finding]:
        """Plays `num_steps` steps, more where they take no time, and says what was wrong."""
        try:
            found = list(self._step_findings(num_steps))
            if not found:
                found += [
                    *(self._repeat_findings() if self.with_repeats else ()),
                    *self._reset_findings(),
                    *self._state_findings(),
                ]
            if with_limits and not found:
                limit = self.adapter.max_episode_steps
                found += limit_findings(self.name, limit, self.ends, self.longest, self.steps)
        except RlkitError as error:
            return [finding_of(error)]
        except Exception as error:
            return [raised(self.name, error)]
        return found

    def measured(self) -> dict[str, float]:
        """Steps and time, per environment."""
        found: dict[str, float] = {"steps": self.steps * self.num_envs, "episodes": len(self.ends)}
        if self.seconds:
            found["microseconds_per_step"] = round(
                float(np.median(self.seconds)) / self.num_envs * 1e6, 1
            )
        if self.ends:
            found["mean_episode_length"] = round(
                float(np.mean([length for length, _, _ in self.ends])), 1
            )
        return found

    def _actions(self, seed: int) -> Iterator[Any]:
        """[N, ...]"""
        single = actions(self.adapter.action_space, seed)
        while True:
            yield np.stack(list(islice(single, self.num_envs)))

    def _course(self, key: Key) -> list[list[np.ndarray]]:
        """Arrays of a reset and some steps; every environment gets the same actions."""
        state, obs = self.adapter.reset(key)
        seen = [[np.array(leaf) for leaf in jax.tree.leaves(obs)]]
        for action in islice(self._actions(self.seed), COURSE):
            alike: Any = np.repeat(action[:1], self.num_envs, axis=0)
            state, step = self.adapter.step(key, state, alike)
            seen.append(
                [
                    np.array(leaf)
                    for leaf in jax.tree.leaves(
                        (step.obs, step.reward, step.terminated, step.truncated)
                    )
                ]
            )
        return seen

    def _repeat_findings(self) -> Iterator[Finding]:
        key, other = jax.random.split(jax.random.key(self.seed))
        first, again, elsewhere = (self._course(k) for k in (key, key, other))
        if not _same(first, again):
            yield Finding(
                "error",
                f"{self.name}.reset with the same key gives other episodes",
                "seed every environment from the key",
            )
        elif (
            self.num_envs > 1
            and not _same(first, elsewhere)
            and _rows_alike(first)
            and _rows_alike(elsewhere)
        ):
            what = (
                f"{self.name}: all {self.num_envs} environments of the batch play the same episode"
            )
            why = "the batch then holds one environment's worth of experience"
            yield Finding(
                "error",
                what,
                "give each environment a seed of its own (rlkit.envs.host.base.seeds)",
                why,
            )

    def _step_findings(self, num_steps: int) -> Iterator[Finding]:
        adapter, limit = self.adapter, self.adapter.max_episode_steps
        wanted = max(num_steps, limit + 1 if limit is not None and limit <= MANY else MANY)
        deadline = time.perf_counter() + BUDGET
        key = jax.random.key(self.seed + 1)
        state, obs = adapter.reset(key)
        yield from self._obs_findings("reset obs", obs)
        age = np.zeros(self.num_envs, int)
        for count, action in enumerate(islice(self._actions(self.seed), wanted)):
            if count >= num_steps and time.perf_counter() > deadline:
                return
            self._held = [(f"{path}", leaf, leaf.copy()) for path, leaf in _leaves(obs)]
            start = time.perf_counter()
            state, step = adapter.step(key, state, action)
            self.seconds.append(time.perf_counter() - start)
            found = [*self._held_findings(), *self._shape_findings(step)]
            found = found or [*self._value_findings(step), *self._successor_findings(step)]
            yield from found
            if found:
                return
            self._held += [(f".{path}", leaf, leaf.copy()) for path, leaf in _leaves(step.next_obs)]
            self.steps, age, obs = self.steps + 1, age + 1, step.obs
            self.longest = max(self.longest, int(age.max()))
            for index in np.flatnonzero(step.terminated | step.truncated):
                self.ends.append(
                    (int(age[index]), bool(step.terminated[index]), bool(step.truncated[index]))
                )
                age[index] = 0

    def _held_findings(self) -> Iterator[Finding]:
        for path, array, was in self._held:
            if not np.array_equal(array, was, equal_nan=array.dtype.kind == "f"):
                what = f"{self.name}.step overwrites the obs{path} that the call before it returned"
                yield Finding(
                    "error",
                    what,
                    FRESH,
                    "the rollout that was collected changes under the learner's hands",
                )
                return

    def _obs_findings(self, label: str, obs: PyTree) -> Iterator[Finding]:
        wanted = map_space(
            lambda leaf: f"{jax_dtype(leaf)}{[self.num_envs, *(leaf.shape or ())]}",
            self.adapter.observation_space,
        )
        got = jax.tree.map(
            lambda leaf: f"{getattr(leaf, 'dtype', type(leaf).__name__)}{list(np.shape(leaf))}", obs
        )
        if wanted != got:
            yield Finding(
                "error",
                f"{self.name} {label} is {got}, not {wanted}",
                "return arrays [num_envs, ...] in these types",
            )

    def _shape_findings(self, step: Any) -> Iterator[Finding]:
        if not isinstance(step, TimeStep):
            what = f"{self.name}.step returned {type(step).__name__}"
            yield Finding("error", what, "return (state, TimeStep(...))")
            return
        yield from self._obs_findings("step obs", step.obs)
        yield from self._obs_findings("step next_obs", step.next_obs)
        for label, dtype in (("reward", "float32"), ("terminated", "bool"), ("truncated", "bool")):
            value = getattr(step, label)
            got = f"{getattr(value, 'dtype', type(value).__name__)}{list(np.shape(value))}"
            if got != f"{dtype}[{self.num_envs}]":
                cure = "return arrays [num_envs] in these types"
                yield Finding(
                    "error",
                    f"{self.name} step {label} is {got}, not {dtype}[{self.num_envs}]",
                    cure,
                )
        for name, value in step.info.items():
            if np.shape(value)[:1] != (self.num_envs,):
                what = (
                    f"{self.name} step info[{name!r}] has shape {np.shape(value)}, not"
                    f" [{self.num_envs}, ...]"
                )
                yield Finding(
                    "error", what, "give every environment a row, 0 where it has nothing to say"
                )

    def _value_findings(self, step: TimeStep) -> Iterator[Finding]:
        if not np.isfinite(step.reward).all():
            yield Finding(
                "error",
                f"{self.name} step reward is {step.reward}",
                "raise EnvFailedError naming the environment",
            )
        space_of = dict(_leaves(map_space(lambda leaf: leaf, self.adapter.observation_space)))
        for path, value in [*_leaves(step.obs), *_leaves(step.next_obs)]:
            if not np.isfinite(value).all():
                yield Finding(
                    "error",
                    f"{self.name} observation{path} is NaN or infinite",
                    "raise EnvFailedError naming it",
                )
                return
            low, high = bounds(space_of[path])
            if value.dtype.kind != "f" and ((value < low) | (value > high)).any():
                what = f"{self.name} observation{path} is outside its space {space_of[path]}"
                yield Finding("error", what, "widen the bounds of observation_space")
                return

    def _successor_findings(self, step: TimeStep) -> Iterator[Finding]:
        done = np.asarray(step.terminated | step.truncated)
        same = np.ones(self.num_envs, bool)
        for (_, left), (_, right) in zip(_leaves(step.obs), _leaves(step.next_obs), strict=True):
            same &= (left == right).reshape(self.num_envs, -1).all(axis=1)
        self.moved, self.lost = (
            self.moved + int((done & ~same).sum()),
            self.lost + int((done & same).sum()),
        )
        if not same[~done].all():
            what = f"{self.name}.step gives two different obs and next_obs within an episode"
            yield Finding(
                "error",
                what,
                "next_obs is the true successor, and obs differs from it only where an episode"
                " ended",
            )

    def _reset_findings(self) -> Iterator[Finding]:
        if self.lost >= 3 and not self.moved:
            what = (
                f"{self.name}.step gave obs equal to next_obs at all {self.lost} ends of episodes"
            )
            why = (
                "either values bootstrap from the next episode, or the first observation of each"
                " episode is never seen"
            )
            cure = (
                "reset within the step that ends: obs is the first observation of the next episode,"
                " next_obs the last of this"
            )
            yield Finding("error", what, f"{cure} (Gymnasium: AutoresetMode.SAME_STEP)", why)

    def _state_findings(self) -> Iterator[Finding]:
        key = jax.random.key(self.seed)
        old, _ = self.adapter.reset(key)
        self.adapter.reset(key)
        try:
            self.adapter.step(key, old, next(self._actions(self.seed)))
        except EnvContractError:
            return
        what = f"{self.name}.step accepts a state from before the last reset"
        why = "two runs that share the adapter would step each other's simulators without a word"
        yield Finding(
            "warning", what, "return HostState and call check_state (rlkit.envs.host.base)", why
        )


def _close_findings(adapter: EnvAdapter, name: str) -> list[Finding]:
    for count in ("", " the second time"):
        try:
            adapter.close()
        except Exception as error:
            return [raised(f"{name}.close(){count}", error)]
    return []


def _leaves(tree: PyTree) -> list[tuple[str, Any]]:
    """(path, leaf) of all leaves; a space is a leaf."""
    return [
        (jax.tree_util.keystr(path), leaf)
        for path, leaf in jax.tree.leaves_with_path(
            tree, is_leaf=lambda node: isinstance(node, spaces.Space)
        )
    ]


def _same(a: list[list[np.ndarray]], b: list[list[np.ndarray]]) -> bool:
    return all(
        np.array_equal(x, y)
        for left, right in zip(a, b, strict=True)
        for x, y in zip(left, right, strict=True)
    )


def _rows_alike(course: list[list[np.ndarray]]) -> bool:
    return all((leaf == leaf[:1]).all() for leaves in course for leaf in leaves)
