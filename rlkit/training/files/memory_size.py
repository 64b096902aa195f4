"""The memory that a run needs at least, and whether it fits: checked before anything compiles."""

import dataclasses
import math
from collections.abc import Iterator

import jax

from rlkit import spaces
from rlkit.agents.base import remembers
from rlkit.agents.first_weights import ROWS
from rlkit.algorithms.agent_checks import abstract_key
from rlkit.algorithms.compatibility import observations_of_batch
from rlkit.errors import ConfigError
from rlkit.training.config import Plan
from rlkit.training.core.module import Module, RLModule
from rlkit.training.logs.human_units import human_bytes
from rlkit.types import Key, Params, PyTree

METRICS = 8  # numbers that an iteration reports at least
MEASUREMENTS = 4  # numbers that are kept of each evaluation episode
FLOAT = 4  # bytes


@dataclasses.dataclass(frozen=True)
class Need:
    """What needs memory: its bytes for one seed, in words, and the settings that lower them."""

    bytes: int
    what: str
    cure: str
    is_kept: bool = True  # between the steps of a program; otherwise only seeds at once need it
    is_copied: bool = False  # each of the devices that train a seed has all of it


def check_memory(
    module: Module,
    plan: Plan,
    *,
    num_seeds: int,
    seeds_at_once: int,
    replay_bytes: int,
    available: int | None,
    copies: int = 1,
) -> None:
    """Raises `ConfigError` if the parts of a run cannot fit into `available` bytes together.

    `copies` is the number of devices that train each seed, `available` what all devices have.

    The estimate is a lower bound, from shapes alone: XLA's temporary arrays come on top. The error
    names the largest part and the settings to lower. If `available` is None (unknown), and for a
    module of the user's own, nothing is checked.
    """
    if available is None or not isinstance(module, RLModule):
        return
    needs = list(_needs(module, plan))
    kept = sum(need.bytes * (copies if need.is_copied else 1) for need in needs if need.is_kept)
    passing = sum(need.bytes for need in needs if not need.is_kept)
    total = num_seeds * kept + seeds_at_once * passing + replay_bytes
    if total <= available:
        return
    largest = max(needs, key=lambda need: need.bytes)
    of_each = f" for each of {num_seeds:,} seeds" if num_seeds > 1 else ""
    fitting = available // (kept + passing + replay_bytes // num_seeds)
    cure = f"lower num_seeds (--num-seeds {fitting})" if fitting > 0 else largest.cure
    raise ConfigError(
        f"the run needs at least {human_bytes(total)} of memory, and here are"
        f" {human_bytes(available)}: {largest.what} {human_bytes(largest.bytes)}{of_each}; {cure}"
    )


def _needs(module: RLModule, plan: Plan) -> Iterator[Need]:
    env, algorithm = module.env, module.algorithm
    steps, num_envs = algorithm.collector.num_steps, env.num_envs

    def learner(key: Key) -> tuple[Params, PyTree]:
        params = module.agent.init(key)
        return params, algorithm.updater.init(params)

    params, beside = jax.eval_shape(learner, abstract_key())
    count = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))
    networks = _bytes((params, beside))
    lower_widths = "lower hidden_sizes (--hidden-sizes)"
    if 2 * _in_tables(params) > count:
        lower_widths = "lower embedding_size (--embedding-size), or observe fewer values"
    yield Need(
        networks,
        f"networks of {count:,} parameters and their optimiser take",
        lower_widths,
        is_copied=True,
    )
    buffer = algorithm.replay_buffer
    samples = (
        steps * num_envs
        if buffer is None
        else observations_of_batch(buffer, has_memory=remembers(module.agent))
    )
    lower_batch = "num_envs, num_steps" if buffer is None else "batch_size"
    yield Need(
        FLOAT * samples * _outputs(params),
        f"the layers' outputs for {samples:,} samples take",
        f"lower {lower_batch} or hidden_sizes",
        is_kept=False,
    )
    yield Need(_env_bytes(module), f"{num_envs:,} environments take", "lower num_envs (--num-envs)")
    each = 2 * _bytes(spaces.abstract(env.observation_space)) + 2 * FLOAT
    yield Need(
        each * steps * num_envs,
        f"a rollout of {num_envs:,} environments x {steps:,} steps takes",
        "lower num_envs (--num-envs) or num_steps (--num-steps)",
        is_kept=False,
    )
    yield Need(
        FLOAT * METRICS * plan.epochs_per_checkpoint,
        f"the metrics of an outer iteration of {plan.epochs_per_checkpoint:,} iterations take",
        "raise num_checkpoints (--num-checkpoints), or lower total_steps",
        is_kept=False,
    )
    if module.eval_env is not None:
        yield Need(
            FLOAT * MEASUREMENTS * module.evaluation_episodes,
            f"{module.evaluation_episodes:,} evaluation episodes take",
            "lower evaluation_episodes (--evaluation-episodes)",
            is_kept=False,
        )


def _env_bytes(module: RLModule) -> int:
    """Bytes of the environments' states and observations; of simulators, of observations alone."""
    env = module.env
    if not env.is_jittable:
        return _bytes(spaces.abstract(env.observation_space)) * env.num_envs
    return _bytes(jax.eval_shape(env.reset, abstract_key()))


def _outputs(params: PyTree) -> int:
    """How many numbers the layers return for one sample: the columns of their matrices."""
    return sum(leaf.shape[-1] for leaf in jax.tree.leaves(params) if len(leaf.shape) > 1)


def _in_tables(params: PyTree) -> int:
    """How many of the parameters are in the tables of integers."""
    return sum(
        math.prod(leaf.shape)
        for path, leaf in jax.tree.leaves_with_path(params)
        if getattr(path[-1], "key", None) == ROWS
    )


def _bytes(tree: PyTree) -> int:
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
