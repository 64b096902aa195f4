"""`EnvPoolAdapter` with the real EnvPool: no reset rows, one seed per environment, clear errors."""

import itertools
import os
import sys

import jax
import numpy as np
import pytest
from gymnasium import spaces

from rlkit.envs import EnvAdapter, EnvPoolAdapter
from rlkit.envs.host.base import HostAdapter
from rlkit.errors import ConfigError, EnvContractError, EnvFailedError, SpaceError, UnknownNameError
from rlkit.spaces import jax_dtype, map_space

pytestmark = pytest.mark.fast

NUM_ENVS = 8


def random_actions(space, num_steps, num_envs, seed=0):
    """[num_steps, num_envs, ...]"""
    space.seed(seed)
    return np.stack([[space.sample() for _ in range(num_envs)] for _ in range(num_steps)])


def rollout(adapter, key, actions):
    """(observations acted on, their steps), leaves [T, N, ...]."""
    state, obs = adapter.reset(key)
    seen, steps = [], []
    for action in actions:
        seen.append(obs)
        state, step = adapter.step(None, state, action)
        steps.append(step.replace(info={}))
        obs = step.obs
    adapter.close()
    return jax.tree.map(lambda *x: np.stack(x), *seen), jax.tree.map(lambda *x: np.stack(x), *steps)


def assert_same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def cartpole_successor(obs, action):
    """An Euler step of Barto, Sutton and Anderson's cart-pole, implemented independently."""
    x, x_dot, theta, theta_dot = np.moveaxis(np.asarray(obs, np.float64), -1, 0)
    gravity, cart, pole, half_length, dt = 9.8, 1.0, 0.1, 0.5, 0.02
    force = np.where(action == 1, 10.0, -10.0)
    temp = (force + pole * half_length * theta_dot**2 * np.sin(theta)) / (cart + pole)
    theta_acc = (gravity * np.sin(theta) - np.cos(theta) * temp) / (
        half_length * (4 / 3 - pole * np.cos(theta) ** 2 / (cart + pole))
    )
    x_acc = temp - pole * half_length * theta_acc * np.cos(theta) / (cart + pole)
    return np.stack(
        [x + dt * x_dot, x_dot + dt * x_acc, theta + dt * theta_dot, theta_dot + dt * theta_acc],
        axis=-1,
    )


@pytest.fixture(scope="module")
def cartpole():
    """500 random steps of CartPole in 8 environments: (actions, obs, steps)."""
    adapter = EnvPoolAdapter("CartPole-v1", NUM_ENVS)
    actions = random_actions(adapter.action_space, 500, NUM_ENVS)
    return actions, *rollout(adapter, jax.random.key(7), actions)


def test_every_row_of_cartpole_obeys_the_physics_also_after_an_end(cartpole):
    actions, obs, step = cartpole
    ends = step.terminated | step.truncated
    assert ends[:-1].sum() > 100
    np.testing.assert_allclose(step.next_obs, cartpole_successor(obs, actions), atol=2e-6)
    # A reset row has reward 0.
    np.testing.assert_array_equal(step.reward, np.ones_like(step.reward))


def test_cartpole_ends_where_the_pole_falls_and_starts_near_zero(cartpole):
    _, obs, step = cartpole
    fallen = (np.abs(step.next_obs[..., 0]) > 2.4) | (
        np.abs(step.next_obs[..., 2]) > 12 * np.pi / 180
    )
    np.testing.assert_array_equal(step.terminated, fallen)
    assert not step.truncated.any()
    ends = step.terminated
    assert (np.abs(step.obs[ends]) <= 0.05).all()
    assert_same(step.obs[~ends], step.next_obs[~ends])
    assert_same(obs[1:], step.obs[:-1])


def test_lengths_and_returns_of_later_episodes_are_those_of_the_physics(cartpole):
    actions, obs, step = cartpole
    checked = 0
    for n in range(NUM_ENVS):
        (ends,) = np.nonzero(step.terminated[:, n])
        for before, end in itertools.pairwise(ends):  # from the second episode on
            x, length = obs[before + 1, n].astype(np.float64), 0
            while abs(x[0]) <= 2.4 and abs(x[2]) <= 12 * np.pi / 180:
                x, length = cartpole_successor(x, actions[before + 1 + length, n]), length + 1
            assert length == end - before == step.reward[before + 1 : end + 1, n].sum()
            checked += 1
    assert checked > 100


