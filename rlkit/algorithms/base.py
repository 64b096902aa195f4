"""`Algorithm`: a collector, a batch builder, an updater and, off policy, a replay buffer. Final:
factories build it, nobody subclasses.
"""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from rlkit import spaces
from rlkit.agents.base import Agent
from rlkit.algorithms.agent_checks import check_carry
from rlkit.algorithms.batch_builders import BatchBuilder, keys_of_updates
from rlkit.algorithms.collectors import Collector, Explore
from rlkit.algorithms.replay_buffer import ReplayBuffer, Replayed, Reprioritizes, num_rows
from rlkit.algorithms.updaters import Updater, not_measured
from rlkit.envs.base import EnvAdapter
from rlkit.errors import ConfigError, SpaceError, require
from rlkit.ops.counters import StepCounter
from rlkit.ops.running_stats import fold, init_stats, normalize
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
from rlkit.xla_cpu.packing import NoPacking, Packed, Packing


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
    cannot work with them; agents that carry state between steps are refused unless
    `learns_through_carry`.
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
    learns_through_carry: bool = False

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
        if learner.reward_stats is not None:
            returns = rollout.extras["discounted_return"]
            learner = learner.replace(reward_stats=fold(learner.reward_stats, returns, axis_name))
        memory, dataset, metrics = self.batch_builder.ingest(
            agent, learner, memory, rollout, axis_name, behaviour
        )
        if axis_name is not None:
            metrics = jax.lax.pmean(metrics, axis_name)
        draw_key, update_key = jax.random.split(key)
        plans = self.batch_builder.draw(dataset, draw_key)
        learner, memory, found = self._learn(
            agent, learner, memory, dataset, plans, update_key, axis_name
        )
        after = self.updater.renew_targets(learner, self._absorb(learner, rollout, axis_name))
        return after, memory, metrics | found

    def _learn(
        self,
        agent: Agent,
        learner: LearnerState,
        memory: Memory,
        dataset: Any,
        plans: Any,
        key: Key,
        axis_name: str | None,
    ) -> tuple[LearnerState, Memory, Metrics]:
        """Takes the steps of the updater on all batches that are planned; the key is consumed."""
        buffer = self.replay_buffer if isinstance(self.replay_buffer, Reprioritizes) else None
        num_updates = jax.tree.leaves(plans)[0].shape[0]

        def gather(memory: Memory, plan: Any) -> Any:
            return self.batch_builder.gather(
                dataset if buffer is None else dataset.replace(memory=memory), plan, axis_name
            )

        def rows() -> int:
            def of_a_batch(memory: Memory, plans: Any) -> Array:
                # A batch is anything, where the user's `process_batch` made it.
                batch = gather(memory, jax.tree.map(lambda x: x[0], plans))
                return jnp.zeros(
                    max(
                        (x.shape[0] for x in jax.tree.leaves(batch) if getattr(x, "ndim", 0)),
                        default=1,
                    )
                )

            return jax.eval_shape(of_a_batch, memory, plans).shape[0]

        form = self.updater.packing(learner.params, rows) if num_updates > 1 else NoPacking()

        def learn(
            learner: LearnerState, memory: Memory, plan: Any, key: Key
        ) -> tuple[tuple[LearnerState, Memory], Metrics]:
            learner, batch = _with_params(learner, form.unpack), gather(memory, plan)
            joined = isinstance(form, Packing)
            learner, found, error = self.updater.step(agent, learner, batch, key, axis_name, joined)
            if buffer is not None:
                memory = buffer.reprioritize(memory, batch, _errors_of(batch, error))
            return (_with_params(learner, form.pack), memory), found

        def step(
            state: tuple[LearnerState, Memory], inputs: Any
        ) -> tuple[tuple[LearnerState, Memory], Metrics]:
            plan, key, is_due = inputs
            if is_due is None:
                return learn(*state, plan, key)
            taken = partial(learn, *state, plan, key)
            return jax.lax.cond(
                is_due, taken, lambda: (state, not_measured(jax.eval_shape(taken)[1]))
            )

        def step_packed(
            state: tuple[LearnerState, Memory], inputs: Any
        ) -> tuple[tuple[LearnerState, Memory], Packed]:
            state, found = step(state, inputs)
            return state, Packed.of(found)

        inputs = plans, keys_of_updates(key, num_updates), getattr(dataset, "is_due", None)
        # Only a memory that changes is carried along, and a single update is no loop: XLA copies
        # less.
        state = _with_params(learner, form.pack), () if buffer is None else memory
        if num_updates == 1:
            (learner, carried), found = step(state, jax.tree.map(lambda x: x[0], inputs))
        else:
            (learner, carried), stacked = jax.lax.scan(step_packed, state, inputs)
            found = reduce_metrics(stacked)
        learner = _with_params(learner, form.unpack)
        return learner, memory if buffer is None else carried, found

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
        learner = self.updater.renew_targets(learner, self._absorb(learner, rollout))
        if learner.reward_stats is not None:
            learner = learner.replace(
                reward_stats=fold(learner.reward_stats, rollout.extras["discounted_return"])
            )
        return learner, (
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


def acting(agent: Agent, policy: PolicyState) -> Explore:
    """How `agent` explores with the parameters and statistics of `policy`."""

    def explore(obs: Any, carry: Any, key: Key) -> Any:
        return agent.explore(
            policy.params, normalize(policy.obs_stats, obs), carry, key, policy.progress
        )

    return explore


def acting_randomly(
    agent: Agent, policy: PolicyState, action_space: spaces.Space, num_envs: int
) -> Explore:
    """Uniformly random actions [N, ...]; the extras that `agent` would add are zero."""

    def explore(obs: Any, carry: Any, key: Key) -> Any:
        _, _, extras = jax.eval_shape(acting(agent, policy), obs, carry, key)
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), extras)
        return spaces.sample(action_space, key, num_envs), carry, zeros

    return explore


