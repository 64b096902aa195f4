"""`ResumeByReplay`: what draws from its own generator only goes on where it was saved."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces, wrappers

from rlkit.envs import ResumeByReplay, check_env
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
        self._last = np.float32(np.sum(action))
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
    [spaces.Discrete(3), spaces.Box(-1, 1, (2,)), spaces.MultiDiscrete([2, 3])],
    ids=["discrete", "box", "multi_discrete"],
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
        (lambda state: state.update(actions=[1]), "list of actions"),
        (lambda state: state.update(actions=[np.array(9)]), "outside of Discrete"),
        (lambda state: state.update(actions=[np.zeros(2)]), "outside of Discrete"),
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


class Elsewhere(Walk):
    """Draws from another generator, so that no replay is the same."""

    def _walk(self):
        yield from iter(np.random.default_rng().normal, None)


def test_check_env_finds_what_a_replay_cannot_repeat():
    sound = check_env(ResumeByReplay(wrappers.TimeLimit(Walk(), 20)), num_steps=40)
    assert not [finding for finding in sound.warnings if "differently" in str(finding)]
    report = check_env(
        ResumeByReplay(wrappers.TimeLimit(Elsewhere(), 20)), num_steps=40, raise_on_error=False
    )
    assert report.errors + report.warnings