def test_a_time_limit_truncates_with_the_true_successor():
    adapter = EnvPoolAdapter("Pendulum-v1", 3, max_episode_steps=5)
    assert adapter.max_episode_steps == 5
    actions = random_actions(adapter.action_space, 23, 3)
    obs, step = rollout(adapter, jax.random.key(0), actions)
    theta, speed, torque = np.arctan2(obs[..., 1], obs[..., 0]), obs[..., 2], actions[..., 0]
    new_speed = np.clip(speed + (15 * np.sin(theta) + 3 * torque) * 0.05, -8, 8)
    np.testing.assert_allclose(step.next_obs[..., 2], new_speed, atol=2e-5)
    np.testing.assert_allclose(step.next_obs[..., 0], np.cos(theta + new_speed * 0.05), atol=2e-5)
    np.testing.assert_allclose(
        step.reward, -(theta**2 + 0.1 * speed**2 + 0.001 * torque**2), rtol=1e-4, atol=1e-5
    )
    ends = np.arange(1, 24) % 5 == 0
    np.testing.assert_array_equal(step.truncated, np.repeat(ends[:, None], 3, axis=1))
    assert not step.terminated.any()
    assert (np.abs(step.obs[ends][..., 2]) <= 1.0).all()  # a start, in any direction and slow
    assert (step.obs[ends] != step.next_obs[ends]).any(-1).all()


@pytest.mark.parametrize("env_id", ["HalfCheetah-v5", "Hopper-v5"])
def test_no_action_is_ignored_by_mujoco(env_id):
    adapter = EnvPoolAdapter(env_id, 4, max_episode_steps=3)
    actions = random_actions(adapter.action_space, 6, 4)
    other = actions.copy()
    other[3] = -actions[3]  # the step after every environment was reset
    obs, step = rollout(adapter, jax.random.key(0), actions)
    other_obs, other_step = rollout(adapter.remake(4), jax.random.key(0), other)
    assert step.truncated[2].all()
    assert_same(obs[:4], other_obs[:4])
    assert (step.next_obs[3] != other_step.next_obs[3]).any(-1).all()
    assert (step.reward[3] != other_step.reward[3]).all()
    assert (step.reward != 0).all()


def test_hopper_falls_and_terminates():
    adapter = EnvPoolAdapter("Hopper-v5", 4)
    assert adapter.max_episode_steps == 1000
    _, step = rollout(adapter, jax.random.key(0), random_actions(adapter.action_space, 150, 4))
    assert step.terminated.any(0).all() and not step.truncated.any()
    assert (np.abs(step.obs[step.terminated][:, 0] - 1.25) <= 0.005).all()  # height of a start
    height, angle = step.next_obs[..., 0], step.next_obs[..., 1]
    np.testing.assert_array_equal(step.terminated, (height < 0.7) | (np.abs(angle) > 0.2))


def test_infos_of_ended_episodes_and_clipped_actions():
    adapter = EnvPoolAdapter("HalfCheetah-v5", 2, max_episode_steps=2)
    action = np.array(
        [[9.0, -9.0, 0.5, 0.0, 0.0, 1.0], [0.0, 0.25, 0.0, 0.0, 0.0, -0.5]], np.float32
    )
    state, _ = adapter.reset(jax.random.key(0))
    state, step = adapter.step(None, state, action)
    assert step.info == {}
    _, step = adapter.step(None, state, action)
    assert set(step.info) == {"reward_ctrl", "reward_run", "x_position", "x_velocity"}
    np.testing.assert_allclose(
        step.info["reward_ctrl"], -0.1 * (np.clip(action, -1, 1) ** 2).sum(-1), rtol=1e-6
    )
    np.testing.assert_allclose(
        step.info["reward_run"] + step.info["reward_ctrl"], step.reward, rtol=1e-5
    )
    assert all(value.dtype == np.float32 and value.shape == (2,) for value in step.info.values())


def test_infos_are_zero_where_no_episode_ended():
    adapter = EnvPoolAdapter("Hopper-v5", 4)
    state, _ = adapter.reset(jax.random.key(0))
    for action in random_actions(adapter.action_space, 150, 4):
        state, step = adapter.step(None, state, action)
        if step.terminated.any() and not step.terminated.all():
            break
    assert (step.info["x_velocity"][step.terminated] != 0).all()
    assert (step.info["x_velocity"][~step.terminated] == 0).all()