def _with_params(learner: LearnerState, change: Callable[[Any], Any]) -> LearnerState:
    return learner.replace(params=change(learner.params))


def _errors_of(batch: Any, error: Array | None) -> Array:
    """The errors [M] of a sampled batch, for prioritised replay. Raises `ConfigError` where they
    are missing.
    """
    require(
        isinstance(batch, Replayed),
        "prioritised replay needs to know which transitions a batch holds, process_batch returned"
        f" a {type(batch).__name__}",
        "return batch.replace(...), or set priority_exponent=None",
    )
    if error is None:
        raise ConfigError(
            "prioritised replay needs the error of every transition, but no loss returns it; "
            'return {"loss": ..., "td_error": errors}, of shape [M], or set priority_exponent=None'
        )
    require(
        error.shape == batch.index.shape,
        f'a loss returned "td_error" of shape {error.shape} for a batch of {batch.index.shape[0]}',
        "return one for each transition of the batch",
    )
    return error


def reduce_metrics(stacked: Packed) -> Metrics:
    """Metrics over their first axis: those named `sum/…` add up, all others are averaged over what
    is not NaN.

    NaN stands for what was not measured, such as the metrics of a step that was not taken; it stays
    where nothing was measured. Arrays of NumPy give arrays of NumPy.
    """
    sums, means = (
        stacked.replace(vectors=[over(x) for x in stacked.vectors]).unpack()
        for over in (_sum, _mean_of_known)
    )
    return {name: (sums if name.startswith("sum/") else means)[name] for name in means}


def _sum(x: Any) -> Any:
    if isinstance(x, np.ndarray) and x.dtype.kind == "f":
        return x.sum(0, dtype=np.float64).astype(
            x.dtype
        )  # NumPy adds row to row, rounding each time
    return x.sum(0)


def _mean_of_known(x: Any) -> Any:
    library: Any = np if isinstance(x, np.ndarray) else jnp
    known = ~library.isnan(x)
    mean = library.mean(
        x, axis=0, where=known | ~known.any(0), dtype=np.float64 if library is np else None
    )
    return mean.astype(np.float32) if library is np else mean  # NaN where it is nothing else


