"""Masks of both kinds of environments: where they come from, and what is wrong with them."""

import dataclasses

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from masked_twins import FORBIDDEN, HostMaskedCounter, MaskedCounter

import rlkit
from rlkit.envs import make_env
from rlkit.envs.checking.check_env import check_env
from rlkit.envs.host.gymnasium import GymnasiumAdapter
from rlkit.envs.jittable.observation_wrappers import CastObservation, FlattenObservation, FrameStack
from rlkit.envs.jittable.vectorized import vectorize
from rlkit.envs.jittable.wrappers import TimeLimit
from rlkit.envs.probes.space_probes import AllowedActions
from rlkit.errors import EnvContractError, EnvFailedError, SpaceError
from rlkit.spaces import sample_allowed

NUM = 3


def steps(env, number=40):
    """Observations [T + 1, N, ...], true successors, rewards and ends, by allowed actions."""
    state, obs = env.reset(jax.random.key(0))
    seen, rows = [obs], []
    for time in range(number):
        key = jax.random.fold_in(jax.random.key(1), time)
        action = sample_allowed(env.action_space, key, jax.tree.map(jnp.asarray, obs))
        state, found = env.step(key, state, np.asarray(action))
        obs = found.obs
        seen.append(obs)
        rows.append((found.next_obs, found.reward, found.terminated | found.truncated))
    stack = lambda *x: np.stack([np.asarray(each) for each in x])  # noqa: E731
    return jax.tree.map(stack, *seen), jax.tree.map(stack, *rows)


def require_masks(seen, rows):
    next_obs, reward, done = rows
    for obs in (seen, next_obs):
        time = obs["observation"][..., 0]
        wanted = np.arange(3) != (time % 3)[..., None]
        np.testing.assert_array_equal(obs["action_mask"], wanted)
    assert seen["action_mask"].dtype == np.int8
    assert (reward > FORBIDDEN).all() and done.any() and not done.all()
    # after an end, what is acted on is the first observation, and the successor the last one
    assert (seen["observation"][1:][done][:, 0] == 0).all()
    assert (next_obs["observation"][done][:, 0] > 0).all()


@pytest.mark.full
def test_a_method_of_a_jax_environment_is_observed():
    env = vectorize(MaskedCounter(), NUM)
    require_masks(*steps(env))


@pytest.mark.full
def test_wrappers_hand_the_method_on():
    limited = CastObservation(TimeLimit(MaskedCounter(), 5), np.float32)
    env = vectorize(FrameStack(FlattenObservation(limited), 2), NUM)
    seen, rows = steps(env)
    last = lambda obs: {**obs, "observation": obs["observation"][..., 2:]}  # noqa: E731
    require_masks(last(seen), (last(rows[0]), *rows[1:]))


@pytest.mark.parametrize("by", ["info", "action_masks"])
@pytest.mark.parametrize(
    "vectorization", ["sync", pytest.param("async", marks=[pytest.mark.full, pytest.mark.process])]
)
def test_masks_of_gymnasium_environments_are_observed(by, vectorization):
    env = GymnasiumAdapter(
        HostMaskedCounter, NUM, by=by, action_masks=True, vectorization=vectorization
    )
    try:
        require_masks(*steps(env))
        saved = env.get_state()
        env.set_state(saved)
    finally:
        env.close()


@pytest.mark.full
def test_both_kinds_are_the_same():
    host = GymnasiumAdapter(HostMaskedCounter, NUM, action_masks=True)
    device = vectorize(MaskedCounter(), NUM)
    assert host.observation_space == device.observation_space
    jax.tree.map(np.testing.assert_array_equal, steps(host), steps(device))
    host.close()


def test_masks_of_the_members_of_a_mixture_are_observed():
    rlkit.register_env("test/Masked-v0", HostMaskedCounter)
    member = {"id": "test/Masked-v0", "arguments": {"by": "action_masks"}}
    env = make_env("rlkit/Mixture", NUM, envs=[member, member], action_masks=True)
    try:
        require_masks(*steps(env))
    finally:
        env.close()


class Forgetful(HostMaskedCounter):
    """Gives no mask after a termination, or after any step."""

    always = False

    def step(self, action):
        *rest, terminated, truncated, info = super().step(action)
        return *rest, terminated, truncated, {} if terminated or self.always else info


class AlwaysForgetful(Forgetful):
    always = True


def test_after_a_termination_no_mask_is_needed():
    env = GymnasiumAdapter(Forgetful, NUM, action_masks=True)
    steps(env)
    env.close()
    with pytest.raises(EnvFailedError, match="gave none after reset or step"):
        steps(GymnasiumAdapter(AlwaysForgetful, NUM, action_masks=True))


class CutStuck(MaskedCounter):
    """Allows nothing when its time is up, which is not the end of the task."""

    def action_mask(self, state):
        return super().action_mask(state) & (state.time < self.max_episode_steps)


