"""gSDE: log-probs by hand, when the noise is drawn, and what the gradients reach."""

import math

import distrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from gymnasium import spaces

from rlkit.agents.actor_critic import actor_critic
from rlkit.agents.base import carries_memory
from rlkit.agents.configs import ActorCriticConfig, SoftActorCriticConfig
from rlkit.agents.discrete_soft_actor_critic import discrete_soft_actor_critic
from rlkit.agents.heads import policy_head
from rlkit.agents.soft_actor_critic import soft_actor_critic
from rlkit.agents.state_dependent_noise import StateDependentNoise
from rlkit.errors import ConfigError
from rlkit.ops.rows import where_rows

OBS = spaces.Box(-1.0, 1.0, (2,))
UNIT, MATRIX = spaces.Box(-1.0, 1.0, (1,)), spaces.Box(-2.0, 2.0, (2, 3))
SDE = ActorCriticConfig(hidden_sizes=(8,), use_sde=True, log_std_init=-1.0)
SOFT_SDE = SoftActorCriticConfig(hidden_sizes=(8,), use_sde=True, log_std_init=-1.0)


def noise_of(*, sample_freq=None, num_features=2, num_outputs=1, learn_features=False):
    return StateDependentNoise(
        num_features=num_features,
        num_outputs=num_outputs,
        sample_freq=sample_freq,
        log_std_init=-1.0,
        learn_features=learn_features,
    )


def test_log_probs_by_hand():
    """Features (1, 2) and standard deviations (1/2, 1/4): the variance is 1/4 + 4/16 = 1/2. At 0.7
    from the mean, the log-prob is -0.49 - ½ log π, and the entropy ½ log(πe).
    """
    head = policy_head(UNIT, noise=noise_of())

    @jax.jit
    def program(out, log_std, action):
        policy = head.distribution(out, {"log_std": log_std})
        return policy.log_prob(action), policy.entropy(), policy.mode()

    log_prob, entropy, mode = program(
        np.float32([[0.3, 1.0, 2.0]]), np.log(np.float32([0.5, 0.25])), np.float32([[1.0]])
    )
    np.testing.assert_allclose(log_prob, [-0.49 - 0.5 * math.log(math.pi)], rtol=1e-5)
    np.testing.assert_allclose(entropy, [0.5 * (math.log(math.pi) + 1.0)], rtol=1e-5)
    np.testing.assert_array_equal(mode, np.float32([[0.3]]))


def test_agrees_with_distrax_in_many_dimensions():
    rng = np.random.default_rng(0)
    mean, features = rng.normal(size=(5, 6)), rng.normal(size=(5, 4))
    log_std, action = rng.normal(size=(4, 6)), rng.normal(size=(5, 2, 3))
    head = policy_head(MATRIX, noise=noise_of(num_features=4, num_outputs=6))
    out = np.concatenate([mean, features], -1).astype(np.float32)

    @jax.jit
    def program(out, log_std, action, std):
        policy = head.distribution(out, {"log_std": log_std.ravel()})
        reference = distrax.Normal(out[:, :6], std)
        return [
            (policy.log_prob(action), reference.log_prob(action.reshape(5, 6)).sum(-1)),
            (policy.entropy(), reference.entropy().sum(-1)),
        ]

    std = np.sqrt(features**2 @ np.exp(log_std) ** 2 + 1e-6)
    arguments = (log_std, action, std)
    for found, wanted in program(out, *(x.astype(np.float32) for x in arguments)):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


class Features(nnx.Module):
    """A torso whose features are the observations times a weight of its own."""

    def __init__(self, rngs):
        self.weight = nnx.Param(jnp.ones(2))

    def __call__(self, obs):
        return obs * self.weight[...]


def test_squashed_log_probs_by_hand_and_by_integration():
    """The same numbers in SAC's agent: at the noise z, u = mean + z √½ and the log-prob is that of
    a normal variable minus log(1 - tanh²u). Its density over actions integrates to 1.
    """
    agent = soft_actor_critic(OBS, UNIT, SOFT_SDE, torso=Features)
    obs, z = np.float32([[1.0, 2.0]]), np.linspace(-6.0, 6.0, 2001)

    @jax.jit
    def program(key, noise, bias):
        params = agent.init(key)["actor"]
        params["log_std"] = jnp.log(jnp.array([0.5, 0.25]))
        params["network"]["head"] |= {"kernel": jnp.zeros((2, 1)), "bias": bias}
        policy = agent.policy(params, obs)
        action, log_prob = jax.vmap(policy.transform)(noise)
        return action[:, 0, 0], log_prob[:, 0], policy.mode()

    noise = np.float32(z[:, None, None])
    action, log_prob, mode = program(jax.random.key(0), noise, np.float32([0.3]))
    u = 0.3 + z * math.sqrt(0.5 + 1e-6)
    wanted = -0.5 * z**2 - 0.5 * math.log(math.pi) - np.log(1 - np.tanh(u) ** 2)
    np.testing.assert_allclose(action, np.tanh(u), atol=1e-6)
    np.testing.assert_allclose(log_prob[np.abs(u) < 3], wanted[np.abs(u) < 3], atol=1e-4)
    density, action = np.exp(np.float64(log_prob)), np.float64(action)
    assert np.sum((density[1:] + density[:-1]) / 2 * np.diff(action)) == pytest.approx(1, abs=1e-3)
    np.testing.assert_allclose(mode, [[np.tanh(0.3)]], rtol=1e-5)
    _, _, mode = program(jax.random.key(0), noise, np.float32([5.0]))  # the largest mean is 2
    np.testing.assert_allclose(mode, [[np.tanh(2.0)]], rtol=1e-5)


