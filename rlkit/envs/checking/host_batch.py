"""Checks of a host adapter: the batch, and one of its environments if it can build one."""

import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import jax
import numpy as np
from gymnasium import spaces

from rlkit.action_masks import mask_in, random_allowed
from rlkit.envs.base import EnvAdapter
from rlkit.envs.checking.compiled_env import Tell
from rlkit.envs.checking.gymnasium_env import (
    EXTRA_SECONDS,
    host_findings,
    limit_findings,
    space_findings,
)
from rlkit.envs.checking.gymnasium_rollout import LONGEST_LIMIT, actions, exception_finding
from rlkit.envs.checking.gymnasium_seeding import UNREPEATABLE
from rlkit.envs.host.gymnasium_worker import Recipe
from rlkit.envs.jittable.contract import Finding, finding_of
from rlkit.errors import EnvContractError, RlkitError
from rlkit.spaces import bounds, jax_dtype, leaf_tree, map_space
from rlkit.types import Key, PyTree, TimeStep

REPEATED_STEPS = 20  # steps that are repeated with the same key
MIN_STEPS = 10  # for a batch whose environment was already checked alone; more if time allows
RETURN_COPIES = "return copies: a later step must not change them"


def host_adapter_findings(
    adapter: EnvAdapter, name: str, num_steps: int, seed: int, tell: Tell
) -> tuple[list[Finding], dict[str, float]]:
    """Returns (findings, measurements) of the batch, and closes it."""
    findings, measured = _single_env_findings(adapter, name, num_steps, seed, tell)
    tell(f"stepping a batch of {adapter.num_envs}")
    if not any(finding.severity == "error" for finding in findings):
        rollout = BatchRollout(
            adapter,
            name,
            seed,
            with_repeats=not any(UNREPEATABLE in finding.why for finding in findings),
        )
        findings += rollout.run(MIN_STEPS if measured else num_steps, with_limits=not measured)
        measured = measured or rollout.measured()
    return [*findings, *_close_findings(adapter, name)], measured


def _single_env_findings(
    adapter: EnvAdapter, name: str, num_steps: int, seed: int, tell: Tell
) -> tuple[list[Finding], dict[str, float]]:
    """Checks one environment of the adapter, or only its spaces if it cannot build one."""
    recipe = getattr(adapter, "recipe", None)
    if not isinstance(recipe, Recipe):
        return list(space_findings(adapter, name)), {}
    try:
        env = recipe.build()
    except Exception as error:
        return [exception_finding(f"building {name}", error)], {}
    return host_findings(
        env, name, num_steps, seed, tell, pickled=recipe, non_finite=recipe.non_finite
    )


