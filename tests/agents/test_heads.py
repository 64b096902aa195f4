"""Action distributions against closed forms and sums over all actions."""

import itertools

import distrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from rlkit.agents.heads import policy_head
from rlkit.errors import SpaceError


def softmax(x):
    e = np.exp(np.asarray(x, np.float64))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("start", [0, -3, 7])
def test_discrete(key, start):
    head = policy_head(spaces.Discrete(3, start=start))
    logits = jnp.array([[0.0, 1.0, -1.0], [2.0, 0.0, 0.0]])
    policy = head.distribution(logits, head.init_params())
    p = softmax(logits)
    for action in range(3):
        found = policy.log_prob(jnp.full(2, action + start))
        np.testing.assert_allclose(found, np.log(p[:, action]), rtol=1e-5)
    np.testing.assert_allclose(policy.entropy(), -(p * np.log(p)).sum(-1), rtol=1e-5)
    np.testing.assert_array_equal(policy.mode(), [1 + start, 0 + start])
    assert policy.mode().dtype == policy.sample(key).dtype == jnp.int32
    samples = np.asarray(jax.jit(jax.vmap(policy.sample))(jax.random.split(key, 4000)))
    share = np.stack([(samples == action + start).mean(0) for action in range(3)], -1)
    np.testing.assert_allclose(share, p, atol=5 * 0.5 / np.sqrt(4000))


def test_choices_are_those_of_distrax(key):
    logits = 3.0 * jax.random.normal(key, (5, 4))
    policy, reference = (
        policy_head(spaces.Discrete(4)).distribution(logits, {}),
        distrax.Categorical(logits=logits),
    )
    action = jnp.array([0, 3, 1, 2, 2])
    np.testing.assert_array_equal(policy.sample(key), reference.sample(seed=key))
    np.testing.assert_array_equal(policy.mode(), reference.mode())
    np.testing.assert_allclose(policy.log_prob(action), reference.log_prob(action), rtol=1e-6)
    np.testing.assert_allclose(policy.entropy(), reference.entropy(), rtol=1e-5)


@pytest.mark.parametrize("action", [-1, 4])
def test_an_action_that_is_none_is_impossible(key, action):
    policy = policy_head(spaces.Discrete(4)).distribution(jnp.zeros((1, 4)), {})
    assert policy.log_prob(jnp.array([action])) == -jnp.inf


def test_choices_that_are_impossible(key):
    """A network may mask an action by a logit of -inf: it is never taken, and losses and gradients
    stay finite.
    """
    head, mask = policy_head(spaces.Discrete(3)), jnp.array([0.0, -jnp.inf, 0.0])

    def loss(logits):
        policy = head.distribution(logits + mask, {})
        return (policy.entropy() + policy.log_prob(jnp.array([0, 2]))).sum()

    logits = jnp.array([[0.3, 0.1, -0.2], [0.0, 5.0, 1.0]])
    p = softmax(np.delete(np.asarray(logits), 1, axis=1))
    policy = head.distribution(logits + mask, {})
    np.testing.assert_allclose(policy.entropy(), -(p * np.log(p)).sum(-1), rtol=1e-5)
    assert not (np.asarray(jax.vmap(policy.sample)(jax.random.split(key, 500))) == 1).any()
    gradient = np.asarray(jax.grad(loss)(logits))
    assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(gradient[:, 1], 0.0)


