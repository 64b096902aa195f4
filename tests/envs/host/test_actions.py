"""Composite actions on their way to Gymnasium's environments: split, clipped, checked and shown."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from composite_twins import HostLevers, Levers
from gymnasium import spaces

from rlkit.envs import check_env
from rlkit.envs.host import envpool
from rlkit.envs.host.actions import as_lists, valid_actions
from rlkit.envs.host.env_state import load_env, save_env
from rlkit.envs.host.gymnasium import GymnasiumAdapter
from rlkit.errors import ConfigError, EnvContractError, EnvFailedError, SpaceError
from rlkit.spaces import sample

SPACE = Levers.action_space


def given(**parts):
    return {
        "pull": np.zeros((2, 2)),
        "flip": (np.ones((2, 2), np.int32), np.zeros(2, np.int32)),
    } | parts


@pytest.mark.parametrize("vectorization", ["sync", pytest.param("async", marks=pytest.mark.full)])
def test_each_environment_gets_its_row_of_every_part(key, vectorization):
    """As Gymnasium steps them by hand, from copies, in the dtypes of the space."""
    adapter = GymnasiumAdapter(HostLevers, 3, vectorization=vectorization)
    hand = [HostLevers() for _ in range(3)]
    state, _ = adapter.reset(key)
    for env in hand:
        env.reset()
    for number in range(12):
        action = sample(adapter.action_space, jax.random.fold_in(key, number), 3)
        action = jax.tree.map(np.asarray, action | {"pull": 3 * action["pull"]})
        before = jax.tree.map(np.copy, action)
        state, step = adapter.step(key, state, action)
        jax.tree.map(np.testing.assert_array_equal, action, before)
        for index, env in enumerate(hand):
            own = valid_actions(SPACE, jax.tree.map(lambda x, i=index: x[i : i + 1], action), 1)
            own = jax.tree.map(lambda x: x[0], own)
            after, reward, terminated, truncated, _ = env.step(own)
            np.testing.assert_array_equal(step.next_obs[index], after)
            assert (step.reward[index], step.terminated[index], step.truncated[index]) == (
                reward,
                terminated,
                truncated,
            )
            if terminated or truncated:
                env.reset()
    adapter.close()


@pytest.mark.fast
def test_parts_have_the_dtypes_and_bounds_of_the_space():
    action = given(pull=np.float64([[-9.0, 0.5], [9.0, -0.5]]))
    found = valid_actions(SPACE, action, 2)
    np.testing.assert_array_equal(found["pull"], [[-1.0, 0.5], [1.0, -0.5]])
    assert found["pull"].dtype == np.float32 and found["flip"][0].dtype == np.int64
    assert not np.shares_memory(found["pull"], action["pull"])


@pytest.mark.fast
@pytest.mark.parametrize(
    ("action", "told"),
    [
        (np.zeros(2), r"actions are a ndarray; pass a dict of 'pull', 'flip'"),
        ({"pull": np.zeros((2, 2))}, r"actions are a dict of 'pull'; pass a dict of 'pull', 'f"),
        (given(flip=np.zeros(2)), r"actions\['flip'\] are a ndarray; pass a tuple of 2"),
        (given(flip=(np.zeros(2),)), r"actions\['flip'\] are a tuple of 1; pass a tuple of 2"),
        (
            given(flip=(np.zeros((2, 2)), np.zeros((2, 1)))),
            r"actions\['flip'\]\[1\] have shape \(2, 1\); pass \(2,\)",
        ),
        (given(pull=np.zeros((3, 2))), r"actions\['pull'\] have shape \(3, 2\); pass \(2, 2\)"),
    ],
)
def test_actions_of_another_structure_are_refused(action, told):
    with pytest.raises(EnvContractError, match=told):
        valid_actions(SPACE, action, 2)


class Icy(HostLevers):
    def step(self, action):
        raise RuntimeError("it slips")


def test_an_error_shows_the_action(key):
    adapter = GymnasiumAdapter(Icy, 2)
    state, _ = adapter.reset(key)
    told = r"'pull': \[0\.0, 0\.0\], .*'flip': \(\[1, 1\], 0\)|'flip': .*, 'pull': \[0\.0, 0\.0\]"
    with pytest.raises(EnvFailedError, match=told):
        adapter.step(key, state, given())
    assert as_lists(given())["flip"] == ([[1, 1], [1, 1]], [0, 0])


@pytest.mark.fast
def test_wrappers_that_keep_an_action_can_be_saved():
    env = gymnasium.wrappers.StickyAction(HostLevers(), 0.5)
    env.action_space.seed(0)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    saved, actions = save_env(env), [env.action_space.sample() for _ in range(6)]
    wanted = [env.step(action)[1] for action in actions]
    other = gymnasium.wrappers.StickyAction(HostLevers(), 0.5)
    other.reset(seed=1)
    load_env(other, saved)
    assert [other.step(action)[1] for action in actions] == wanted


@pytest.mark.fast
@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("rescale_actions", r"rescale_actions=True, but .*Dict.*; leave rescale_actions out"),
        ("action_masks", r"an action mask is for Discrete and MultiDiscrete .*Dict.*; leave it"),
    ],
)
def test_settings_for_actions_without_parts_are_refused(setting, told):
    with pytest.raises(ConfigError, match=told):
        GymnasiumAdapter(HostLevers, 2, **{setting: True})


@pytest.mark.fast
def test_envpool_has_no_parts(monkeypatch):
    monkeypatch.setattr(envpool, "convert", lambda space: SPACE)
    with pytest.raises(SpaceError, match=r"actions of envpool/CartPole-v1 have parts: Dict.*; use"):
        envpool.EnvPoolAdapter("CartPole-v1", 2)


class Wide(HostLevers):
    """Actions whose Box is twice as wide; part of it is not bounded."""

    action_space = spaces.Dict(
        {
            "pull": spaces.Box(-2.0, 2.0, (2,)),
            "flip": SPACE["flip"],
            "more": spaces.Box(-np.inf, np.inf, (1,)),
        }
    )


class Careless(HostLevers):
    """Writes into the action that it got."""

    def step(self, action):
        result = super().step(action)
        action["pull"][:] = 0.0
        return result


class Replacing(HostLevers):
    """Puts another array into the dict that it got, of a kind that NumPy cannot compare by `==`."""

    def step(self, action):
        result = super().step(action)
        action["pull"] = jnp.asarray(action["pull"])
        return result


@pytest.mark.parametrize("num_envs", [None, pytest.param(2, marks=pytest.mark.full)])
def test_check_env_plays_parts(num_envs):
    env = HostLevers() if num_envs is None else GymnasiumAdapter(HostLevers, num_envs)
    report = check_env(env)
    env.close()
    assert report.ok and not report.warnings, str(report)


def test_check_env_sees_mistakes_with_parts():
    found = [finding.what for finding in check_env(Wide(), num_steps=20).findings]
    advice = [what for what in found if "action_space" in what]
    assert advice == ["Wide.action_space['pull'] ranges from -2 to 2, not from -1 to 1"]
    for env in (Careless(), Replacing()):
        warned = [finding.what for finding in check_env(env, num_steps=20).warnings]
        assert f"{type(env).__name__}.step changes the action in place" in warned


def test_check_env_plays_parts_of_an_environment_in_jax():
    report = check_env(Levers(), num_steps=40)
    assert report.ok, str(report)
