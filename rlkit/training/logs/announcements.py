"""What a run announces, in sentences."""

from rlkit.training.config import REPLAY_LIMIT, Plan
from rlkit.training.logs.loggers import human_bytes


def announcement(plan: Plan, outer_iteration: int, env_steps: int, num_seeds: int) -> str:
    """What is about to be trained, in a sentence."""
    left = plan.num_checkpoints - outer_iteration
    if left <= 0:
        return f"this run is finished: {env_steps:,} environment steps; raise total_steps to go on"
    is_new = outer_iteration == 0
    warm_up = (
        f", of them {plan.prefill_steps:,} random ones to warm up"
        if plan.prefill_steps and is_new
        else ""
    )
    each = f" for each of {num_seeds} seeds" if num_seeds > 1 else ""
    start = "" if is_new else f" from step {env_steps:,}"
    return (
        f"training{start} to {env_steps + left * plan.steps_per_checkpoint:,} environment"
        f" steps{each}{warm_up}: {left} outer iterations of {plan.epochs_per_checkpoint} x"
        f" {plan.env_steps_per_iteration:,} steps"
    )


def replay_memory(capacity: int, num_seeds: int, needed: int, available: int | None) -> str:
    """The size of a replay buffer of `capacity` transitions: the bytes `needed` over all seeds, and
    those `available` (None: not known).
    """
    of_seeds = f" of each of {num_seeds} seeds" if num_seeds > 1 else ""
    of_all = f" of the {human_bytes(available)} of memory here" if available else ""
    return f"replay buffer: {capacity:,} transitions{of_seeds}, {human_bytes(needed)}{of_all}"


def replay_left_out(replay_bytes: int, *, is_asked: bool) -> str:
    """Why checkpoints do not hold the replay memory (`is_asked`: a setting says so), and what
    follows from it.
    """
    size, limit = human_bytes(replay_bytes), human_bytes(REPLAY_LIMIT)
    reason = (
        "as save_replay=False says"
        if is_asked
        else f"for its {size} are more than {limit}; save_replay=True saves it too"
    )
    return (
        f"checkpoints leave out the replay buffer, {reason} (a resumed run fills it anew by its"
        " policy)"
    )


def replay_refilled(env_steps: int) -> str:
    """That a replay memory is filled before training goes on, and what follows from it."""
    return (
        f"the replay buffer was not saved: {env_steps:,} steps by the restored policy fill it anew,"
        " on top of total_steps; the run does not equal an uninterrupted one bit for bit"
    )