@pytest.mark.parametrize("start", [None, [1, -2]])
def test_multi_discrete(key, start):
    space = spaces.MultiDiscrete([2, 3], **({"start": start} if start else {}))
    head = policy_head(space)
    assert head.num_outputs == 5
    logits = jnp.array([[0.0, 1.0, 0.5, -0.5, 0.0]])
    policy = head.distribution(logits, head.init_params())
    first, second = softmax(logits[:, :2])[0], softmax(logits[:, 2:])[0]
    total = 0.0
    for i, j in itertools.product(range(2), range(3)):
        action = jnp.array([[i, j]]) + jnp.asarray(space.start, jnp.int32)
        assert space.contains(np.asarray(action[0], space.dtype))
        log_prob = float(policy.log_prob(action)[0])
        assert log_prob == pytest.approx(np.log(first[i] * second[j]), rel=1e-5)
        total += np.exp(log_prob)
    assert total == pytest.approx(1.0, rel=1e-5)
    wanted = -sum((p * np.log(p)).sum() for p in (first, second))
    np.testing.assert_allclose(policy.entropy(), [wanted], rtol=1e-5)
    np.testing.assert_array_equal(policy.mode() - space.start, [[1, 0]])
    samples = (
        np.asarray(jax.jit(jax.vmap(policy.sample))(jax.random.split(key, 4000)))[:, 0]
        - space.start
    )
    joint = np.array([[((samples == (i, j)).all(-1)).mean() for j in range(3)] for i in range(2)])
    np.testing.assert_allclose(
        joint, np.outer(first, second), atol=5 * 0.5 / np.sqrt(4000)
    )  # the choices are independent


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 2)])
def test_box(key, shape):
    size = int(np.prod(shape))
    head = policy_head(spaces.Box(-1.0, 1.0, shape), initial_std=0.5)
    params = head.init_params()
    np.testing.assert_allclose(np.exp(params["log_std"]), np.full(size, 0.5), rtol=1e-6)
    mean = jnp.linspace(-1.0, 2.0, 2 * size).reshape(2, size)
    policy = head.distribution(mean, params)
    action = jnp.full((2, *shape), 0.3)
    z = (0.3 - np.asarray(mean, np.float64)) / 0.5
    wanted = (-0.5 * z**2 - np.log(0.5) - 0.5 * np.log(2 * np.pi)).sum(-1)
    np.testing.assert_allclose(policy.log_prob(action), wanted, rtol=1e-5)
    np.testing.assert_allclose(
        policy.entropy(),
        np.full(2, size * (0.5 * np.log(2 * np.pi * np.e) + np.log(0.5))),
        rtol=1e-5,
    )
    np.testing.assert_allclose(policy.mode().reshape(2, -1), mean, rtol=1e-6)
    assert policy.sample(key).shape == (2, *shape)
    samples = np.asarray(jax.jit(jax.vmap(policy.sample))(jax.random.split(key, 4000)), np.float64)
    np.testing.assert_allclose(samples.mean(0).reshape(2, -1), mean, atol=5 * 0.5 / np.sqrt(4000))
    np.testing.assert_allclose(samples.std(0), 0.5, atol=5 * 0.5 / np.sqrt(8000))
    assert np.abs(samples).max() > 1.0  # not clipped: the log-prob belongs to the sample


def test_box_density_integrates_to_one():
    head = policy_head(spaces.Box(-1.0, 1.0, (1,)))
    x = jnp.linspace(-8.0, 8.0, 4001)[:, None]
    density = np.exp(head.distribution(jnp.full((4001, 1), 0.2), head.init_params()).log_prob(x))
    assert np.trapezoid(density, x[:, 0]) == pytest.approx(1.0, rel=1e-4)


def test_log_std_is_learned():
    head = policy_head(spaces.Box(-1.0, 1.0, (2,)))

    def loss(params):
        return head.distribution(jnp.zeros((1, 2)), params).log_prob(jnp.array([[0.0, 2.0]])).sum()

    # d/dlog σ of -z²/2 - log σ = z² - 1
    np.testing.assert_allclose(
        jax.grad(loss)(head.init_params())["log_std"], [-1.0, 3.0], rtol=1e-5
    )


@pytest.mark.parametrize(
    ("space", "wanted"),
    [
        (spaces.MultiBinary(3), "use Discrete, MultiDiscrete or Box"),
        (spaces.Dict({"a": spaces.Discrete(2)}), "use Discrete, MultiDiscrete or Box"),
        (spaces.Text(3), "use Discrete, MultiDiscrete or Box"),
        (spaces.MultiDiscrete([[2, 2], [3, 3]]), "flatten it"),
        (spaces.Box(0, 255, (2,), np.uint8), "a Box of floats"),
        (
            spaces.Box(np.array([0.0, 1.0], np.float32), np.array([1.0, 1.0], np.float32)),
            "low < high",
        ),
    ],
)
def test_other_spaces_are_refused_with_the_cure(space, wanted):
    with pytest.raises(SpaceError, match=wanted):
        policy_head(space)
