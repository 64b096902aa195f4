"""`Algorithm`: a collector, a batch builder and an updater.

Final: factories build it, nobody subclasses it.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from rlkit.agents.base import Agent
from rlkit.algorithms.batch_builder import BatchBuilder
from rlkit.algorithms.collectors import Collector, Explore, acting, acting_randomly
from rlkit.algorithms.finite import count_unsound
from rlkit.algorithms.initial_state import (
    InitKeys,
    example_transition,
    initial_learner,
    initial_local,
)
from rlkit.algorithms.metrics import over_devices
from rlkit.algorithms.process_batch import ProcessBatch, takes_key
from rlkit.algorithms.replay_buffer import Divides, ReplayBuffer, Resizes
from rlkit.algorithms.rollout_statistics import fold_observations, fold_returns
from rlkit.algorithms.update_loop import UpdateLoop
from rlkit.algorithms.updaters import Updater
from rlkit.envs.base import EnvAdapter
from rlkit.errors import ConfigError, require
from rlkit.protocols import follows
from rlkit.types import (
    EnvState,
    EpisodeStats,
    Key,
    LearnerState,
    LocalState,
    Memory,
    Metrics,
    Obs,
    PolicyState,
    Rollout,
    TrainState,
    Transition,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Algorithm:
    """Trains an agent on rollouts; captured by closure, never passed through `jit`.

    `spec` is (registry name, config), or None for algorithms that are not in the registry. `custom`
    names the parts that were passed in addition to the config. `process_batch` changes each batch
    before the losses see it. `check(agent, env)` raises a
    `ConfigError` if the algorithm cannot work with them. Agents with memory are refused unless
    `learns_through_carry`.

    `axis_name` is the mapped axis of devices, if each runs a share of the algorithm, see `divided`:
    what is equal on all of them is computed from all of their batches.
    """

    collector: Collector
    batch_builder: BatchBuilder
    updater: Updater
    normalize_observations: bool = False
    normalize_rewards: bool = False
    spec: tuple[str, object] | None = None
    custom: tuple[str, ...] = ()
    process_batch: ProcessBatch | None = None
    check: Callable[[Agent, EnvAdapter], None] | None = None
    learns_through_carry: bool = False
    axis_name: str | None = None

    def __post_init__(self) -> None:
        require(
            hasattr(self.batch_builder, "replay_buffer"),
            f"{type(self.batch_builder).__name__} does not say which replay buffer it draws from",
            "give it replay_buffer = None if it is on-policy",
        )
        if self.process_batch is not None:
            takes_key(self.process_batch)

    @property
    def replay_buffer(self) -> ReplayBuffer | None:
        """The replay buffer of the batch builder; None for on-policy algorithms."""
        return self.batch_builder.replay_buffer

    def env_steps_per_iteration(self, env: EnvAdapter) -> int:
        """Environment steps in one iteration, over all environments."""
        return self.collector.num_steps * env.num_envs

    def prefill_collects(self, env: EnvAdapter) -> int:
        """The number of rollouts with random actions before learning."""
        wanted = math.ceil(self.collector.prefill_steps / self.env_steps_per_iteration(env))
        return max(wanted, 1 if self.normalize_observations else 0)

    def refill_collects(self, env: EnvAdapter) -> int:
        """The number of rollouts that refill an empty replay memory.

        Those of the prefill, and at least a batch.
        """
        assert self.replay_buffer is not None
        return max(
            self.prefill_collects(env),
            math.ceil(self.replay_buffer.batch_size / self.env_steps_per_iteration(env)),
        )

    def override(
        self, *, warmup_steps: int | None, replay_buffer_capacity: int | None
    ) -> "Algorithm":
        """The algorithm with another prefill (environment steps) or replay capacity (transitions).

        Raises `ConfigError` for on-policy algorithms, which have neither.
        """
        settings = {"warmup_steps": warmup_steps, "replay_buffer_capacity": replay_buffer_capacity}
        for name, value in settings.items():
            require(
                value is None or self.replay_buffer is not None,
                f"{name}={value} was set, but this algorithm is on-policy and has no replay buffer",
                f"leave {name} out",
            )
        collector, builder = self.collector, self.batch_builder
        if warmup_steps is not None:
            collector = dataclasses.replace(collector, prefill_steps=warmup_steps)
        if replay_buffer_capacity is not None:
            buffer = _replace(self.replay_buffer, capacity=replay_buffer_capacity)
            builder = _replace(builder, replay_buffer=buffer)
        return dataclasses.replace(self, collector=collector, batch_builder=builder)

    def divided(self, num_devices: int, axis_name: str) -> "Algorithm":
        """What each of several devices runs, with its share of environments and of each batch.

        Random steps before learning, capacity and batch size are divided; all else counts the whole
        anyway. Raises `ConfigError` if that is not possible.
        """
        random_steps = math.ceil(self.collector.prefill_steps / num_devices)
        collector = dataclasses.replace(self.collector, prefill_steps=random_steps)
        builder, buffer = self.batch_builder, self.replay_buffer
        if buffer is not None:
            if not follows(buffer, Divides):
                raise ConfigError(
                    f"{type(buffer).__name__} cannot be divided among devices; give it"
                    " divided(num_devices, axis_name), see Divides, or train on one device"
                )
            builder = _replace(builder, replay_buffer=buffer.divided(num_devices, axis_name))
        return dataclasses.replace(
            self, collector=collector, batch_builder=builder, axis_name=axis_name
        )

    def init(self, agent: Agent, env: EnvAdapter, key: Key, *, total_steps: float) -> TrainState:
        """The state before the first iteration, after the random prefill; the key is consumed.

        `total_steps` is the horizon of schedules, in environment steps.
        """
        return self.begin(agent, env, key, total_steps=total_steps)[0]

    def begin(
        self, agent: Agent, env: EnvAdapter, key: Key, *, total_steps: float
    ) -> tuple[TrainState, Metrics]:
        """The same, and what `count_unsound` found in the prefill."""
        keys = InitKeys.split(key).on_device(self.axis_name)
        env_state, obs = env.reset(keys.reset)
        state = self.start(agent, env, keys, obs, env_state, total_steps=total_steps)
        if self.prefill_collects(env) == 0:
            return state, {}
        return self._prefill(agent, env, state, keys.prefill)

    def start(
        self,
        agent: Agent,
        env: EnvAdapter,
        keys: InitKeys,
        obs: Obs,
        env_state: EnvState,
        *,
        total_steps: float,
    ) -> TrainState:
        """The state before anything is collected, with environments reset to `obs` [N, ...]."""
        learner = initial_learner(
            agent.init(keys.params),
            self.updater,
            obs if self.normalize_observations else None,
            normalize_rewards=self.normalize_rewards,
            total_steps=total_steps,
        )
        memory = self.empty_memory(agent, env, learner.policy)
        carry = agent.initial_carry(env.num_envs)
        local = initial_local(obs, env_state, carry, memory, keys.local, env.num_envs)
        return TrainState(learner=learner, local=local)

    def empty_memory(self, agent: Agent, env: EnvAdapter, policy: PolicyState) -> Memory:
        """An empty replay memory, or () for on-policy algorithms."""
        if self.replay_buffer is None:
            return ()
        return self.replay_buffer.init(self._transition(agent, env, policy), env.num_envs)

    def enter(
        self, agent: Agent, env: EnvAdapter, local: LocalState, obs: Obs, env_state: EnvState
    ) -> LocalState:
        """`local`, the state of other environments, in those that were reset to `obs`.

        The replay memory and the key stay. Episodes, their running returns and the carry start
        anew. Nothing is learned across: episodes in the memory count as truncated where they were.
        `local` may lack environments, observations and carry.
        """
        buffer, memory, num_envs = self.replay_buffer, local.memory, env.num_envs
        if buffer is not None and jax.tree.leaves(memory):  # else it was not saved
            if len(local.discounted_return) == num_envs:
                memory = buffer.cut(memory)
            else:
                assert follows(buffer, Resizes)
                memory = buffer.resized(memory, num_envs)
        carry = agent.initial_carry(num_envs)
        return initial_local(obs, env_state, carry, memory, local.key, num_envs)

    def collect(
        self, agent: Agent, env: EnvAdapter, state: TrainState, explore: Explore | None = None
    ) -> tuple[TrainState, Rollout, EpisodeStats]:
        """One rollout, collected by `explore` or, if None, by the current policy."""
        explore = explore or acting(agent, state.learner.policy)
        carry = agent.initial_carry(env.num_envs)
        local, rollout, episodes = self.collector.collect(env, explore, carry, state.local)
        return state.replace(local=local), rollout, episodes

    def update(
        self,
        agent: Agent,
        learner: LearnerState,
        memory: Memory,
        rollout: Rollout,
        key: Key,
        behaviour: PolicyState | None = None,
    ) -> tuple[LearnerState, Memory, Metrics]:
        """Learns from a rollout that `behaviour` collected (None: `learner.policy`).

        The key is consumed. Rewards are scaled by statistics that include this rollout;
        observations are normalised by those that the policy acted with, and only folded in
        afterwards.
        """
        axis_name = self.axis_name
        learner = fold_returns(learner, rollout, axis_name)
        memory, dataset, of_dataset = self.batch_builder.ingest(
            agent, learner, memory, rollout, axis_name, behaviour
        )
        updates = UpdateLoop(
            agent=agent,
            batch_builder=self.batch_builder,
            updater=self.updater,
            dataset=dataset,
            process_batch=self.process_batch,
            axis_name=axis_name,
        )
        learned, memory, metrics = updates.run(learner, memory, key)
        after = fold_observations(learned, rollout, axis_name)
        after = self.updater.periodic_target_update(learner, after)
        return after, memory, over_devices(of_dataset, axis_name) | metrics

    def absorb_prefill(
        self, learner: LearnerState, memory: Memory, rollout: Rollout
    ) -> tuple[LearnerState, Memory]:
        """Adds a rollout to the replay memory without learning, for a prefill or a refill.

        It counts as environment steps and goes into the statistics.
        """
        after = fold_returns(learner, rollout, self.axis_name)
        after = fold_observations(after, rollout, self.axis_name)
        return self.updater.periodic_target_update(learner, after), (
            memory if self.replay_buffer is None else self.replay_buffer.add(memory, rollout)
        )

    def refill(
        self, agent: Agent, env: EnvAdapter, state: TrainState
    ) -> tuple[TrainState, Metrics]:
        """Refills the replay memory of a state that was saved without it.

        The state's own policy collects the rollouts, with exploration. They count as environment
        steps; nothing is learned from them yet. Returns what `count_unsound` found as well.
        """
        memory = self.empty_memory(agent, env, state.learner.policy)
        state = state.replace(local=state.local.replace(memory=memory))

        def one(state: TrainState, _: None) -> tuple[TrainState, Metrics]:
            state, rollout = self.collect(agent, env, state)[:2]
            return self._take_in(state, rollout), self._unsound(env, rollout)

        state, counts = jax.lax.scan(one, state, length=self.refill_collects(env))
        return state, _totals(counts)

    def _prefill(
        self, agent: Agent, env: EnvAdapter, state: TrainState, key: Key
    ) -> tuple[TrainState, Metrics]:
        def one(state: TrainState, key: Key) -> tuple[TrainState, Metrics]:
            # with the statistics of the rollouts before, by which an agent's memory reads this one
            explore = acting_randomly(agent, state.learner.policy, env.action_space)
            state = state.replace(local=state.local.replace(key=key))
            state, rollout, _ = self.collect(agent, env, state, explore)
            return self._take_in(state, rollout), self._unsound(env, rollout)

        keys = jax.random.split(key, self.prefill_collects(env))
        state, counts = jax.lax.scan(one, state, keys)
        return state, _totals(counts)

    def _unsound(self, env: EnvAdapter, rollout: Rollout) -> Metrics:
        return over_devices(count_unsound(rollout, env.action_space), self.axis_name)

    def _take_in(self, state: TrainState, rollout: Rollout) -> TrainState:
        learner, memory = self.absorb_prefill(state.learner, state.local.memory, rollout)
        return TrainState(learner=learner, local=state.local.replace(memory=memory))

    def example_rollout(self, agent: Agent, env: EnvAdapter, policy: PolicyState) -> Rollout:
        """A rollout [T, N, ...] of zeros."""
        front = (self.collector.num_steps, env.num_envs)
        return jax.tree.map(
            lambda x: jnp.zeros((*front, *x.shape), x.dtype), self._transition(agent, env, policy)
        )

    def _transition(self, agent: Agent, env: EnvAdapter, policy: PolicyState) -> Transition:
        has_discounted_return = self.collector.reward_discount is not None
        return example_transition(agent, env, policy, has_discounted_return=has_discounted_return)


def _totals(counts: Metrics) -> Metrics:
    """Of all rollouts [P]."""
    return {name: count.sum() for name, count in counts.items()}


def _replace(part: Any, **settings: Any) -> Any:
    """`part` with other settings.

    Parts are protocols, but those whose settings change here are frozen dataclasses.
    """
    return dataclasses.replace(part, **settings)
