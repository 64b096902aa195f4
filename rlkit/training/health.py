"""Signs that a run does not learn, or learns what its most likely actions do not show, from metrics
that are on the host already.

Each check warns once in a run, or in a phase of a curriculum, in plain words and with a cure. All
of them are conservative: what they look for must last. Most of those of training need returns that
have not risen, that of evaluations a difference beyond what a few episodes vary by.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np
from gymnasium import spaces

from rlkit.spaces import COMPOSITE, Space, leaves

IN_A_ROW = 3  # outer iterations, or evaluations: one may be an accident
SHARE = 0.2  # of the run, in a row: some presets learn nothing in their first tenth
LEAST_STEPS = 10_000  # of a seed, in a row: shorter trials say nothing about learning
UNEXPLAINED = 0.05  # a critic that learns is beyond this share of the variance early
RISE = 0.25  # of the first return of the run: random policies vary by less between outer iterations
COLLAPSED = 0.02  # of the entropy of uniform actions: some 0.2 % of the actions are others, of two
LEAST_STD = 0.01  # of an action, relative to half the width of its bounds
LONG_EPISODE = 1000  # steps; most time limits are shorter
MISSED = 0.5  # of what sampled actions gained since the first evaluation
STANDARD_ERRORS = 3.0  # a settled policy repeats its luck, as evaluations repeat their draws
ENTROPY_SETTINGS = ("entropy_coef", "target_entropy", "target_entropy_ratio")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Health:
    """What the checks have seen so far, for each seed [S]; a part of checkpoints."""

    told: tuple[str, ...] = ()
    """Names of the checks that have warned."""
    in_a_row: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    """Outer iterations, or evaluations, in a row in which a check found something."""
    first_return: tuple[float, ...] = ()
    """Mean return of the first outer iteration of the run in which episodes ended; NaN: none."""
    best_return: tuple[float, ...] = ()
    """The highest of an outer iteration of the phase; NaN: no episode has ended in it."""
    first_entropy: tuple[float, ...] = ()
    """Entropy in the first outer iteration of the phase; NaN: not measured."""
    first_sampled: tuple[float, ...] = ()
    """Mean return of sampled actions in the first evaluation of the phase."""

    def telling(self, name: str) -> "Health":
        """After a warning."""
        return dataclasses.replace(self, told=(*self.told, name))

    def in_next_phase(self) -> "Health":
        """The checks begin anew, but a phase that begins with what was learned has risen."""
        unknown = (math.nan,) * len(self.first_return)
        return Health(first_return=self.first_return, best_return=unknown, first_entropy=unknown)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """What the checks know of a run."""

    num_seeds: int
    num_envs: int
    action_space: Space | None  # None: unknown
    max_episode_steps: int | None  # None: none is declared
    hyperparameters: object  # config of the algorithm; None: unknown
    has_floats: bool  # whether observations hold numbers that normalisation changes
    steps_per_checkpoint: int  # environment steps of one seed in an outer iteration
    total_steps: int
    eval_every: int = 1  # outer iterations


@dataclasses.dataclass(frozen=True, kw_only=True)
class Signs:
    """What the training of an outer iteration showed, for each seed [S]; NaN: not measured."""

    explained_variance: np.ndarray
    entropy: np.ndarray
    episodes: np.ndarray  # that ended
    avg_return: np.ndarray  # of those; NaN: none ended
    gradient: np.ndarray  # sum of the norms of all gradients


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluated:
    """Returns of the episodes of an evaluation, for each seed [S, E]."""

    greedy: np.ndarray  # of the most likely actions
    sampled: np.ndarray


Seen = TypeVar("Seen")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check(Generic[Seen]):
    """Something that can be wrong with a run, as `Signs` or an evaluation shows."""

    name: str
    is_found: Callable[[Seen, Health, Setting], np.ndarray]  # [S] bool
    least_steps: Callable[[Setting], float]  # of one seed, in a row
    tell: Callable[[str, int, Setting], str]  # (whose, steps in a row) -> what is wrong; its cure


def examine(
    health: Health, metrics: Mapping[str, np.ndarray], setting: Setting
) -> tuple[Health, tuple[str, ...]]:
    """(health after an outer iteration with these metrics, what to warn of now)."""
    count = setting.num_seeds
    if len(health.first_return) != count:
        unknown = (math.nan,) * count
        health = dataclasses.replace(
            health, first_return=unknown, best_return=unknown, first_entropy=unknown
        )
    signs = _signs(metrics, count)
    first = _known(health.first_return, signs.avg_return)
    best = np.fmax(health.best_return, signs.avg_return)
    entropy = _known(health.first_entropy, signs.entropy)
    health = dataclasses.replace(
        health,
        first_return=tuple(first.tolist()),
        best_return=tuple(best.tolist()),
        first_entropy=tuple(entropy.tolist()),
    )
    return _checked(TRAINING_CHECKS, signs, health, setting, setting.steps_per_checkpoint)


def examine_evaluation(
    health: Health, greedy: np.ndarray, sampled: np.ndarray, setting: Setting
) -> tuple[Health, tuple[str, ...]]:
    """(health after an evaluation with these returns [S, E], what to warn of now)."""
    first = health.first_sampled or (math.nan,) * setting.num_seeds
    first = tuple(_known(first, sampled.mean(1)).tolist())
    health = dataclasses.replace(health, first_sampled=first)
    seen = Evaluated(greedy=greedy, sampled=sampled)
    steps = setting.steps_per_checkpoint * setting.eval_every
    return _checked(EVALUATION_CHECKS, seen, health, setting, steps)


def _checked(
    checks: tuple[Check[Seen], ...], seen: Seen, health: Health, setting: Setting, steps: int
) -> tuple[Health, tuple[str, ...]]:
    """`steps`: environment steps of a seed that this shows."""
    texts = []
    for check in checks:
        if check.name not in health.told:
            health, text = _check(check, seen, health, setting, steps)
            texts += [text] if text else []
    return health, tuple(texts)


def _check(
    check: Check[Seen], seen: Seen, health: Health, setting: Setting, steps: int
) -> tuple[Health, str | None]:
    found = check.is_found(seen, health, setting)
    before = np.array(health.in_a_row.get(check.name, (0,) * setting.num_seeds))
    rows = np.where(found, before + 1, 0)
    least = max(SHARE * setting.total_steps, check.least_steps(setting))
    is_long = (rows >= IN_A_ROW) & (rows * steps >= least)
    in_a_row = health.in_a_row | {check.name: tuple(rows.tolist())}
    if not is_long.any():
        return dataclasses.replace(health, in_a_row=in_a_row), None
    del in_a_row[check.name]
    seeds = ", ".join(map(str, np.flatnonzero(is_long)))
    whose = f"seed {seeds}: " if is_long.sum() == 1 else f"seeds {seeds}: "
    shown = min(int(rows.max()) * steps, setting.total_steps)  # the last may show fewer
    text = check.tell(whose if setting.num_seeds > 1 else "", shown, setting)
    return dataclasses.replace(health, in_a_row=in_a_row).telling(check.name), text


def _signs(metrics: Mapping[str, np.ndarray], num_seeds: int) -> Signs:
    def of(name: str) -> np.ndarray:
        value = np.asarray(metrics.get(name, math.nan), np.float64)
        return np.broadcast_to(value, (num_seeds,))

    episodes = of("sum/episodes")
    return Signs(
        explained_variance=of("explained_variance"),
        entropy=of("entropy"),
        episodes=episodes,
        avg_return=of("sum/episode_return") / np.where(episodes > 0, episodes, math.nan),
        gradient=_gradient([of(name) for name in metrics if name.endswith("grad_norm")], num_seeds),
    )


def _gradient(norms: Sequence[np.ndarray], num_seeds: int) -> np.ndarray:
    """The sum of those that were measured."""
    known = np.array([np.full(num_seeds, math.nan), *norms])
    return np.where(np.isnan(known).all(0), math.nan, np.nansum(known, 0))


def _known(before: tuple[float, ...], now: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(before), now, before)


def _has_risen(health: Health) -> np.ndarray:
    first, best = np.array(health.first_return), np.array(health.best_return)
    return best > first + RISE * np.abs(first)  # False where none has ended


# (a) a critic that explains nothing


def _is_unexplained(signs: Signs, health: Health, setting: Setting) -> np.ndarray:
    return (signs.explained_variance < UNEXPLAINED) & ~_has_risen(health)


def _tell_unexplained(whose: str, steps: int, setting: Setting) -> str:
    names = ["normalize_rewards", *(["normalize_observations"] if setting.has_floats else [])]
    untried = [
        f"{name}=True ({_flag(name)})"
        for name in names
        if getattr(setting.hyperparameters, name, None) is False
    ]
    cures = ["look whether observations show what rewards depend on (rlkit check-env)"]
    cures += [f"try {' and '.join(untried)}"] if untried else []
    return (
        f"{whose}the values explain almost nothing of the returns (explained_variance below"
        f" {UNEXPLAINED} for {steps:,} environment steps), and returns have not risen;"
        f" {', or '.join(reversed(cures))}"
    )


# (b) a policy that does not explore any more


def entropy_range(space: Space | None) -> tuple[float, float] | None:
    """Entropies in nats of a collapsed policy and of one that explores; None: unknown.

    For actions of a Box, of a normal distribution with the standard deviation `LEAST_STD` or 1.
    Both are times half the width of the bounds, if that is less than 1: agents scale their actions,
    or begin with a standard deviation of 1. Those of a Dict or Tuple are sums over its parts.
    """
    if isinstance(space, COMPOSITE):
        parts = [known for leaf in leaves(space) if (known := entropy_range(leaf)) is not None]
        return sum(least for least, _ in parts), sum(whole for _, whole in parts)
    if isinstance(space, spaces.Discrete):
        whole = math.log(space.n)
        return COLLAPSED * whole, whole
    if isinstance(space, spaces.MultiDiscrete):
        whole = float(np.log(space.nvec).sum())
        return COLLAPSED * whole, whole
    if isinstance(space, spaces.Box):
        half = np.minimum((space.high.astype(np.float64) - space.low) / 2, 1.0)
        whole = float((0.5 * math.log(2 * math.pi * math.e) + np.log(half)).sum())
        return whole + half.size * math.log(LEAST_STD), whole
    return None


def _is_collapsed(signs: Signs, health: Health, setting: Setting) -> np.ndarray:
    """Only if it explored at first: a policy that was loaded may be done with that. (Masks that
    forbid most actions look like that too, and then nothing is told.)
    """
    known = entropy_range(setting.action_space)
    if known is None:
        return np.zeros(setting.num_seeds, bool)
    least, whole = known
    explored = np.array(health.first_entropy) > (least + whole) / 2
    return explored & (signs.entropy < least) & ~_has_risen(health)


def _tell_collapsed(whose: str, steps: int, setting: Setting) -> str:
    name = _entropy_setting(setting)
    raised = "let it explore more" if name is None else f"raise {name} ({_flag(name)})"
    return (
        f"{whose}the policy hardly varies its actions any more (their entropy has been almost that"
        f" of a single action for {steps:,} environment steps), and returns have not risen;"
        f" {raised}, or lower learning_rate (--learning-rate)"
    )


def _entropy_setting(setting: Setting) -> str | None:
    """What the entropy of the algorithm's policies depends on."""
    if getattr(setting.hyperparameters, "temperature", None) is not None:
        return "temperature"
    return next((name for name in ENTROPY_SETTINGS if hasattr(setting.hyperparameters, name)), None)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# (c) no end of an episode


