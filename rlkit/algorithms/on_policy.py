"""The wiring that on-policy actor-critic algorithms share: they differ in their loss and in how often they see a rollout."""

import dataclasses
from collections.abc import Callable
from typing import Any

import optax

from rlkit.algorithms.base import Algorithm
from rlkit.algorithms.batch_builders import OnPolicyBatchBuilder, ProcessBatch
from rlkit.algorithms.collectors import Collector
from rlkit.algorithms.configs import A2CConfig, PPOConfig
from rlkit.algorithms.updaters import GradientStep, LossFn, Updater
from rlkit.envs.base import EnvAdapter
from rlkit.errors import ConfigError, require
from rlkit.optimizers import make_optimizer
from rlkit.types import PyTree


@dataclasses.dataclass(frozen=True, kw_only=True)
class Overrides:
    """What a user passes beside the config; None: the algorithm's own."""

    loss: LossFn | None = None
    optimizer: optax.GradientTransformation | None = None
    process_batch: ProcessBatch | None = None
    process_gradients: Callable[[PyTree], PyTree] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """What is overridden, so that the config alone does not describe the algorithm."""
        return tuple(field.name for field in dataclasses.fields(self) if getattr(self, field.name) is not None)


def on_policy(
    name: str,
    config: PPOConfig | A2CConfig,
    loss: LossFn,
    overrides: Overrides,
    *,
    num_epochs: int = 1,
    num_minibatches: int = 1,
    check: Callable[[Any, EnvAdapter], None] | None = None,
) -> Algorithm:
    """The algorithm `name`: collect, estimate advantages by GAE, descend `loss` `num_epochs` times over the rollout."""

    def check_parts(agent: Any, env: EnvAdapter) -> None:
        if not (hasattr(agent, "policy_and_value") and hasattr(agent, "value")):
            raise ConfigError(
                f"{name} needs an agent with `policy_and_value` and `value`, got {type(agent).__name__}; "
                "use rlkit.actor_critic(env.observation_space, env.action_space)"
            )
        if check is not None:
            check(agent, env)
        require(
            not config.normalize_advantages or config.num_steps * env.num_envs // num_minibatches > 1,
            "normalize_advantages needs at least two samples in a minibatch, got one",
            "use fewer minibatches, more environments or steps, or normalize_advantages=False",
        )

    optimizer = overrides.optimizer or make_optimizer(
        config.optimizer,
        learning_rate=config.learning_rate,
        schedule=config.learning_rate_schedule,
        max_grad_norm=config.max_grad_norm,
        epsilon=config.optimizer_epsilon,
    )
    descent = GradientStep(loss=overrides.loss or loss, optimizer=optimizer, process_gradients=overrides.process_gradients)
    return Algorithm(
        collector=Collector(num_steps=config.num_steps, reward_discount=config.gamma if config.normalize_rewards else None),
        batch_builder=OnPolicyBatchBuilder(
            gamma=config.gamma,
            gae_lambda=config.gae_lambda,
            num_epochs=num_epochs,
            num_minibatches=num_minibatches,
            normalize_advantages=config.normalize_advantages,
            process_batch=overrides.process_batch,
        ),
        updater=Updater(steps=(descent,)),
        normalize_observations=config.normalize_observations,
        normalize_rewards=config.normalize_rewards,
        spec=(name, config),
        custom=overrides.names,
        check=check_parts,
    )