def test_what_the_gradients_reach():
    """The mean does not depend on the features here, whose only way to the log-prob is the std. As
    in Stable-Baselines3, it trains them in SAC but not in PPO and A2C.
    """
    obs = np.float32([[1.0, 2.0], [0.5, -1.0]])
    plain = actor_critic(OBS, UNIT, SDE, torso=Features)
    soft = soft_actor_critic(OBS, UNIT, SOFT_SDE, torso=Features)

    def without_head(network):
        return network | {"head": jax.tree.map(jnp.zeros_like, network["head"])}

    @jax.jit
    def gradients(key):
        params = plain.init(key)
        params["network"]["actor"] = without_head(params["network"]["actor"])
        actor = soft.init(key)["actor"]
        actor["network"] = without_head(actor["network"])
        action = jnp.full((2, 1), 0.1)
        return (
            jax.grad(lambda p: plain.policy(p, obs).log_prob(action).sum())(params),
            jax.grad(lambda p: soft.policy(p, obs).transform(action)[1].sum())(actor),
        )

    of_plain, of_soft = jax.device_get(gradients(jax.random.key(0)))
    assert (of_plain["network"]["actor"]["torso"]["weight"] == 0).all()
    assert (of_soft["network"]["torso"]["weight"] != 0).all()
    for found in (of_plain["head"], of_soft):
        assert found["log_std"].shape == (2,)  # a vector: weight decay spares it
        assert (found["log_std"] != 0).all()


@pytest.mark.parametrize("sample_freq", [None, 3])
def test_when_the_matrix_is_drawn(sample_freq):
    """At the start of each environment's episode and every `sample_freq` steps of it, with the std
    of that moment; in between it stays, whatever becomes of the policy.
    """
    noise, num_steps = noise_of(sample_freq=sample_freq), 10
    ends = {4: [False, True]}  # the second environment's episode ends before step 4

    @jax.jit
    def program(keys, done):
        initial = noise.initial_carry(2)

        def step(carry, x):
            key, done, time = x
            params = {"log_std": jnp.full(2, 0.1 * time)}
            carry = where_rows(done, initial, carry)
            drawn, carry = noise.draw(carry, key, params, jnp.array([[1.0, 2.0], [3.0, -1.0]]))
            return carry, (drawn, carry)

        return jax.lax.scan(step, initial, (keys, done, jnp.arange(num_steps)))[1]

    done = np.array([ends.get(time, [False, False]) for time in range(num_steps)])
    drawn, carry = program(jax.random.split(jax.random.key(0), num_steps), done)
    features = np.float32([[1.0, 2.0], [3.0, -1.0]])
    np.testing.assert_allclose(
        drawn, np.einsum("nf,tnfa->tna", features, carry.values), rtol=1e-5, atol=1e-6
    )
    ages = np.array([[t, t if t < 4 else t - 4] for t in range(num_steps)])
    np.testing.assert_array_equal(carry.age, ages + 1)
    due = ages == 0 if sample_freq is None else ages % sample_freq == 0
    changed = (carry.values[1:] != carry.values[:-1]).any((2, 3))
    np.testing.assert_array_equal(changed, due[1:])


def test_the_matrix_has_the_learned_std_and_is_independent(key):
    noise = noise_of(num_features=3, num_outputs=2)
    log_std = np.float32([[-1.0, 0.5], [0.0, -3.0], [1.0, 0.0]])
    features = np.tile(np.float32([0.5, -2.0, 0.1]), (20_000, 1))

    @jax.jit
    def program(key, log_std):
        params = {"log_std": log_std.ravel()}
        drawn, carry = noise.draw(noise.initial_carry(20_000), key, params, features)
        return drawn, carry.values, noise.std(params, features[:1])

    drawn, matrices, std = program(key, log_std)
    error = 5 / np.sqrt(20_000)
    np.testing.assert_allclose(matrices.mean(0) / np.exp(log_std), 0.0, atol=error)
    np.testing.assert_allclose(matrices.std(0), np.exp(log_std), rtol=error)
    np.testing.assert_allclose(drawn.std(0), std[0], rtol=error)  # that of the log-probs
    entries = matrices.reshape(20_000, 6)
    assert np.abs(np.corrcoef(entries.T) - np.eye(6)).max() < error
    pairs = matrices[:, 0, 0].reshape(-1, 2)
    assert abs(np.corrcoef(*pairs.T)[0, 1]) < error * math.sqrt(2)