def _is_endless(signs: Signs, health: Health, setting: Setting) -> np.ndarray:
    return (signs.episodes == 0) & np.isnan(health.best_return)


def _longest_episode(setting: Setting) -> float:
    """Environment steps of a seed after which an episode must have ended."""
    return setting.num_envs * ((setting.max_episode_steps or LONG_EPISODE) + 1)


def _tell_endless(whose: str, steps: int, setting: Setting) -> str:
    return (
        f"{whose}no episode has ended in {steps:,} environment steps ({steps // setting.num_envs:,}"
        " of each environment), so there are no returns of training to learn of; set a time limit"
        " (max_episode_steps), or look why the task never ends (rlkit check-env)"
    )


# (d) a loss that depends on no parameter


def _is_constant(signs: Signs, health: Health, setting: Setting) -> np.ndarray:
    return signs.gradient == 0  # to the bit: gradients that are merely small are none of this


def _tell_constant(whose: str, steps: int, setting: Setting) -> str:
    return (
        f"{whose}no gradient has reached any parameter for {steps:,} environment steps (every"
        " train/…grad_norm is exactly 0), so nothing is learned; look whether your loss depends on"
        " the parameters it is given, with no jax.lax.stop_gradient around them"
    )


# (e) most likely actions that throw away what was learned


