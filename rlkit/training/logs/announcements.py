"""The sentences that a run announces."""

from rlkit.training.config import REPLAY_LIMIT, Plan
from rlkit.training.logs.human_units import human_bytes


def announcement(plan: Plan, outer_iteration: int, env_steps: int, num_seeds: int) -> str:
    """A sentence on what is about to be trained."""
    left = plan.num_checkpoints - outer_iteration
    if left <= 0:
        return (
            f"this run is finished: {env_steps:,} environment steps; set a larger total_steps"
            " (--total-steps) to train on"
        )
    is_new = outer_iteration == 0 and env_steps == plan.prefill_steps
    warm_up = (
        f", including {plan.prefill_steps:,} random warm-up steps"
        if plan.prefill_steps and is_new
        else ""
    )
    each = f" for each of {num_seeds} seeds" if num_seeds > 1 else ""
    start = "" if is_new else f" from step {env_steps:,}"
    outer = "1 outer iteration" if left == 1 else f"{left} outer iterations"
    steps = plan.steps_up_to(plan.num_checkpoints) - plan.steps_up_to(outer_iteration)
    told = f"training{start} to {env_steps + steps:,} environment steps{each}{warm_up}: {outer}"
    sizes = {(phase.epochs_per_checkpoint, phase.env_steps_per_iteration) for phase in plan.phases}
    if len(sizes) > 1:
        return told  # `phase_announcement` tells those of each phase
    return f"{told} of {plan.epochs_per_checkpoint} x {plan.env_steps_per_iteration:,} steps"


def replay_memory(capacity: int, num_seeds: int, needed: int, available: int | None) -> str:
    """A sentence on the size of a replay buffer of `capacity` transitions.

    `needed` are the bytes over all seeds, `available` those of the device (None: unknown).
    """
    of_seeds = f" for each of {num_seeds} seeds" if num_seeds > 1 else ""
    of_all = f" of the {human_bytes(available)} of memory here" if available else ""
    return f"replay buffer: {capacity:,} transitions{of_seeds}, {human_bytes(needed)}{of_all}"


def replay_left_out(replay_bytes: int, *, is_asked: bool) -> str:
    """Why checkpoints leave out the replay memory, and what follows from it.

    `is_asked` says whether a setting asks for it.
    """
    size, limit = human_bytes(replay_bytes), human_bytes(REPLAY_LIMIT)
    reason = (
        "because save_replay=False"
        if is_asked
        else f"because its {size} exceed {limit}; save_replay=True saves it"
    )
    return (
        f"checkpoints leave out the replay buffer, {reason} (a resumed run refills it with its"
        " policy)"
    )


def new_episodes(why: str) -> str:
    """That checkpoints do not hold the environments, and what follows from it."""
    return f"environments are not saved: {why} (a resumed run starts new episodes)"


def replay_refilled(env_steps: int) -> str:
    """That the replay memory is refilled before training continues, and what follows."""
    return (
        f"the replay buffer was not saved: {env_steps:,} steps of the restored policy refill it,"
        " on top of total_steps; the run will not match an uninterrupted one bit for bit"
    )


def unused_settings(
    hyperparameters: object, network: object, *, acts_in_box: bool = True
) -> list[str]:
    """The settings that were changed, by a preset perhaps, and that the others make ineffective.

    Both are configs, of an algorithm and its agent, or anything else. `acts_in_box` says whether
    any part of the actions is a Box.
    """
    fixed = getattr(hyperparameters, "temperature", None)
    no_sde = getattr(network, "use_sde", True) is False
    no_priorities = getattr(hyperparameters, "priority_exponent", 1.0) is None
    with_fixed = f"with a fixed temperature ({fixed})"
    candidates = (
        (network, "log_std_init", no_sde, "without gSDE (use_sde=True)"),
        (network, "initial_std", not acts_in_box, "on discrete actions"),
        (hyperparameters, "importance_exponent", no_priorities, "without prioritised replay"),
        (hyperparameters, "target_entropy", fixed is not None, with_fixed),
        (hyperparameters, "target_entropy_ratio", fixed is not None, with_fixed),
        (network, "initial_temperature", fixed is not None, with_fixed),
    )
    told = []
    for config, name, is_unused, why in candidates:
        value = getattr(config, name, None) if is_unused else None
        if isinstance(value, int | float) and value != getattr(type(config), name):
            told.append(f"{name}={value} has no effect {why}")
    return told
