"""Checks of a single `gymnasium.Env`: Gymnasium's own checker, and what it does not cover."""

import contextlib
import inspect
import re
import warnings
from collections.abc import Iterator
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import CloudpickleWrapper
from gymnasium.wrappers import NormalizeObservation, NormalizeReward, PassiveEnvChecker

from rlkit.action_masks import has_mask
from rlkit.envs.checking.compiled_env import Tell
from rlkit.envs.checking.episode_findings import counting_on, fixed_length, only_length
from rlkit.envs.checking.gymnasium_checker import gymnasium_findings
from rlkit.envs.checking.gymnasium_rollout import EnvRollout, exception_finding
from rlkit.envs.checking.gymnasium_seeding import (
    SEEDING,
    UNREPEATABLE,
    preserve_generators,
    seeding_findings,
)
from rlkit.envs.checking.gymnasium_state import state_findings
from rlkit.envs.checking.integer_codes import code_findings
from rlkit.envs.host.gymnasium_build import check_spec, time_limit
from rlkit.envs.jittable.contract import (
    Finding,
    check_spaces,
    finding_of,
    observation_findings,
)
from rlkit.envs.non_finite import NonFinite, chosen
from rlkit.errors import RlkitError
from rlkit.spaces import leaf_tree

EXTRA_SECONDS = 2.0  # seconds that one part of the check may take beyond the requested steps
REPEATED_STEPS = 100  # steps of the episodes that are repeated with the same seed
SLOW_STEP = 1e-3  # seconds per step above which worker processes pay off
LARGE_VALUE = 10.0  # observations beyond this slow down learning

LIMIT = (
    "pass max_episode_steps=... to make_env (or --env-arguments '{\"max_episode_steps\": 1000}')"
)


