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


def asked(head, logits, actions, key):
    """What the policy [B, ...] of these logits says: (log-probs of actions [A, B, ...], entropy,
    mode, 4000 samples).
    """

    @jax.jit
    def program(logits, actions, keys):
        policy = head.distribution(logits, head.init_params())
        log_probs, samples = jax.vmap(policy.log_prob)(actions), jax.vmap(policy.sample)(keys)
        return log_probs, policy.entropy(), policy.mode(), samples

    return jax.device_get(program(logits, actions, jax.random.split(key, 4000)))


@pytest.mark.parametrize("start", [0, -3, 7])
def test_discrete(key, start):
    head = policy_head(spaces.Discrete(3, start=start))
    logits = np.array([[0.0, 1.0, -1.0], [2.0, 0.0, 0.0]])
    actions = np.arange(3)[:, None] + np.full(2, start)
    log_probs, entropy, mode, samples = asked(head, logits, actions, key)
    p = softmax(logits)
    np.testing.assert_allclose(log_probs, np.log(p).T, rtol=1e-5)
    np.testing.assert_allclose(entropy, -(p * np.log(p)).sum(-1), rtol=1e-5)
    np.testing.assert_array_equal(mode, [1 + start, 0 + start])
    assert mode.dtype == samples.dtype == jnp.int32
    share = np.stack([(samples == action + start).mean(0) for action in range(3)], -1)
    np.testing.assert_allclose(share, p, atol=5 * 0.5 / np.sqrt(4000))


def test_choices_are_those_of_distrax(key):
    @jax.jit
    def program(logits, action, key):
        policy = policy_head(spaces.Discrete(4)).distribution(logits, {})
        reference = distrax.Categorical(logits=logits)
        return [
            (policy.sample(key), reference.sample(seed=key)),
            (policy.mode(), reference.mode()),
            (policy.log_prob(action), reference.log_prob(action)),
            (policy.entropy(), reference.entropy()),
        ]

    logits = 3.0 * np.random.default_rng(0).normal(size=(5, 4))
    samples, modes, log_probs, entropies = program(logits, np.array([0, 3, 1, 2, 2]), key)
    np.testing.assert_array_equal(*samples)
    np.testing.assert_array_equal(*modes)
    np.testing.assert_allclose(*log_probs, rtol=1e-6)
    np.testing.assert_allclose(*entropies, rtol=1e-5)


@pytest.mark.parametrize("action", [-1, 4])
def test_an_action_that_is_none_is_impossible(action):
    policy = policy_head(spaces.Discrete(4)).distribution(np.zeros((1, 4), np.float32), {})
    assert policy.log_prob(np.array([action])) == -jnp.inf


def test_choices_that_are_impossible(key):
    """A network may mask an action by a logit of -inf: it is never taken, and losses and gradients
    stay finite.
    """
    head, mask = policy_head(spaces.Discrete(3)), np.array([0.0, -np.inf, 0.0])

    def loss(logits):
        policy = head.distribution(logits + mask, {})
        return (policy.entropy() + policy.log_prob(jnp.array([0, 2]))).sum()

    @jax.jit
    def program(logits, keys):
        policy = head.distribution(logits + mask, {})
        return policy.entropy(), jax.vmap(policy.sample)(keys), jax.grad(loss)(logits)

    logits = np.array([[0.3, 0.1, -0.2], [0.0, 5.0, 1.0]])
    entropy, samples, gradient = jax.device_get(program(logits, jax.random.split(key, 500)))
    p = softmax(np.delete(logits, 1, axis=1))
    np.testing.assert_allclose(entropy, -(p * np.log(p)).sum(-1), rtol=1e-5)
    assert not (samples == 1).any()
    assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(gradient[:, 1], 0.0)


