"""Composite action spaces: sampling, clipping and shapes, part by part."""

import jax
import numpy as np
import pytest
from gymnasium import spaces as gym

from rlkit import spaces
from rlkit.envs.jittable.vectorized import vectorize
from rlkit.envs.probes.space_probes import MixedAction
from rlkit.errors import EnvContractError, SpaceError

# declared in another order than that of leaves, which is by name
SPACE = gym.Dict(
    [
        ("move", gym.Box(np.float32([-1, 0]), np.float32([1, 4]))),
        ("more", gym.Tuple([gym.Discrete(3, start=-1), gym.MultiDiscrete([2, 3])])),
    ]
)


def test_samples_are_in_every_part_of_the_space(key):
    found = jax.jit(lambda k: spaces.sample(SPACE, k, 500))(key)
    jax.tree.map(np.testing.assert_array_equal, found, spaces.sample(SPACE, key, 500))
    wanted = spaces.example(SPACE, (500,))
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for leaf, x, like in zip(
        spaces.leaves(SPACE), jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True
    ):
        assert (x.shape, x.dtype) == (like.shape, like.dtype)
        assert all(leaf.contains(row) for row in np.asarray(x, leaf.dtype))
        low, high = spaces.bounds(leaf)
        assert (np.asarray(x).min(0) <= low + 0.05).all()
        assert (np.asarray(x).max(0) >= high - 0.05).all()


def test_parts_are_drawn_independently(key):
    one, other = spaces.sample(gym.Tuple([gym.Discrete(4)] * 2), key, 4000)
    assert np.corrcoef(one, other)[0, 1] == pytest.approx(0.0, abs=0.1)


def test_clipping_is_for_boxes():
    action = {
        "move": np.float32([[-3.0, -3.0], [0.5, 9.0]]),
        "more": (np.int32([7, 0]), np.int32([[0, 9], [1, 2]])),
    }
    clipped = spaces.clip(SPACE, action)
    np.testing.assert_array_equal(clipped["move"], [[-1.0, 0.0], [0.5, 4.0]])
    jax.tree.map(np.testing.assert_array_equal, clipped["more"], action["more"])


@pytest.mark.parametrize("numpy", [np, jax.numpy])
def test_clipped_actions_are_within_bounds_that_float32_does_not_have(numpy):
    box = gym.Box(np.array([-0.1, -np.inf, 0.5]), np.array([0.3, 0.1, np.inf]), dtype=np.float64)
    extreme = numpy.float32([[-9.0, -9.0, -9.0], [9.0, 9.0, 9.0]])
    clipped = np.asarray(spaces.clip(box, extreme))
    assert clipped.dtype == np.float32 and all(box.contains(row) for row in clipped)
    np.testing.assert_allclose(clipped, [[-0.1, -9.0, 0.5], [0.3, 0.1, 9.0]], rtol=1e-6)


@pytest.mark.parametrize("large", [np.inf, np.finfo(np.float32).max])
def test_dimensions_without_bounds_are_drawn_from_a_normal_distribution(key, large):
    box = gym.Box(np.float32([-large, -2, -1]), np.float32([large, large, 1]))
    np.testing.assert_array_equal(spaces.is_bounded(box), [False, False, True])
    found = np.asarray(spaces.sample(box, key, 2000))
    np.testing.assert_allclose(found[:, :2].std(0), 1.0, atol=0.1)
    assert np.abs(found[:, 2]).max() < 1.0


def test_random_actions_without_masks_are_samples(key):
    obs = {"a": np.zeros((5, 2))}
    jax.tree.map(
        np.testing.assert_array_equal,
        spaces.sample_allowed(SPACE, key, obs),
        spaces.sample(SPACE, key, 5),
    )


def test_a_mask_is_refused():
    told = r"an action mask is for Discrete and MultiDiscrete actions, not for Dict.*; leave it out"
    with pytest.raises(SpaceError, match=told):
        spaces.sample_allowed(SPACE, jax.random.key(0), {"action_mask": np.ones((5, 3))})


CHECKS = {
    "action space": spaces.check_action_space,
    "observation space": spaces.check_observation_space,
}


@pytest.mark.parametrize("what", CHECKS)
@pytest.mark.parametrize("names", [(1, 2), ("a", 2)])
def test_parts_of_a_dict_have_names(what, names):
    """Others do not survive JSON, and JAX cannot sort a mixture."""
    space = gym.Tuple([gym.Dict({name: gym.Discrete(2) for name in names})])
    with pytest.raises(SpaceError, match=rf"{what}\[0\] has a part called ., which is no text"):
        CHECKS[what](space)


@pytest.mark.parametrize("what", CHECKS)
@pytest.mark.parametrize("empty", [gym.Dict({}), gym.Tuple([])])
def test_a_space_has_parts(what, empty):
    with pytest.raises(SpaceError, match=f"{what} .* holds nothing; give it at least one part"):
        CHECKS[what](empty)
    with pytest.raises(SpaceError, match=rf"{what}\['a'\] .* holds nothing"):
        CHECKS[what](gym.Dict({"a": empty, "b": gym.Discrete(2)}))


def test_a_batch_in_jax_says_how_actions_are_structured(key):
    env = vectorize(MixedAction(), 2)
    state, _ = env.reset(key)
    with pytest.raises(EnvContractError, match=r"structured like .*; pass a dict for a Dict"):
        env.step(key, state, {"jump": np.zeros(2, np.int32)})
