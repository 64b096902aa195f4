"""QR-DQN's loss on three samples and two quantiles by hand, and which parameters it moves."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gymnasium import spaces

from rlkit.agents.configs import QuantileNetworkConfig
from rlkit.agents.quantile_network import quantile_network
from rlkit.algorithms.configs import QRDQNConfig
from rlkit.algorithms.qr_dqn import qr_dqn_loss, quantile_huber
from rlkit.algorithms.replayed import Replayed
from rlkit.errors import SpaceError

OBSERVATIONS = spaces.Box(-1.0, 1.0, (1,))
# A row within an episode, one that a time limit cut (bootstraps alike), one that terminated
# (discount 0).
BATCH = Replayed(
    obs=jnp.zeros((3, 1)),
    action=jnp.array([5, 6, 5]),
    reward=jnp.array([1.0, 2.0, 3.0]),
    discount=jnp.array([0.5, 0.5, 0.0]),
    next_obs=jnp.ones((3, 1)),
    extras={},
    weight=jnp.ones(3),
    index=jnp.arange(3),
)
# [N, A]
PARAMS = {
    "now": jnp.array([[0.0, 1.0], [2.0, 1.0]]),
    "next": jnp.array([[9.0, 0.0], [9.0, 0.0]]),
}
TARGETS = {"now": jnp.full((2, 2), jnp.nan), "next": jnp.array([[2.0, 0.0], [4.0, 8.0]])}
# Means of next actions: 3 and 4 by the target network, which takes (0, 8), 9 and 0 by the present
# one, which takes (2, 4).
GREEDY = np.array([[1.0, 5.0], [2.0, 6.0], [3.0, 3.0]])
DOUBLE = np.array([[2.0, 3.0], [3.0, 4.0], [3.0, 3.0]])
# Quantiles of the actions taken: (0, 2), (1, 1), (0, 2). Slopes ¼ and ¾ where the target is higher,
# ¾ and ¼ where it is lower; Huber: e²/2 up to 1, e - ½ beyond. Halved: a mean over the two targets.
GREEDY_LOSS = np.array(
    [
        (0.25 * (0.5 + 4.5) + (0.25 * 0.5 + 0.75 * 2.5)) / 2,  # errors 1, 5; -1, 3
        (0.25 * (0.5 + 4.5) + 0.75 * (0.5 + 4.5)) / 2,  # errors 1, 5 of both
        (0.25 * (2.5 + 2.5) + 0.75 * (0.5 + 0.5)) / 2,  # errors 3, 3; 1, 1
    ]
)


@dataclasses.dataclass(frozen=True)
class Stub:
    """Quantiles are `now` where the observation is 0, `next` where it is 1; actions count
    from 5.
    """

    def quantiles(self, params, obs):
        return jnp.where(obs > 0, params["next"][:, None], params["now"][:, None])

    def index(self, action):
        return action - 5


@pytest.mark.parametrize(
    ("quantiles", "target", "loss"),
    [
        ([0.0, 2.0], [1.0, 1.0], 0.25 * 0.5 + 0.25 * 0.5),  # within, from both sides
        (
            [1.0, 1.0],
            [0.5, 0.5],
            0.75 * 0.125 + 0.25 * 0.125,
        ),  # too high: the low quantile errs more
        (
            [0.0, 0.0],
            [3.0, -3.0],
            (0.25 * 2.5 + 0.75 * 2.5) / 2 + (0.75 * 2.5 + 0.25 * 2.5) / 2,
        ),  # linear beyond 1
    ],
)
def test_quantile_huber_loss_by_hand(quantiles, target, loss):
    found = jax.jit(quantile_huber)(np.array(quantiles)[:, None], np.array(target)[:, None])
    np.testing.assert_allclose(found, [loss], rtol=1e-6)


def of_stub(config, batch=BATCH):
    """The loss and metrics of the stub's parameters."""
    return jax.jit(lambda batch: qr_dqn_loss(config)(Stub(), PARAMS, TARGETS, batch, None))(batch)


