"""DQN's loss on a table of values by hand, and when its targets are renewed."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlkit.algorithms.configs import DQNConfig
from rlkit.algorithms.dqn import dqn_loss
from rlkit.algorithms.replayed import Replayed
from rlkit.algorithms.target_update import TargetUpdate
from rlkit.algorithms.updaters import Updater
from rlkit.errors import ConfigError
from rlkit.ops.counters import StepCounter
from rlkit.types import LearnerState

# Rows: within an episode, cut by a time limit (bootstraps alike), terminated (discount 0). From
# state 0 to state 1.
BATCH = Replayed(
    obs=jnp.zeros((3, 1)),
    action=jnp.array([7, 8, 7]),
    reward=jnp.array([1.0, 2.0, 3.0]),
    discount=jnp.array([0.5, 0.5, 0.0]),
    next_obs=jnp.ones((3, 1)),
    extras={},
    weight=jnp.array([1.0, 0.5, 1.0]),
    index=jnp.arange(3),
)
# [states, actions]: in state 1 the first action seems best
PARAMS = jnp.array([[1.0, 4.0], [6.0, 5.0]])
TARGETS = jnp.array([[0.0, 0.0], [2.0, 8.0]])  # the copy would choose the second
VALUES = np.array([1.0, 4.0, 1.0])


@dataclasses.dataclass(frozen=True)
class Table:
    """Parameters are a table over states, which are the observations [B, 1]; actions begin at 7."""

    def q_values(self, params, obs):
        return params[obs[:, 0].astype(int)]

    def index(self, action):
        return action - 7


@pytest.mark.fast
@pytest.mark.parametrize(("double", "bootstrap"), [(True, 2.0), (False, 8.0)])
@pytest.mark.parametrize("kind", ["mse", "huber"])
def test_loss_by_hand(double, bootstrap, kind):
    """Double: the present network chooses, the copy values. Huber: ½e² up to 1, |e| - ½ beyond."""
    target = np.array([1 + 0.5 * bootstrap, 2 + 0.5 * bootstrap, 3.0])
    errors = np.abs(target - VALUES)
    each = (
        np.square(errors) if kind == "mse" else np.where(errors <= 1, 0.5 * errors**2, errors - 0.5)
    )
    loss, metrics = dqn_loss(DQNConfig(double=double, loss=kind))(
        Table(), PARAMS, TARGETS, BATCH, None
    )
    np.testing.assert_allclose(loss, (np.array([1.0, 0.5, 1.0]) * each).mean(), rtol=1e-6)
    np.testing.assert_allclose(metrics["td_error"], target - VALUES, rtol=1e-6)
    np.testing.assert_allclose(
        [metrics["q_value"], metrics["target"]], [VALUES.mean(), target.mean()], rtol=1e-6
    )


@pytest.mark.fast
def test_only_the_value_of_the_action_taken_is_moved():
    gradients = jax.grad(lambda both: dqn_loss(DQNConfig())(Table(), *both, BATCH, None)[0])(
        (PARAMS, TARGETS)
    )
    np.testing.assert_array_equal(gradients[1], 0.0)
    np.testing.assert_array_equal(gradients[0][1], 0.0)
    assert (gradients[0][0] != 0).all()


@pytest.mark.fast
@pytest.mark.parametrize(
    ("before", "after", "renewed"),
    [
        (0, 99, False),
        (0, 100, True),
        (99, 100, True),
        (100, 199, False),
        (150, 350, True),
        (2**32 - 40, 2**32 + 70, True),
    ],
)
def test_targets_are_renewed_when_the_steps_pass_a_multiple(before, after, renewed):
    updater = Updater(steps=(), target=TargetUpdate(period=100))
    learner = LearnerState(
        params=jnp.float32(2.0),
        target_params=jnp.float32(1.0),
        opt_state=(),
        obs_stats=None,
        reward_stats=None,
        env_steps=StepCounter.create(before),
        updates=StepCounter.create(),
        total_steps=jnp.float32(1.0),
    )
    found = updater.periodic_target_update(
        learner, learner.replace(env_steps=StepCounter.create(after))
    )
    assert float(found.target_params) == (2.0 if renewed else 1.0)


@pytest.mark.fast
@pytest.mark.parametrize(
    "settings",
    [
        {"period": 0},
        {"period": -3},
        {"tau": 2.0},
        {"tau": 0.0},
        {"groups": "critic"},
        {"period": 5, "every": 2},
    ],
)
def test_targets_out_of_range_are_refused(settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        TargetUpdate(**settings)
