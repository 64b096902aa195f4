"""Minibatches of a rollout: for PPO and A2C with advantages by GAE; parts of it for other ones."""

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from rlkit.agents.base import OUTPUTS, ActorCriticAgent, Outputs, StateValueAgent
from rlkit.algorithms.batch_builder import Plan
from rlkit.algorithms.configs import require_divides
from rlkit.algorithms.sequences import (
    SequenceDataset,
    as_inputs,
    has_memory,
    in_sequences,
    values_after,
)
from rlkit.errors import require_counts, require_share
from rlkit.ops.losses import explained_variance, standardize
from rlkit.ops.over_devices import moments
from rlkit.ops.returns import gae
from rlkit.ops.rows import flatten
from rlkit.ops.running_stats import normalize
from rlkit.ops.shuffle import shuffled_indices
from rlkit.types import (
    Action,
    Key,
    LearnerState,
    Memory,
    Metrics,
    Obs,
    PolicyState,
    PyTree,
    Rollout,
    Sequences,
)

if TYPE_CHECKING:  # importing distrax takes a second
    from rlkit.agents.heads import Distribution


class OnPolicyBatch(struct.PyTreeNode, kw_only=True):
    """What policy-gradient losses see, leaves [M, ...]; in a dataset [T·N, ...]."""

    obs: Obs | Sequences  # normalised; `Sequences` of M steps for agents with memory
    action: Action
    log_prob: Array  # of the action, under the behaviour policy
    value: Array  # predicted when it acted
    advantage: Array  # standardised in a batch, if the builder says so
    target: Array  # for the value: advantage + value


@dataclasses.dataclass(frozen=True, kw_only=True)
class Minibatches:
    """`num_epochs` shuffles of a dataset [T·N, ...], each split into `num_minibatches` batches.

    For agents with memory, what is shuffled are sequences of `sequence_length` steps (None: T).
    """

    num_epochs: int = 1
    num_minibatches: int = 1
    sequence_length: int | None = None

    def __post_init__(self) -> None:
        require_counts(self, num_epochs=1, num_minibatches=1)
        if self.sequence_length is not None:
            require_counts(self, sequence_length=1)

    def dataset(self, rollout: Rollout, samples: Any) -> Any:
        """What to draw from: `samples` [T, N, ...], flat, or a `SequenceDataset` with memory."""
        if not has_memory(rollout):
            return flatten(samples)
        return in_sequences(rollout, samples, self.sequence_length)

    def draw(self, dataset: PyTree, key: Key) -> Array:
        """Indices [num_epochs · num_minibatches, M]: every sample (or sequence) once per epoch.

        The key is consumed. Raises `ConfigError` if they cannot be divided equally.
        """
        if isinstance(dataset, SequenceDataset):
            size, what = dataset.num_sequences, "sequences"
        else:
            size, what = jax.tree.leaves(dataset)[0].shape[0], "samples"
        whole = f"the {size} {what} of a rollout"
        require_divides("num_minibatches", self.num_minibatches, size, whole)
        if self.num_minibatches == 1:  # the order within a batch changes nothing
            return jnp.broadcast_to(jnp.arange(size), (self.num_epochs, size))
        orders = jax.vmap(lambda k: shuffled_indices(k, size))(
            jax.random.split(key, self.num_epochs)
        )
        return orders.reshape(self.num_epochs * self.num_minibatches, -1)

    def gather(self, dataset: PyTree, plan: Array) -> PyTree:
        """The batch of samples (or sequences) at the indices `plan` [M]."""
        if isinstance(dataset, SequenceDataset):
            return dataset.batch(None if self.num_minibatches == 1 else plan)
        return dataset if self.num_minibatches == 1 else jax.tree.map(lambda x: x[plan], dataset)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnPolicyBatchBuilder:
    """Computes GAE once per rollout, then draws `minibatches` from it.

    Values and log-probs are computed here, in one batch, rather than step by step while collecting.
    Where the agent kept `Outputs`, its network is not called again.
    """

    gamma: float | Array
    gae_lambda: float | Array
    minibatches: Minibatches
    normalize_advantages: bool = False
    replay_buffer = None  # on-policy: a constant, not a field

    def __post_init__(self) -> None:
        require_share(self, "gamma", "gae_lambda")

    def ingest(
        self,
        agent: ActorCriticAgent,
        learner: LearnerState,
        memory: Memory,
        rollout: Rollout,
        axis_name: str | None = None,
        behaviour: PolicyState | None = None,
    ) -> tuple[Memory, OnPolicyBatch | SequenceDataset, Metrics]:
        """See `BatchBuilder`; the memory is unchanged.

        Log-probs are the behaviour policy's, values the learner's.
        """
        shape = rollout.reward.shape  # [T, N]
        obs = normalize(learner.obs_stats, rollout.obs)
        policy, value = policy_and_value(agent, learner, rollout, obs, behaviour)
        log_prob = policy.log_prob(flatten(rollout.action)).reshape(shape)
        value = value.reshape(shape)
        advantage = gae(
            scale_rewards(learner, rollout.reward),
            value,
            next_values(agent, learner, rollout, value),
            rollout.terminated,
            rollout.truncated,
            gamma=self.gamma,
            gae_lambda=self.gae_lambda,
        )
        target = advantage + value
        samples = OnPolicyBatch(
            obs=obs,
            action=rollout.action,
            log_prob=log_prob,
            value=value,
            advantage=advantage,
            target=target,
        )
        dataset = self.minibatches.dataset(rollout, samples)
        explained = explained_variance(value, target, axis_name)
        return memory, dataset, {"explained_variance": explained}

    def draw(self, dataset: OnPolicyBatch | SequenceDataset, key: Key) -> Plan:
        """See `Minibatches`."""
        return Plan(batches=self.minibatches.draw(dataset, key))

    def gather(
        self,
        dataset: OnPolicyBatch | SequenceDataset,
        plan: Array,
        axis_name: str | None = None,
    ) -> PyTree:
        """See `Minibatches`."""
        batch = self.minibatches.gather(dataset, plan)
        if self.normalize_advantages:
            batch = batch.replace(
                advantage=standardize(batch.advantage, *moments(batch.advantage, axis_name))
            )
        return batch


