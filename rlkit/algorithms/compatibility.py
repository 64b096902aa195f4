"""Checks at the start of a run: whether algorithm, agent and environment fit together."""

import jax
import jax.numpy as jnp
from gymnasium.spaces import Box

from rlkit import spaces
from rlkit.agents.base import Agent, remembers
from rlkit.algorithms.agent_checks import abstract_actions, abstract_key, check_memory
from rlkit.algorithms.base import Algorithm
from rlkit.algorithms.initial_state import InitKeys
from rlkit.algorithms.replay_buffer import ReplayBuffer, ReplaySettings, Reprioritizes, rows_for
from rlkit.envs.base import EnvAdapter
from rlkit.errors import SpaceError, require
from rlkit.protocols import follows
from rlkit.spaces import Space
from rlkit.types import Key, LearnerState, Memory, Metrics, PyTree


def check_compatible(algorithm: Algorithm, agent: Agent, env: EnvAdapter) -> None:
    """Raises one clear error, before anything compiles, if the three parts do not fit together."""
    spaces.check_action_space(env.action_space)
    spaces.check_observation_space(env.observation_space)
    if hasattr(agent, "initial_carry"):
        check_memory(algorithm, agent)
    if algorithm.check is not None:
        algorithm.check(agent, env)
    if algorithm.replay_buffer is not None:
        has_memory = remembers(agent)
        _check_replay(algorithm, algorithm.replay_buffer, env, has_memory=has_memory)
    wanted = spaces.abstract(env.action_space, (env.num_envs,))
    try:
        action = abstract_actions(agent, env)
    except Exception as error:
        raise SpaceError(
            f"the agent fails on observations of {env.observation_space}: {error}; build it with"
            " the spaces of this environment"
        ) from error
    if not _same_kind(action, wanted):
        raise SpaceError(
            f"the agent's actions are {_described(action)}, the environments need"
            f" {_described(wanted)}; build the agent with the action space of this environment"
        )
    known = getattr(agent, "action_space", None)
    if known is not None and _choices(known) != _choices(env.action_space):
        raise SpaceError(
            f"the agent chooses from {known}, the environments from {env.action_space}; "
            "build the agent with the action space of this environment"
        )
    # A share of an algorithm reduces over devices, which are not there yet; the whole was checked.
    if follows(algorithm.replay_buffer, Reprioritizes) and algorithm.axis_name is None:
        _check_errors(algorithm, agent, env)


def _check_errors(algorithm: Algorithm, agent: Agent, env: EnvAdapter) -> None:
    """Traces one update, to raise early the errors that prioritised replay would raise in it.

    Its losses and batches may be the user's.
    """

    def update(key: Key) -> tuple[LearnerState, Memory, Metrics]:
        keys, obs = InitKeys.split(key), spaces.example(env.observation_space, (env.num_envs,))
        ts = algorithm.start(agent, env, keys, obs, (), total_steps=1.0)
        rollout = algorithm.example_rollout(agent, env, ts.learner.policy)
        return algorithm.update(agent, ts.learner, ts.local.memory, rollout, keys.prefill)

    jax.eval_shape(update, abstract_key())


def least_capacity(algorithm: Algorithm, env: EnvAdapter, *, has_memory: bool) -> int:
    """The smallest replay buffer capacity that `check_compatible` accepts.

    It holds a rollout, a batch, the rows of a sample and the random steps before learning.
    """
    assert algorithm.replay_buffer is not None
    whole_rows = (rows_of_sample(algorithm.replay_buffer, has_memory=has_memory) - 1) * env.num_envs
    return max(
        algorithm.env_steps_per_iteration(env),
        algorithm.replay_buffer.batch_size,
        algorithm.collector.prefill_steps,
        whole_rows + 1,  # rounded up
    )


def observations_of_batch(buffer: ReplayBuffer, *, has_memory: bool) -> int:
    """How many observations the networks see in an update: with memory, those of sequences."""
    if not has_memory:
        return buffer.batch_size
    settings = _with_sequences(buffer)
    return settings.num_sequences * (settings.sequences.num_rows + 1)


def rows_of_sample(buffer: ReplayBuffer, *, has_memory: bool) -> int:
    """The rows that a sample sums over or, with memory, the steps of a sequence."""
    return _with_sequences(buffer).sequences.num_rows if has_memory else buffer.n_step


