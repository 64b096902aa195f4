"""Which tricks of this folder are on: `RLKIT_GPU_TUNING` (`tuning_switch.Switch`)."""

from typing import Literal, get_args

from rlkit.tuning_switch import Switch

VARIABLE = "RLKIT_GPU_TUNING"
Trick = Literal["whole-resets", "unrolled-rollouts", "fused-layers"]
TRICKS: tuple[Trick, ...] = get_args(Trick)
SWITCH = Switch(VARIABLE, "gpu", TRICKS)


def is_on(trick: Trick) -> bool:
    """Whether programs use the trick; False before JAX has chosen its backend (`Switch`)."""
    return SWITCH.is_on_already(trick)
