"""The pure core: `Module`, `RLModule`, and `fit`, which trains any module.

Everything here may be traced: `jax.vmap(fit)` trains seeds or hyperparameters in parallel. The
Trainer calls the same `outer_iteration`, so there is one loop.
"""

import dataclasses
from typing import Any, Protocol, Self, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array

from rlkit.agents.base import Agent, remembers
from rlkit.algorithms.base import Algorithm
from rlkit.algorithms.compatibility import check_compatible, observations_of_batch
from rlkit.algorithms.finite import count_unsound
from rlkit.algorithms.metrics import SKIPPED, of_each, over_devices, reduce_metrics
from rlkit.envs.base import EnvAdapter
from rlkit.errors import ConfigError, require, require_positive_integer
from rlkit.ops.keys import as_key
from rlkit.ops.strong_types import strong_types
from rlkit.training.core.evaluator import Evaluator, make_evaluator
from rlkit.types import (
    Counters,
    EpisodeStats,
    Key,
    Measurements,
    Metrics,
    PolicyState,
    PyTree,
    Rollout,
    TrainState,
)
from rlkit.xla_cpu.loops import pack_counters, packed_scan
from rlkit.xla_cpu.packing import NO_PACKING, NoPacking, Packed, Packing


@runtime_checkable
class Module(Protocol):
    """Any jittable learner; its train state `ts` is any pytree.

    Metrics are scalars; those named `sum/…` are summed over training steps, all others averaged. A
    module may also define `counters(ts) -> (environment steps, updates)`, two `StepCounter`s;
    without it, every training step counts as one of each.
    """

    def init_train_state(self, key: Key) -> PyTree:
        """The state before the first step; the key is consumed."""
        ...

    def get_batch(self, ts: PyTree, i: Array) -> tuple[PyTree, PyTree]:
        """(ts, batch) for the i-th training step of an outer iteration."""
        ...

    def training_step(self, i: Array, ts: PyTree, batch: PyTree) -> tuple[PyTree, Metrics]:
        """Learns from the batch."""
        ...

    def eval_callback(self, ts: PyTree) -> Measurements:
        """Measurements between outer iterations by name, or {}; the logs average arrays."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class RLModule:
    """A `Module` for RL: `get_batch` collects a rollout, `training_step` learns from it.

    `total_steps` is the horizon of the schedules, in environment steps. Without `eval_env`,
    `eval_callback` measures nothing.
    """

    env: EnvAdapter
    agent: Agent
    algorithm: Algorithm
    total_steps: float
    eval_env: EnvAdapter | None = None
    evaluation_episodes: int = 16
    max_evaluation_steps: int | None = None

    def __post_init__(self) -> None:
        check_compatible(self.algorithm, self.agent, self.env)
        if self.eval_env is not None:
            same = (
                self.eval_env.observation_space == self.env.observation_space
                and self.eval_env.action_space == self.env.action_space
            )
            require(
                same,
                "eval_env and env have different spaces",
                "make both from the same environment and wrappers",
            )
            require(
                not share_state(self.env, self.eval_env),
                "eval_env is env, but a host environment has a single state, which evaluation would"
                " reset",
                "pass eval_env=None to have the Trainer make one, or pass a separate adapter",
            )
            self.evaluator()

    def divided(self, env: EnvAdapter, num_devices: int, axis_name: str) -> Self:
        """What each of several devices runs, in its share `env` of the environments.

        Functions of it are mapped over an axis of devices called `axis_name`: what they return of a
        learner is equal on all of them, the local state is the device's own. It evaluates nothing.
        """
        algorithm = self.algorithm.divided(num_devices, axis_name)
        return dataclasses.replace(self, env=env, algorithm=algorithm, eval_env=None)

    def evaluator(self) -> Evaluator:
        """The evaluator, in `eval_env` if there is one, else in `env`.

        Raises `ConfigError` for an environment without a time limit.
        """
        return make_evaluator(
            self.env if self.eval_env is None else self.eval_env,
            self.agent,
            num_episodes=self.evaluation_episodes,
            max_steps=self.max_evaluation_steps,
        )

    def init_train_state(self, key: Key) -> TrainState:
        """Fresh networks and environments, and the random prefill if the algorithm has one."""
        return self.begin(key)[0]

    def starts(self, keys: Key) -> PyTree:
        """What `begin` is called with for each seed, from the keys of all seeds: its key."""
        return keys

    def begin(self, start: PyTree) -> tuple[TrainState, Metrics]:
        """The same, and in how many steps of the prefill something was not finite."""
        require(
            self.env.is_jittable,
            "this environment runs on the host and cannot be compiled into the training step",
            "use Trainer, which steps it from Python, or a jittable environment (gymnax/…, or"
            " `vectorize` of a JAX environment)",
        )
        return self.algorithm.begin(self.agent, self.env, start, total_steps=self.total_steps)

    def get_batch(
        self, ts: TrainState, i: Array
    ) -> tuple[TrainState, tuple[Rollout, EpisodeStats]]:
        """One rollout by the current policy, and the episodes that ended in it."""
        ts, rollout, episodes = self.algorithm.collect(self.agent, self.env, ts)
        return ts, (rollout, episodes)

    def training_step(
        self, i: Array, ts: TrainState, batch: tuple[Rollout, EpisodeStats]
    ) -> tuple[TrainState, Metrics]:
        """One update of the algorithm."""
        return self.learn(ts, *batch)

    def learn(
        self,
        ts: TrainState,
        rollout: Rollout,
        episodes: EpisodeStats,
        behaviour: PolicyState | None = None,
    ) -> tuple[TrainState, Metrics]:
        """One update from a rollout collected by `behaviour` (None: the current policy)."""
        key, update_key = jax.random.split(ts.local.key)
        learner, memory, metrics = self.algorithm.update(
            self.agent, ts.learner, ts.local.memory, rollout, update_key, behaviour=behaviour
        )
        ts = TrainState(learner=learner, local=ts.local.replace(key=key, memory=memory))
        counts = count_unsound(rollout, self.env.action_space) | {
            "sum/episode_return": episodes.return_sum,
            "sum/episode_length": episodes.length_sum,
            "sum/episodes": episodes.count,
        }
        return ts, metrics | over_devices(counts, self.algorithm.axis_name)

    def eval_callback(self, ts: TrainState) -> Measurements:
        """Evaluates the current policy (see `Evaluator`); {} without `eval_env`."""
        return {} if self.eval_env is None else self.evaluator()(ts.learner.policy)

    def refill(self, ts: TrainState) -> tuple[TrainState, Metrics]:
        """Fills the memory of a state saved without its replay memory, see `Algorithm.refill`."""
        return self.algorithm.refill(self.agent, self.env, ts)

    def counters(self, ts: TrainState) -> Counters:
        """(environment steps, updates) so far."""
        return ts.learner.env_steps, ts.learner.updates

    def with_horizon(self, ts: TrainState, total_steps: float) -> TrainState:
        """The state with a new schedule horizon, for extending a run."""
        horizon = jnp.full_like(ts.learner.total_steps, total_steps)
        return ts.replace(learner=ts.learner.replace(total_steps=horizon))


def share_state(env: EnvAdapter, other: EnvAdapter) -> bool:
    """Whether a reset of one resets the other: both step the same environment on the host."""
    if env.is_jittable:
        return False
    instance = getattr(env, "instance", None)
    return other is env or (instance is not None and instance is getattr(other, "instance", None))


class Iterates(Protocol):
    """The part of a `Module` that an iteration needs."""

    def get_batch(self, ts: PyTree, i: Any) -> tuple[PyTree, PyTree]:
        """See `Module`; on the host, `i` is an int."""
        ...

    def training_step(self, i: Any, ts: PyTree, batch: PyTree) -> tuple[PyTree, PyTree]:
        """See `Module`."""
        ...


def iteration(module: Iterates, ts: PyTree, i: Array | int) -> tuple[PyTree, PyTree]:
    """Collects, then updates: in a compiled program, or step by step on the host."""
    ts, batch = module.get_batch(ts, i)
    return module.training_step(i, ts, batch)


def outer_iteration(
    module: Module, ts: PyTree, num_steps: int, *, keeps_each: bool = False
) -> tuple[PyTree, Metrics]:
    """`num_steps` iterations in one program; `reduce_metrics` reduces the metrics.

    `keeps_each` adds those of each iteration, see `of_each`.

    For a module that does not count skipped updates, the loss is NaN if it was NaN in any
    iteration; this ends the run.
    """

    def step(ts: PyTree, i: Array) -> tuple[PyTree, Metrics]:
        after, metrics = iteration(module, ts, i)
        require_same_types(ts, after)
        return after, metrics

    packing = _loop_packing(module, ts)
    ts, stacked = packed_scan(step, ts, jnp.arange(num_steps), packing.pack, packing.unpack)
    found = reduce_metrics(stacked)
    if "loss" in found and SKIPPED not in found:
        found["loss"] = stacked.unpack()["loss"].mean(0)
    return ts, found | (of_each(stacked) if keeps_each else {})


def require_same_types(before: PyTree, after: PyTree) -> None:
    """Raises `ConfigError` if a training step changes the shapes or dtypes of the state."""
    changed = type_changes(before, after)
    cure = "return arrays of the same shapes and dtypes as it was given"
    require(not changed, f"a training step changed {', '.join(changed)}", cure)


def type_changes(before: PyTree, after: PyTree) -> list[str]:
    """Which leaves have another shape or dtype, or are in one tree alone, as parts of a sentence.

    Leaves may be anything with a shape and a dtype.
    """

    def types(tree: PyTree) -> dict[str, str]:
        leaves = jax.tree_util.tree_leaves_with_path(jax.eval_shape(lambda: tree))
        return {jax.tree_util.keystr(path): f"{x.dtype}{list(x.shape)}" for path, x in leaves}

    old, new = types(before), types(after)
    return [
        f"{name or 'the state'} from {old.get(name, 'nothing')} to {new.get(name, 'nothing')}"
        for name in {**old, **new}
        if old.get(name) != new.get(name)
    ]


def _loop_packing(module: Module, ts: PyTree) -> Packing | NoPacking:
    """How to pack the state in the loop of an outer iteration; matters only off-policy."""
    if not isinstance(module, RLModule) or module.algorithm.replay_buffer is None:
        return NO_PACKING
    buffer, has_memory = module.algorithm.replay_buffer, remembers(module.agent)
    return pack_counters(
        ts,
        ts.learner.params,
        num_steps=module.algorithm.collector.num_steps,
        batch_size=observations_of_batch(buffer, has_memory=has_memory),
    )


def evaluate(module: Module, ts: PyTree) -> Measurements:
    """What the module measures; raises `ConfigError` if it is not a dict."""
    found = module.eval_callback(ts)
    if not isinstance(found, dict):
        raise ConfigError(
            f"{type(module).__name__}.eval_callback returned a {type(found).__name__}, not a dict; "
            'return {"return": ...}, for instance, or {} for nothing'
        )
    return found


def fit(
    module: Module,
    key: Key | int | None,
    *,
    num_outer_iterations: int,
    iterations_per_outer: int = 1,
    train_state: PyTree = None,
    skip_initial_evaluation: bool = False,
) -> tuple[PyTree, dict[str, PyTree]]:
    """Trains `module` for `num_outer_iterations` outer iterations; may be jitted and vmapped.

    Each outer iteration has `iterations_per_outer` iterations. Training starts from `train_state`
    if given (then `key`, a key or a seed, may be None), else from a fresh state. Returns the last
    state and `{"train": …, "eval": …}` with leaves [K, ...] stacked over outer iterations, plus
    `"initial_eval"` unless skipped.
    """
    for name, value in (
        ("num_outer_iterations", num_outer_iterations),
        ("iterations_per_outer", iterations_per_outer),
    ):
        require_positive_integer(name, value, example=10)
    if train_state is None:
        if key is None:
            raise ConfigError(
                "fit needs a key or a train_state, got neither; pass jax.random.key(0)"
            )
        train_state = module.init_train_state(as_key(key))
    train_state = strong_types(train_state)
    first = {} if skip_initial_evaluation else {"initial_eval": evaluate(module, train_state)}

    def outer(ts: PyTree, _: None) -> tuple[PyTree, dict[str, PyTree]]:
        ts, metrics = outer_iteration(module, ts, iterations_per_outer)
        return ts, {"train": Packed.of(metrics), "eval": evaluate(module, ts)}

    train_state, stacked = jax.lax.scan(outer, train_state, length=num_outer_iterations)
    return train_state, stacked | {"train": stacked["train"].unpack()} | first