def policy_and_value(
    agent: ActorCriticAgent,
    learner: LearnerState,
    rollout: Rollout,
    obs: Obs,
    behaviour: PolicyState | None,
) -> tuple["Distribution", Array]:
    """The policy that acted and the learner's values, for all steps [T·N]; `obs` are normalised."""
    kept = rollout.extras.get(OUTPUTS)
    if isinstance(kept, Outputs) and kept.agent == agent:
        acted = learner if behaviour is None else behaviour
        policy, value = flatten((kept.policy, kept.value))
        if behaviour is not None:
            value = agent.value(learner.params, as_inputs(rollout, obs))
        return kept.agent.distribution(acted.params, policy), value
    policy, value = agent.policy_and_value(learner.params, as_inputs(rollout, obs))
    if behaviour is not None:
        seen = normalize(behaviour.obs_stats, rollout.obs)
        policy, _ = agent.policy_and_value(behaviour.params, as_inputs(rollout, seen))
    return policy, value


def next_values(
    agent: StateValueAgent, learner: LearnerState, rollout: Rollout, value: Array
) -> Array:
    """Values of the true successors, [T, N].

    Within an episode, the successor is the next row. Only successors at a time limit and at the end
    of the rollout need to be computed. (What follows a termination does not matter.)
    """

    def after(steps: Rollout) -> Array:  # [B, ...] -> [B]
        obs, next_obs = (normalize(learner.obs_stats, x) for x in (steps.obs, steps.next_obs))
        return values_after(partial(agent.value, learner.params), steps, obs, next_obs)

    last = after(jax.tree.map(lambda x: x[-1], rollout))[None]
    following = jnp.concatenate([value[1:], last])
    cut = rollout.truncated & ~rollout.terminated
    return jax.lax.cond(
        cut[:-1].any(),
        lambda: jnp.where(cut, after(flatten(rollout)).reshape(value.shape), following),
        lambda: following,
    )


def scale_rewards(learner: LearnerState, reward: Array, clip: float = 10.0) -> Array:
    """Rewards divided by the standard deviation of the discounted return, and clipped.

    Unchanged if the algorithm does not track that statistic.
    """
    if learner.reward_stats is None:
        return reward
    return jnp.clip(reward * jax.lax.rsqrt(learner.reward_stats.variance + 1e-8), -clip, clip)
