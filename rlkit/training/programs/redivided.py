"""A train state of D devices as one of another number of them."""

import jax
import jax.numpy as jnp
from jax import Array

from rlkit.algorithms.replay_buffer import Divides, ReplayBuffer
from rlkit.errors import CheckpointError
from rlkit.ops.rows import redivide
from rlkit.protocols import follows
from rlkit.training.compile.devices import host_device
from rlkit.types import LocalState, PyTree, TrainState

OTHER_DEVICES = 0xDE71CE  # folded into the key of the first device, for those of other devices


def redivided(
    ts: TrainState,
    *,
    shape: TrainState,
    devices: tuple[int, int],
    buffer: ReplayBuffer | None,
    has_seeds: bool,
) -> TrainState:
    """A state of D devices in the `shape` that it has on D'; `devices` are (D, D').

    The learner is the same. Environments go on in the middle of their
    episodes, with their transitions in the replay memory. Only the random keys are new ones, made
    from that of the first device. `buffer` is that of the whole run; the memory may be missing.

    Raises `CheckpointError` for a memory of a kind that cannot be divided otherwise.
    """

    def of_seed(local: LocalState) -> LocalState:
        memory = _memory(local.memory, devices, buffer)
        return _leaves(local.replace(memory=()), wanted, devices).replace(memory=memory)

    skipped = 1 if has_seeds else 0
    wanted = jax.tree.map(lambda x: x.shape[skipped:], shape.local.replace(memory=()))
    changed = jax.vmap(of_seed) if has_seeds else of_seed
    return ts.replace(local=changed(jax.device_put(ts.local, host_device())))


def _leaves(local: PyTree, shapes: PyTree, devices: tuple[int, int]) -> PyTree:
    old, new = devices

    def leaf(x: Array, shape: tuple[int, ...]) -> Array:
        if x.shape == shape:  # in the order of the environments, as on the host
            return x
        parts = x if old > 1 else x[None]
        own, wanted = parts.shape[1:], shape[1:] if new > 1 else shape
        at = [axis for axis, sizes in enumerate(zip(own, wanted, strict=True)) if len({*sizes}) > 1]
        if len(at) > 1:
            raise CheckpointError(
                f"a state of shape {list(own)} is of {list(wanted)} on {new} devices: more than one"
                f" axis changes, so it cannot be divided; continue on {old}"
            )
        if at:
            found = redivide(parts, new, axis=at[0])
        elif jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            key = jax.random.fold_in(parts[0], OTHER_DEVICES)
            found = jax.vmap(lambda device: jax.random.fold_in(key, device))(jnp.arange(new))
        else:  # such as parameters that all environments share
            found = jnp.broadcast_to(parts[0], (new, *parts.shape[1:]))
        return found if new > 1 else found[0]

    return jax.tree.map(leaf, local, shapes)


def _memory(memory: PyTree, devices: tuple[int, int], buffer: ReplayBuffer | None) -> PyTree:
    if buffer is None or not jax.tree.leaves(memory):
        return memory
    old, new = devices
    if not follows(buffer, Divides):
        raise CheckpointError(
            f"{type(buffer).__name__} cannot be divided among other devices than before; give it"
            f" redivided(memories, num_devices), see Divides, or continue on {old} devices"
        )
    parts = memory if old > 1 else jax.tree.map(lambda x: x[None], memory)
    found = buffer.redivided(parts, new)
    return found if new > 1 else jax.tree.map(lambda x: x[0], found)
