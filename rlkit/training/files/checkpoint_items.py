"""A train state as the items of a checkpoint, with or without its replay memory."""

import jax

from rlkit.training.config import REPLAY_LIMIT
from rlkit.types import PyTree, TrainState


def to_items(state: PyTree, environments: PyTree = None) -> dict[str, PyTree]:
    """A train state as checkpoint items, with the bytes of environments on the host, if any.

    A policy can then be read without the environments and the replay memory.
    """
    hosted = {} if environments is None else {"environments": environments}
    if isinstance(state, TrainState):
        learner, local = state.learner, state.local
        return {"policy": learner.policy, "learner": learner, "local": local} | hosted
    return {"state": state} | hosted


def without_replay(state: TrainState) -> TrainState:
    """The state without its replay memory, as in checkpoints that leave it out."""
    return state.replace(local=state.local.replace(memory=()))


def from_items(items: dict[str, PyTree], shape: PyTree) -> PyTree:
    """The inverse of `to_items`, for a state like `shape`."""
    if isinstance(shape, TrainState):
        return TrainState(learner=items["learner"], local=items["local"])
    return items["state"]


def leaves_out_replay(save_replay: bool | None, replay_bytes: int) -> bool:
    """Whether checkpoints leave out the replay memory.

    It takes `replay_bytes` over all seeds (0: there is none). `save_replay` is the setting of that
    name; None leaves out a large memory.
    """
    if replay_bytes == 0:
        return False
    return replay_bytes > REPLAY_LIMIT if save_replay is None else not save_replay


def lacks_replay(state: PyTree, replay_bytes: int) -> bool:
    """Whether the state lacks the replay memory that its algorithm needs."""
    return replay_bytes > 0 and not jax.tree.leaves(state.local.memory)
