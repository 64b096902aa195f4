"""The wiring that on-policy algorithms share.

They differ in loss, targets and passes over a rollout.
"""

from collections.abc import Callable
from typing import Any

from rlkit.agents.base import ActorCriticAgent, Agent, remembers
from rlkit.algorithms.agent_checks import check_family
from rlkit.algorithms.base import Algorithm
from rlkit.algorithms.batch_builder import BatchBuilder
from rlkit.algorithms.collectors import Collector
from rlkit.algorithms.configs import A2CConfig, PPOConfig, PQNConfig, check_rollout
from rlkit.algorithms.gradient_step import LossFn
from rlkit.algorithms.on_policy_batches import Minibatches, OnPolicyBatchBuilder
from rlkit.algorithms.overrides import Overrides
from rlkit.algorithms.updaters import Updater
from rlkit.envs.base import EnvAdapter
from rlkit.errors import require


def on_policy(
    name: str,
    config: PPOConfig | A2CConfig | PQNConfig,
    loss: LossFn,
    batch_builder: BatchBuilder,
    overrides: Overrides,
    *,
    needs: type,
    agent: str,
    check: Callable[[Any, EnvAdapter], None] | None = None,
) -> Algorithm:
    """The algorithm `name`: collects, then descends `loss` on batches from `batch_builder`.

    `needs` and `agent` are as for `off_policy`.
    """

    def check_parts(given: Agent, env: EnvAdapter) -> None:
        check_family(name, given, needs, agent)
        check_rollout(config, env.num_envs, has_memory=remembers(given))
        if check is not None:
            check(given, env)

    return Algorithm(
        collector=Collector(
            num_steps=config.num_steps,
            reward_discount=config.gamma if config.normalize_rewards else None,
        ),
        batch_builder=batch_builder,
        updater=Updater(steps=(overrides.step(config, loss),)),
        normalize_observations=config.normalize_observations,
        normalize_rewards=config.normalize_rewards,
        spec=(name, config),
        custom=overrides.names,
        process_batch=overrides.process_batch,
        check=check_parts,
        learns_through_carry=True,
    )


def policy_gradient(
    name: str,
    config: PPOConfig | A2CConfig,
    loss: LossFn,
    overrides: Overrides,
    minibatches: Minibatches,
) -> Algorithm:
    """The `on_policy` algorithm for an actor-critic, with advantages estimated by GAE."""

    def check(agent: ActorCriticAgent, env: EnvAdapter) -> None:
        require(
            not config.normalize_advantages
            or config.num_steps * env.num_envs // minibatches.num_minibatches > 1,
            "normalize_advantages needs at least two samples in a minibatch, got one",
            "use fewer minibatches, more environments or steps, or normalize_advantages=False",
        )

    builder = OnPolicyBatchBuilder(
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
        minibatches=minibatches,
        normalize_advantages=config.normalize_advantages,
    )
    return on_policy(
        name,
        config,
        loss,
        builder,
        overrides,
        needs=ActorCriticAgent,
        agent="actor_critic",
        check=check,
    )
