"""What episodes show about both kinds of environments: their lengths, and counters in them."""

from collections.abc import Sequence

from rlkit.envs.jittable.contract import Finding

MANY = 3  # episodes that make a rule


def only_length(ends: Sequence[tuple[int, bool, bool]]) -> int | None:
    """The length of all episodes, if there are many, all terminated, and it is more than a step.

    `ends` are (length, terminated, truncated).
    """
    lengths = {length for length, _, _ in ends}
    is_rule = len(ends) >= MANY and len(lengths) == 1 and lengths != {1}
    return lengths.pop() if is_rule and not any(truncated for *_, truncated in ends) else None


def fixed_length(name: str, count: int, length: int) -> Finding:
    """The warning for what may be a time limit that is reported as the end of the task."""
    what = f"{name}: all {count} episodes terminated after exactly {length} steps"
    why = (
        "if that is a time limit, agents would treat it as the end of the task and learn wrong"
        " values"
    )
    fix = f"set truncated instead of terminated there, or use max_episode_steps={length}"
    return Finding("warning", what, fix, why)


def counting_on(name: str, counters: Sequence[str]) -> Finding:
    """The warning for counters that survive a reset."""
    what = f"{name} counts steps on over the ends of episodes, in {', '.join(counters)}"
    why = "a time limit that such a counter sets off ends all later episodes at once"
    fix = "begin anew in reset what belongs to an episode; a count of all steps is fine"
    return Finding("warning", what, fix, why)
