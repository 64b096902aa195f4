"""What a run does about NaN and infinity: warns, ends with an error, and never saves them."""

import numpy as np

from rlkit.action_masks import NO_ACTION
from rlkit.algorithms.finite import non_finite_leaves
from rlkit.algorithms.metrics import SKIPPED, UNSOUND
from rlkit.envs.non_finite import INSTEAD
from rlkit.errors import EnvFailedError, NonFiniteError, require
from rlkit.training.logs.metrics import HostMetrics
from rlkit.types import Measurements, PyTree, TrainState

TRAINING, EVALUATION = "non_finite_training", "non_finite_evaluation"  # warnings, see `Health`
WHY = "a loss, gradient or new parameter was not finite"
CURE_OF_ENV = "look for a division by zero, a root of a negative number or an unstable simulation"
CURE = (
    "lower learning_rate, set max_grad_norm, or check the environment with rlkit.check_env and a"
    " loss of your own"
)


def last_saved(step: int, env_steps: int) -> str:
    """The end of an error's sentence: from where to start again; "" if no `step` was saved (-1)."""
    if step < 0:
        return ""
    return f"; the last checkpoint, step {step} ({env_steps:,} environment steps), is sound"


def check_metrics(where: str, metrics: HostMetrics, saved: str) -> None:
    """Raises if NaN or infinity was met that nothing else keeps out.

    `EnvFailedError` for an environment that returned some; `NonFiniteError` for actions, and for
    the loss of a module that does not count skipped updates. `where` is "outer iteration 3", for
    instance; `saved` is the end of the sentence, on what is left.
    """
    choices, actions, results = (
        np.sum(metrics.get(f"{UNSOUND}{name}", 0.0)) for name in ("choices", "actions", "results")
    )
    require(
        choices == 0,
        f"in {where}, the environment allowed no action in {choices:,.0f} states of running"
        " episodes",
        f"{NO_ACTION}{saved}",
        EnvFailedError,
    )
    require(
        actions == 0,
        f"in {where}, the policy chose NaN or infinity in {actions:,.0f} steps",
        f"{CURE}{saved}",
        NonFiniteError,
    )
    require(
        results == 0,
        f"in {where}, the environment returned NaN or infinity in"
        f" {results:,.0f} steps, as a reward or in an observation",
        f"look for a division by zero, or a log or root of a negative number, or {INSTEAD}{saved}",
        EnvFailedError,
    )
    require(
        SKIPPED in metrics or bool(np.isfinite(metrics.get("loss", 0.0)).all()),
        f"the loss of {where} is not finite",
        f"lower the step size, or look into the module's training_step{saved}",
        NonFiniteError,
    )


def check_evaluation(when: str, evaluation: Measurements, saved: str) -> None:
    """Raises `EnvFailedError` if episodes returned NaN or infinity.

    `when` is "after outer iteration 3", for instance; `saved` is the end of the sentence.
    """
    given = (evaluation.get(name) for name in ("return", "sampled_return"))
    returns = np.concatenate([np.ravel(x) for x in given if x is not None] or [np.zeros(0)])
    broken = int(np.sum(~np.isfinite(returns)))
    require(
        broken == 0,
        f"in the evaluation {when}, {broken:,} of {_times(returns.size, 'episode')}, with the most"
        " likely actions and with sampled ones, returned NaN or infinity",
        f"look for a division by zero, or a log or root of a negative number, or {INSTEAD}{saved}",
        EnvFailedError,
    )


def skipped_in_a_row(before: np.ndarray, skipped: np.ndarray, updates: int) -> np.ndarray:
    """How many updates each seed [S] skipped in a row by now, in whole outer iterations.

    `before` and `skipped` [S] are those before the last outer iteration, and in it.
    """
    return np.where((skipped >= updates) & (updates > 0), before + skipped, 0.0)


def check_skipped(in_a_row: np.ndarray, limit: int | None, saved: str) -> None:
    """Raises `NonFiniteError` once every seed skipped `limit` updates in a row.

    Seeds are independent: one that diverges does not stop the others. `saved` is the end of the
    sentence, on what is left.
    """
    count = int(in_a_row.min())
    require(
        limit is None or count < limit,
        f"{'the last update was' if count == 1 else f'the last {count:,} updates were'} skipped,"
        f" because {WHY}",
        f"{CURE}{saved}",
        NonFiniteError,
    )


def skipped_in(iteration: int, skipped: np.ndarray, updates: int) -> str | None:
    """A warning if an outer iteration of so many `updates` skipped some, else None."""
    shares = skipped / max(updates, 1)
    if shares.max() == 0:
        return None
    seeds = f" of seed(s) {', '.join(map(str, np.flatnonzero(shares)))}" if shares.size > 1 else ""
    return f"skipped {shares.max():.1%} of the updates{seeds} in outer iteration {iteration}: {WHY}"


def skipped_in_all(skipped: int, updates: int) -> str:
    """What a run that ends says if it skipped updates."""
    return f"skipped {skipped:,} of {updates:,} updates: {WHY}; {CURE}"


def resets_in_training(env: str, count: int) -> str:
    """The warning, once in a run, that environments were reset so often by now."""
    return (
        f"{env} returned NaN or infinity in {_times(count, 'step')}: the episode ended there, with"
        " reward 0 (non_finite='reset'); this warning appears once, later ones are counted as"
        f" train/non_finite_steps; {CURE_OF_ENV}"
    )


def resets_in_evaluation(env: str, count: int) -> str:
    """The warning, once in a run, that episodes of an evaluation ended early."""
    return (
        f"in evaluation, {env} returned NaN or infinity in {_times(count, 'episode')}: they ended"
        " there, and count with the return until then; this warning appears once, later ones are"
        f" counted as eval/non_finite_episodes; {CURE_OF_ENV}"
    )


def resets_in_all(count: int, steps: int) -> str:
    """What a run that ends says if environments were reset in it."""
    return (
        f"an environment returned NaN or infinity, and was reset, in {count:,} of {steps:,} steps;"
        f" {CURE_OF_ENV}"
    )


def _times(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def require_finite(state: PyTree, iteration: int, saved: str) -> None:
    """Raises `NonFiniteError` for a train state that must not be saved; others may be anything."""
    wrong = non_finite_leaves(state.learner) if isinstance(state, TrainState) else []
    more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    require(
        not wrong,
        f"the state after outer iteration {iteration} was not saved, because it holds NaN or"
        f" infinity ({', '.join(wrong[:3])}{more})",
        f"{CURE}{saved}",
        NonFiniteError,
    )