def test_actions_are_rescaled_to_the_bounds():
    plain, scaled = (
        EnvPoolAdapter("Pendulum-v1", 3),
        EnvPoolAdapter("Pendulum-v1", 3, rescale_actions=True),
    )
    assert plain.action_space == spaces.Box(-2.0, 2.0, (1,), np.float32)
    assert scaled.action_space == spaces.Box(-1.0, 1.0, (1,), np.float32)
    a = rollout(plain, jax.random.key(0), [np.float32([[-2], [0.5], [2]])] * 3)
    assert_same(a, rollout(scaled, jax.random.key(0), [np.float32([[-1], [0.25], [1]])] * 3))
    assert_same(a, rollout(plain, jax.random.key(0), [np.float32([[-7], [0.5], [np.inf]])] * 3))
    assert_same(
        a, rollout(scaled.remake(3), jax.random.key(0), [np.float32([[-np.inf], [0.25], [3]])] * 3)
    )
    with pytest.raises(SpaceError, match="finite bounds"):
        EnvPoolAdapter("CartPole-v1", 2, rescale_actions=True)


@pytest.mark.parametrize(
    "env_id, kwargs",
    [("Breakout-v5", {"episodic_life": True}), ("Pong-v5", {"max_episode_steps": 9})],
)
def test_atari_frames_are_channels_last_and_stacked_in_every_row(env_id, kwargs):
    adapter = EnvPoolAdapter(env_id, 2, **kwargs)
    assert adapter.observation_space == spaces.Box(0, 255, (84, 84, 4), np.uint8)
    obs, step = rollout(adapter, jax.random.key(0), random_actions(adapter.action_space, 120, 2))
    assert obs.dtype == np.uint8 and obs.shape == (120, 2, 84, 84, 4)
    ends = step.terminated | step.truncated
    assert ends[:-1].any()
    assert (ends == step.truncated).all() == ("max_episode_steps" in kwargs)
    # The stack moves on by one frame in every row; after a reset it would not.
    np.testing.assert_array_equal(step.next_obs[..., :3], obs[..., 1:])
    assert len(np.unique(obs[-1])) > 2 and (np.diff(step.next_obs.astype(int), axis=0) != 0).any()


@pytest.mark.parametrize(
    "env_id",
    ["CartPole-v1", "FrozenLake-v1", "FetchReach-v4", "LunarLander-v3", "MiniGrid-Empty-5x5-v0"],
)
def test_observations_are_as_the_space_says(env_id):
    adapter = EnvPoolAdapter(env_id, 2)
    assert (
        isinstance(adapter, EnvAdapter)
        and isinstance(adapter, HostAdapter)
        and not adapter.is_jittable
    )
    obs, step = rollout(adapter, jax.random.key(0), random_actions(adapter.action_space, 30, 2))
    for tree in (obs, step.obs, step.next_obs):
        shapes = map_space(lambda leaf: (leaf.shape, jax_dtype(leaf)), adapter.observation_space)
        assert jax.tree.map(lambda x: (x.shape[2:], x.dtype), tree) == shapes
        for n in range(2):
            assert all(
                adapter.observation_space.contains(jax.tree.map(lambda x, t=t, n=n: x[t, n], tree))
                for t in range(30)
            )
    assert step.reward.dtype == np.float32 and step.terminated.dtype == step.truncated.dtype == bool


def test_bounds_that_stand_for_infinity_are_infinite():
    # EnvPool writes [2.2e-308, 1.8e308] for these: the smallest positive number, not the lowest
    space = EnvPoolAdapter("CartpoleBalance-v1", 1).observation_space
    assert isinstance(space, spaces.Dict)
    assert all(
        np.isneginf(part.low).all() and np.isposinf(part.high).all() for part in space.values()
    )


def test_arrays_are_not_overwritten_by_later_steps():
    adapter = EnvPoolAdapter("Pendulum-v1", 2, max_episode_steps=4)
    state, obs = adapter.reset(jax.random.key(0))
    kept = [(obs, obs.copy())]
    for action in random_actions(adapter.action_space, 200, 2):
        state, step = adapter.step(None, state, action)
        kept += [
            (x, x.copy())
            for x in (step.obs, step.next_obs, step.reward, step.terminated, step.truncated)
        ]
    assert all(np.array_equal(now, then) for now, then in kept)