def test_loss_by_hand():
    """A cut row bootstraps, a terminated one does not; quantiles may be fitted to others
    in number.
    """
    loss, metrics = of_stub(QRDQNConfig())
    np.testing.assert_allclose(loss, GREEDY_LOSS.mean(), rtol=1e-6)
    np.testing.assert_allclose(metrics["td_error"], GREEDY.mean(1) - 1.0, rtol=1e-6)
    assert set(metrics) == {"q_value", "target", "td_error"}
    np.testing.assert_allclose(
        (metrics["q_value"], metrics["target"]), (1.0, GREEDY.mean()), rtol=1e-6
    )
    weighted, _ = of_stub(QRDQNConfig(), BATCH.replace(weight=jnp.array([0.0, 0.5, 0.0])))
    np.testing.assert_allclose(weighted, 0.5 * GREEDY_LOSS[1] / 3, rtol=1e-6)


def test_double_takes_the_action_that_the_present_network_prefers():
    _, metrics = of_stub(QRDQNConfig(double=True))
    np.testing.assert_allclose(metrics["td_error"], DOUBLE.mean(1) - 1.0, rtol=1e-6)


@pytest.mark.parametrize("double", [False, True])
def test_no_gradient_reaches_the_target(double):
    def loss(params, target_params):
        return qr_dqn_loss(QRDQNConfig(double=double))(Stub(), params, target_params, BATCH, None)[
            0
        ]

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1)))
    present, target = gradient(PARAMS, TARGETS | {"now": jnp.zeros((2, 2))})
    assert np.any(present["now"])
    for leaf in (present["next"], *jax.tree.leaves(target)):
        np.testing.assert_array_equal(leaf, 0.0)


def test_values_are_means_of_quantiles(key):
    agent = quantile_network(
        OBSERVATIONS, spaces.Discrete(3, start=-1), QuantileNetworkConfig(num_quantiles=4)
    )

    @jax.jit
    def program(key, obs):
        params = agent.init(key)
        q_values, value = agent.q_values(params, obs), agent.value(params, obs)
        return agent.quantiles(params, obs), q_values, value, agent.exploit(params, obs, (), key)[0]

    quantiles, q_values, value, best = map(
        np.asarray, program(key, np.linspace(-1.0, 1.0, 5, dtype=np.float32)[:, None])
    )
    assert quantiles.shape == (4, 5, 3)
    assert not np.allclose(quantiles[0], quantiles[1])
    np.testing.assert_allclose(q_values, quantiles.mean(0), rtol=1e-6)
    np.testing.assert_allclose(value, quantiles.mean(0).max(-1), rtol=1e-6)
    np.testing.assert_array_equal(best, quantiles.mean(0).argmax(-1) - 1)


def test_quantiles_become_those_of_the_returns(key):
    """Rewards of 0, 1, 2 and 3 alike: the medians of their quarters, 0, 1, 2 and 3, are the
    quantiles of ⅛, ⅜, ⅝ and ⅞.
    """
    agent = quantile_network(
        OBSERVATIONS, spaces.Discrete(2), QuantileNetworkConfig(hidden_sizes=(4,), num_quantiles=4)
    )
    batch = BATCH.replace(action=np.zeros(3, np.int32))
    batch = jax.tree.map(lambda leaf: np.resize(leaf, (4, *leaf.shape[1:])), batch)
    batch = batch.replace(
        reward=np.arange(4, dtype=np.float32) * 100, discount=np.zeros(4, np.float32)
    )
    loss, optimizer = qr_dqn_loss(QRDQNConfig()), optax.adam(optax.linear_schedule(3.0, 0.0, 1000))

    def step(carry, _):
        params, state = carry
        gradient = jax.grad(lambda params: loss(agent, params, params, batch, key)[0])(params)
        updates, state = optimizer.update(gradient, state)
        return (optax.apply_updates(params, updates), state), None

    @jax.jit
    def learned(key):
        params = agent.init(key)
        (params, _), _ = jax.lax.scan(step, (params, optimizer.init(params)), length=1000)
        return agent.quantiles(params, batch.obs)[:, 0, 0]

    np.testing.assert_allclose(learned(key), [0.0, 100.0, 200.0, 300.0], atol=2.0)


def test_only_discrete_actions():
    with pytest.raises(SpaceError, match="needs Discrete actions"):
        quantile_network(OBSERVATIONS, spaces.Box(-1.0, 1.0, (1,)))
