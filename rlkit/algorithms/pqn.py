"""Parallelised Q-Network: Q-learning without a replay buffer or a target network.

Gallici et al. 2024, "Simplifying Deep Temporal Difference Learning". Learns on rollouts of many
environments. Follows CleanRL's `pqn.py`. Differs from it at the ends of episodes: a truncated one
bootstraps from its true final observation, and no return runs on into the next episode (in
CleanRL's, a share `q_lambda` of it does). Layer normalisation, which replaces the target network,
and exploration belong to the agent, see `NormalizedQNetworkConfig`.
"""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
import optax
from flax import struct
from jax import Array

from rlkit.agents.base import QAndStateValueAgent
from rlkit.algorithms.base import Algorithm
from rlkit.algorithms.batch_builder import Plan
from rlkit.algorithms.configs import PQNConfig
from rlkit.algorithms.gradient_step import LossFn
from rlkit.algorithms.on_policy import on_policy
from rlkit.algorithms.on_policy_batches import Minibatches, next_values, scale_rewards
from rlkit.algorithms.overrides import Overrides
from rlkit.algorithms.process_batch import ProcessBatch
from rlkit.algorithms.sequences import SequenceDataset, as_inputs
from rlkit.ops.losses import at_index, explained_variance
from rlkit.ops.returns import lambda_returns
from rlkit.ops.rows import flatten
from rlkit.ops.running_stats import normalize
from rlkit.types import (
    Key,
    LearnerState,
    Memory,
    Metrics,
    Obs,
    Params,
    PolicyState,
    PyTree,
    Rollout,
    Sequences,
)
from rlkit.validation import settings


def pqn(
    config: PQNConfig | None = None,
    *,
    loss: LossFn | None = None,
    optimizer: optax.GradientTransformation | None = None,
    process_batch: ProcessBatch | None = None,
    process_gradients: Callable[[PyTree], PyTree] | None = None,
) -> Algorithm:
    """PQN as an `Algorithm`, for agents like `normalized_q_network`.

    Batches are `QBatch`; everything else is as for `ppo`.
    """
    config = settings(config, PQNConfig)
    overrides = Overrides(
        loss=loss,
        optimizer=optimizer,
        process_batch=process_batch,
        process_gradients=process_gradients,
    )
    builder = QLambdaBatchBuilder(
        gamma=config.gamma,
        q_lambda=config.q_lambda,
        minibatches=Minibatches(
            num_epochs=config.num_epochs,
            num_minibatches=config.num_minibatches,
            sequence_length=config.sequence_length,
        ),
    )
    return on_policy(
        "pqn",
        config,
        pqn_loss,
        builder,
        overrides,
        needs=QAndStateValueAgent,
        agent="normalized_q_network",
    )


class QBatch(struct.PyTreeNode, kw_only=True):
    """What the loss sees, leaves [M, ...]; in a dataset [T·N, ...]."""

    obs: Obs | Sequences  # normalised; `Sequences` of M steps for agents with memory
    action: Array
    target: Array  # the λ-return


def pqn_loss(
    agent: QAndStateValueAgent, params: Params, target_params: Params, batch: QBatch, key: Key
) -> tuple[Array, Metrics]:
    """The squared error of Q(s, a) against the λ-return, averaged over the batch."""
    value = at_index(agent.q_values(params, batch.obs), agent.index(batch.action))
    return jnp.square(value - batch.target).mean(), {
        "q_value": value.mean(),
        "target": batch.target.mean(),
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class QLambdaBatchBuilder:
    """Computes λ-returns once per rollout, with the current network; then draws `minibatches`.

    Values of the best actions are mixed in, and no step is corrected for exploration, as in Peng's
    Q(λ).
    """

    gamma: float | Array
    q_lambda: float | Array
    minibatches: Minibatches
    replay_buffer = None  # on-policy: a constant, not a field

    def ingest(
        self,
        agent: QAndStateValueAgent,
        learner: LearnerState,
        memory: Memory,
        rollout: Rollout,
        axis_name: str | None = None,
        behaviour: PolicyState | None = None,
    ) -> tuple[Memory, QBatch | SequenceDataset, Metrics]:
        """See `BatchBuilder`; the memory is unchanged, and the behaviour policy does not matter."""
        shape = rollout.reward.shape  # [T, N]
        obs = normalize(learner.obs_stats, rollout.obs)
        q_values = agent.q_values(learner.params, as_inputs(rollout, obs))  # [T·N, A]
        target = lambda_returns(
            scale_rewards(learner, rollout.reward),
            next_values(agent, learner, rollout, q_values.max(axis=-1).reshape(shape)),
            rollout.terminated,
            rollout.truncated,
            gamma=self.gamma,
            td_lambda=self.q_lambda,
        )
        chosen = at_index(q_values, agent.index(flatten(rollout.action)))
        samples = QBatch(obs=obs, action=rollout.action, target=target)
        explained = explained_variance(chosen, target.reshape(-1), axis_name)
        return (
            memory,
            self.minibatches.dataset(rollout, samples),
            {"explained_variance": explained},
        )

    def draw(self, dataset: QBatch | SequenceDataset, key: Key) -> Plan:
        """See `Minibatches`."""
        return Plan(batches=self.minibatches.draw(dataset, key))

    def gather(
        self, dataset: QBatch | SequenceDataset, plan: Array, axis_name: str | None = None
    ) -> PyTree:
        """See `Minibatches`."""
        return self.minibatches.gather(dataset, plan)