@pytest.mark.parametrize("share_torso", [False, True])
def test_actor_critic_explores_with_its_features(key, share_torso):
    """The same carry gives the same function of the observation; `exploit` is the mean, with which
    an agent without noise agrees; values are not touched.
    """
    config = {"hidden_sizes": (8,), "share_torso": share_torso}
    agent = actor_critic(OBS, MATRIX, ActorCriticConfig(**config, use_sde=True))
    plain = actor_critic(OBS, MATRIX, ActorCriticConfig(**config))
    assert not carries_memory(agent.initial_carry(4)) and plain.initial_carry(4) == ()
    obs = np.float32([[0.1, 0.2], [-0.5, 1.0], [0.1, 0.2], [0.7, 0.0]])

    @jax.jit
    def program(key):
        params = agent.init(key)
        progress, keys = jnp.float32(0.0), jax.random.split(key, 3)
        first, carry, extras = agent.explore(params, obs, agent.initial_carry(4), key, progress)
        others = [agent.explore(params, obs, carry, k, progress)[0] for k in keys]
        best = agent.exploit(params, obs, carry, key)[0]
        assert extras == {} and agent.exploit(params, obs, carry, key)[1] is carry
        std = agent.policy(params, obs).flat.stddev()
        unstructured = params | {"head": plain.head.init_params()}
        without = plain.exploit(unstructured, obs, (), key)[0], plain.value(unstructured, obs)
        return first, others, (best, agent.value(params, obs)), without, std

    first, others, found, without, std = jax.device_get(program(key))
    assert first.shape == (4, 2, 3)
    for action in others:
        np.testing.assert_array_equal(action, first)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), found, without)
    noise = (first - found[0]).reshape(4, 6)
    assert (np.abs(noise[0] - noise[2]) > 1e-4).all()  # each environment has its own
    assert (np.abs(noise) < 6 * std).all() and (np.abs(noise) > 0).all()


def test_soft_actor_critic_explores_with_its_features(key):
    agent = soft_actor_critic(OBS, MATRIX, SOFT_SDE)
    obs = np.float32([[0.1, 0.2], [-0.5, 1.0]])

    @jax.jit
    def program(key):
        params, progress = agent.init(key), jnp.float32(0.0)
        first, carry, _ = agent.explore(params, obs, agent.initial_carry(2), key, progress)
        again, _, _ = agent.explore(params, obs, carry, jax.random.split(key)[0], progress)
        best = agent.exploit(params, obs, carry, key)[0]
        _, mean, features = agent.actor._outputs(params["actor"], obs)
        noise = jnp.einsum("nf,nfa->na", features, carry.values).reshape(mean.shape)
        return first, again, 2 * jnp.tanh(mean + noise), best, 2 * jnp.tanh(mean)

    first, again, wanted, best, mean = program(key)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_allclose(first, wanted, rtol=1e-5)
    np.testing.assert_allclose(best, mean, rtol=1e-6)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3),
        spaces.MultiDiscrete([2, 3]),
        spaces.Dict({"move": spaces.Box(-1.0, 1.0), "jump": spaces.Discrete(2)}),
        spaces.Tuple([spaces.Box(-1.0, 1.0)]),
    ],
    ids=["discrete", "multi", "dict", "tuple"],
)
def test_actions_that_are_no_box_are_refused(space):
    told = r"use_sde=True adds noise to the actions of a Box, got .*leave use_sde out"
    with pytest.raises(ConfigError, match=told):
        actor_critic(OBS, space, SDE)


@pytest.mark.fast
def test_settings_that_contradict_each_other_are_refused():
    with pytest.raises(ConfigError, match=r'use_sde=True and noise_color="pink" .*; leave one'):
        SoftActorCriticConfig(use_sde=True, noise_color="pink")
    for kind in (ActorCriticConfig, SoftActorCriticConfig):
        with pytest.raises(ConfigError, match=r"sde_sample_freq=4 has no .*--sde-sample-freq None"):
            kind(sde_sample_freq=4)
    with pytest.raises(ConfigError, match=r"initial_std=0.5 has no effect .*--initial-std 1\)"):
        ActorCriticConfig(use_sde=True, initial_std=0.5)
    with pytest.raises(ConfigError, match="pass DiscreteSoftActorCriticConfig"):
        discrete_soft_actor_critic(OBS, spaces.Discrete(2), SoftActorCriticConfig(use_sde=True))
