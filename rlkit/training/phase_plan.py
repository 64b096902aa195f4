"""How long the phases of a curriculum last, in whole outer iterations."""

import dataclasses
import itertools
import math
from collections.abc import Sequence

from rlkit.errors import require
from rlkit.training.config import DEFAULT_CHECKPOINTS, PhasePlan, Plan, TrainerConfig
from rlkit.training.curriculum import Curriculum


def plan_phases(
    curriculum: Curriculum,
    config: TrainerConfig,
    *,
    env_steps_per_iteration: Sequence[int],
    prefill_steps: int,
) -> Plan:
    """The plan of a run with a curriculum; `env_steps_per_iteration` are those of its phases.

    `config` sets how many outer iterations the run has, or how many iterations each of them. Phases
    whose iterations have the same size also have outer iterations of the same size: one program.

    Raises `ConfigError` if the lengths contradict each other.
    """
    steps = steps_of_phases(curriculum, config, prefill_steps)
    wanted = [
        max(1, math.ceil(count / size))
        for count, size in zip(steps, env_steps_per_iteration, strict=True)
    ]
    require(
        config.num_checkpoints is None or config.epochs_per_checkpoint is None,
        "num_checkpoints and epochs_per_checkpoint are redundant: the phases set the length",
        "leave out one of the two",
    )
    each = math.ceil(sum(steps) / (config.num_checkpoints or DEFAULT_CHECKPOINTS))
    epochs = {
        size: config.epochs_per_checkpoint
        or _epochs(
            [n for n, s in zip(wanted, env_steps_per_iteration, strict=True) if s == size],
            math.ceil(each / size),
        )
        for size in env_steps_per_iteration
    }
    phases = tuple(
        PhasePlan(
            num_checkpoints=math.ceil(iterations / epochs[size]),
            epochs_per_checkpoint=epochs[size],
            env_steps_per_iteration=size,
        )
        for iterations, size in zip(wanted, env_steps_per_iteration, strict=True)
    )
    return plan_of_phases(phases, prefill_steps)


def plan_of_phases(phases: Sequence[PhasePlan], prefill_steps: int, current: int = 0) -> Plan:
    """The plan of a run with these phases that is in phase `current`."""
    return Plan(
        num_checkpoints=sum(phase.num_checkpoints for phase in phases),
        epochs_per_checkpoint=phases[current].epochs_per_checkpoint,
        env_steps_per_iteration=phases[current].env_steps_per_iteration,
        prefill_steps=prefill_steps,
        phases=tuple(phases),
    )


def starts(plan: Plan) -> list[int]:
    """After how many outer iterations each phase begins."""
    return [0, *itertools.accumulate(phase.num_checkpoints for phase in plan.phases[:-1])]


def phase_at(plan: Plan, iteration: int) -> int:
    """The index of the phase that trained outer iteration `iteration` (from 1); 0 before any."""
    return max(index for index, start in enumerate(starts(plan)) if start < max(iteration, 1))


def advanced(plan: Plan, iteration: int, *, total_steps: int) -> Plan:
    """The plan if the current phase ends after `iteration` outer iterations, earlier than planned.

    The last phase takes what is left of `total_steps` environment steps, prefill included.
    """
    current = phase_at(plan, iteration)
    done = iteration - starts(plan)[current]
    phases = list(plan.phases)
    phases[current] = dataclasses.replace(phases[current], num_checkpoints=done)
    shorter = plan_of_phases(phases, plan.prefill_steps, current)
    return extended(shorter, total_steps, current)


def extended(plan: Plan, total_steps: int, current: int) -> Plan:
    """The plan, in phase `current`, with a last phase that ends at `total_steps` at the earliest.

    It does not become shorter.
    """
    last = plan.phases[-1]
    missing = max(0, math.ceil((total_steps - plan.total_steps) / last.steps_per_checkpoint))
    last = dataclasses.replace(last, num_checkpoints=last.num_checkpoints + missing)
    return plan_of_phases((*plan.phases[:-1], last), plan.prefill_steps, current)


def steps_of_phases(
    curriculum: Curriculum, config: TrainerConfig, prefill_steps: int = 0
) -> list[int]:
    """Environment steps that the phases ask for, without the prefill.

    Raises `ConfigError` if the lengths contradict each other.
    """
    phases, total = curriculum.phases, config.total_steps
    asked = [phase.steps or 0 for phase in phases]
    if total is not None:
        before = sum(asked[:-1])
        require(
            total > before,
            f"total_steps={total}, but the phases before the last one take {before} steps",
            f"set it to more than {before}, or leave it out if the last phase has steps",
        )
        asked[-1] = total - before
    require(
        asked[-1] > 0,
        f"{curriculum.title(len(phases) - 1)} has no steps, and there are no total_steps",
        "set one of the two",
    )
    require(
        asked[0] > prefill_steps,
        f"{curriculum.title(0)} of {asked[0]} steps does not exceed the {prefill_steps} random"
        " steps before learning",
        "raise its steps, or lower prefill_steps (or warmup_steps, if you set it)",
    )
    return [asked[0] - prefill_steps, *asked[1:]]


def _epochs(iterations: Sequence[int], most: int) -> int:
    """Iterations of an outer iteration, `most` or fewer, for phases of so many `iterations`.

    Of the sizes down to a half, that by which the phases are rounded up least; of those the
    largest. A single phase is rounded as a run without a curriculum.
    """
    most = min(most, min(iterations))
    if len(iterations) == 1:
        return most
    sizes = range(math.ceil(most / 2), most + 1)
    return min(sizes, key=lambda size: (sum(-count % size for count in iterations), -size))