class BatchRollout:
    """Random steps of a host adapter; stops at the first mistake that would hide others."""

    def __init__(self, adapter: EnvAdapter, name: str, seed: int, *, with_repeats: bool) -> None:
        self.adapter, self.name, self.seed, self.with_repeats = adapter, name, seed, with_repeats
        self.num_envs = adapter.num_envs
        self.ends: list[tuple[int, bool, bool]] = []
        self.longest = self.steps = 0
        self.seconds: list[float] = []
        self.moved = self.lost = (
            0  # numbers of episode ends at which obs and next_obs differ, or are equal
        )
        self._dice = np.random.default_rng(seed)
        self._returned: list[tuple[str, np.ndarray, np.ndarray]] = []

    def run(self, num_steps: int, *, with_limits: bool) -> list[Finding]:
        """Runs `num_steps` steps, more if they are fast, and returns the findings."""
        try:
            findings = list(self._step_findings(num_steps))
            if not findings:
                findings += [
                    *(self._repeat_findings() if self.with_repeats else ()),
                    *self._reset_findings(),
                    *self._state_findings(),
                ]
            if with_limits and not findings:
                limit = self.adapter.max_episode_steps
                findings += limit_findings(self.name, limit, self.ends, self.longest, self.steps)
        except RlkitError as error:
            return [finding_of(error)]
        except Exception as error:
            return [exception_finding(self.name, error)]
        return findings

    def measured(self) -> dict[str, float]:
        """Steps, episodes and time per environment step."""
        measured: dict[str, float] = {
            "steps": self.steps * self.num_envs,
            "episodes": len(self.ends),
        }
        if self.seconds:
            measured["microseconds_per_step"] = round(
                float(np.median(self.seconds)) / self.num_envs * 1e6, 1
            )
        if self.ends:
            measured["mean_episode_length"] = round(
                float(np.mean([length for length, _, _ in self.ends])), 1
            )
        return measured

    def _actions(self, seed: int) -> Iterator[Any]:
        """Batches of random actions, [N, ...]."""
        single = actions(self.adapter.action_space, seed)
        while True:
            yield jax.tree.map(lambda *x: np.stack(x), *islice(single, self.num_envs))

    def _obeying(self, action: Any, obs: Any) -> Any:
        """The actions [N, ...], or where masks forbid some of them, others: the same for all
        environments with the same mask.
        """
        if mask_in(obs) is None:
            return action
        return random_allowed(mask_in(obs), self.adapter.action_space, self._dice)

    def _trajectory(self, key: Key) -> list[list[np.ndarray]]:
        """What a reset and some steps return; every environment gets the same actions."""
        state, obs = self.adapter.reset(key)
        self._dice = np.random.default_rng(self.seed)
        arrays = [[np.array(leaf) for leaf in jax.tree.leaves(obs)]]
        for action in islice(self._actions(self.seed), REPEATED_STEPS):
            same_action = jax.tree.map(lambda x: np.repeat(x[:1], self.num_envs, axis=0), action)
            state, step = self.adapter.step(key, state, self._obeying(same_action, obs))
            obs = step.obs
            arrays.append(
                [
                    np.array(leaf)
                    for leaf in jax.tree.leaves(
                        (step.obs, step.reward, step.terminated, step.truncated)
                    )
                ]
            )
        return arrays

    def _repeat_findings(self) -> Iterator[Finding]:
        key, other = jax.random.split(jax.random.key(self.seed))
        first, again, other_seed = (self._trajectory(k) for k in (key, key, other))
        if not _same(first, again):
            yield Finding(
                "error",
                f"{self.name}.reset with the same key starts different episodes",
                "seed every environment from the key",
            )
        elif (
            self.num_envs > 1
            and not _same(first, other_seed)
            and _rows_equal(first)
            and _rows_equal(other_seed)
        ):
            what = (
                f"{self.name}: all {self.num_envs} environments of the batch run the same episode"
            )
            why = "the batch then holds the experience of only one environment"
            yield Finding(
                "error",
                what,
                "give each environment its own seed (rlkit.envs.host.base.seeds)",
                why,
            )

    def _step_findings(self, num_steps: int) -> Iterator[Finding]:
        adapter, limit = self.adapter, self.adapter.max_episode_steps
        wanted = max(
            num_steps, limit + 1 if limit is not None and limit <= LONGEST_LIMIT else LONGEST_LIMIT
        )
        deadline = time.perf_counter() + EXTRA_SECONDS
        key = jax.random.key(self.seed + 1)
        state, obs = adapter.reset(key)
        yield from self._obs_findings("reset obs", obs)
        age = np.zeros(self.num_envs, int)
        for count, action in enumerate(islice(self._actions(self.seed), wanted)):
            if count >= num_steps and time.perf_counter() > deadline:
                return
            self._returned = [(f"{path}", leaf, leaf.copy()) for path, leaf in _leaves(obs)]
            action = self._obeying(action, obs)
            start = time.perf_counter()
            state, step = adapter.step(key, state, action)
            self.seconds.append(time.perf_counter() - start)
            findings = [*self._overwrite_findings(), *self._shape_findings(step)]
            findings = findings or [*self._value_findings(step), *self._successor_findings(step)]
            yield from findings
            if findings:
                return
            self._returned += [
                (f".{path}", leaf, leaf.copy()) for path, leaf in _leaves(step.next_obs)
            ]
            self.steps, age, obs = self.steps + 1, age + 1, step.obs
            self.longest = max(self.longest, int(age.max()))
            for index in np.flatnonzero(step.terminated | step.truncated):
                self.ends.append(
                    (int(age[index]), bool(step.terminated[index]), bool(step.truncated[index]))
                )
                age[index] = 0

    def _overwrite_findings(self) -> Iterator[Finding]:
        for path, array, was in self._returned:
            if not np.array_equal(array, was, equal_nan=array.dtype.kind == "f"):
                what = f"{self.name}.step overwrites the obs{path} that the previous call returned"
                yield Finding(
                    "error",
                    what,
                    RETURN_COPIES,
                    "rollouts that were already collected would change before the update",
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
                "return arrays [num_envs, ...] of these dtypes",
            )

    def _shape_findings(self, step: object) -> Iterator[Finding]:
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
                fix = "return arrays [num_envs] of these dtypes"
                yield Finding(
                    "error",
                    f"{self.name} step {label} is {got}, not {dtype}[{self.num_envs}]",
                    fix,
                )
        for name, value in step.info.items():
            if np.shape(value)[:1] != (self.num_envs,):
                what = (
                    f"{self.name} step info[{name!r}] has shape {np.shape(value)}, not"
                    f" [{self.num_envs}, ...]"
                )
                yield Finding(
                    "error", what, "give every environment a row, with 0 if it has no value"
                )

    def _value_findings(self, step: TimeStep) -> Iterator[Finding]:
        if not np.isfinite(step.reward).all():
            yield Finding(
                "error",
                f"{self.name} step reward is {step.reward}",
                "raise EnvFailedError and name the environment",
            )
        space_of = dict(_leaves(leaf_tree(self.adapter.observation_space)))
        for path, value in [*_leaves(step.obs), *_leaves(step.next_obs)]:
            if not np.isfinite(value).all():
                yield Finding(
                    "error",
                    f"{self.name} observation{path} is NaN or infinite",
                    "raise EnvFailedError and name it",
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
        whole = done if step.non_finite is None else done & ~step.non_finite
        self.moved += int((whole & ~same).sum())
        self.lost += int((whole & same).sum())
        if not same[~done].all():
            what = f"{self.name}.step returns different obs and next_obs within an episode"
            yield Finding(
                "error",
                what,
                "next_obs must be the true successor; obs may differ from it only when an episode"
                " ended",
            )

    def _reset_findings(self) -> Iterator[Finding]:
        if self.lost >= 3 and not self.moved:
            what = (
                f"{self.name}.step returned obs equal to next_obs at all {self.lost} episode ends"
            )
            why = (
                "either values bootstrap from the next episode, or the first observation of each"
                " episode is lost"
            )
            fix = (
                "reset in the step that ends an episode: obs is the first observation of the next"
                " episode, next_obs the last one of this episode"
            )
            yield Finding("error", what, f"{fix} (Gymnasium: AutoresetMode.SAME_STEP)", why)

    def _state_findings(self) -> Iterator[Finding]:
        key = jax.random.key(self.seed)
        old, _ = self.adapter.reset(key)
        _, obs = self.adapter.reset(key)
        try:
            self.adapter.step(key, old, self._obeying(next(self._actions(self.seed)), obs))
        except EnvContractError:
            return
        what = f"{self.name}.step accepts a state from before the last reset"
        why = "two runs that share the adapter would silently step each other's simulators"
        yield Finding(
            "warning", what, "return HostState and call check_state (rlkit.envs.host.base)", why
        )


def _close_findings(adapter: EnvAdapter, name: str) -> list[Finding]:
    for count in ("", " the second time"):
        try:
            adapter.close()
        except Exception as error:
            return [exception_finding(f"{name}.close(){count}", error)]
    return []


def _leaves(tree: PyTree) -> list[tuple[str, Any]]:
    """(path, leaf) of all leaves; spaces count as leaves."""
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


def _rows_equal(trajectory: list[list[np.ndarray]]) -> bool:
    return all((leaf == leaf[:1]).all() for leaves in trajectory for leaf in leaves)
