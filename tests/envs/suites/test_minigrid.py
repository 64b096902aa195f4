"""minigrid: its ids, what agents see of it, its time limits, and states that are loaded."""

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

import rlkit
from rlkit.envs.host.base import seeds
from rlkit.envs.suites.minigrid_ids import IDS, LEFT_OUT
from rlkit.errors import ConfigError, EnvFailedError

minigrid = pytest.importorskip("minigrid")
EMPTY, BABY = "minigrid/MiniGrid-Empty-5x5-v0", "minigrid/BabyAI-GoToLocalS5N2-v0"


def made(env_id=EMPTY, num_envs=1, **arguments):
    return rlkit.make_env(env_id, num_envs, **arguments)


class Theirs(gymnasium.Wrapper):
    """minigrid's own environment, and its last observation."""

    def __init__(self, name):
        super().__init__(gymnasium.make(name))

    def reset(self, **arguments):
        self.obs, info = self.env.reset(**arguments)
        return self.obs, info

    def step(self, action):
        self.obs, *rest = self.env.step(action)
        return self.obs, *rest


def test_the_ids_are_those_that_minigrid_registers():
    registered = {name for name in gymnasium.registry if name.startswith(("MiniGrid-", "BabyAI-"))}
    assert {*IDS, *LEFT_OUT} == registered and not {*IDS} & {*LEFT_OUT}
    assert len(IDS) == len({*IDS})


@pytest.mark.parametrize(
    "env_id",
    [EMPTY, pytest.param("minigrid/BabyAI-OpenDoorsOrderN2-v0", marks=pytest.mark.full)],
)
def test_check_env_finds_no_error(env_id):
    assert rlkit.check_env(env_id, num_steps=60).ok


@pytest.mark.parametrize("name", ["MiniGrid-Empty-Random-5x5-v0", "MiniGrid-Fetch-5x5-N2-v0"])
def test_steps_are_those_of_minigrid(key, name):
    adapter = made(f"minigrid/{name}", num_envs=2)
    state, obs = adapter.reset(key)
    theirs, words = [Theirs(name) for _ in range(2)], "mission" in adapter.observation_space.spaces
    for env, seed in zip(theirs, seeds(key, 2), strict=True):
        env.reset(seed=seed)
    wanted = [env.obs for env in theirs]
    rng, ends = np.random.default_rng(0), 0
    for _ in range(400):
        for index, own in enumerate(wanted):
            np.testing.assert_array_equal(obs["image"][index], own["image"])
            assert obs["direction"][index] == own["direction"]
            assert not words or obs["mission"][index].any()
        action = rng.integers(0, 4, 2)
        state, step = adapter.step(None, state, action)
        obs = step.obs
        for index, env in enumerate(theirs):
            _, reward, terminated, truncated, _ = env.step(action[index])
            assert step.reward[index] == np.float32(reward)
            assert (step.terminated[index], step.truncated[index]) == (terminated, truncated)
            np.testing.assert_array_equal(step.next_obs["image"][index], env.obs["image"])
            if terminated or truncated:
                ends += 1
                env.reset()
        wanted = [env.obs for env in theirs]
    assert ends > 2


def test_the_limit_truncates_and_the_goal_terminates(key):
    adapter = made(max_steps=7)
    state, _ = adapter.reset(key)
    assert adapter.max_episode_steps == 7
    left, right, forward = 0, 1, 2
    flags = []
    for action in [left] * 7 + [forward] * 2 + [right] + [forward] * 2:
        state, step = adapter.step(None, state, np.array([action]))
        flags.append((bool(step.terminated[0]), bool(step.truncated[0])))
    assert flags[:6] == [(False, False)] * 6 and flags[6] == (False, True)
    assert flags[7:11] == [(False, False)] * 4 and flags[11] == (True, False)
    assert 0 < step.reward[0] < 1


