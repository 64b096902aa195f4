"""Which tricks of this folder are on: `RLKIT_CPU_TUNING` (`tuning_switch.Switch`)."""

from typing import Literal, get_args

from rlkit.tuning_switch import Switch

VARIABLE = "RLKIT_CPU_TUNING"
Trick = Literal[
    "threefry",
    "matmul",
    "conditional-update",
    "packing",
    "compiler-options",
    "parallel-seeds",
    "inline-dispatch",
    "garbage-collector",
]
TRICKS: tuple[Trick, ...] = get_args(Trick)
SWITCH = Switch(VARIABLE, "cpu", TRICKS)


def is_on(trick: Trick) -> bool:
    """See `Switch`."""
    return SWITCH.is_on(trick)


def may_be_on(trick: Trick) -> bool:
    """See `Switch`."""
    return SWITCH.may_be_on(trick)


def is_wanted(trick: Trick) -> bool:
    """See `Switch`."""
    return SWITCH.is_wanted(trick)
