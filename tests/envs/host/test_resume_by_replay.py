"""`ResumeByReplay`: what draws from its own generator only goes on where it was saved."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces, wrappers

from rlkit.envs import ResumeByReplay, check_env
from rlkit.envs.host.actions import arrays_of
from rlkit.envs.host.env_state import load_env, save_env
from rlkit.envs.host.plain_bytes import pack, unpack
from rlkit.errors import EnvStateError


class Walk(gymnasium.Env):
    """A walk with random steps; what it knows is in no place that a wrapper could find."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def __init__(self, action_space=None):
        self.action_space = action_space or spaces.Discrete(3)
        self._hidden = iter(())

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._hidden = self._walk()
        return np.array([next(self._hidden)], np.float32), {}

    def step(self, action):
        self._last = sum(np.float32(np.sum(part)) for part in arrays_of(action))
        place = next(self._hidden)
        return np.array([place], np.float32), 0.0, bool(abs(place) > 9), False, {}

    def _walk(self):
        place = self.np_random.normal()
        while True:
            yield place
            place += self._last + self.np_random.normal()


def episode(env, actions):
    seen = []
    for action in actions:
        obs, _, terminated, truncated, _ = env.step(action)
        seen.append((*obs, terminated, truncated))
        if terminated or truncated:
            seen.append(tuple(env.reset()[0]))
    return seen


@pytest.mark.fast
@pytest.mark.parametrize(
    "action_space",
    [
        spaces.Discrete(3),
        spaces.Box(-1, 1, (2,)),
        spaces.MultiDiscrete([2, 3]),
        spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,))]),
        spaces.Dict({"lean": spaces.Box(-1, 1, (2,)), "jump": spaces.Discrete(2)}),
    ],
    ids=["discrete", "box", "multi_discrete", "tuple", "dict"],
)
@pytest.mark.parametrize("steps", [0, 3, 40])  # 40: in an episode that no seed began
def test_another_copy_goes_on_where_one_was_saved(action_space, steps):
    env, other = (wrappers.TimeLimit(ResumeByReplay(Walk(action_space)), 12) for _ in range(2))
    action_space.seed(1)
    env.reset(seed=7)
    episode(env, [action_space.sample() for _ in range(steps)])
    saved = save_env(env)
    actions = [action_space.sample() for _ in range(30)]
    wanted = episode(env, actions)
    other.reset(seed=8)
    load_env(other, saved)
    assert episode(other, actions) == wanted


@pytest.mark.fast
def test_without_it_the_walk_cannot_be_saved():
    env = Walk()
    env.reset(seed=0)
    with pytest.raises(EnvStateError, match="Walk has no methods get_state"):
        save_env(env)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda state: state.pop("start"), "start of an episode"),
        (lambda state: state.update(start="now"), "start of an episode"),
        (lambda state: state.update(start={"bit_generator": "PCG64"}), "KeyError"),
        (lambda state: state.update(actions=3), "list of actions"),
        (lambda state: state.update(actions=[1]), "none of Discrete"),
        (lambda state: state.update(actions=[np.array(9)]), "none of Discrete"),
        (lambda state: state.update(actions=[np.zeros(2)]), "none of Discrete"),
    ],
)
def test_crafted_states_are_refused(change, told):
    env = ResumeByReplay(Walk())
    env.reset(seed=0)
    state = unpack(save_env(env))
    own = unpack(state["layers"][0][1])
    change(own)
    state["layers"][0][1] = pack(own)
    with pytest.raises(EnvStateError, match=told):
        load_env(env, pack(state))


@pytest.mark.fast
def test_actions_that_overshoot_their_bounds_by_rounding_are_played_again():
    env, other = (ResumeByReplay(Walk(spaces.Box(-0.3, 1.1, (2,)))) for _ in range(2))
    env.reset(seed=1)
    beyond = np.nextafter(env.action_space.high, np.float32(2))
    assert not env.action_space.contains(beyond)
    env.step(beyond)
    load_env(other, save_env(env))
    assert np.array_equal(other.step(beyond)[0], env.step(beyond)[0])


class Keeps(Walk):
    """Obeys its seed, but counts the episodes since, which a replay of one cannot."""

    def reset(self, *, seed=None, options=None):
        self._resets = 0 if seed is not None else self._resets + 1
        return super().reset(seed=seed, options=options)

    def step(self, action):
        obs, *rest = super().step(action)
        return obs + np.float32(self._resets), *rest


def test_check_env_finds_what_a_replay_cannot_repeat():
    for environment, is_repeated in ((Walk, True), (Keeps, False)):
        env = ResumeByReplay(wrappers.TimeLimit(environment(), 4))
        report = check_env(env, num_steps=40, raise_on_error=False)
        told = [finding for finding in report.findings if "differently" in finding.what]
        assert bool(told) is not is_repeated, report