def test_a_goal_in_the_last_step_terminates(key):
    adapter = made(max_steps=5)
    state, _ = adapter.reset(key)
    for action in (2, 2, 1, 2, 2):
        state, step = adapter.step(None, state, np.array([action]))
    assert step.terminated[0] and step.truncated[0]


@pytest.mark.parametrize(
    ("view", "shape", "kind"),
    [
        ("partial", (7, 7, 3), spaces.MultiDiscrete),
        ("full", (5, 5, 3), spaces.MultiDiscrete),
        ("rgb_partial", (28, 28, 3), spaces.Box),
        ("rgb_full", (20, 20, 3), spaces.Box),
    ],
)
def test_views(key, view, shape, kind):
    adapter = made(view=view, tile_size=4)
    _, obs = adapter.reset(key)
    space = adapter.observation_space["image"]
    assert isinstance(space, kind) and space.shape == shape and space.contains(obs["image"][0])
    assert obs["image"].dtype == np.uint8 and obs.keys() == {"image", "direction"}


def test_instructions_are_seen_where_they_differ(key):
    adapter = made(BABY)
    _, obs = adapter.reset(key)
    words = obs["mission"][0]
    assert words.shape == (72,) and (words > 0).sum() >= 4
    assert "mission" not in made(BABY, mission_words=0).observation_space.spaces
    assert made(mission_words=9).observation_space["mission"].shape == (9,)
    short = made(BABY, mission_words=2)
    with pytest.raises(EnvFailedError, match="mission_words is 2; raise it"):
        short.reset(key)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")
@pytest.mark.parametrize("name", IDS)
def test_every_instruction_has_codes_and_every_cell_is_in_the_space(key, name):
    adapter = made(f"minigrid/{name}", 4, view="full")
    for index in range(5):
        _, obs = adapter.reset(jax.random.fold_in(key, index))
        for row in range(4):
            one = {part: value[row] for part, value in obs.items()}
            one["direction"] = int(one["direction"])
            assert adapter.observation_space.contains(one)


def test_rejected_levels_are_not_printed(key, capsys):
    made("minigrid/BabyAI-PutNextLocal-v0", 8).reset(key)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"view": "partal"}, "unknown view 'partal'; did you mean 'partial'"),
        ({"tile_size": 0}, "tile_size must be an integer of at least 1, got 0"),
        ({"mission_words": -1}, "mission_words must be an integer of at least 0"),
        ({"sizes": 5}, "does not accept these arguments"),
    ],
)
def test_wrong_arguments_are_one_clear_error(arguments, told):
    with pytest.raises(ConfigError, match=told):
        made(**arguments)


@pytest.mark.parametrize("vectorization", ["sync", pytest.param("async", marks=pytest.mark.full)])
def test_a_batch_goes_on_where_it_was(key, vectorization):
    name = "minigrid/MiniGrid-Dynamic-Obstacles-Random-5x5-v0"  # it draws at every step
    actions = np.random.default_rng(0).integers(0, 3, (120, 2))
    adapters = [made(name, 2, vectorization=vectorization, max_steps=30) for _ in range(2)]
    first, second = adapters
    state, _ = first.reset(key)
    for action in actions[:50]:
        first.step(None, state, action)
    saved = first.get_state()
    runs = [[first.step(None, state, action)[1] for action in actions[50:]]]
    state, _ = second.reset(key)
    second.set_state(saved)
    runs.append([second.step(None, state, action)[1] for action in actions[50:]])
    first.close()
    second.close()
    for one, other in zip(*runs, strict=True):
        np.testing.assert_array_equal(one.obs["image"], other.obs["image"])
        np.testing.assert_array_equal(one.reward, other.reward)


def test_pictures_for_videos(key):
    film = made(num_envs=2).filmed()
    film.reset(key)
    frame = film.render()[0]
    assert frame.dtype == np.uint8 and frame.shape == (160, 160, 3) and film.render_fps == 10