@pytest.mark.parametrize("start", [None, [1, -2]])
def test_multi_discrete(key, start):
    space = spaces.MultiDiscrete([2, 3], **({"start": start} if start else {}))
    head = policy_head(space)
    assert head.num_outputs == 5
    logits = np.array([[0.0, 1.0, 0.5, -0.5, 0.0]])
    choices = list(itertools.product(range(2), range(3)))
    actions = np.array(choices, np.int32)[:, None] + np.asarray(space.start, np.int32)
    assert all(space.contains(np.asarray(action[0], space.dtype)) for action in actions)
    log_probs, entropy, mode, samples = asked(head, logits, actions, key)
    first, second = softmax(logits[:, :2])[0], softmax(logits[:, 2:])[0]
    wanted = [np.log(first[i] * second[j]) for i, j in choices]
    np.testing.assert_allclose(log_probs[:, 0], wanted, rtol=1e-5)
    assert np.exp(log_probs).sum() == pytest.approx(1.0, rel=1e-5)
    wanted = -sum((p * np.log(p)).sum() for p in (first, second))
    np.testing.assert_allclose(entropy, [wanted], rtol=1e-5)
    np.testing.assert_array_equal(mode - space.start, [[1, 0]])
    samples = samples[:, 0] - space.start
    joint = np.array([[((samples == (i, j)).all(-1)).mean() for j in range(3)] for i in range(2)])
    # The choices are independent
    np.testing.assert_allclose(joint, np.outer(first, second), atol=5 * 0.5 / np.sqrt(4000))


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 2)])
def test_box(key, shape):
    size = int(np.prod(shape))
    head = policy_head(spaces.Box(-1.0, 1.0, shape), initial_std=0.5)
    params = head.init_params()
    np.testing.assert_allclose(np.exp(params["log_std"]), np.full(size, 0.5), rtol=1e-6)
    mean = np.linspace(-1.0, 2.0, 2 * size).reshape(2, size)

    @jax.jit
    def program(mean, action, keys):
        policy = head.distribution(mean, params)
        samples = jax.vmap(policy.sample)(keys)
        return policy.log_prob(action), policy.entropy(), policy.mode(), samples

    log_prob, entropy, mode, samples = program(
        mean, np.full((2, *shape), 0.3), jax.random.split(key, 4000)
    )
    z = (0.3 - mean) / 0.5
    wanted = (-0.5 * z**2 - np.log(0.5) - 0.5 * np.log(2 * np.pi)).sum(-1)
    np.testing.assert_allclose(log_prob, wanted, rtol=1e-5)
    np.testing.assert_allclose(
        entropy, np.full(2, size * (0.5 * np.log(2 * np.pi * np.e) + np.log(0.5))), rtol=1e-5
    )
    np.testing.assert_allclose(np.asarray(mode).reshape(2, -1), mean, rtol=1e-6)
    assert samples.shape == (4000, 2, *shape)
    samples = np.asarray(samples, np.float64)
    np.testing.assert_allclose(samples.mean(0).reshape(2, -1), mean, atol=5 * 0.5 / np.sqrt(4000))
    np.testing.assert_allclose(samples.std(0), 0.5, atol=5 * 0.5 / np.sqrt(8000))
    assert np.abs(samples).max() > 1.0  # not clipped: the log-prob belongs to the sample


def test_box_density_integrates_to_one():
    head = policy_head(spaces.Box(-1.0, 1.0, (1,)))
    x = np.linspace(-8.0, 8.0, 4001)[:, None]

    @jax.jit
    def log_prob(mean, x):
        return head.distribution(mean, head.init_params()).log_prob(x)

    density = np.exp(log_prob(np.full((4001, 1), 0.2), x))
    assert np.trapezoid(density, x[:, 0]) == pytest.approx(1.0, rel=1e-4)


# declared in another order than that of leaves, which is by name
COMPOSITE = spaces.Dict(
    [
        ("move", spaces.Box(-1.0, 1.0, (2,))),
        ("more", spaces.Tuple([spaces.Discrete(3, start=1), spaces.MultiDiscrete([2, 2])])),
    ]
)


