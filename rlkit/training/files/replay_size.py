"""The memory that a replay buffer needs, and whether it fits: checked before anything compiles."""

import bisect
import functools
import os
import pathlib

import jax

from rlkit import spaces
from rlkit.agents.base import remembers
from rlkit.algorithms.base import Algorithm
from rlkit.algorithms.compatibility import least_capacity
from rlkit.algorithms.initial_state import InitKeys
from rlkit.errors import ConfigError
from rlkit.training.compile.devices import Devices
from rlkit.training.core.module import Module, RLModule
from rlkit.training.logs.human_units import human_bytes
from rlkit.types import PolicyState

SHARE = 0.9  # of the available memory: networks, environments and batches need the rest
CGROUPS, OWN_CGROUPS = pathlib.Path("/sys/fs/cgroup"), pathlib.Path("/proc/self/cgroup")


def replay_bytes(module: Module, num_seeds: int) -> int:
    """Bytes of the replay memory of all seeds, 0 for a module without one; allocates nothing."""
    if not isinstance(module, RLModule) or module.algorithm.replay_buffer is None:
        return 0
    return num_seeds * _memory_bytes(module.algorithm, module, policy_shape(module))


def check_replay(module: Module, num_seeds: int, available: int | None) -> int:
    """`replay_bytes`, which must fit into `available` bytes with some room to spare.

    If `available` is None (unknown), nothing is checked.

    Raises `ConfigError`, which names the largest capacity that fits, if they do not fit.
    """
    need = replay_bytes(module, num_seeds)
    if available is None or need <= SHARE * available:
        return need
    assert isinstance(module, RLModule) and module.algorithm.replay_buffer is not None
    capacity, policy = module.algorithm.replay_buffer.capacity, policy_shape(module)

    def bytes_with(capacity: int) -> int:
        algorithm = module.algorithm.override(warmup_steps=None, replay_buffer_capacity=capacity)
        return num_seeds * _memory_bytes(algorithm, module, policy)

    largest = bisect.bisect_right(range(1, capacity), SHARE * available, key=bytes_with)
    are_images = any(spaces.is_image(leaf) for leaf in spaces.leaves(module.env.observation_space))
    twice = ", each with its images twice, as `obs` and as `next_obs`" if are_images else ""
    seeds, fewer = (
        (f" for each of {num_seeds} seeds", ", or train fewer seeds") if num_seeds > 1 else ("", "")
    )
    cure = f"lower replay_buffer_capacity to {largest} (--replay-buffer-capacity {largest}){fewer}"
    least = least_capacity(module.algorithm, module.env, has_memory=remembers(module.agent))
    if largest < least:
        cure = (
            f"not even {least} transitions, the least that works here, fit: "
            f"use a smaller batch_size, fewer or smaller environments{fewer}"
        )
    raise ConfigError(
        f"the replay buffer needs {human_bytes(need)} ({capacity:,} transitions{seeds}{twice}), "
        f"more than {SHARE:.0%} of the {human_bytes(available)} of memory here; " + cure
    )


def policy_shape(module: RLModule) -> PolicyState:
    """Shapes and dtypes of the policy that a run of one seed starts with."""
    env, agent, algorithm = module.env, module.agent, module.algorithm

    def policy() -> PolicyState:
        obs = spaces.example(env.observation_space, (env.num_envs,))
        keys = InitKeys.split(jax.random.key(0))
        return algorithm.start(
            agent, env, keys, obs, (), total_steps=module.total_steps
        ).learner.policy

    return jax.eval_shape(policy)


def device_memory(devices: Devices | None = None) -> int | None:
    """Bytes of memory of the devices, or None if unknown; None: of JAX's default device.

    On a CPU, the bytes of the machine's memory that this process may use.
    """
    used = jax.local_devices()[:1] if devices is None else devices.all
    if used[0].platform == "cpu":
        return _host_memory()
    limits = [(device.memory_stats() or {}).get("bytes_limit") for device in used]
    known = [limit for limit in limits if limit is not None]
    return sum(known) if len(known) == len(limits) else None


def memory_of_several(count: int) -> int | None:
    """Bytes of memory of so many devices like JAX's default one, or None; they need not be here.

    Several that divide a CPU share its memory.
    """
    one, is_cpu = device_memory(), jax.local_devices()[0].platform == "cpu"
    return one if one is None or is_cpu else count * one


def cgroup_limit(groups: pathlib.Path = CGROUPS, own: pathlib.Path = OWN_CGROUPS) -> int | None:
    """The smallest memory limit of this process's control groups, in bytes, or None.

    Containers have such a limit.

    `own` lists the groups as `number:controllers:path`; version 2 names no controllers. A group's
    limit also applies to the groups inside it.
    """
    # A container may see its own group at the top, instead of under the listed path.
    files = {groups / "memory.max", groups / "memory" / "memory.limit_in_bytes"}
    for line in _read(own).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top, name = (
            (groups / "memory", "memory.limit_in_bytes") if controllers else (groups, "memory.max")
        )
        group = top / path.lstrip("/")
        files |= {folder / name for folder in (group, *group.parents) if folder.is_relative_to(top)}
    limits = [text.strip() for text in map(_read, files)]
    # Version 2 writes "max" for no limit.
    return min((int(text) for text in limits if text.isdecimal()), default=None)


def _memory_bytes(algorithm: Algorithm, module: RLModule, policy: PolicyState) -> int:
    memory = jax.eval_shape(
        functools.partial(algorithm.empty_memory, module.agent, module.env), policy
    )
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(memory))


def _host_memory() -> int | None:
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not every system knows these names
        return cgroup_limit()
    limit = cgroup_limit()
    return physical if limit is None else min(physical, limit)


def _read(path: pathlib.Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
