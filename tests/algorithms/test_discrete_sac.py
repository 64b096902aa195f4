"""Discrete SAC's losses on a table of values by hand, which parameters they move, and a task with a
known answer.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gymnasium import spaces

from rlkit.agents.configs import DiscreteSoftActorCriticConfig
from rlkit.agents.discrete_soft_actor_critic import discrete_soft_actor_critic
from rlkit.algorithms.compatibility import check_compatible
from rlkit.algorithms.configs import DiscreteSACConfig
from rlkit.algorithms.discrete_sac import actor_loss, critic_loss, discrete_sac
from rlkit.algorithms.replayed import Replayed
from rlkit.envs.jittable.vectorized import vectorize
from rlkit.envs.probes.value_probes import ObservationDependentAction
from rlkit.errors import ConfigError, SpaceError
from rlkit.training.core.module import RLModule, fit

GROUPS = ("critic", "actor", "log_temperature")
SMALL = DiscreteSACConfig(
    num_steps=8,
    prefill_steps=64,
    capacity=512,
    batch_size=64,
    updates_per_step=0.25,
    learning_rate=0.01,
)
# Rows: within an episode, cut by a time limit (bootstraps alike), terminated (discount 0). From
# state 0 to state 1.
BATCH = Replayed(
    obs=jnp.zeros((3, 1)),
    action=jnp.array([7, 8, 7]),
    reward=jnp.array([1.0, 2.0, 3.0]),
    discount=jnp.array([0.9, 0.9, 0.0]),
    next_obs=jnp.ones((3, 1)),
    extras={},
    weight=jnp.ones(3),
    index=jnp.arange(3),
)
PROBS = np.array([[0.25, 0.75], [0.5, 0.5]])  # of the two actions in states 0 and 1
PARAMS = {
    "actor": jnp.log(jnp.asarray(PROBS, jnp.float32)),
    "critic": jnp.array(
        [[[1.0, 5.0], [0.0, 0.0]], [[2.0, 4.0], [0.0, 0.0]]]
    ),  # [2, states, actions]
    "log_temperature": jnp.log(jnp.float32(0.5)),
}
TARGETS = {"critic": jnp.array([[[0.0, 0.0], [3.0, 6.0]], [[0.0, 0.0], [4.0, 2.0]]])}


@dataclasses.dataclass(frozen=True)
class Table:
    """Parameters are tables over states, which are the observations [B, 1]; actions begin at 7."""

    def log_probs(self, actor, obs):
        return jax.nn.log_softmax(actor[obs[:, 0].astype(int)])

    def q_values(self, critic, obs):
        return critic[:, obs[:, 0].astype(int)]

    def index(self, action):
        return action - 7


ENTROPY = -(PROBS * np.log(PROBS)).sum(1)
# The soft value of state 1: ½ · min(3, 4) + ½ · min(6, 2) + ½ · log 2
TARGET = np.array([1.0, 2.0, 3.0]) + np.array([0.9, 0.9, 0.0]) * (2.5 + 0.5 * ENTROPY[1])


@pytest.mark.fast
def test_critic_loss_by_hand():
    """Both critics at the actions that were taken: (1, 5, 1) and (2, 4, 2)."""
    loss, metrics = critic_loss(DiscreteSACConfig())(Table(), PARAMS, TARGETS, BATCH, None)
    q_values = np.array([[1.0, 5.0, 1.0], [2.0, 4.0, 2.0]])
    np.testing.assert_allclose(loss, 0.5 * np.square(q_values - TARGET).sum(0).mean(), rtol=1e-5)
    np.testing.assert_allclose(
        [metrics["q_value"], metrics["target"]], [q_values.mean(), TARGET.mean()], rtol=1e-5
    )


@pytest.mark.fast
def test_actor_loss_by_hand():
    """In state 0 the lesser critics say 1 and 4."""
    loss, metrics = actor_loss(DiscreteSACConfig())(Table(), PARAMS, TARGETS, BATCH, None)
    np.testing.assert_allclose(loss, metrics["actor_loss"] + metrics["temperature_loss"], rtol=1e-6)
    np.testing.assert_allclose(
        metrics["actor_loss"], -0.5 * ENTROPY[0] - (0.25 * 1.0 + 0.75 * 4.0), rtol=1e-5
    )
    np.testing.assert_allclose(
        [metrics["entropy"], metrics["temperature"]], [ENTROPY[0], 0.5], rtol=1e-5
    )


@pytest.mark.fast
def test_the_actor_goes_to_the_softmax_of_the_values():
    """The minimum of its loss: probabilities proportional to exp(Q / temperature)."""
    loss = actor_loss(DiscreteSACConfig(temperature=2.0))
    best = PARAMS | {"actor": jnp.array([[1.0, 4.0], [0.0, 0.0]]) / 2.0}
    gradient = jax.grad(lambda params: loss(Table(), params, TARGETS, BATCH, None)[0])(best)[
        "actor"
    ]
    np.testing.assert_allclose(gradient, 0.0, atol=1e-6)


@pytest.mark.fast
@pytest.mark.parametrize("ratio", [0.0, 0.5, 0.89, 1.0])
def test_temperature_loss_by_hand(ratio):
    """Entropy is wanted as a share of log 2; too little of it raises the temperature."""
    loss = actor_loss(DiscreteSACConfig(target_entropy_ratio=ratio))
    gradient, metrics = jax.grad(
        lambda params: loss(Table(), params, TARGETS, BATCH, None), has_aux=True
    )(PARAMS)
    surplus = ENTROPY[0] - ratio * math.log(2)
    np.testing.assert_allclose(
        metrics["temperature_loss"], math.log(0.5) * surplus, rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(gradient["log_temperature"], surplus, rtol=1e-4, atol=1e-6)


@pytest.mark.fast
def test_a_fixed_temperature_replaces_the_learned_one():
    _, metrics = critic_loss(DiscreteSACConfig(temperature=0.0))(
        Table(), PARAMS, TARGETS, BATCH, None
    )
    np.testing.assert_allclose(
        metrics["target"], np.mean([1 + 0.9 * 2.5, 2 + 0.9 * 2.5, 3.0]), rtol=1e-6
    )
    assert [
        step.group for step in discrete_sac(DiscreteSACConfig(temperature=0.25)).updater.steps
    ] == [("critic",), ("actor",)]
    assert [step.group for step in discrete_sac().updater.steps] == [
        ("critic",),
        ("actor", "log_temperature"),
    ]


@pytest.mark.parametrize(
    ("groups", "make_loss", "temperature"),
    [
        (["critic"], critic_loss, None),
        (["actor", "log_temperature"], actor_loss, None),
        (["actor"], actor_loss, 0.5),
    ],
)
def test_each_loss_moves_its_groups_alone(groups, make_loss, temperature):
    """Even if all parameters and targets are differentiated."""

    def loss(everything):
        return make_loss(DiscreteSACConfig(temperature=temperature))(
            Table(), *everything, BATCH, None
        )[0]

    gradients, of_targets = jax.grad(loss)((PARAMS, TARGETS))
    assert [name for name, part in gradients.items() if float(optax.tree.norm(part)) > 0] == groups
    assert float(optax.tree.norm(of_targets)) == 0.0


def test_probe(key, quick_jit):
    """Finds the best action for each observation, at a temperature that falls; targets follow by
    tau.
    """
    single = ObservationDependentAction()
    env = vectorize(single, 8)
    agent = discrete_soft_actor_critic(
        env.observation_space, env.action_space, DiscreteSoftActorCriticConfig(hidden_sizes=(8,))
    )
    algorithm = discrete_sac(dataclasses.replace(SMALL, target_entropy_ratio=0.1))
    check_compatible(algorithm, agent, env)
    module = RLModule(env=env, agent=agent, algorithm=algorithm, total_steps=1e5)
    ts, metrics = quick_jit(lambda k: fit(module, k, num_outer_iterations=100))(key)
    params, obs = ts.learner.params, jnp.asarray(single.observations())
    best, _ = agent.exploit(params, obs, (), key)
    np.testing.assert_array_equal(best, single.best_action())
    values = agent.q_values(params["critic"], obs)
    np.testing.assert_allclose(
        values, np.broadcast_to([[1.0, -1.0], [-1.0, 1.0]], (2, 2, 2)), atol=0.1
    )
    assert set(ts.learner.target_params) == {"critic"}
    found = metrics["train"]
    assert found["temperature"][-1] < found["temperature"][0] / 2 and found["entropy"][-1] < 0.3


@pytest.mark.fast
def test_misfits_are_refused(make_env, make_agent):
    env = make_env()
    with pytest.raises(
        ConfigError,
        match=r"discrete_sac needs an agent with `log_probs`, .*discrete_soft_actor_critic\(",
    ):
        check_compatible(discrete_sac(SMALL), make_agent(env), env)
    shifted = discrete_soft_actor_critic(env.observation_space, spaces.Discrete(2, start=1))
    with pytest.raises(
        SpaceError, match=r"the agent chooses from .*build the agent with the action space"
    ):
        check_compatible(discrete_sac(SMALL), shifted, env)
    for wrong in ({"tau": 0.0}, {"temperature": -0.1}, {"target_entropy_ratio": 1.1}):
        with pytest.raises(ConfigError, match=rf"DiscreteSACConfig\.{next(iter(wrong))}"):
            discrete_sac(DiscreteSACConfig(**wrong))
    assert discrete_sac(SMALL).spec == ("discrete_sac", SMALL)
