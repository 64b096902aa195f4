"""What a run may start from, other than a fresh state: a ready one, or a policy's parameters."""

import dataclasses
import os
from typing import Any

import jax
import jax.numpy as jnp

from rlkit.envs.observations import check_bounds
from rlkit.errors import CheckpointError, require
from rlkit.ops.strong_types import strong_types
from rlkit.spaces import Space, leaves
from rlkit.training.compile.placing import own_part
from rlkit.training.core.module import RLModule, type_changes
from rlkit.training.files.checkpoint_items import without_replay
from rlkit.training.files.replay_size import policy_shape
from rlkit.training.files.run_description import ACCEPT
from rlkit.training.files.run_files import Path
from rlkit.training.logs.loaded_run import algorithm_in, env_in
from rlkit.training.logs.metrics import exact_counts
from rlkit.training.policy import Policy, load_policy
from rlkit.training.run import Run, RunStart
from rlkit.training.run_config import read_settings
from rlkit.training.run_parts import RunParts
from rlkit.types import LearnerState, Obs, PyTree, TrainState


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """What a run that restores no checkpoint starts from; both None: a fresh state."""

    train_state: PyTree = None
    policy: Policy | None = None
    path: str | None = None  # of the policy; None: it was passed as an object

    def told(self, env_steps: int) -> list[str]:
        """What the run's log says of it; the run has `env_steps` by then."""
        if self.train_state is not None:
            return [f"started from a train state that was passed in, at {env_steps:,} steps"]
        if self.policy is not None:
            place = self.path or "passed in"
            return [
                f"started from the parameters of a policy ({place}, checkpoint"
                f" {self.policy.checkpoint_step})"
            ]
        return []


def source_of(
    run: Run, *, train_state: PyTree = None, warm_start: Policy | Path | None = None
) -> Source:
    """The source that was asked for, read and checked; changes nothing.

    `warm_start` None: the config's. Raises `RlkitError` if it does not fit the run.
    """
    require(
        train_state is None or warm_start is None,
        "train_state and warm_start both set where training starts",
        "pass only one",
    )
    if train_state is not None:
        _require_state_fits(run, train_state)
        return Source(train_state=train_state)
    warm_start = run.config.warm_start if warm_start is None else warm_start
    if warm_start is None:
        return Source()
    require(
        isinstance(run.parts.module, RLModule),
        "warm_start needs an agent, which this module does not have",
        "set the parameters in its init_train_state",
    )
    require(
        isinstance(warm_start, str | os.PathLike | Policy),
        f"warm_start must be a policy or a run directory, got {warm_start!r}",
        "pass load_policy(run_dir), or the directory",
    )
    assert isinstance(run.parts.module, RLModule)
    is_loaded = isinstance(warm_start, Policy)
    policy = warm_start if is_loaded else _load(run.parts.module, warm_start)
    _require_policy_fits(run.parts.module, policy)
    return Source(policy=policy, path=None if is_loaded else os.fspath(warm_start))


def check_warm_start(parts: RunParts, path: Path) -> None:
    """Raises what a run of these parts would raise that starts from the policy of a run directory.

    Compiles nothing.
    """
    module = parts.module
    assert isinstance(module, RLModule)
    _require_policy_fits(module, _load(module, path))


def begin_from(run: Run, source: Source, start: RunStart) -> None:
    """Gives `run` its state before training.

    Raises `EnvContractError` if a jittable environment's observations are far outside their space;
    those of a simulator are checked where it runs.
    """
    if source.train_state is not None:
        _start_with(run, source.train_state)
        return
    assert start.keys is not None
    run.init(start.keys)
    module = run.parts.module
    if isinstance(module, RLModule) and module.env.is_jittable:
        check_first(module.env.observation_space, jax.device_get(own_part(run.state.local.obs)))
    if source.policy is not None:
        _warm_start(run, source.policy)