def test_the_key_alone_decides_the_run():
    adapter = EnvPoolAdapter("CartPole-v1", 4)
    actions = random_actions(adapter.action_space, 60, 4)
    run = rollout(adapter, jax.random.key(0), actions)
    assert_same(run, rollout(adapter, jax.random.key(0), actions))  # the same adapter, reset again
    assert_same(
        run,
        rollout(
            EnvPoolAdapter("envpool/CartPole-v1", 4, num_threads=1), jax.random.key(0), actions
        ),
    )
    other = rollout(adapter, jax.random.key(1), actions)
    starts = np.concatenate([run[0][0], other[0][0]])
    assert len(np.unique(starts, axis=0)) == 8


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Hopper-v5"])
def test_a_block_of_several_keys_is_the_run_of_its_key(env_id):
    keys = jax.random.split(jax.random.key(3), 3)
    adapter = EnvPoolAdapter(env_id, 6)
    actions = random_actions(adapter.action_space, 80, 6)
    joint = rollout(adapter, keys, actions)
    assert joint[1].terminated.any()
    for s, key in enumerate(keys):
        block = slice(2 * s, 2 * s + 2)
        single = rollout(adapter.remake(2), key, actions[:, block])
        assert_same(jax.tree.map(lambda x, block=block: x[:, block], joint), single)


def test_keys_that_cannot_share_the_environments_are_refused():
    with pytest.raises(ConfigError, match="4 environments cannot be split evenly over 3 seeds"):
        EnvPoolAdapter("CartPole-v1", 4).reset(jax.random.split(jax.random.key(0), 3))


def test_an_end_in_the_step_of_the_time_limit_is_called_truncated():
    # A limit of EnvPool that the class's docstring tells of; if this fails, EnvPool has learnt to
    # tell: correct the docstring.
    adapter = EnvPoolAdapter("CartPole-v1", 16, max_episode_steps=9)
    _, step = rollout(adapter, jax.random.key(0), np.ones((9, 16), int))
    both = np.abs(step.next_obs[8, :, 2]) > 12 * np.pi / 180
    assert both.any() and step.truncated[8][both].all() and not step.terminated[8][both].any()


def test_a_reset_row_of_envpool_is_an_error(monkeypatch):
    # The pool's own reset is made to do nothing, so EnvPool resets by itself in the step after an
    # end.
    adapter = EnvPoolAdapter("Pendulum-v1", 2, max_episode_steps=3)
    state, _ = adapter.reset(jax.random.key(0))
    monkeypatch.setattr(
        adapter, "_reset_rows", lambda env_ids: np.zeros((len(env_ids), 3), np.float32)
    )
    actions = random_actions(adapter.action_space, 4, 2)
    for action in actions[:3]:
        state, _ = adapter.step(None, state, action)
    with pytest.raises(EnvFailedError, match="spent a step on a reset of environment 0"):
        adapter.step(None, state, actions[3])


def test_nan_names_the_environment_and_the_adapter_can_be_reset():
    adapter = EnvPoolAdapter("Pendulum-v1", 3)
    state, _ = adapter.reset(jax.random.key(0))
    with pytest.raises(EnvFailedError, match="environment 1 returned"):  # EnvPool lets NaN through
        adapter.step(None, state, np.float32([[0], [np.nan], [0]]))
    with pytest.raises(EnvContractError, match=r"not running; call reset"):
        adapter.step(None, state, np.zeros((3, 1), np.float32))
    state, _ = adapter.reset(jax.random.key(0))
    adapter.step(None, state, np.zeros((3, 1), np.float32))


def test_halves_of_a_step_and_their_order():
    adapter = EnvPoolAdapter("CartPole-v1", 2)
    action = np.array([0, 1])
    with pytest.raises(EnvContractError, match="not running"):
        adapter.step_async(action)
    adapter.reset(jax.random.key(0))
    with pytest.raises(EnvContractError, match="not stepping"):
        adapter.step_wait()
    adapter.step_async(action)
    with pytest.raises(EnvContractError, match="is stepping"):
        adapter.step_async(action)
    halves = adapter.step_wait()
    adapter.step_async(1 - action)
    state, _ = adapter.reset(jax.random.key(0))  # in the middle of a step, which is dropped
    assert_same(halves, adapter.step(None, state, action)[1])


