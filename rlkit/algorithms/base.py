"""`Algorithm`: a collector, a batch builder, an updater and, off policy, a replay buffer. Final:
factories build it, nobody subclasses.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from rlkit import spaces
from rlkit.agents.base import Agent
from rlkit.algorithms.batch_builders import BatchBuilder
from rlkit.algorithms.collectors import Collector, Explore, acting, acting_randomly
from rlkit.algorithms.metrics import mean_over_devices
from rlkit.algorithms.replay_buffer import ReplayBuffer
from rlkit.algorithms.update_loop import UpdateLoop
from rlkit.algorithms.updaters import Updater
from rlkit.envs.base import EnvAdapter
from rlkit.errors import require
from rlkit.ops.counters import StepCounter
from rlkit.ops.running_stats import fold, init_stats
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
    RunningEpisode,
    TrainState,
    Transition,
)


class InitKeys(struct.PyTreeNode, kw_only=True):
    """What randomness a fresh state takes: one typed key for each purpose."""

    params: Key
    reset: Key
    prefill: Key
    local: Key

    @classmethod
    def split(cls, key: Key) -> "InitKeys":
        """All of them from one key, which is consumed."""
        params, reset, prefill, local = jax.random.split(key, 4)
        return cls(params=params, reset=reset, prefill=prefill, local=local)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Algorithm:
    """Learns an agent from rollouts; a value captured by closure, never passed through `jit`.

    `spec` is (registry name, config), None for algorithms that no registry knows; `custom` names
    what was passed beside the config; `check(agent, env)` raises a `ConfigError` if the algorithm
    cannot work with them.
    """

    collector: Collector
    batch_builder: BatchBuilder
    updater: Updater
    replay_buffer: ReplayBuffer | None = None
    normalize_observations: bool = False
    normalize_rewards: bool = False
    spec: tuple[str, Any] | None = None
    custom: tuple[str, ...] = ()
    check: Callable[[Any, EnvAdapter], None] | None = None

    def env_steps_per_iteration(self, env: EnvAdapter) -> int:
        """Environment steps in one iteration, over all environments."""
        return self.collector.num_steps * env.num_envs

    def prefill_collects(self, env: EnvAdapter) -> int:
        """Rollouts of random actions that come before learning."""
        wanted = math.ceil(self.collector.prefill_steps / self.env_steps_per_iteration(env))
        return max(wanted, 1 if self.normalize_observations else 0)

    def refill_collects(self, env: EnvAdapter) -> int:
        """Rollouts that fill an empty replay memory anew: those of the prefill, and a batch at
        least.
        """
        assert self.replay_buffer is not None
        return max(
            self.prefill_collects(env),
            math.ceil(self.replay_buffer.batch_size / self.env_steps_per_iteration(env)),
        )

    def override(
        self, *, warmup_steps: int | None, replay_buffer_capacity: int | None
    ) -> "Algorithm":
        """The algorithm with another prefill (environment steps) and replay capacity (transitions),
        where given.

        Raises `ConfigError` for on-policy algorithms, which have neither.
        """
        algorithm = self
        for name, value in (
            ("warmup_steps", warmup_steps),
            ("replay_buffer_capacity", replay_buffer_capacity),
        ):
            require(
                value is None or self.replay_buffer is not None,
                f"{name}={value} was set, but this algorithm is on-policy and has no replay buffer",
                f"leave {name} out",
            )
        if warmup_steps is not None:
            collector = dataclasses.replace(self.collector, prefill_steps=warmup_steps)
            algorithm = dataclasses.replace(algorithm, collector=collector)
        if replay_buffer_capacity is not None:
            buffer: Any = self.replay_buffer
            buffer = dataclasses.replace(buffer, capacity=replay_buffer_capacity)
            builder: Any = self.batch_builder
            builder = dataclasses.replace(builder, replay_buffer=buffer)
            algorithm = dataclasses.replace(algorithm, replay_buffer=buffer, batch_builder=builder)
        return algorithm

    def init(self, agent: Agent, env: EnvAdapter, key: Key, *, total_steps: float) -> TrainState:
        """The state before the first iteration, random prefill included; the key is consumed.

        `total_steps` is the horizon of schedules, in environment steps.
        """
        keys = InitKeys.split(key)
        env_state, obs = env.reset(keys.reset)
        state = self.start(agent, env, keys, obs, env_state, total_steps=total_steps)
        return (
            self._prefill(agent, env, state, keys.prefill) if self.prefill_collects(env) else state
        )

    def start(
        self,
        agent: Agent,
        env: EnvAdapter,
        keys: "InitKeys",
        obs: Obs,
        env_state: EnvState,
        *,
        total_steps: float,
    ) -> TrainState:
        """The state before anything was collected, with environments that were reset to `obs` [N,
        ...].
        """
        if isinstance(total_steps, (int, float)):
            require(
                total_steps > 0,
                f"total_steps must be positive, got {total_steps}",
                "pass total_steps=100_000",
            )
        params = agent.init(keys.params)
        opt_state, target_params = self.updater.init(params)
        one_obs = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), obs)
        scalar = jax.ShapeDtypeStruct((), jnp.float32)
        learner = LearnerState(
            params=params,
            target_params=target_params,
            opt_state=opt_state,
            obs_stats=init_stats(one_obs) if self.normalize_observations else None,
            reward_stats=init_stats(scalar) if self.normalize_rewards else None,
            env_steps=StepCounter.create(),
            updates=StepCounter.create(),
            total_steps=jnp.asarray(total_steps, jnp.float32),
        )
        zeros = jnp.zeros(env.num_envs)
        local = LocalState(
            env_state=env_state,
            obs=obs,
            carry=agent.initial_carry(env.num_envs),
            memory=(),
            episodes=RunningEpisode(
                return_so_far=zeros, length_so_far=jnp.zeros(env.num_envs, jnp.int32)
            ),
            discounted_return=jnp.zeros(env.num_envs),
            key=keys.local,
        )
        return TrainState(
            learner=learner,
            local=local.replace(memory=self.empty_memory(agent, env, learner.policy)),
        )

    def empty_memory(self, agent: Agent, env: EnvAdapter, policy: PolicyState) -> Memory:
        """A replay memory without a transition, () on policy."""
        if self.replay_buffer is None:
            return ()
        return self.replay_buffer.init(self._transition(agent, env, policy), env.num_envs)

    def collect(
        self, agent: Agent, env: EnvAdapter, state: TrainState
    ) -> tuple[TrainState, Rollout, EpisodeStats]:
        """One rollout by the current policy."""
        policy = state.learner.policy
        return self._collect(env, agent.initial_carry(env.num_envs), state, acting(agent, policy))

    def update(
        self,
        agent: Agent,
        learner: LearnerState,
        memory: Memory,
        rollout: Rollout,
        key: Key,
        axis_name: str | None = None,
        behaviour: PolicyState | None = None,
    ) -> tuple[LearnerState, Memory, Metrics]:
        """Learns from a rollout that `behaviour` collected, None: `learner.policy`; the key is
        consumed.

        Rewards are scaled by statistics that include this rollout; observations are normalised by
        those that the policy acted with, and folded in only afterwards. `axis_name` names the
        mapped axis of devices.
        """
        learner = _with_reward_stats(learner, rollout, axis_name)
        memory, dataset, of_dataset = self.batch_builder.ingest(
            agent, learner, memory, rollout, axis_name, behaviour
        )
        learned, memory, metrics = self.update_loop.run(
            agent, learner, memory, dataset, key, axis_name
        )
        after = self._absorb(learned, rollout, axis_name)
        after = self.updater.periodic_target_update(learner, after)
        return after, memory, mean_over_devices(of_dataset, axis_name) | metrics

    @property
    def update_loop(self) -> UpdateLoop:
        """The updates of one iteration."""
        return UpdateLoop(
            batch_builder=self.batch_builder, updater=self.updater, replay_buffer=self.replay_buffer
        )

    def _absorb(
        self, learner: LearnerState, rollout: Rollout, axis_name: str | None = None
    ) -> LearnerState:
        """Counts the rollout's steps and folds its observations into the statistics."""
        num_steps = jnp.uint32(rollout.reward.size)
        if axis_name is not None:
            num_steps = jax.lax.psum(num_steps, axis_name)
        learner = learner.replace(env_steps=learner.env_steps.add(num_steps))
        if learner.obs_stats is not None:
            learner = learner.replace(obs_stats=fold(learner.obs_stats, rollout.obs, axis_name))
        return learner

    def absorb_prefill(
        self, learner: LearnerState, memory: Memory, rollout: Rollout
    ) -> tuple[LearnerState, Memory]:
        """Takes in a rollout without learning: of random actions, or of a refill.

        It counts as environment steps and goes into the statistics.
        """
        after = self._absorb(_with_reward_stats(learner, rollout), rollout)
        return self.updater.periodic_target_update(learner, after), (
            memory if self.replay_buffer is None else self.replay_buffer.add(memory, rollout)
        )

    def refill(self, agent: Agent, env: EnvAdapter, state: TrainState) -> TrainState:
        """A state that was saved without its replay memory, with one that rollouts of its own
        policy filled.

        They explore, and count as environment steps; nothing is learned from them yet.
        """
        memory = self.empty_memory(agent, env, state.learner.policy)
        state = state.replace(local=state.local.replace(memory=memory))

        def one(state: TrainState, _: None) -> tuple[TrainState, None]:
            state, rollout = self.collect(agent, env, state)[:2]
            return self._take_in(state, rollout), None

        return jax.lax.scan(one, state, length=self.refill_collects(env))[0]

    def _prefill(self, agent: Agent, env: EnvAdapter, state: TrainState, key: Key) -> TrainState:
        explore = acting_randomly(agent, state.learner.policy, env.action_space, env.num_envs)

        def one(state: TrainState, key: Key) -> tuple[TrainState, None]:
            state = state.replace(local=state.local.replace(key=key))
            state, rollout, _ = self._collect(
                env, agent.initial_carry(env.num_envs), state, explore
            )
            return self._take_in(state, rollout), None

        return jax.lax.scan(one, state, jax.random.split(key, self.prefill_collects(env)))[0]

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
        """Shapes and dtypes of one transition of one environment."""

        def one() -> Transition:
            obs = spaces.example(env.observation_space, (env.num_envs,))
            action, _, extras = acting(agent, policy)(
                obs, agent.initial_carry(env.num_envs), jax.random.key(0)
            )
            zeros, no = jnp.zeros(env.num_envs), jnp.zeros(env.num_envs, bool)
            if self.collector.reward_discount is not None:
                extras = {**extras, "discounted_return": zeros}
            return Transition(
                obs=obs,
                action=action,
                reward=zeros,
                terminated=no,
                truncated=no,
                next_obs=obs,
                extras=extras,
            )

        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), jax.eval_shape(one)
        )

    def _collect(
        self, env: EnvAdapter, initial_carry: Any, state: TrainState, explore: Explore
    ) -> tuple[TrainState, Rollout, EpisodeStats]:
        local, rollout, episodes = self.collector.collect(env, explore, initial_carry, state.local)
        return state.replace(local=local), rollout, episodes


def _with_reward_stats(
    learner: LearnerState, rollout: Rollout, axis_name: str | None = None
) -> LearnerState:
    """With the discounted returns of the rollout in the statistics that scale rewards, if any."""
    if learner.reward_stats is None:
        return learner
    returns = rollout.extras["discounted_return"]
    return learner.replace(reward_stats=fold(learner.reward_stats, returns, axis_name))
