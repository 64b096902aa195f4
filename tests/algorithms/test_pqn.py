"""PQN's loss and its targets on a table of values by hand, time limits included."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from rlkit.agents.configs import NormalizedQNetworkConfig
from rlkit.agents.q_network import normalized_q_network
from rlkit.algorithms.compatibility import check_compatible
from rlkit.algorithms.configs import PQNConfig
from rlkit.algorithms.on_policy_batches import Minibatches
from rlkit.algorithms.pqn import QBatch, QLambdaBatchBuilder, pqn, pqn_loss
from rlkit.errors import ConfigError
from rlkit.types import Rollout

SMALL = PQNConfig(num_steps=8, num_epochs=2, num_minibatches=2)
# Q of five states and two actions, of which the better one alternates; the best are 1, 2, 3, 8 and
# 4.
TABLE = jnp.array([[1.0, 0.0], [-1.0, 2.0], [3.0, 2.0], [-5.0, 8.0], [4.0, 0.0]])


@dataclasses.dataclass(frozen=True)
class Table:
    """Parameters are the table; observations [B, 1] are rows of it, actions begin at 5."""

    def q_values(self, params, obs):
        return params[obs[:, 0].astype(int)]

    def value(self, params, obs):
        return self.q_values(params, obs).max(-1)

    def index(self, action):
        return action - 5


def learner(obs_stats=None):
    return SimpleNamespace(params=TABLE, obs_stats=obs_stats, reward_stats=None)


def rollout(terminated, truncated):
    """One environment walks through states 0, 1, 2 for rewards of 1, and sees 3 if its second step
    ends the episode; 4 follows the last step.
    """
    ended = terminated[1] or truncated[1]
    column = np.array([[[0.0]], [[1.0]], [[2.0]]])
    return Rollout(
        obs=column,
        action=np.array([[5], [6], [6]]),
        reward=np.ones((3, 1)),
        terminated=np.asarray(terminated, bool)[:, None],
        truncated=np.asarray(truncated, bool)[:, None],
        next_obs=np.array([[[1.0]], [[3.0 if ended else 2.0]], [[4.0]]]),
        extras={},
    )


@pytest.mark.fast
@pytest.mark.parametrize(
    ("terminated", "truncated", "wanted"),
    [
        # γ = λ = ½. R_2 = 1 + ½·4 = 3; R_1 = 1 + ½(½·3 + ½·3) = 2.5; R_0 = 1 + ½(½·2 + ½·2.5) =
        # 2.125
        ([0, 0, 0], [0, 0, 0], [2.125, 2.5, 3.0]),
        # cut after the second step: R_1 = 1 + ½·8, by the final observation and not by the first
        # one of the next episode
        ([0, 0, 0], [0, 1, 0], [2.75, 5.0, 3.0]),
        ([0, 1, 0], [0, 0, 0], [1.75, 1.0, 3.0]),
        ([0, 1, 0], [0, 1, 0], [1.75, 1.0, 3.0]),
        # R_1 = 1 + ½(½·3 + ½·1) = 2, though what follows the last step has a value of 4
        ([0, 0, 1], [0, 0, 0], [2.0, 2.0, 1.0]),
    ],
)
def test_targets_by_hand(terminated, truncated, wanted):
    builder = QLambdaBatchBuilder(gamma=0.5, q_lambda=0.5, minibatches=Minibatches())
    memory, dataset, metrics = jax.jit(
        lambda rollout: builder.ingest(Table(), learner(), (), rollout)
    )(rollout(terminated, truncated))
    np.testing.assert_allclose(dataset.target, wanted, rtol=1e-6)
    np.testing.assert_array_equal(dataset.action, [5, 6, 6])
    assert memory == () and dataset.obs.shape == (3, 1)
    chosen = np.array([1.0, 2.0, 2.0])  # not the best ones: the third action was exploring
    np.testing.assert_allclose(
        metrics["explained_variance"], 1 - np.var(wanted - chosen) / np.var(wanted), rtol=1e-5
    )


@pytest.mark.fast
def test_loss_by_hand():
    """Q of the chosen actions is 0, 2, -5 against 1, 4, -2; the whole square, as in CleanRL."""
    batch = QBatch(
        obs=jnp.array([[0.0], [1.0], [3.0]]),
        action=jnp.array([6, 6, 5]),
        target=jnp.array([1.0, 4.0, -2.0]),
    )
    (loss, metrics), gradient = jax.jit(
        jax.value_and_grad(lambda table: pqn_loss(Table(), table, (), batch, None), has_aux=True)
    )(TABLE)
    np.testing.assert_allclose(loss, (1 + 4 + 9) / 3, rtol=1e-6)
    np.testing.assert_allclose([metrics["q_value"], metrics["target"]], [-1.0, 1.0], rtol=1e-6)
    wanted = np.zeros((5, 2))
    wanted[[0, 1, 3], [1, 1, 0]] = 2 * np.array([-1.0, -2.0, -3.0]) / 3
    np.testing.assert_allclose(gradient, wanted, rtol=1e-6)


def test_one_iteration(key, make_env, one_iteration):
    """Each sample is seen once an epoch; there are no target parameters, and actions may begin
    anywhere.
    """
    env = make_env(action_space=spaces.Discrete(3, start=-1))
    agent = normalized_q_network(
        env.observation_space, env.action_space, NormalizedQNetworkConfig(hidden_sizes=(8,))
    )
    seen = []

    def count(batch):
        seen.append(batch.target.shape)
        return batch

    algorithm = pqn(dataclasses.replace(SMALL, normalize_rewards=True), process_batch=count)
    check_compatible(algorithm, agent, env)
    before, rollout, _, after, metrics = one_iteration(algorithm, agent, env, key)
    assert (
        set(seen) == {(16,)}
        and after.updates.to_int() == 4
        and algorithm.custom == ("process_batch",)
    )
    assert set(np.unique(rollout.action)) == {-1, 0, 1}  # all random at the start
    assert before.learner.target_params == after.target_params == ()
    changes = jax.tree.map(np.not_equal, after.params, before.learner.params)
    assert any(map(np.any, jax.tree.leaves(changes)))
    assert {"loss", "q_value", "target", "explained_variance", "grad_norm", "learning_rate"} <= set(
        metrics
    )
    assert all(np.isfinite(value).all() for value in metrics.values())


@pytest.mark.fast
def test_misfits_are_refused(make_env, make_agent):
    env = make_env()
    with pytest.raises(
        ConfigError,
        match=r"pqn needs an agent with `q_values`, .*, got ActorCritic .*normalized_q_network\(",
    ):
        check_compatible(pqn(SMALL), make_agent(env), env)
    agent = normalized_q_network(env.observation_space, env.action_space)
    with pytest.raises(ConfigError, match=r"num_minibatches=5 does not divide the 32 samples"):
        check_compatible(pqn(dataclasses.replace(SMALL, num_minibatches=5)), agent, env)
    for wrong in ({"q_lambda": 1.5}, {"num_epochs": 0}, {"optimizer": "radma"}):
        with pytest.raises(ConfigError, match=rf"PQNConfig\.{next(iter(wrong))}"):
            pqn(PQNConfig(**wrong))
    assert pqn(SMALL).spec == ("pqn", SMALL) and pqn(SMALL).custom == ()
