"""The wiring that off-policy algorithms share: they differ in their gradient steps and targets."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from rlkit.agents.base import Agent, QAgent, memory_for_losses, remembers
from rlkit.agents.memory import one_step
from rlkit.algorithms.agent_checks import abstract_actions, abstract_key, check_family
from rlkit.algorithms.base import Algorithm
from rlkit.algorithms.collectors import Collector
from rlkit.algorithms.configs import (
    BURN_IN,
    SEQUENCE_LENGTH,
    OffPolicyConfig,
    check_sequences,
)
from rlkit.algorithms.gradient_step import GradientStep
from rlkit.algorithms.overrides import Overrides
from rlkit.algorithms.prioritized_replay import PrioritizedReplay
from rlkit.algorithms.replay_batches import (
    MAX_DENOMINATOR,
    MOST_STEPS,
    ReplayBatchBuilder,
    as_fraction,
)
from rlkit.algorithms.replay_buffer import UniformReplay
from rlkit.algorithms.target_update import TargetUpdate
from rlkit.algorithms.updaters import Updater
from rlkit.envs.base import EnvAdapter
from rlkit.errors import SpaceError, require
from rlkit.ops import losses
from rlkit.spaces import abstract
from rlkit.types import Key, Metrics, Obs


def off_policy(
    name: str,
    config: OffPolicyConfig,
    steps: tuple[GradientStep, ...],
    target: TargetUpdate | None,
    overrides: Overrides,
    *,
    needs: type = Agent,
    agent: str,
    check: Callable[[Any, EnvAdapter], None] | None = None,
    simultaneous: bool = False,
    learns_through_carry: bool = True,
) -> Algorithm:
    """The algorithm `name`: collects into a replay buffer, then takes `steps` on batches from it.

    The steps are `simultaneous` or in order. `needs` is the family of agents that the losses call
    (see `agents/base.py`); `agent` names one to suggest in place of an agent that does not fit.
    Agents with memory are refused unless it `learns_through_carry`.
    """

    def check_parts(given: Agent, env: EnvAdapter) -> None:
        check_family(name, given, needs, agent)
        check_sequences(config, has_memory=remembers(given))
        if check is not None:
            check(given, env)
        check_ratio(config, env.num_envs)

    return Algorithm(
        collector=Collector(num_steps=config.num_steps, prefill_steps=config.prefill_steps),
        batch_builder=ReplayBatchBuilder(
            replay_buffer=make_replay_buffer(config),
            updates_per_step=config.updates_per_step,
        ),
        updater=Updater(steps=steps, target=target, simultaneous=simultaneous),
        normalize_observations=config.normalize_observations,
        spec=(name, config),
        custom=overrides.names,
        process_batch=overrides.process_batch,
        check=check_parts,
        learns_through_carry=learns_through_carry,
    )


def make_replay_buffer(config: OffPolicyConfig) -> UniformReplay | PrioritizedReplay:
    """The replay buffer that the config describes."""
    uniform = UniformReplay(
        capacity=config.capacity,
        batch_size=config.batch_size,
        gamma=config.gamma,
        n_step=config.n_step,
        sequence_length=config.sequence_length or SEQUENCE_LENGTH,
        burn_in=BURN_IN if config.burn_in is None else config.burn_in,
    )
    if config.priority_exponent is None:
        return uniform
    return PrioritizedReplay(
        **vars(uniform),
        priority_exponent=config.priority_exponent,
        importance_exponent=config.importance_exponent,
    )


def twin_loss(q_values: Array, target: Array, weight: Array) -> tuple[Array, Metrics]:
    """Half the squared errors of two critics [2, M] against the same target [M], and metrics.

    Summed over the critics. Prioritised replay uses the mean of both absolute errors.
    """
    target = jax.lax.stop_gradient(target)
    errors = losses.squared_error(q_values, target).sum(0)
    metrics = {
        "q_value": q_values.mean(),
        "target": target.mean(),
        "td_error": jnp.abs(q_values - target).mean(0),
    }
    return (weight * errors).mean(), metrics


def check_bounds(agent: Agent, env: EnvAdapter) -> None:
    """Raises `SpaceError` if the agent was built for action bounds other than those of `env`."""
    known = getattr(agent, "action_space", env.action_space)
    require(
        known == env.action_space,
        f"the agent acts in {known}, the environments in {env.action_space}",
        "build the agent with the action space of this environment",
        SpaceError,
    )


def check_ratio(config: OffPolicyConfig, num_envs: int) -> None:
    """Raises `ConfigError` unless `updates_per_step` is a fraction that can be counted exactly."""
    ratio = as_fraction(config.updates_per_step)
    each = config.num_steps * num_envs
    require(
        abs(ratio - Fraction(config.updates_per_step)) < 1e-6 * ratio,
        f"updates_per_step={config.updates_per_step:g} is neither 1/n, with n up to {MOST_STEPS:,},"
        f" nor a fraction with a denominator up to {MAX_DENOMINATOR}",
        f"use {float(ratio):.6g}, for instance",
    )
    require(
        ratio.numerator * (ratio.denominator + each) < 2**31,
        f"updates_per_step={config.updates_per_step:g} makes too many gradient steps for the {each}"
        " steps of an iteration",
        "lower it, or num_steps",
    )


def check_values(agent: QAgent, env: EnvAdapter) -> None:
    """Raises `ConfigError` unless the agent's `q_values(params, obs)` values every action.

    Critics that take an action do not. An agent that cannot act on these observations is not
    checked here.
    """

    def values(key: Key, obs: Obs) -> Array:
        memory = memory_for_losses(agent.initial_carry(env.num_envs))
        inputs = one_step(obs, memory) if jax.tree.leaves(memory) else obs
        return agent.q_values(agent.init(key), inputs)

    obs = abstract(env.observation_space, (env.num_envs,))
    require(
        not _works(lambda: abstract_actions(agent, env))
        or _works(lambda: jax.eval_shape(values, abstract_key(), obs)),
        "the losses need an agent whose `q_values(params, obs)` values all actions, got"
        f" {type(agent).__name__}",
        "use rlkit.q_network(env.observation_space, env.action_space)",
    )


def _works(function: Callable[[], object]) -> bool:
    try:
        function()
    except Exception:
        return False
    return True