def test_composite(key):
    """Log-prob, entropy and mode are those of the parts, summed by hand; so are samples."""
    head = policy_head(COMPOSITE, initial_std=0.5)
    params = head.init_params()
    assert head.num_outputs == 3 + 4 + 2 and not head.reads_features
    assert jax.tree.map(np.shape, params) == {"move": {"log_std": (2,)}, "more": ({}, {})}
    out = np.float32([[0.0, 1.0, 0.5, -0.5, 0.5, 1.0, 0.0, 0.25, -0.75]] * 2)
    action = {
        "move": np.float32([[0.75, -0.25], [0.25, -0.75]]),
        "more": (np.int32([3, 1]), np.int32([[1, 0], [0, 1]])),
    }

    @jax.jit
    def asked(action, keys):
        policy = head.distribution(out, params)
        samples = jax.vmap(policy.sample)(keys)
        return policy.log_prob(action), policy.entropy(), policy.mode(), samples

    log_prob, entropy, mode, samples = asked(action, jax.random.split(key, 4000))
    one, two, three = softmax(out[0, :3]), softmax(out[0, 3:5]), softmax(out[0, 5:7])
    chosen = [one[2] * two[1] * three[0], one[0] * two[0] * three[1]]
    z = (action["move"] - [0.25, -0.75]) / 0.5
    density = (-0.5 * z**2 - np.log(0.5) - 0.5 * np.log(2 * np.pi)).sum(-1)
    np.testing.assert_allclose(log_prob, np.log(chosen) + density, rtol=1e-5)
    wanted = sum(-(p * np.log(p)).sum() for p in (one, two, three))
    wanted += 2 * (0.5 * np.log(2 * np.pi * np.e) + np.log(0.5))
    np.testing.assert_allclose(entropy, [wanted] * 2, rtol=1e-5)
    np.testing.assert_array_equal(mode["more"][0], [2, 2])
    np.testing.assert_array_equal(mode["more"][1], [[1, 0], [1, 0]])
    np.testing.assert_allclose(mode["move"], [[0.25, -0.75]] * 2)
    assert jax.tree.structure(samples) == jax.tree.structure(action)
    for part, p, first in ((samples["more"][0], one, 1), (samples["more"][1][..., 0], two, 0)):
        shares = [(np.asarray(part) == first + i).mean() for i in range(len(p))]
        np.testing.assert_allclose(shares, p, atol=5 * 0.5 / np.sqrt(8000))
    moves = np.asarray(samples["move"], np.float64)
    np.testing.assert_allclose(moves.mean((0, 1)), [0.25, -0.75], atol=5 * 0.5 / np.sqrt(8000))
    np.testing.assert_allclose(moves.std((0, 1)), 0.5, atol=0.05)


@pytest.mark.full
def test_composite_is_the_same_eagerly(key):
    head = policy_head(COMPOSITE)
    out = np.linspace(-1.0, 2.0, 18, dtype=np.float32).reshape(2, 9)

    def asked(key):
        policy = head.distribution(out, head.init_params())
        sample = policy.sample(key)
        return policy.log_prob(sample), policy.entropy(), policy.mode(), sample

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6),
        jax.jit(asked)(key),
        asked(key),
    )


def test_parts_of_an_action_are_drawn_independently(key):
    head = policy_head(spaces.Tuple([spaces.Discrete(2)] * 2))
    one, other = jax.jit(lambda k: head.distribution(np.zeros((4000, 4)), ((), ())).sample(k))(key)
    assert np.corrcoef(one, other)[0, 1] == pytest.approx(0.0, abs=0.1)


def test_log_std_is_learned():
    head = policy_head(spaces.Box(-1.0, 1.0, (2,)))

    @jax.jit
    @jax.grad
    def gradient(params):
        return head.distribution(jnp.zeros((1, 2)), params).log_prob(jnp.array([[0.0, 2.0]])).sum()

    # d/dlog σ of -z²/2 - log σ = z² - 1
    np.testing.assert_allclose(gradient(head.init_params())["log_std"], [-1.0, 3.0], rtol=1e-5)


@pytest.mark.parametrize(
    ("space", "wanted"),
    [
        (spaces.MultiBinary(3), r"use MultiDiscrete\(\[2\] \* 3\)"),
        (spaces.Text(3), "use Discrete, MultiDiscrete, Box, Dict or Tuple"),
        (spaces.MultiDiscrete([[2, 2], [3, 3]]), "flatten it"),
        (spaces.Discrete(3, start=2**31 - 2), "not fit into int32, which JAX uses; count from 0"),
        (spaces.MultiDiscrete([3, 3], start=[0, -(2**40)]), "count from 0"),
        (spaces.Box(0, 255, (2,), np.uint8), "a Box of floats"),
        (
            spaces.Box(np.array([0.0, 1.0], np.float32), np.array([1.0, 1.0], np.float32)),
            "low < high",
        ),
    ],
)
def test_other_spaces_are_refused_with_the_cure(space, wanted):
    with pytest.raises(SpaceError, match=f"(?s)^action space .*{wanted}"):
        policy_head(space)
    parts = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Tuple([spaces.Discrete(2), space])})
    with pytest.raises(SpaceError, match=rf"(?s)^action space\['b'\]\[1\] .*{wanted}"):
        policy_head(parts)
