"""Targets in masked environments by hand: an action that is not allowed has no part in them."""

import dataclasses
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from rlkit.agents.masking import only_allowed
from rlkit.algorithms.configs import DiscreteSACConfig, DQNConfig, QRDQNConfig
from rlkit.algorithms.discrete_sac import actor_loss, critic_loss
from rlkit.algorithms.dqn import dqn_loss
from rlkit.algorithms.on_policy_batches import Minibatches
from rlkit.algorithms.pqn import QLambdaBatchBuilder
from rlkit.algorithms.qr_dqn import qr_dqn_loss
from rlkit.algorithms.replayed import Replayed
from rlkit.types import Rollout

pytestmark = pytest.mark.fast

ACTIONS = spaces.Discrete(3, start=7)


def at(state, masks):
    masks = np.asarray(masks, np.int8)
    return {"observation": np.full((len(masks), 1), state), "action_mask": masks}


# Within an episode, within an episode, and one that ended, where nothing may be allowed.
ALL = [[1, 1, 1]] * 3
AFTER = [[0, 1, 1], [1, 0, 0], [0, 0, 0]]
REWARD, DISCOUNT = np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.5, 0.0])
BATCH = Replayed(
    obs=at(0, ALL),
    action=jnp.array([7, 8, 9]),
    reward=jnp.asarray(REWARD),
    discount=jnp.asarray(DISCOUNT),
    next_obs=at(1, AFTER),
    extras={},
    weight=jnp.ones(3),
    index=jnp.arange(3),
)
NOW = [1.0, 4.0, 2.0]
PARAMS = jnp.array([NOW, [9.0, 5.0, 6.0]])  # [states, actions]
TARGETS = jnp.array([[0.0, 0.0, 0.0], [20.0, 8.0, 2.0]])


@dataclasses.dataclass(frozen=True)
class Table:
    """Parameters are a table over states, the observations; logits or values [..., state, A]."""

    def q_values(self, params, obs):
        return only_allowed(params[obs["observation"][:, 0]], obs, ACTIONS)

    def value(self, params, obs):
        return self.q_values(params, obs).max(-1)

    def quantiles(self, params, obs):
        return only_allowed(params[:, obs["observation"][:, 0]], obs, ACTIONS)

    def index(self, action):
        return action - 7


@dataclasses.dataclass(frozen=True)
class Soft(Table):
    def log_probs(self, params, obs):
        return jax.nn.log_softmax(only_allowed(params[obs["observation"][:, 0]], obs, ACTIONS))

    def q_values(self, params, obs):
        return params[:, obs["observation"][:, 0]]


@pytest.mark.parametrize(("double", "best"), [(True, 2.0), (False, 8.0)])
def test_dqn(double, best):
    """Row 0 may take the last two: the present values choose 6 > 5, the copy's 8 > 2. Row 1 may
    take the first alone, which the copy values at 20.
    """
    _, metrics = dqn_loss(DQNConfig(double=double))(Table(), PARAMS, TARGETS, BATCH, None)
    target = REWARD + DISCOUNT * np.array([best, 20.0, 0.0])
    np.testing.assert_allclose(metrics["td_error"], target - NOW, rtol=1e-6)
    np.testing.assert_allclose(metrics["target"], target.mean(), rtol=1e-6)


@pytest.mark.parametrize(("double", "best"), [(True, 2.0), (False, 8.0)])
def test_qr_dqn(double, best):
    """Both quantiles are the tables above, half a point apart."""
    spread = jnp.array([-0.25, 0.25])[:, None, None]
    params, targets = PARAMS + spread, TARGETS + spread
    loss, metrics = qr_dqn_loss(QRDQNConfig(double=double))(Table(), params, targets, BATCH, None)
    target = REWARD + DISCOUNT * np.array([best, 20.0, 0.0])
    np.testing.assert_allclose(metrics["td_error"], target - NOW, rtol=1e-6)
    assert np.isfinite(loss)


