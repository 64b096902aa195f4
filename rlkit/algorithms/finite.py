"""What keeps NaN and infinity out of the state that a run goes on from."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlkit.algorithms.metrics import NON_FINITE, UNSOUND
from rlkit.ops.rows import flatten, non_finite_rows
from rlkit.ops.running_stats import RunningStats
from rlkit.spaces import Space, nothing_allowed
from rlkit.types import LearnerState, Metrics, PyTree, Rollout


def is_finite_update(params: PyTree, opt_state: PyTree) -> Array:
    """Whether training can go on from the results of an update, [] bool.

    Parameters hold neither NaN nor infinity, and the state of the optimiser no NaN. Infinity is
    where some begin: the lowest loss so far of `optax.contrib.reduce_on_plateau`, for instance.
    """
    tests = [jnp.isfinite(x).all() for x in _floats(params)]
    tests += [~jnp.isnan(x).any() for x in _floats(opt_state)]
    return jnp.stack(tests).all()


def non_finite_leaves(learner: LearnerState) -> list[str]:
    """The paths of leaves that must not be saved: by the rule of `is_finite_update`; on the host.

    Targets and statistics count as parameters do.
    """

    def wrong(path: jax.tree_util.KeyPath, x: PyTree) -> bool:
        if not _is_float(x):
            return False
        host = np.asarray(x).astype(np.float32)  # NumPy's tests do not know bfloat16
        in_optimizer = jax.tree_util.keystr(path).startswith(".opt_state")
        return bool(np.isnan(host).any() if in_optimizer else not np.isfinite(host).all())

    leaves = jax.tree_util.tree_leaves_with_path(learner)
    return [jax.tree_util.keystr(path).lstrip(".") for path, x in leaves if wrong(path, x)]


def finite_or(new: RunningStats, old: RunningStats) -> RunningStats:
    """The new statistics if they are finite, else the old ones."""
    is_sound = jnp.stack([jnp.isfinite(x).all() for x in jax.tree.leaves(new)]).all()
    return jax.tree.map(lambda new, old: jnp.where(is_sound, new, old), new, old)


def count_unsound(rollout: Rollout, action_space: Space) -> Metrics:
    """In how many steps [T, N] something was NaN or infinite, the action or what it was based on;
    and before how many a mask allowed no action. Those after which an environment was reset for it
    are sound, and only counted as `NON_FINITE`.

    Each is a single reduction, since an iteration may be as short as a step. `next_obs` is left
    out: most of it is the next step's `obs`, and on-policy algorithms otherwise need not keep it.
    """
    front = rollout.reward.ndim
    found = {
        f"{UNSOUND}actions": non_finite_rows(rollout.action, front),
        f"{UNSOUND}results": non_finite_rows((rollout.reward, rollout.obs), front),
        f"{UNSOUND}choices": _without_choice(rollout, action_space),
        NON_FINITE: rollout.non_finite,
    }
    return {name: jnp.sum(bad, dtype=jnp.float32) for name, bad in found.items() if bad is not None}


def _without_choice(rollout: Rollout, action_space: Space) -> Array | None:
    """Where masks allow nothing though it matters, [T·N]: to act, or for the value at a time limit.

    None: there are no masks.
    """
    rollout = flatten(rollout)
    now, after = (nothing_allowed(x, action_space) for x in (rollout.obs, rollout.next_obs))
    if now is None or after is None:
        return None
    return now | (after & rollout.truncated & ~rollout.terminated)


def _floats(tree: PyTree) -> list[Array]:
    return [x for x in jax.tree.leaves(tree) if _is_float(x)]


def _is_float(x: PyTree) -> bool:
    return jnp.issubdtype(jnp.result_type(x), jnp.inexact)