def test_a_state_of_an_earlier_reset_is_refused():
    adapter = EnvPoolAdapter("CartPole-v1", 2)
    state, _ = adapter.reset(jax.random.key(0))
    adapter.reset(jax.random.key(1))
    with pytest.raises(EnvContractError, match="create one adapter for each"):
        adapter.step(None, state, np.array([0, 1]))


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts threads through /proc")
def test_threads_start_with_reset_and_end_with_close():
    def threads():
        return set(os.listdir("/proc/self/task"))

    # Whatever threads JAX starts, it has started now; some of those may end at any time.
    key = jax.random.split(jax.random.key(0), 2)[0]
    before = threads()
    adapter = EnvPoolAdapter("HalfCheetah-v5", 4, num_threads=3)
    assert not threads() - before
    adapter.close()
    for _ in range(2):
        adapter.reset(key)
        assert len(threads() - before) >= 3
        adapter.step_async(np.zeros((4, 6), np.float32))
        adapter.close()  # in the middle of a step
        adapter.close()
        assert not threads() - before


@pytest.mark.parametrize(
    "action, problem",
    [
        (np.array([0, 1]), r"shape \(2,\); pass an array of shape \(3,\)"),
        (np.array([0, 1, 2]), r"not in Discrete\(2\)"),
        (np.array([0, -1, 1]), r"not in Discrete\(2\)"),
        (np.array([0.0, 1.0, 1.0]), "pass integers"),
    ],
)
def test_actions_that_envpool_would_read_outside_of_memory_for_are_refused(action, problem):
    adapter = EnvPoolAdapter("CartPole-v1", 3)
    state, _ = adapter.reset(jax.random.key(0))
    state, _ = adapter.step(None, state, np.array([0, 1, 1]))
    with pytest.raises(ConfigError, match=problem):
        adapter.step(None, state, action)
    adapter.step(None, state, jax.numpy.array([0, 1, 1]))


def test_an_unknown_name_gets_a_hint():
    with pytest.raises(
        UnknownNameError, match="'envpool/HalfChetah-v5'; did you mean 'envpool/HalfCheetah-v5'"
    ):
        EnvPoolAdapter("HalfChetah-v5", 2)
    with pytest.raises(UnknownNameError, match=r"envpool.list_all_envs\(\) lists all \d+"):
        EnvPoolAdapter("?!?!?!?!?!", 2)


@pytest.mark.parametrize(
    "kwargs, problem",
    [
        (
            {"frame_skips": 4},
            r"unexpected keyword argument 'frame_skips'.*; it takes .*frame_skip=4",
        ),
        (
            {"frame_skip": "four"},
            r"^envpool/Pong-v5 rejects its arguments: [^\n]*; it takes .*frame_skip=4[^\n]*$",
        ),
        ({"seed": 3}, r"does not take seed; leave it out: reset\(key\)"),
        ({"batch_size": 1}, "does not take batch_size"),
        ({"render_mode": "rgb_array"}, "gymnasium/"),
        ({"max_episode_steps": 0}, "max_episode_steps must be a positive integer"),
        ({"num_threads": -1}, "num_threads must be a positive integer"),
    ],
)
def test_arguments_that_cannot_work_are_refused_at_once(kwargs, problem):
    with pytest.raises(ConfigError, match=problem):
        EnvPoolAdapter("Pong-v5", 2, **kwargs)


def test_other_things_that_cannot_be():
    with pytest.raises(ConfigError, match="num_envs"):
        EnvPoolAdapter("CartPole-v1", 0)
    with pytest.raises(ConfigError, match="game for 2 players"):
        EnvPoolAdapter("Go9x9-v1", 2)
    with pytest.raises(ConfigError, match=r"gymnasium/\.\.\. with render_mode"):
        EnvPoolAdapter("CartPole-v1", 2).render()


def test_without_the_package_the_error_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(ConfigError, match="; pip install envpool"):
        EnvPoolAdapter("CartPole-v1", 2)


def test_remake_keeps_the_recipe():
    spec = ("envpool/Pendulum-v1", {"max_episode_steps": 7, "rescale_actions": True})
    adapter = EnvPoolAdapter("Pendulum-v1", 2, spec=spec, **spec[1]).remake(5)
    assert adapter.num_envs == 5 and adapter.spec == spec and adapter.max_episode_steps == 7
    assert adapter.action_space == spaces.Box(-1.0, 1.0, (1,), np.float32)