def _with_sequences(buffer: ReplayBuffer) -> ReplaySettings:
    require(
        isinstance(buffer, ReplaySettings),
        f"{type(buffer).__name__} has no sequences to learn from with memory",
        "use UniformReplay or PrioritizedReplay, or an agent without memory",
    )
    assert isinstance(buffer, ReplaySettings)
    return buffer


def _check_replay(
    algorithm: Algorithm, buffer: ReplayBuffer, env: EnvAdapter, *, has_memory: bool
) -> None:
    """Raises `ConfigError` unless the replay buffer is large enough and filled in time.

    It must hold a rollout, and a batch by the first gradient step.
    """
    each, capacity = algorithm.env_steps_per_iteration(env), buffer.capacity
    require(
        not isinstance(buffer, ReplaySettings) or not jax.config.jax_enable_x64,  # pyright: ignore[reportAttributeAccessIssue]
        f"{type(buffer).__name__} holds numbers of 32 bits, and JAX was told to compute with 64"
        " (JAX_ENABLE_X64)",
        "leave that out, or train with an algorithm without replay, such as ppo or pqn",
    )
    require(
        capacity >= max(each, buffer.batch_size),
        f"the replay buffer has a capacity of {buffer.capacity}, less than a rollout ({each}) or a"
        f" batch ({buffer.batch_size})",
        "raise it",
    )
    needed, rows = rows_of_sample(buffer, has_memory=has_memory), rows_for(capacity, env.num_envs)
    what, settings = _sample(buffer, has_memory=has_memory)
    require(
        rows * env.num_envs < 2**31,  # indices of transitions are int32
        f"the replay buffer has a capacity of {capacity}, and would hold {rows * env.num_envs}"
        f" transitions of {env.num_envs} environments, 2**31 or more",
        "lower it",
    )
    require(
        needed <= rows,
        f"{what} than the {rows} that the replay buffer holds for each environment",
        f"raise its capacity to {needed * env.num_envs} or more, or lower {settings}",
    )
    prefill = algorithm.collector.prefill_steps
    require(
        prefill <= buffer.capacity,
        f"the replay buffer has a capacity of {buffer.capacity}, less than the {prefill} random"
        " steps before learning: the first of them would be lost",
        f"raise it to {prefill} or more, or lower prefill_steps (in the TrainerConfig:"
        " warmup_steps)",
    )
    filled = (algorithm.prefill_collects(env) + 1) * each
    least = max(buffer.batch_size, needed * env.num_envs if has_memory else 0)
    raise_it = f"raise prefill_steps (in the TrainerConfig: warmup_steps) to {least} or more"
    require(
        filled >= buffer.batch_size,
        f"the replay buffer holds {filled} transitions at the first gradient step, less than a"
        f" batch ({buffer.batch_size})",
        raise_it,
    )
    require(
        filled >= least,
        f"{what} than the {filled // env.num_envs} of each environment that the replay buffer"
        " holds at the first gradient step",
        f"{raise_it}, or lower {settings}",
    )


def _sample(buffer: ReplayBuffer, *, has_memory: bool) -> tuple[str, str]:
    """What a sample takes, and the settings that say so, for errors."""
    if not has_memory:
        return f"n_step={buffer.n_step} sums over more steps", "n_step"
    settings, num_rows = _with_sequences(buffer), rows_of_sample(buffer, has_memory=True)
    names = ("burn_in", "sequence_length", "n_step")
    shown = [f"{name} ({getattr(settings, name)})" for name in names]
    return f"a sequence takes {num_rows} steps, more", f"{shown[0]}, {shown[1]} or {shown[2]}"


def _same_kind(action: PyTree, wanted: PyTree) -> bool:
    """Whether actions are structured alike, and their parts shaped alike and both floats or not."""

    def kinds(tree: PyTree) -> list[tuple[tuple[int, ...], bool]]:
        return [(x.shape, jnp.issubdtype(x.dtype, jnp.floating)) for x in jax.tree.leaves(tree)]

    return jax.tree.structure(action) == jax.tree.structure(wanted) and kinds(action) == kinds(
        wanted
    )


def _described(actions: PyTree) -> str:
    """Dtypes and shapes: "int32[8]", or "['jump'] int32[8], ['move'] float32[8, 2]"."""
    return ", ".join(
        f"{jax.tree_util.keystr(path)} {x.dtype}{list(x.shape)}".lstrip()
        for path, x in jax.tree.leaves_with_path(actions)
    )


def _choices(space: Space) -> list[Space]:
    """The parts of an action space from which actions are chosen: all but those of a Box."""
    return [leaf for leaf in spaces.leaves(space) if not isinstance(leaf, Box)]
