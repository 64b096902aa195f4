"""What a run may start from, other than a fresh state: a ready one, or a policy's parameters."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from rlkit.errors import ConfigError, require
from rlkit.ops.strong_types import strong_types
from rlkit.training.core.module import RLModule, type_changes
from rlkit.training.files.checkpoint_items import without_replay
from rlkit.training.logs.metrics import exact_counts
from rlkit.training.policy import Policy
from rlkit.training.run import Run
from rlkit.types import LearnerState, PyTree


def start_with(run: Run, state: PyTree) -> None:
    """Starts a run with a copy of a state that was trained elsewhere.

    The outer iterations of the plan follow it, and schedules end with them. Environments on the
    host start new episodes. Raises `ConfigError` if the state does not fit.
    """
    module, shape = run.parts.module, run.program.state_shape(run.compiler.keys(0))
    if isinstance(module, RLModule) and not jax.tree.leaves(state.local.memory):
        shape = without_replay(shape)  # which is filled before training
    require_fits("train_state", shape, state, "pass one that a Trainer of the same parts made")
    run.state = run.program.restart(run.program.copy(strong_types(state)))
    counters = getattr(module, "counters", None)
    counts = exact_counts(jax.device_get(counters(run.state) if counters else None))
    if counts is not None:
        env_steps, updates = counts
        run.progress = dataclasses.replace(run.progress, env_steps=env_steps, updates=updates)
        run.set_horizon()


def warm_start(run: Run, policy: Policy) -> None:
    """Replaces the parameters of a fresh state by a policy's, for all seeds.

    With them go the targets and the statistics of observations; the optimiser starts anew. Raises
    `ConfigError` if they do not fit the agent.
    """
    if not isinstance(run.parts.module, RLModule):
        raise ConfigError(
            "a policy has parameters for an agent, but this module has none; set the parameters in"
            " its init_train_state"
        )
    learner: LearnerState = run.state.learner
    has_stats = policy.state.obs_stats is not None
    require(
        has_stats == (learner.obs_stats is not None),
        f"the policy was trained with normalize_observations={has_stats}",
        "set it to the same in the algorithm's config",
    )
    given, seeds = (policy.state.params, policy.state.obs_stats), run.config.num_seeds
    own = learner.params if seeds == 1 else jax.tree.map(lambda x: x[0], learner.params)
    fix = "use the agent and the network that it was trained with"
    require_fits("the policy", own, given[0], fix)
    if seeds > 1:
        given = jax.tree.map(lambda x: jnp.broadcast_to(x, (seeds, *x.shape)), given)
    params, obs_stats = jax.tree.map(jnp.copy, given)  # training donates them
    renew: Any = run.parts.module.algorithm.updater.init
    renew = jax.vmap(renew) if seeds > 1 else renew
    opt_state, target_params = strong_types(renew(params))
    learner = learner.replace(
        params=params, obs_stats=obs_stats, opt_state=opt_state, target_params=target_params
    )
    run.state = run.state.replace(learner=learner)


def require_fits(what: str, wanted: PyTree, given: PyTree, fix: str) -> None:
    """Raises `ConfigError` unless `given` has the structure, shapes and dtypes of `wanted`."""
    changes = type_changes(wanted, given)
    more = f" and {len(changes) - 3} more" if len(changes) > 3 else ""
    require(not changes, f"{what} does not fit: {', '.join(changes[:3])}{more}", fix)