@pytest.mark.parametrize("loss", ["dqn", "qr_dqn"])
def test_gradients_of_values_are_finite(loss):
    forbidden = dataclasses.replace(BATCH, obs=at(0, [[1, 0, 0], [0, 1, 0], [0, 0, 1]]))
    function, params = dqn_loss(DQNConfig()), PARAMS
    if loss == "qr_dqn":
        function, params = qr_dqn_loss(QRDQNConfig()), jnp.stack([PARAMS, PARAMS])
    gradient = jax.grad(lambda p: function(Table(), p, p, forbidden, None)[0])(params)
    assert np.isfinite(gradient).all() and (np.asarray(gradient) != 0).any()


def test_pqn():
    """λ = 0: the reward and the best allowed value of the next state, discounted by ½."""
    column = [at(0, ALL[:1]), at(1, AFTER[:1])]
    obs = jax.tree.map(lambda *x: jnp.asarray(np.stack(x)), *column)  # [2, 1, ...]
    after = jax.tree.map(lambda *x: jnp.asarray(np.stack(x)), at(1, AFTER[:1]), at(1, [[0, 1, 0]]))
    rollout = Rollout(
        obs=obs,
        action=jnp.array([[7], [8]]),
        reward=jnp.ones((2, 1)),
        terminated=jnp.zeros((2, 1), bool),
        truncated=jnp.zeros((2, 1), bool),
        next_obs=after,
        extras={},
    )
    learner = SimpleNamespace(params=TARGETS, obs_stats=None, reward_stats=None)
    builder = QLambdaBatchBuilder(gamma=0.5, q_lambda=0.0, minibatches=Minibatches())
    _, dataset, _ = builder.ingest(Table(), learner, (), rollout)
    np.testing.assert_allclose(dataset.target, [1 + 0.5 * 8.0, 1 + 0.5 * 8.0])


LOGITS = jnp.log(jnp.array([[0.25, 0.5, 0.25], [0.6, 0.3, 0.1]]))
CRITICS = jnp.stack([PARAMS, PARAMS + 1.0])
SOFT = {"actor": LOGITS, "critic": CRITICS, "log_temperature": jnp.log(jnp.float32(0.5))}


def test_discrete_sac_critic():
    """In state 1, row 0 takes the last two with 3/4 and 1/4, row 1 the first for sure."""
    targets = {"critic": jnp.stack([TARGETS, TARGETS + 1.0])}
    _, metrics = critic_loss(DiscreteSACConfig())(Soft(), SOFT, targets, BATCH, None)
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    soft = np.array([0.75 * 8.0 + 0.25 * 2.0 + 0.5 * entropy, 20.0, 0.0])
    np.testing.assert_allclose(metrics["target"], (REWARD + DISCOUNT * soft).mean(), rtol=1e-5)


def test_discrete_sac_actor_and_temperature():
    """The wanted entropy is a share of the logarithm of the number of allowed actions."""
    batch = dataclasses.replace(BATCH, obs=at(0, [[0, 1, 1], [0, 0, 1], [1, 1, 1]]))
    loss = actor_loss(DiscreteSACConfig(target_entropy_ratio=0.5))
    gradient, metrics = jax.grad(lambda p: loss(Soft(), p, {}, batch, None), has_aux=True)(SOFT)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(gradient))
    probs = [{1: 2 / 3, 2: 1 / 3}, {2: 1.0}, {0: 0.25, 1: 0.5, 2: 0.25}]
    entropies = [-sum(p * math.log(p) for p in each.values()) for each in probs]
    values = [sum(p * NOW[a] for a, p in each.items()) for each in probs]
    wanted = np.mean([-0.5 * h - q for h, q in zip(entropies, values, strict=True)])
    np.testing.assert_allclose(metrics["actor_loss"], wanted, rtol=1e-5)
    np.testing.assert_allclose(metrics["entropy"], np.mean(entropies), rtol=1e-5)
    share = 0.5 * np.mean([math.log(2), math.log(1), math.log(3)])
    np.testing.assert_allclose(
        metrics["temperature_loss"], math.log(0.5) * (np.mean(entropies) - share), rtol=1e-4
    )
    assert gradient["actor"][0, 0] != 0  # where row 2 may take it