def host_findings(
    env: gymnasium.Env,
    name: str,
    num_steps: int,
    seed: int,
    tell: Tell,
    *,
    pickled: object = None,
    non_finite: NonFinite | None = None,
) -> tuple[list[Finding], dict[str, float]]:
    """Returns (findings, measurements) of one environment, and closes it.

    `pickled` is what worker processes would receive (`None`: its class); `non_finite` is the
    setting of the adapter (`None`: the environment's own).
    """
    setting = chosen(non_finite, env.unwrapped)
    _silence_passive_checker(env)
    with (
        preserve_generators(),
        _preserved_averaging(env),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        recipe = type(env.unwrapped) if pickled is None else pickled
        findings, measured = _findings(env, name, num_steps, seed, tell, recipe, setting)
        findings += _close_findings(env, name)
    return findings + list(_warning_findings(name, caught)), measured


def _findings(
    env: gymnasium.Env,
    name: str,
    num_steps: int,
    seed: int,
    tell: Tell,
    pickled: object,
    non_finite: NonFinite,
) -> tuple[list[Finding], dict[str, float]]:
    """Each stage runs only if the previous ones found no errors."""
    findings = [
        *_spec_findings(env),
        *space_findings(env, name),
        *_signature_findings(env, name),
    ]
    if any(finding.severity == "error" for finding in findings):
        return findings, {}
    limit = time_limit(env)
    tell("playing random steps")
    rollout = EnvRollout(env, name, non_finite)
    rollout.run(num_steps, limit, seed=seed, seconds=EXTRA_SECONDS)
    findings += rollout.findings.values()
    if rollout.has_errors:
        return findings, _measured(rollout)
    findings += [
        *limit_findings(name, limit, rollout.ends, rollout.longest, len(rollout.seconds)),
        *_speed_findings(name, rollout),
    ]
    if counters := rollout.counters.going_on:
        findings.append(counting_on(name, counters))
    findings += [
        *_statistics_findings(env, name),
        *_reward_findings(env, name, rollout),
        *_action_hints(env, name),
        *_mask_hints(name, rollout),
        *_observation_hints(name, rollout),
        *_pickle_findings(name, pickled),
    ]
    tell("repeating episodes with the same seed")
    try:
        seeding = list(seeding_findings(env, name, min(num_steps, REPEATED_STEPS), seed))
    except Exception as error:
        seeding = [exception_finding(f"repeating {name} with the same seed", error)]
    is_repeatable = not any(finding.why.startswith(UNREPEATABLE) for finding in seeding)
    if is_repeatable:  # else nothing goes on as before
        tell("saving it, and going on")
        try:
            findings += state_findings(env, name, min(num_steps, REPEATED_STEPS), seed)
        except Exception as error:
            findings.append(exception_finding(f"saving {name} and going on", error))
    # Gymnasium's own checker plays actions that masks forbid, which the environment may refuse.
    is_masked = rollout.unseen_masks or has_mask(env.observation_space)
    tell("running Gymnasium's checker")
    theirs = [] if is_masked else list(gymnasium_findings(env, name))
    return [*findings, *_merged(seeding, theirs)], _measured(rollout)


def _merged(ours: list[Finding], theirs: list[Finding]) -> list[Finding]:
    """Drops duplicate findings about seeding; warnings win over infos."""
    about_seed = [finding for finding in theirs if finding.fix == SEEDING]
    if any(finding.severity != "info" for finding in ours):
        return [*ours, *(finding for finding in theirs if finding not in about_seed)]
    return [*(ours if not about_seed else ()), *theirs]


def _spec_findings(env: gymnasium.Env) -> Iterator[Finding]:
    try:
        check_spec(env)
    except RlkitError as error:
        yield finding_of(error)


def space_findings(env: Any, name: str) -> Iterator[Finding]:
    """Spaces that are missing or not supported by agents."""
    try:
        check_spaces(env)
    except RlkitError as error:
        yield finding_of(error)
        return
    yield from observation_findings(name, env.observation_space)


def limit_findings(
    name: str, limit: int | None, ends: list[tuple[int, bool, bool]], longest: int, num_steps: int
) -> Iterator[Finding]:
    """Time limits that are not enforced, not declared, reported as `terminated`, or missing.

    `ends` are (length, terminated, truncated) of the finished episodes; `longest` includes
    unfinished ones.
    """
    both = [
        length
        for length, terminated, truncated in ends
        if terminated and truncated and length != limit
    ]
    if len(both) >= 2 and len(both) == len(ends):
        what = f"{name}.step sets terminated and truncated together at the end of every episode"
        why = (
            "terminated wins: agents would learn that the task ends at the time limit, with no"
            " value after it"
        )
        yield Finding(
            "warning",
            what,
            "set terminated when the task ends, and truncated when a time limit cuts the episode",
            why,
        )
    length = only_length(ends)
    if limit is not None:
        yield from _declared_limit_findings(name, limit, ends, longest)
        if length is not None and length < limit:
            yield fixed_length(name, len(ends), length)
    elif any(truncated for _, _, truncated in ends):
        age = next(length for length, _, truncated in ends if truncated)
        if not both:
            what = (
                f"{name}.step truncated an episode after {age} steps, but no time limit is declared"
            )
            why = "evaluation needs one, or else max_evaluation_steps"
            yield Finding(
                "warning", what, f"pass max_episode_steps={age} if that is the time limit", why
            )
    elif not ends:
        what = f"{name} ended no episode in {num_steps} random steps and declares no time limit"
        yield Finding(
            "warning",
            what,
            LIMIT,
            "evaluation needs one, or else max_evaluation_steps, since it may never finish",
        )
    elif length is not None:
        yield fixed_length(name, len(ends), length)


def _declared_limit_findings(
    name: str, limit: int, ends: list[tuple[int, bool, bool]], longest: int
) -> Iterator[Finding]:
    declared = f"{name} declares a time limit of {limit} steps, but"
    at_limit = [truncated for length, _, truncated in ends if length == limit]
    if longest > limit:
        fix = (
            f"set truncated = steps >= {limit} in step, or wrap it in"
            f" gymnasium.wrappers.TimeLimit(env, {limit})"
        )
        what = f"{declared} step {limit} of an episode sets neither terminated nor truncated"
        yield Finding("error", what, fix, "rlkit plans its evaluation by the declared limit")
    elif len(at_limit) >= 2 and not any(at_limit):
        why = "agents would treat the time limit as the end of the task and learn wrong values"
        fix = f"set terminated only where the task ends, and truncated = steps >= {limit}"
        yield Finding("error", f"{declared} step {limit} sets terminated alone", fix, why)
    early = [
        length
        for length, terminated, truncated in ends
        if truncated and not terminated and length < limit
    ]
    if early:
        what = f"{declared} an episode was truncated after {early[0]} steps"
        yield Finding(
            "warning", what, "make them agree, unless step also truncates for another reason"
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
                else "Gymnasium's wrappers pass it"
            )
            what = f"{name}.reset takes no {missing}"
            yield Finding("error", what, "write def reset(self, *, seed=None, options=None)", why)


def _action_hints(env: gymnasium.Env, name: str) -> Iterator[Finding]:
    for path, space in jax.tree.leaves_with_path(leaf_tree(env.action_space)):
        if isinstance(space, spaces.Box):
            label = f"{name}.action_space{jax.tree_util.keystr(path)}"
            yield from _box_hints(space, label, is_part=bool(path))


def _box_hints(space: spaces.Box, label: str, *, is_part: bool) -> Iterator[Finding]:
    """Advice on a Box of actions, or one that is a part of them: only `actor_critic` takes that."""
    if not space.is_bounded() and not is_part:
        what = f"{label} is not bounded"
        why = "agents with squashed actions (SAC, TD3) and random exploration need bounds"
        yield Finding(
            "warning", what, "declare the bounds, such as spaces.Box(-1.0, 1.0, shape)", why
        )
    elif space.is_bounded() and ((space.low != -1).any() or (space.high != 1).any()):
        low, high = _format_bound(space.low), _format_bound(space.high)
        what = f"{label} ranges from {low} to {high}, not from -1 to 1"
        why = (
            "an untrained policy acts around 0 with a standard deviation of about 1, which fits"
            " [-1, 1]"
        )
        scale = "declare -1 and 1, and scale that part in step"
        fix = scale if is_part else "pass rescale_actions=True to make_env"
        yield Finding("info", what, fix, why)


def _mask_hints(name: str, rollout: EnvRollout) -> Iterator[Finding]:
    if rollout.unseen_masks:
        what = f"{name} says which actions are allowed, but not in its observations"
        why = "with the mask in the observation they choose among allowed actions alone"
        yield Finding("info", what, "pass action_masks=True to make_env", why)


def _observation_hints(name: str, rollout: EnvRollout) -> Iterator[Finding]:
    wide, doubles = [], []
    for path, (space, low, high) in rollout.ranges.items():
        label = f"{name} observation{path}"
        yield from code_findings(label, space, np.min(low, initial=0), np.max(high, initial=0))
        if not isinstance(space, spaces.Box):
            continue
        doubles += [path] if space.dtype == np.float64 else []
        size = float(max(np.abs(low).max(initial=0), np.abs(high).max(initial=0)))
        if np.issubdtype(space.dtype, np.floating) and len(space.shape) < 3 and size > LARGE_VALUE:
            wide.append(f"observation{path} reaches {size:.3g}")
    if wide:
        why = "networks learn best from values around 1"
        yield Finding(
            "info", f"{name}: {', '.join(wide)}", "train with normalize_observations=True", why
        )
    if doubles:
        what = f"{name} returns float64 observations; rlkit casts them to float32"
        yield Finding(
            "info",
            what,
            "no change needed, unless you need more than 7 digits (then scale or subtract an"
            " offset)",
        )


@contextlib.contextmanager
def _preserved_averaging(env: gymnasium.Env) -> Iterator[None]:
    """Afterwards, statistics of wrappers go on or stay as before."""
    layers = [x for x in _layers(env) if isinstance(x, NormalizeObservation | NormalizeReward)]
    before = [layer.update_running_mean for layer in layers]
    try:
        yield
    finally:
        for layer, goes_on in zip(layers, before, strict=True):
            layer.update_running_mean = goes_on


def _statistics_findings(env: gymnasium.Env, name: str) -> Iterator[Finding]:
    """Wrappers that normalize by what they have seen; until the end, their statistics stay."""
    for layer in _layers(env):
        if isinstance(layer, NormalizeObservation | NormalizeReward):
            layer.update_running_mean = False  # else no episode could be repeated
            setting = "rewards" if isinstance(layer, NormalizeReward) else "observations"
            what = f"{name} is wrapped in {type(layer).__name__}, whose statistics are its own"
            why = "each environment has others, so evaluation shows the agent other numbers"
            fix = f"leave it out, and train with normalize_{setting}=True"
            yield Finding("warning", what, fix, why)


def _reward_findings(env: gymnasium.Env, name: str, rollout: EnvRollout) -> Iterator[Finding]:
    """Rewards outside `reward_range`, which some environments still have from old Gym."""
    declared = getattr(env.unwrapped, "reward_range", None)
    if isinstance(declared, (tuple, list)) and len(declared) == 2:
        (low, high), (least, most) = declared, rollout.rewards
        if least < low - 1e-4 or most > high + 1e-4:
            what = (
                f"{name} gives rewards from {least:g} to {most:g}, but its reward_range is {low:g}"
                f" to {high:g}"
            )
            yield Finding(
                "warning", what, "correct reward_range or remove it: Gymnasium no longer has it"
            )


def _speed_findings(name: str, rollout: EnvRollout) -> Iterator[Finding]:
    typical = float(np.median(rollout.seconds))
    if typical > SLOW_STEP:
        what = f"{name} takes {typical * 1e3:.1f} ms per step"
        why = "from about 1 ms per step, worker processes are faster than stepping one by one"
        yield Finding(
            "info",
            what,
            'pass vectorization="async" to make_env, with one environment per CPU core',
            why,
        )


def _pickle_findings(name: str, pickled: Any) -> Iterator[Finding]:
    try:
        CloudpickleWrapper(pickled).__getstate__()
    except Exception as error:
        what = (
            f"{name}: its class cannot be pickled ({type(error).__name__}:"
            f" {str(error).splitlines()[0]})"
        )
        why = 'vectorization="async" sends it to worker processes'
        yield Finding(
            "warning",
            what,
            "define the class in its own module, and open files and locks in __init__",
            why,
        )


def _close_findings(env: gymnasium.Env, name: str) -> list[Finding]:
    for count in ("", " the second time"):
        try:
            env.close()
        except Exception as error:
            failure = exception_finding(f"{name}.close(){count}", error)
            fix = "make close() do nothing when there is nothing left to free"
            return [
                Finding(
                    "warning",
                    failure.what,
                    fix,
                    "runs close their environments at the end and after failures",
                )
            ]
    return []


def _warning_findings(name: str, caught: list[warnings.WarningMessage]) -> Iterator[Finding]:
    """One finding per kind of warning that the environment itself gave, at most three."""
    texts = {re.sub(r"[\d.]+", "#", str(warning.message)): warning for warning in caught}
    for warning in list(texts.values())[:3]:
        text = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(warning.message)).split())
        yield Finding(
            "info",
            f"{name} raised a {warning.category.__name__}: {text}",
            "follow its advice",
        )


def _measured(rollout: EnvRollout) -> dict[str, float]:
    lengths = [length for length, _, _ in rollout.ends]
    measured: dict[str, float] = {"steps": len(rollout.seconds), "episodes": len(lengths)}
    if rollout.seconds:
        measured["microseconds_per_step"] = round(float(np.median(rollout.seconds)) * 1e6, 1)
    if lengths:
        measured["mean_episode_length"] = round(float(np.mean(lengths)), 1)
    return measured


def _format_bound(bound: np.ndarray) -> str:
    return (
        f"{bound.flat[0]:g}"
        if (bound == bound.flat[0]).all()
        else str(np.array2string(bound, precision=3, threshold=8))
    )


def _silence_passive_checker(env: gymnasium.Env) -> None:
    """Turns off the checker of `gymnasium.make`, which raises at the first step; ours says more."""
    for layer in _layers(env):
        if isinstance(layer, PassiveEnvChecker):
            layer.checked_reset = layer.checked_step = layer.checked_render = True


def _layers(env: gymnasium.Env) -> Iterator[gymnasium.Env]:
    """The wrappers from the outside in, then the environment itself."""
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env
    yield env
