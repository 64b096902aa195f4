"""POPGym: its ids, what agents see, its ends and limits, and runs that go on where they were."""

import gymnasium
import numpy as np
import pytest

import rlkit
from rlkit.envs.host.base import seeds
from rlkit.envs.suites.popgym_ids import IDS, LEFT_OUT
from rlkit.errors import ConfigError

popgym = pytest.importorskip("popgym")
FIRST = "popgym/RepeatFirstEasy-v0"


def test_the_ids_are_those_that_popgym_registers():
    registered = {name for name in gymnasium.registry if name.startswith("popgym-")}
    without = {f"popgym-{name}" for name in LEFT_OUT}
    assert {f"popgym-{name}" for name in IDS} == registered - without and len(IDS) == len({*IDS})


@pytest.mark.parametrize("name", ["RepeatFirstEasy-v0", "BattleshipEasy-v0"])
def test_check_env_finds_no_error(name):
    assert rlkit.check_env(f"popgym/{name}", num_steps=70).ok


def played(name, key, num_steps, **arguments):
    """(adapter, steps, the same by POPGym itself), of one environment with random actions."""
    adapter = rlkit.make_env(f"popgym/{name}", 1, **arguments)
    theirs = gymnasium.make(f"popgym-{name}")
    adapter.action_space.seed(0)
    state, _ = adapter.reset(key)
    theirs.reset(seed=seeds(key, 1)[0])
    ours, own = [], []
    for _ in range(num_steps):
        action = adapter.action_space.sample()
        state, step = adapter.step(None, state, np.asarray(action)[None])
        ours.append(step)
        own.append((action, *theirs.step(action)))
        if own[-1][3] or own[-1][4]:
            theirs.reset()
    return adapter, ours, own


@pytest.mark.parametrize(
    "name", ["RepeatPreviousEasy-v0", "MineSweeperEasy-v0", "NoisyPositionOnlyPendulumEasy-v0"]
)
def test_steps_are_those_of_popgym(key, name):
    _, ours, own = played(name, key, 220)
    for step, (action, obs, reward, terminated, *_) in zip(ours, own, strict=True):
        shown, before, is_first = step.next_obs
        np.testing.assert_array_equal(shown[0], np.asarray(obs, shown.dtype))
        np.testing.assert_array_equal(before[0], np.asarray(action, before.dtype))
        assert is_first[0] == 0
        assert step.reward[0] == np.float32(reward) and step.terminated[0] == terminated
        is_end = bool(step.terminated[0] | step.truncated[0])
        assert step.obs[2][0] == is_end


@pytest.mark.parametrize(
    ("name", "limit", "ends"),
    [
        ("RepeatFirstEasy-v0", 51, (True, True)),  # no card is left: the task is over
        ("HigherLowerMedium-v0", 103, (True, True)),
        ("ConcentrationEasy-v0", 104, (False, True)),
        ("MultiarmedBanditEasy-v0", 200, (False, True)),
        ("PositionOnlyPendulumHard-v0", 100, (False, True)),
    ],
)
def test_ends_of_tasks_and_time_limits(key, name, limit, ends):
    adapter, ours, _ = played(name, key, limit)
    flags = [(bool(step.terminated[0]), bool(step.truncated[0])) for step in ours]
    assert adapter.max_episode_steps == limit
    assert flags == [(False, False)] * (limit - 1) + [ends]


def test_early_ends_terminate(key):
    _, ours, _ = played("PositionOnlyCartPoleEasy-v0", key, 150)
    ended = [step for step in ours if step.terminated[0]]
    assert ended and not any(step.truncated[0] for step in ended)


def test_what_is_added_to_observations():
    bare = rlkit.make_env(FIRST, 1, previous_action=False, first_step=False)
    assert bare.observation_space == gymnasium.spaces.Discrete(4)
    with pytest.raises(ConfigError, match="first_step must be true or false, got 1"):
        rlkit.make_env(FIRST, 1, first_step=1)
    with pytest.raises(ConfigError, match="does not accept these arguments"):
        rlkit.make_env(FIRST, 1, deks=2)


def test_who_remembers_the_first_card_earns_1(key):
    adapter = rlkit.make_env(FIRST, 3)
    state, (shown, _, is_first) = adapter.reset(key)
    assert (is_first == 1).all()
    total = 0.0
    for _ in range(51):
        state, step = adapter.step(None, state, shown)
        total += step.reward
    np.testing.assert_allclose(total, 1.0, rtol=1e-5)
    assert step.terminated.all()


@pytest.mark.parametrize(
    "name", [name if "Easy" in name else pytest.param(name, marks=pytest.mark.full) for name in IDS]
)
def test_a_batch_goes_on_where_it_was(key, name):
    first, second = (rlkit.make_env(f"popgym/{name}", 2) for _ in range(2))
    first.action_space.seed(0)
    actions = np.array([[first.action_space.sample() for _ in range(2)] for _ in range(150)])
    state, _ = first.reset(key)
    for action in actions[:70]:
        first.step(None, state, action)
    saved = first.get_state()
    wanted = [first.step(None, state, action)[1] for action in actions[70:]]
    state, _ = second.reset(key)
    second.set_state(saved)
    for want, action in zip(wanted, actions[70:], strict=True):
        got = second.step(None, state, action)[1]
        for one, other in zip(got.obs, want.obs, strict=True):
            np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(got.reward, want.reward)