def check_compatible(algorithm: Algorithm, agent: Agent, env: EnvAdapter) -> None:
    """Raises one clear error, before anything compiles, if the three parts do not fit together."""
    spaces.check_action_space(env.action_space)
    spaces.check_observation_space(env.observation_space)
    if algorithm.check is not None:
        algorithm.check(agent, env)
    if algorithm.replay_buffer is not None:
        _check_replay(algorithm, algorithm.replay_buffer, env)
    obs = spaces.abstract(env.observation_space, (env.num_envs,))
    wanted = spaces.abstract(env.action_space, (env.num_envs,))
    key = jax.eval_shape(jax.random.key, 0)
    try:
        params = jax.eval_shape(agent.init, key)
        action, _, _ = jax.eval_shape(
            agent.explore, params, obs, agent.initial_carry(env.num_envs), key, np.float32(0.0)
        )
    except Exception as error:
        raise SpaceError(
            f"the agent fails on observations of {env.observation_space}: {error}; build it with"
            " the spaces of this environment"
        ) from error
    check_carry(algorithm, agent, env.num_envs)
    if action.shape != wanted.shape or _is_float(action) != _is_float(wanted):
        raise SpaceError(
            f"the agent's actions are {action.dtype}{list(action.shape)}, "
            f"the environments need {wanted.dtype}{list(wanted.shape)}; "
            "build the agent with the action space of this environment"
        )
    known = getattr(agent, "action_space", None)
    if known is not None and not _is_float(wanted) and known != env.action_space:
        raise SpaceError(
            f"the agent chooses from {known}, the environments from {env.action_space}; "
            "build the agent with the action space of this environment"
        )
    if isinstance(algorithm.replay_buffer, Reprioritizes):
        _check_errors(algorithm, agent, env)


def _check_errors(algorithm: Algorithm, agent: Agent, env: EnvAdapter) -> None:
    """Raises what the first update of prioritised replay would, whose losses and batches may be the
    user's: by tracing one.
    """

    def update(key: Key) -> Any:
        keys, obs = InitKeys.split(key), spaces.example(env.observation_space, (env.num_envs,))
        ts = algorithm.start(agent, env, keys, obs, (), total_steps=1.0)
        rollout = algorithm.example_rollout(agent, env, ts.learner.policy)
        return algorithm.update(agent, ts.learner, ts.local.memory, rollout, keys.prefill)

    jax.eval_shape(update, jax.random.key(0))


def least_capacity(algorithm: Algorithm, env: EnvAdapter) -> int:
    """The smallest capacity of a replay buffer that `check_compatible` lets pass: it holds a
    rollout, a batch and `n_step` rows.
    """
    assert algorithm.replay_buffer is not None
    whole_rows = (getattr(algorithm.replay_buffer, "n_step", 1) - 1) * env.num_envs
    return max(
        algorithm.env_steps_per_iteration(env), algorithm.replay_buffer.batch_size, whole_rows + 1
    )  # the last is rounded up


def _check_replay(algorithm: Algorithm, buffer: ReplayBuffer, env: EnvAdapter) -> None:
    """Raises `ConfigError` unless the replay buffer holds a rollout, and a batch by the first
    gradient step.
    """
    each = algorithm.env_steps_per_iteration(env)
    require(
        buffer.capacity >= max(each, buffer.batch_size),
        f"the replay buffer has a capacity of {buffer.capacity}, less than a rollout ({each}) or a"
        f" batch ({buffer.batch_size})",
        "raise it",
    )
    rows, n_step = num_rows(buffer.capacity, env.num_envs), getattr(buffer, "n_step", 1)
    require(
        n_step <= rows,
        f"n_step={n_step} sums over more steps than the {rows} that the replay buffer holds of each"
        " environment",
        f"raise its capacity to {n_step * env.num_envs} or more, or lower n_step",
    )
    filled = (algorithm.prefill_collects(env) + 1) * each
    require(
        filled >= buffer.batch_size,
        f"the replay buffer holds {filled} transitions at the first gradient step, less than a"
        f" batch ({buffer.batch_size})",
        f"raise warmup_steps to {buffer.batch_size} or more",
    )


def _is_float(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)