def check_first(space: Space, obs: Obs) -> None:
    """Raises `EnvContractError` if observations [..., *shape] on the host are far outside."""
    for part, (path, batch) in zip(leaves(space), jax.tree.leaves_with_path(obs), strict=True):
        check_bounds(part, batch, f"the first observation{jax.tree_util.keystr(path)}")


def _start_with(run: Run, state: PyTree) -> None:
    """Starts with a copy of a state that was trained elsewhere.

    The outer iterations of the plan follow it, and schedules end with them. Environments on the
    host start new episodes.
    """
    # Not by `program.copy`, which is compiled for states that have their replay memory, or not.
    copied = jax.tree.map(lambda x: jnp.copy(x) if isinstance(x, jax.Array) else x, state)
    run.state = strong_types(copied)
    if run.has_replay(run.state):  # else `refill` starts new episodes
        run.state = run.program.restart(run.state)
    counters = getattr(run.parts.module, "counters", None)
    counts = exact_counts(jax.device_get(counters(run.state) if counters else None))
    if counts is not None:
        env_steps, updates = counts
        run.progress = dataclasses.replace(run.progress, env_steps=env_steps, updates=updates)
        run.set_horizon()


def _warm_start(run: Run, policy: Policy) -> None:
    """Replaces the parameters of a fresh state by a policy's, for all seeds.

    With them go the targets and the statistics of observations; the optimiser starts anew.
    """
    assert isinstance(run.parts.module, RLModule)
    learner: LearnerState = run.state.learner
    given, seeds = (policy.state.params, policy.state.obs_stats), run.config.num_seeds
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


def _load(module: RLModule, path: Path) -> Policy:
    """The policy of a run directory, for the environment and agent of `module`."""
    settings = read_settings(path)
    try:
        return load_policy(path, env=module.env, agent=module.agent)
    except CheckpointError as error:
        told = f"cannot start from the policy in {os.fspath(path)} ({_named(settings)})"
        first = str(error).partition(" does not match: ")[2].partition(";")[0]
        if not first:
            cure = str(error).replace(ACCEPT, "pass load_policy(run_dir, accept_differences=True)")
            raise CheckpointError(f"{told}: {cure}") from None
        raise CheckpointError(
            f"{told}, whose network is another one ({first}); train the same algorithm and network"
            " on an environment with the same spaces, or leave out warm_start"
        ) from None


def _named(settings: dict[str, Any]) -> str:
    """What the run with these settings trained, and on which environment."""
    network = settings.get("network")
    sizes = network.get("hidden_sizes") if isinstance(network, dict) else None
    layers = f", hidden_sizes {sizes}" if sizes else ""
    return f"{algorithm_in(settings)} on {env_in(settings)}{layers}"


def _require_state_fits(run: Run, state: PyTree) -> None:
    shape = run.program.state_shape(run.compiler.keys(0))
    if isinstance(run.parts.module, RLModule):
        require(
            isinstance(state, TrainState),
            f"train_state must be a TrainState, got {type(state).__name__}",
            "pass the state of a Trainer, trainer.state",
        )
        if not jax.tree.leaves(state.local.memory):
            shape = without_replay(shape)  # which is filled before training
    _require_fits("train_state", shape, state, "pass one that a Trainer of the same parts made")


def _require_policy_fits(module: RLModule, policy: Policy) -> None:
    own, has_stats = policy_shape(module), policy.state.obs_stats is not None
    require(
        has_stats == (own.obs_stats is not None),
        f"the policy was trained with normalize_observations={has_stats}",
        "set it to the same in the algorithm's config",
    )
    fix = "use the agent and the network that it was trained with"
    _require_fits("the policy", own.params, policy.state.params, fix)


def _require_fits(what: str, wanted: PyTree, given: PyTree, fix: str) -> None:
    """Raises `ConfigError` unless `given` has the structure, shapes and dtypes of `wanted`."""
    changes = type_changes(wanted, given)
    more = f" and {len(changes) - 3} more" if len(changes) > 3 else ""
    require(not changes, f"{what} does not fit: {', '.join(changes[:3])}{more}", fix)