class HostCutStuck(HostMaskedCounter):
    def _mask(self):
        return super()._mask() & (self.time < self.max_episode_steps)


def test_at_a_time_limit_something_must_be_allowed():
    """Its value is that of what could still be done."""
    env = GymnasiumAdapter(HostCutStuck, 1, action_masks=True)
    state, _ = env.reset(jax.random.key(0))
    for time in range(7):  # one of the actions is allowed, and does not reach the goal
        env.step(None, state, np.array([1 if time % 3 == 0 else 0]))
    with pytest.raises(EnvFailedError, match="environment 0 allows no action"):
        env.step(None, state, np.array([0]))
    assert any("allows no action in" in each for each in said(CutStuck()))


def test_taxi():
    env = make_env("gymnasium/Taxi-v4", 2, action_masks=True)
    assert env.observation_space["action_mask"] == spaces.MultiBinary(6)
    _, obs = env.reset(jax.random.key(0))
    one = gymnasium.make("Taxi-v4")
    one.reset(seed=0)
    for row in range(2):
        wanted = one.unwrapped.action_mask(int(obs["observation"][row]))
        np.testing.assert_array_equal(obs["action_mask"][row], wanted)
    env.close()
    without = make_env("gymnasium/Taxi-v4", 2)
    assert without.observation_space == spaces.Discrete(500)
    without.close()


class Stuck(MaskedCounter):
    """Allows nothing at time 2."""

    def action_mask(self, state):
        return super().action_mask(state) & (state.time != 2)


class HostStuck(HostMaskedCounter):
    def _mask(self):
        return super()._mask() & (self.time != 2)


class Short(MaskedCounter):
    def action_mask(self, state):
        return jnp.ones(2, bool)


class HostShort(HostMaskedCounter):
    def _info(self):
        return {"action_mask": np.ones(2, np.int8)}


@dataclasses.dataclass(frozen=True)
class ResetsItself(MaskedCounter):
    auto_reset: bool = True

    def step(self, key, state, action):
        state, obs, *rest, info = super().step(key, state, action)
        return state, obs, *rest, {**info, "final_observation": obs}


@pytest.mark.fast
def test_masks_of_wrong_sizes_and_of_environments_that_reset_themselves_are_refused():
    with pytest.raises(EnvContractError, match="action_mask returned 2 values for Discrete"):
        vectorize(Short(), 2)
    with pytest.raises(EnvContractError, match="put the mask into its observations"):
        vectorize(ResetsItself(), 2)
    with pytest.raises(SpaceError, match="leave it out: networks read a Dict as it is"):
        FlattenObservation(AllowedActions())


def test_gymnasium_environments_without_or_with_wrong_masks_are_refused():
    for env, options, said in (
        (
            "gymnasium/CartPole-v1",
            {},
            "gave none after reset or step; return it as info",
        ),
        (HostShort, {}, "the action mask has 2 values for Discrete"),
        ("gymnasium/Pendulum-v1", {}, "an action mask is for Discrete and MultiDiscrete"),
    ):
        make = make_env if isinstance(env, str) else GymnasiumAdapter
        with pytest.raises((EnvFailedError, EnvContractError, SpaceError), match=said):
            make(env, 1, action_masks=True, **options).reset(jax.random.key(0))


def test_a_state_without_an_allowed_action_is_an_error_on_the_host():
    env = GymnasiumAdapter(HostStuck, 1, action_masks=True)
    state, _ = env.reset(jax.random.key(0))
    env.step(None, state, np.array([1]))
    with pytest.raises(EnvFailedError, match="environment 0 allows no action in a running episode"):
        env.step(None, state, np.array([0]))


def said(env):
    return [str(finding) for finding in check_env(env, raise_on_error=False).findings]


def test_check_env_obeys_masks_and_tells_where_nothing_is_allowed():
    assert not any("allow" in each for each in said(MaskedCounter()))
    assert any("Stuck allows no action in" in each for each in said(Stuck()))
    found = said(HostMaskedCounter())
    assert any("pass action_masks=True to make_env" in each for each in found)
    assert not any("error" in each for each in found)
    assert any("HostStuck allows no action" in each for each in said(HostStuck()))
    by_method = said(HostMaskedCounter(by="action_masks"))
    assert any("pass action_masks=True to make_env" in each for each in by_method)
    assert any("allows no action" in each for each in said(HostStuck(by="action_masks")))


class Raises(HostMaskedCounter):
    """Refuses what is forbidden."""

    def step(self, action):
        assert self._mask()[action], "forbidden"
        return super().step(action)


@pytest.mark.parametrize("by", ["info", "action_masks"])
@pytest.mark.parametrize("observed", [True, False])
def test_check_env_plays_what_refuses_forbidden_actions(by, observed):
    if observed:
        found = said(GymnasiumAdapter(Raises, 3, by=by, action_masks=True))
    else:
        found = said(Raises(by=by))
    assert not any("forbidden" in each or "error" in each for each in found), found
