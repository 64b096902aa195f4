"""Whether a phase of a curriculum can go on with the learner of the phase before."""

from typing import Any

import jax

from rlkit import spaces
from rlkit.agents.base import remembers
from rlkit.algorithms.agent_checks import abstract_key
from rlkit.algorithms.compatibility import rows_of_sample
from rlkit.algorithms.initial_state import InitKeys
from rlkit.algorithms.replay_buffer import Reprioritizes, Resizes
from rlkit.envs.base import EnvAdapter
from rlkit.errors import require
from rlkit.protocols import follows
from rlkit.training.core.module import RLModule, type_changes
from rlkit.types import Key, LearnerState


def check_phase(first: RLModule, module: RLModule) -> None:
    """Raises `ConfigError` unless `module` can train what the `first` phase trained.

    Computes nothing.
    """
    _require_same_learner(first, module)
    _require_resizable(first, module)


def check_stored(module: RLModule, stored: int) -> None:
    """Raises `ConfigError` if a sequence takes more steps than the replay memory holds by the first
    gradient step of a later phase, which begins with `stored` transitions.
    """
    buffer, num_envs = module.algorithm.replay_buffer, module.env.num_envs
    if buffer is None or not remembers(module.agent):
        return
    rows = rows_of_sample(buffer, has_memory=True)
    filled = stored // num_envs + module.algorithm.collector.num_steps
    require(
        rows <= filled,
        f"a sequence takes {rows} steps, more than the {filled} of each environment that the replay"
        " buffer holds at its first gradient step",
        f"let the phases before take {(rows - filled) * num_envs} more steps,"
        " or lower sequence_length or burn_in",
    )


def check_env_of_phase(run: EnvAdapter, env: EnvAdapter) -> None:
    """Raises `ConfigError` unless `env` is of the kind and has the spaces of that of the run."""
    for name in ("observation_space", "action_space"):
        wanted, given = getattr(run, name), getattr(env, name)
        require(
            wanted == given,
            f"its environments have the {name} {given}, those of the run {wanted}",
            "use environments with the same spaces, or wrap them",
        )
    require(
        run.is_jittable == env.is_jittable,
        "its environments are stepped "
        + (
            "in the program, those of the run on the host"
            if env.is_jittable
            else "on the host, those of the run in the program"
        ),
        "use environments of one kind in all phases",
    )


def _require_same_learner(first: RLModule, module: RLModule) -> None:
    """Raises `ConfigError` if networks, optimiser or statistics have another form than at first."""
    if first.algorithm is module.algorithm and first.agent is module.agent:
        return

    def learner(module: RLModule) -> Any:
        env, keys_of = module.env, InitKeys.split

        def start(key: Key) -> LearnerState:
            obs = spaces.example(env.observation_space, (env.num_envs,))
            start = module.algorithm.start
            return start(module.agent, env, keys_of(key), obs, (), total_steps=1.0).learner

        return jax.eval_shape(start, abstract_key())

    changes = type_changes(learner(first), learner(module))
    require(
        not changes,
        f"it would change the state of the learner ({'; '.join(changes[:2])})",
        "keep the optimiser, normalize_observations and normalize_rewards in all phases",
    )


def _require_resizable(first: RLModule, module: RLModule) -> None:
    """Raises `ConfigError` if the replay memory cannot be kept."""
    ours, theirs = module.algorithm.replay_buffer, first.algorithm.replay_buffer
    require(
        (ours is None) == (theirs is None),
        "its algorithm and that of the first phase are not both off-policy",
        "train one algorithm in all phases",
    )
    if ours is None or theirs is None:
        return
    require(
        ours.capacity == theirs.capacity and type(ours) is type(theirs),
        "it would change the replay buffer, which all phases share",
        "keep capacity and priority_exponent in all phases",
    )
    if remembers(module.agent) and follows(ours, Reprioritizes):
        rows, before = (rows_of_sample(buffer, has_memory=True) for buffer in (ours, theirs))
        require(
            rows == before,
            f"its sequences take {rows} steps, those of the first phase {before}; their priorities"
            " say where a sequence of that length may begin",
            "keep sequence_length, burn_in and n_step in all phases",
        )
    require(
        follows(ours, Resizes) or module.env.num_envs == first.env.num_envs,
        f"{type(ours).__name__} has no method resized, for another number of environments",
        "add one (see rlkit.algorithms.replay_buffer.Resizes), or keep num_envs",
    )
    require(
        not remembers(module.agent) or module.env.num_envs == first.env.num_envs,
        "another number of environments would mix the sequences of the replay memory, which the"
        " agent needs for its own memory",
        "keep num_envs, or use an agent without memory",
    )
