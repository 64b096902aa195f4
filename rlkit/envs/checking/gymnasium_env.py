"""`check_env` for ONE `gymnasium.Env`: Gymnasium's own checker, and what that one does
not look at.
"""

import inspect
import re
import warnings
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import CloudpickleWrapper
from gymnasium.wrappers import PassiveEnvChecker

from rlkit.envs.checking.gymnasium_passive import gymnasium_findings
from rlkit.envs.checking.gymnasium_rollout import Play, raised
from rlkit.envs.checking.gymnasium_seeding import SEEDING, kept_generators, seeding_findings
from rlkit.envs.host.gymnasium import time_limit
from rlkit.envs.jittable.contract import Finding, check_spaces, finding_of
from rlkit.errors import RlkitError
from rlkit.spaces import Space

BUDGET = 2.0  # seconds that a part of the check may take beyond the steps asked for
COURSE = 100  # steps of the episodes that are played twice
SLOW = 1e-3  # seconds a step from which worker processes pay
BIG = 10.0  # observations beyond this slow a network's learning down

LIMIT = (
    "pass max_episode_steps=... to make_env (or --env-arguments '{\"max_episode_steps\": 1000}')"
)


def host_findings(
    env: gymnasium.Env, name: str, num_steps: int, seed: int, *, sent: Any = None
) -> tuple[list[Finding], dict[str, float]]:
    """(findings, what was measured) of one environment; closes it. `sent` is what worker processes
    get (None: its class).
    """
    _silence_passive_checker(env)
    with kept_generators(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        findings, measured = _findings(
            env, name, num_steps, seed, type(env.unwrapped) if sent is None else sent
        )
        findings += _close_findings(env, name)
    return findings + list(_warning_findings(name, caught)), measured


def _findings(
    env: gymnasium.Env, name: str, num_steps: int, seed: int, sent: Any
) -> tuple[list[Finding], dict[str, float]]:
    """Each stage needs what the one before it found in order."""
    found = [*space_findings(env, name), *_signature_findings(env, name)]
    if any(finding.severity == "error" for finding in found):
        return found, {}
    limit = time_limit(env)
    play = Play(env, name).run(num_steps, limit, seed=seed, seconds=BUDGET)
    found += play.findings.values()
    if play.broken:
        return found, _measured(play)
    found += [
        *limit_findings(name, limit, play.ends, play.longest, len(play.seconds)),
        *_speed_findings(name, play),
    ]
    found += [
        *_reward_findings(env, name, play),
        *_action_hints(env, name),
        *_observation_hints(name, play),
        *_pickle_findings(name, sent),
    ]
    try:
        seeding = list(seeding_findings(env, name, min(num_steps, COURSE), seed))
    except Exception as error:
        seeding = [raised(f"{name}, played once more with the same seed,", error)]
    return [*found, *_merged(seeding, list(gymnasium_findings(env, name)))], _measured(play)


def _merged(ours: list[Finding], theirs: list[Finding]) -> list[Finding]:
    """Without what both say of the seed; an info gives way."""
    about_seed = [finding for finding in theirs if finding.cure == SEEDING]
    if any(finding.severity != "info" for finding in ours):
        return [*ours, *(finding for finding in theirs if finding not in about_seed)]
    return [*(ours if not about_seed else ()), *theirs]


def space_findings(env: Any, name: str) -> Iterator[Finding]:
    """Spaces that are missing or that agents cannot use."""
    try:
        check_spaces(env)
    except RlkitError as error:
        yield finding_of(error)
        return
    for path, space in _leaf_spaces(env.observation_space):
        shape = space.shape or ()
        if (
            isinstance(space, spaces.Box)
            and len(shape) == 3
            and shape[0] in (1, 3, 4)
            and shape[2] not in (1, 2, 3, 4)
        ):
            what = f"{name} observation{path} has shape {shape}: its channels seem to come first"
            why = "convolutions of rlkit read pictures as [height, width, channels]"
            yield Finding(
                "warning", what, "return np.moveaxis(obs, 0, -1), and declare the space so", why
            )


def limit_findings(
    name: str, limit: int | None, ends: list[tuple[int, bool, bool]], longest: int, num_steps: int
) -> Iterator[Finding]:
    """Time limits that are not kept, kept and not declared, told as the end of the task, or absent.

    `ends` are (length, terminated, truncated) of the episodes that ended; `longest` counts the
    unfinished ones too.
    """
    lengths = {length for length, _, _ in ends}
    both = [
        length
        for length, terminated, truncated in ends
        if terminated and truncated and length != limit
    ]
    if len(both) >= 2 and len(both) == len(ends):
        what = f"{name}.step sets terminated and truncated together at the end of every episode"
        why = (
            "terminated wins: a time limit would be learned as the end of the task, with no value"
            " after it"
        )
        yield Finding(
            "warning",
            what,
            "set terminated where the task is over, truncated where a time limit cut it",
            why,
        )
    if limit is not None:
        yield from _declared_limit_findings(name, limit, ends, longest)
    elif any(truncated for _, _, truncated in ends):
        age = next(length for length, _, truncated in ends if truncated)
        if not both:
            what = (
                f"{name}.step truncated an episode after {age} steps, but no time limit is declared"
            )
            why = "rlkit sizes its evaluation by the declared limit"
            yield Finding(
                "warning", what, f"pass max_episode_steps={age} if that is the time limit", why
            )
    elif not ends:
        what = f"{name} ended no episode in {num_steps} random steps and declares no time limit"
        yield Finding(
            "warning", what, LIMIT, "evaluation plays episodes to their end, so it may never end"
        )
    elif len(ends) >= 3 and len(lengths) == 1 and lengths != {1}:
        what = f"{name}: all {len(ends)} episodes ended, terminated, after exactly {longest} steps"
        why = (
            "if that is a time limit, learners take it for the end of the task and learn wrong"
            " values"
        )
        cure = (
            f"set truncated instead of terminated there, or leave it to max_episode_steps={longest}"
        )
        yield Finding("warning", what, cure, why)


def _declared_limit_findings(
    name: str, limit: int, ends: list[tuple[int, bool, bool]], longest: int
) -> Iterator[Finding]:
    declared = f"{name} declares a time limit of {limit} steps, but"
    at_limit = [truncated for length, _, truncated in ends if length == limit]
    if longest > limit:
        cure = (
            f"set truncated = steps >= {limit} in step, or wrap it in"
            f" gymnasium.wrappers.TimeLimit(env, {limit})"
        )
        what = f"{declared} step {limit} of an episode sets neither terminated nor truncated"
        yield Finding("error", what, cure, "evaluation is sized by the declared limit")
    elif len(at_limit) >= 2 and not any(at_limit):
        why = "learners would take the time limit for the end of the task and learn wrong values"
        cure = f"leave terminated to the task, and set truncated = steps >= {limit}"
        yield Finding("error", f"{declared} step {limit} says terminated alone", cure, why)
    early = [
        length
        for length, terminated, truncated in ends
        if truncated and not terminated and length < limit
    ]
    if early:
        what = f"{declared} an episode was truncated after {early[0]} steps"
        yield Finding(
            "warning", what, "make both agree, unless step truncates for another reason too"
        )


def _signature_findings(env: gymnasium.Env, name: str) -> Iterator[Finding]:
    parameters = inspect.signature(env.unwrapped.reset).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for missing in ("seed", "options"):
        if missing not in parameters:
            why = (
                "rlkit seeds every environment through it"
                if missing == "seed"
                else "Gymnasium's wrappers pass it on"
            )
            what = f"{name}.reset takes no {missing}"
            yield Finding("error", what, "write def reset(self, *, seed=None, options=None)", why)


def _action_hints(env: gymnasium.Env, name: str) -> Iterator[Finding]:
    space = env.action_space
    if not isinstance(space, spaces.Box):
        return
    if not space.is_bounded():
        what = f"{name}.action_space is not bounded"
        why = (
            "agents that squash their actions (SAC, TD3) need bounds, and random exploration has no"
            " range"
        )
        yield Finding(
            "warning", what, "declare bounds that matter, such as spaces.Box(-1.0, 1.0, shape)", why
        )
    elif (space.low != -1).any() or (space.high != 1).any():
        what = (
            f"{name}.action_space goes from {_brief(space.low)} to {_brief(space.high)}, not from"
            " -1 to 1"
        )
        why = "a fresh policy acts with a spread of about 1 around 0, which fits [-1, 1]"
        yield Finding("info", what, "pass rescale_actions=True to make_env", why)


def _observation_hints(name: str, play: Play) -> Iterator[Finding]:
    wide, doubles = [], []
    for path, (space, low, high) in play.ranges.items():
        if not isinstance(space, spaces.Box):
            continue
        doubles += [path] if space.dtype == np.float64 else []
        size = float(max(np.abs(low).max(initial=0), np.abs(high).max(initial=0)))
        if np.issubdtype(space.dtype, np.floating) and len(space.shape) < 3 and size > BIG:
            wide.append(f"observation{path} reaches {size:.3g}")
    if wide:
        why = "networks learn best from numbers around 1"
        yield Finding(
            "info", f"{name}: {', '.join(wide)}", "train with normalize_observations=True", why
        )
    if doubles:
        what = f"{name} observes float64; rlkit casts to float32"
        yield Finding(
            "info",
            what,
            "nothing to do, unless you need more than 7 digits (then scale or subtract an offset)",
        )


def _reward_findings(env: gymnasium.Env, name: str, play: Play) -> Iterator[Finding]:
    """`reward_range` is of old Gym; some environments and wrappers still have it."""
    declared = getattr(env.unwrapped, "reward_range", None)
    if isinstance(declared, (tuple, list)) and len(declared) == 2:
        (low, high), (least, most) = declared, play.rewards
        if least < low - 1e-4 or most > high + 1e-4:
            what = (
                f"{name} gives rewards from {least:g} to {most:g}, but its reward_range is {low:g}"
                f" to {high:g}"
            )
            yield Finding("warning", what, "correct reward_range, or remove it: Gymnasium has none")


def _speed_findings(name: str, play: Play) -> Iterator[Finding]:
    typical = float(np.median(play.seconds))
    if typical > SLOW:
        what = f"{name} takes {typical * 1e3:.1f} ms a step"
        why = (
            "from about 1 ms a step, stepping in worker processes is faster than one after the"
            " other"
        )
        yield Finding(
            "info",
            what,
            'pass vectorization="async" to make_env, with one environment for each CPU core',
            why,
        )


def _pickle_findings(name: str, sent: Any) -> Iterator[Finding]:
    try:
        CloudpickleWrapper(sent).__getstate__()
    except Exception as error:
        what = (
            f"{name}: its class cannot be pickled ({type(error).__name__}:"
            f" {str(error).splitlines()[0]})"
        )
        why = 'vectorization="async" sends it to worker processes'
        yield Finding(
            "warning",
            what,
            "put the class into a module of its own, and open files and locks in __init__",
            why,
        )


def _close_findings(env: gymnasium.Env, name: str) -> list[Finding]:
    for count in ("", " the second time"):
        try:
            env.close()
        except Exception as error:
            found = raised(f"{name}.close(){count}", error)
            cure = "let close() do nothing where there is nothing left to free"
            return [
                Finding(
                    "warning",
                    found.what,
                    cure,
                    "runs close their environments at the end and after failures",
                )
            ]
    return []


def _warning_findings(name: str, caught: list[warnings.WarningMessage]) -> Iterator[Finding]:
    """One finding for each kind of warning that the environment itself gave, three at most."""
    texts = {re.sub(r"[\d.]+", "#", str(warning.message)): warning for warning in caught}
    for warning in list(texts.values())[:3]:
        text = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(warning.message)).split())
        yield Finding(
            "info", f"{name} gives a {warning.category.__name__}: {text}", "see what it asks for"
        )