def _is_missed(seen: Evaluated, health: Health, setting: Setting) -> np.ndarray:
    """Only where sampled actions are better than in the first evaluation."""
    episodes = seen.sampled.shape[1]
    if episodes == 1:  # which says nothing about how much returns vary
        return np.zeros(setting.num_seeds, bool)
    first, sampled = np.array(health.first_sampled), seen.sampled.mean(1)
    with np.errstate(invalid="ignore"):  # infinite returns are told elsewhere
        gained, missed = sampled - first, sampled - seen.greedy.mean(1)
        error = np.sqrt((seen.sampled.var(1) + seen.greedy.var(1)) / (episodes - 1))
        has_learned = gained > RISE * np.abs(first)
        return has_learned & (missed > MISSED * gained) & (missed > STANDARD_ERRORS * error)


def _tell_missed(whose: str, steps: int, setting: Setting) -> str:
    name = _entropy_setting(setting)
    is_off = name is None or getattr(setting.hyperparameters, name) == 0.0
    lowered = "" if name is None or is_off else f", lower {name} ({_flag(name)})"
    return (
        f"{whose}the most likely actions return much less than sampled ones (eval/avg_return beside"
        f" eval/sampled_avg_return, for {steps:,} environment steps), so the policy still relies on"
        " chance, perhaps because observations do not tell states apart; train for longer"
        f"{lowered}, or act with sampled actions (deterministic=False)"
    )


TRAINING_CHECKS = (
    Check(
        name="unexplained_returns",
        is_found=_is_unexplained,
        least_steps=lambda setting: LEAST_STEPS,
        tell=_tell_unexplained,
    ),
    Check(
        name="collapsed_policy",
        is_found=_is_collapsed,
        least_steps=lambda setting: LEAST_STEPS,
        tell=_tell_collapsed,
    ),
    Check(
        name="endless_episodes",
        is_found=_is_endless,
        least_steps=lambda setting: max(LEAST_STEPS, _longest_episode(setting)),
        tell=_tell_endless,
    ),
    Check(
        name="constant_loss",
        is_found=_is_constant,
        least_steps=lambda setting: LEAST_STEPS,
        tell=_tell_constant,
    ),
)
EVALUATION_CHECKS = (
    Check(
        name="missed_by_likely_actions",
        is_found=_is_missed,
        least_steps=lambda setting: LEAST_STEPS,
        tell=_tell_missed,
    ),
)
