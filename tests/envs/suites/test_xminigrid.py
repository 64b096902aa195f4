"""What is specific to XLand-MiniGrid: goals against limits, codes, tasks given as numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("xminigrid")

from xminigrid import registered_environments
from xminigrid.benchmarks import Benchmark

from rlkit.envs import check_env, make_env
from rlkit.envs.suites import xminigrid as suite
from rlkit.envs.suites import xminigrid_ids
from rlkit.errors import ConfigError

EMPTY, ROOM = "MiniGrid-Empty-5x5", "XLand-MiniGrid-R1-9x9"
FORWARD, RIGHT = 0, 1
TO_THE_GOAL = (FORWARD, FORWARD, RIGHT, FORWARD, FORWARD)
BE_ON_FLOOR = {"goal": [2, 1, 7, 0, 0], "rules": [[0] * 7], "init_tiles": [[3, 1]]}
# A star that is not there. Were it reached, the checks would compare rewards to the last bit, which
# differ where XLA does not merge equal computations, as in these tests.
UNREACHED = {**BE_ON_FLOOR, "goal": [1, 12, 1, 0, 0]}


def test_the_ids_are_those_that_xminigrid_registers():
    assert {*xminigrid_ids.IDS, *xminigrid_ids.LEFT_OUT} == {*registered_environments()}


def _played(env, key, actions):
    """What `step` returned last; all steps are compared with those of the suite."""
    state, obs = env.reset(key)
    own = env.env.reset(env.own_params, key)
    step, own_step = jax.jit(env.step), jax.jit(env.env.step)
    for action in actions:
        _same((state.observation, state.state.grid), (obs, own.state.grid))
        state, obs, *rest = step(key, state, jnp.int32(action))
        own = own_step(env.own_params, own, action)
        _same((own.observation, own.reward), (obs, rest[0]))
    return rest


def _same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.mark.full
@pytest.mark.parametrize(
    ("limit", "ends", "reward"),
    [(6, (True, False), 0.25), (5, (True, True), 0.1), (4, (False, True), 0.0)],
)
def test_goals_terminate_also_at_the_limit_and_the_limit_truncates(limit, ends, reward, key):
    env = suite.make(EMPTY, max_steps=limit)
    assert env.max_episode_steps == limit
    got, terminated, truncated, info = _played(env, key, TO_THE_GOAL[:limit])
    assert (bool(terminated), bool(truncated)) == ends and got == pytest.approx(reward)
    assert info == {}


@pytest.mark.full
def test_observations_are_codes_and_what_was_asked_for(key):
    plain = suite.make(EMPTY)
    assert plain.observation_space.nvec.shape == (7, 7, 2)
    assert {*plain.observation_space.nvec.ravel()} == {12, 13}
    assert plain.reset(key)[1].dtype == plain.observation_space.dtype == np.uint8

    env = suite.make(
        ROOM, view_size=3, observe_direction=True, observe_task=True, ruleset=BE_ON_FLOOR
    )
    state, obs = env.reset(key)
    assert {name: value.shape for name, value in obs.items()} == {
        "direction": (),
        "goal": (5,),
        "grid": (3, 3, 2),
        "rules": (1, 7),
    }
    assert obs["direction"] == state.state.agent.direction
    assert obs["goal"].tolist() == BE_ON_FLOOR["goal"]
    assert env.observation_space["goal"].nvec.min() == 15  # kinds of goals
    # Positions
    assert (
        suite.make("XLand-MiniGrid-R9-25x25", observe_task=True)
        .observation_space["goal"]
        .nvec.tolist()
        == [25] * 5
    )


@pytest.mark.full
def test_a_ruleset_is_the_task(key):
    """Without one nothing is ever reached."""
    for ruleset, reached in ((BE_ON_FLOOR, True), (None, False)):
        env = suite.make(ROOM, ruleset=ruleset)
        assert _played(env, key, (FORWARD,))[1] == reached
        assert (env.reset(key)[0].state.grid == jnp.array([3, 1])).all(-1).any() == reached


def _benchmark():
    size = jnp.arange(2, dtype=jnp.uint8)
    return Benchmark(
        goals=jnp.zeros((2, 5), jnp.uint8).at[:, 1].set(size),
        rules=jnp.zeros((2, 3, 7), jnp.uint8),
        init_tiles=jnp.zeros((2, 4, 2), jnp.uint8),
        num_rules=size,
    )


@pytest.mark.full
def test_a_ruleset_of_a_benchmark_is_drawn_for_each_episode(key, monkeypatch):
    monkeypatch.setattr(suite, "load_benchmark", {"trivial-21k": _benchmark()}.__getitem__)
    env = make_env(f"xminigrid/{ROOM}", 16, benchmark="trivial-21k", observe_task=True, max_steps=2)
    state, obs = env.reset(key)
    first = obs["goal"][:, 1]
    assert {*first.tolist()} == {0, 1} and obs["rules"].shape == (16, 3, 7)
    for _ in range(2):
        state, step = env.step(key, state, jnp.zeros(16, jnp.int32))
    assert step.truncated.all() and (step.next_obs["goal"][:, 1] == first).all()
    assert (step.obs["goal"][:, 1] != first).any()


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        (EMPTY, {"max_steps": 0}, r"max_steps must be a positive integer or None, got 0"),
        (EMPTY, {"view_size": 4}, r"view_size must be an odd number from 3 on, got 4"),
        (EMPTY, {"observe_task": True}, r"has a task of its own, and got observe_task; leave"),
        (EMPTY, {"ruleset": BE_ON_FLOOR, "benchmark": "x"}, r"got ruleset, benchmark; leave"),
        (ROOM, {"ruleset": BE_ON_FLOOR, "benchmark": "x"}, r"a ruleset and a benchmark; leave"),
        (ROOM, {"benchmark": "trivial-1m"}, r"'trivial-1m'; did you mean .*'trivial-21k'"),
        (ROOM, {"ruleset": {"goal": [1]}}, r"pass a dict with lists of numbers for goal, rules"),
        (ROOM, {"ruleset": {**BE_ON_FLOOR, "goal": [1]}}, r"\[1\] as goal .* pass 5 numbers"),
        (ROOM, {"ruleset": {**BE_ON_FLOOR, "rules": [[1]]}}, r"rules .* pass rows of 7 numbers"),
        (ROOM, {"ruleset": {**BE_ON_FLOOR, "init_tiles": []}}, r"init_tiles .* rows of 2 numbers"),
        (ROOM, {"ruleset": {**BE_ON_FLOOR, "init_tiles": [[300, 1]]}}, r"from 0 to 255"),
    ],
)
def test_errors_name_the_fix(name, arguments, message):
    with pytest.raises(ConfigError, match=message):
        suite.make(name, **arguments)


def test_a_download_that_fails_says_what_to_do_instead(monkeypatch):
    def offline(name):
        raise OSError("no network")

    monkeypatch.setattr(suite, "load_benchmark", offline)
    with pytest.raises(ConfigError, match=r"\(no network\); connect .* or pass a ruleset"):
        suite.make(ROOM, benchmark="trivial-21k")


def test_pictures_show_the_whole_grid(key):
    env = suite.make(EMPTY)
    picture = env.render(jax.device_get(env.reset(key)[0]))
    assert picture.shape == (160, 160, 3) and picture.dtype == np.uint8
    goal, floor = picture[3 * 32 + 16, 3 * 32 + 16], picture[2 * 32 + 16, 1 * 32 + 16]
    assert goal[1] > 200 and goal[0] < 100 and floor.max() < 150


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("MiniGrid-MemoryS8", {}),
        ("MiniGrid-DoorKey-5x5", {"observe_direction": True}),
        ("XLand-MiniGrid-R4-9x9", {"observe_task": True, "ruleset": UNREACHED}),
    ],
)
def test_they_pass_the_checks(name, arguments):
    report = check_env(make_env(f"xminigrid/{name}", 2, max_steps=40, **arguments))
    assert not report.findings