def _measured(play: Play) -> dict[str, float]:
    lengths = [length for length, _, _ in play.ends]
    found: dict[str, float] = {"steps": len(play.seconds), "episodes": len(lengths)}
    if play.seconds:
        found["microseconds_per_step"] = round(float(np.median(play.seconds)) * 1e6, 1)
    if lengths:
        found["mean_episode_length"] = round(float(np.mean(lengths)), 1)
    return found


def _leaf_spaces(space: Space, path: str = "") -> Iterator[tuple[str, Space]]:
    if isinstance(space, spaces.Dict):
        for name, part in space.spaces.items():
            yield from _leaf_spaces(part, f"{path}[{name!r}]")
    elif isinstance(space, spaces.Tuple):
        for index, part in enumerate(space.spaces):
            yield from _leaf_spaces(part, f"{path}[{index}]")
    else:
        yield path, space


def _brief(bound: np.ndarray) -> str:
    return (
        f"{bound.flat[0]:g}"
        if (bound == bound.flat[0]).all()
        else str(np.array2string(bound, precision=3, threshold=8))
    )


def _silence_passive_checker(env: gymnasium.Env) -> None:
    """Gymnasium wraps what `gymnasium.make` makes in a checker that raises at the first step; ours
    tell more.
    """
    for layer in _layers(env):
        if isinstance(layer, PassiveEnvChecker):
            layer.checked_reset = layer.checked_step = layer.checked_render = True


def _layers(env: gymnasium.Env) -> Iterator[gymnasium.Env]:
    """The wrappers from the outside in, then the environment."""
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env
    yield env
