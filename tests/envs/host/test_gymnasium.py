"""Gymnasium environments as an EnvAdapter: hand-computed values, all spaces, real simulators."""

import functools
import importlib.util
import re

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from rlkit.envs import EnvAdapter, GymnasiumAdapter
from rlkit.envs.host.base import HostAdapter, seeds
from rlkit.envs.host.gymnasium_worker import numbers
from rlkit.envs.ids import INSTALL
from rlkit.errors import ConfigError, EnvContractError, EnvFailedError, SpaceError, UnknownNameError
from rlkit.spaces import jax_dtype, leaves, map_space
from tests.envs.host_envs import NESTED, Clock, Echo, NestedEcho

pytestmark = pytest.mark.fast


def start(env, num_envs=2, seed=0, **kwargs):
    adapter = GymnasiumAdapter(env, num_envs, **kwargs)
    state, obs = adapter.reset(jax.random.key(seed))
    return adapter, state, obs


def play(adapter, actions, key):
    """All observations, rewards and episode ends for `actions` [T, N, ...]."""
    state, obs = adapter.reset(key)
    steps = [(obs,)]
    for action in actions:
        state, step = adapter.step(None, state, action)
        steps.append(
            (step.obs, step.next_obs, step.reward, step.terminated, step.truncated, step.info)
        )
    return steps


def assert_same(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


# --- steps ---


def test_the_contract():
    adapter, state, obs = start(Clock, 3, length=4)
    assert (
        isinstance(adapter, HostAdapter)
        and isinstance(adapter, EnvAdapter)
        and not adapter.is_jittable
    )
    assert adapter.num_envs == 3 and adapter.spec is None and adapter.max_episode_steps is None
    assert (
        obs.shape == (3, 2)
        and obs.dtype == np.float32
        and adapter.observation_space.dtype == np.float64
    )
    assert state.resets.dtype == np.int32 and state.resets == 1
    _, step = adapter.step(None, state, np.zeros(3, np.int32))
    assert step.reward.dtype == np.float32 and step.terminated.dtype == step.truncated.dtype == bool
    assert step.info == {}
    assert GymnasiumAdapter(Clock, 1, spec=("mine/Clock", {})).spec == ("mine/Clock", {})


def test_an_episode_that_ends_shows_its_true_last_observation():
    """Clock always returns the same array, so an uncopied final observation would read 0 after the
    reset.
    """
    adapter, state, obs = start(Clock, 2, length=3)
    np.testing.assert_array_equal(obs, np.zeros((2, 2)))
    seen = []
    for _ in range(7):
        state, step = adapter.step(None, state, np.zeros(2, np.int32))
        seen.append(
            (
                step.obs[1, 1],
                step.next_obs[1, 1],
                step.reward[1],
                step.terminated[1],
                step.truncated[1],
            )
        )
    assert seen == [
        (10, 10, 1, False, False),
        (20, 20, 2, False, False),
        (0, 30, 3, True, False),
        (10, 10, 1, False, False),
        (20, 20, 2, False, False),
        (0, 30, 3, True, False),
        (10, 10, 1, False, False),
    ]


def test_final_infos_are_numbers_by_name_and_nan_where_no_episode_ended():
    lengths = iter([9, 2, 4])  # the first one is built to read its spaces
    adapter, state, _ = start(lambda: Clock(next(lengths)), 2)
    infos = []
    for _ in range(4):
        state, step = adapter.step(None, state, np.zeros(2, np.int32))
        infos.append(step.info)
    assert infos[0] == infos[2] == {}
    assert set(infos[1]) == {"t", "half", "parts"}
    np.testing.assert_array_equal(infos[1]["half"], np.array([1.0, np.nan], np.float32))
    np.testing.assert_array_equal(infos[1]["parts"], [[2, 3], [np.nan, np.nan]])
    np.testing.assert_array_equal(infos[3]["t"], [2, 4])


def test_final_infos_keep_numbers_that_fit_under_names_that_are_text():
    """10**400 is beyond any float, and JAX cannot sort names of text and integers."""
    found = numbers(
        {"a": 1, 2: 3, "b": 10**400, "c": -2.5, "d": "text", "e": np.ones(2), "f": True}
    )
    assert [name for name, _ in found] == ["a", "c", "e", "f"]


def test_lengths_are_right_from_the_second_episode_on():
    """Gymnasium's RecordEpisodeStatistics reports -4 after 4 steps for a 5-step episode here; rlkit
    does not use it.
    """
    adapter, state, _ = start(Clock, 1, length=5)
    ends = []
    for t in range(15):
        state, step = adapter.step(None, state, np.zeros(1, np.int32))
        ends += [(t, step.reward[0])] * bool(step.terminated[0])
    assert ends == [(4, 5.0), (9, 5.0), (14, 5.0)]


def test_arrays_are_fresh_in_every_step():
    adapter, state, obs = start(NestedEcho, 2)
    kept = [obs]
    for _ in range(30):
        state, step = adapter.step(None, state, np.zeros((2, 2), np.int32))
        kept += [step.obs, step.next_obs, step.reward, step.terminated, step.truncated]
    before = jax.tree.map(np.copy, kept)
    for _ in range(30):
        state, step = adapter.step(None, state, np.zeros((2, 2), np.int32))
    assert_same(before, kept)


def test_step_in_two_halves_equals_step():
    actions = np.random.default_rng(0).integers(0, 2, (20, 2))
    adapter = GymnasiumAdapter("CartPole-v1", 2)
    whole = play(adapter, actions, jax.random.key(1))
    adapter.reset(jax.random.key(1))
    for action, (_, next_obs, reward, *_) in zip(actions, whole[1:], strict=True):
        assert adapter.step_async(action) is None
        step = adapter.step_wait()
        np.testing.assert_array_equal(step.next_obs, next_obs)
        np.testing.assert_array_equal(step.reward, reward)


def test_calls_out_of_order_are_errors():
    adapter = GymnasiumAdapter(Clock, 1)
    with pytest.raises(EnvContractError, match="call reset first"):
        adapter.step_async(np.zeros(1, np.int32))
    old, _ = adapter.reset(jax.random.key(0))
    with pytest.raises(EnvContractError, match="call step_async first"):
        adapter.step_wait()
    adapter.step_async(np.zeros(1, np.int32))
    with pytest.raises(EnvContractError, match="call step_wait first"):
        adapter.step_async(np.zeros(1, np.int32))
    new, obs = adapter.reset(jax.random.key(0))  # forgets the step under way
    assert (obs == 0).all()
    with pytest.raises(EnvContractError, match="create one adapter for each"):
        adapter.step(None, old, np.zeros(1, np.int32))
    adapter.step(None, new, np.zeros(1, np.int32))
    with pytest.raises(EnvContractError, match=r"actions have shape \(2,\); pass \(1,\)"):
        adapter.step(None, new, np.zeros(2, np.int32))
    adapter.close()
    adapter.close()
    assert adapter.reset(jax.random.key(0))[0].resets == 3


# --- spaces and actions ---


@pytest.mark.parametrize(
    ("space", "actions", "given"),
    [
        (spaces.Discrete(3, start=5), [5, 7], [5, 7]),
        (spaces.MultiDiscrete([3, 2]), [[2, 1], [0, 0]], [[2, 1], [0, 0]]),
        (spaces.Box(-2.0, 2.0, (1,)), [[5.0], [-0.5]], [[2.0], [-0.5]]),
        (
            spaces.Box(np.array([-1, 0]), np.array([1, 9]), dtype=np.float64),
            [[-7, -7], [7, 7]],
            [[-1, 0], [1, 7]],
        ),
    ],
    ids=["Discrete from 5", "MultiDiscrete", "Box", "Box of float64"],
)
def test_environments_get_actions_of_their_space(space, actions, given):
    """Echo asserts that its action is in the space. Read-only JAX arrays must work too."""
    made = []

    def make():
        made.append(Echo(spaces.Box(-1.0, 1.0, (2,), np.float32), space))
        return made[-1]

    adapter, state, _ = start(make, 2)
    actions = np.asarray(actions)
    for batch in (actions, jnp.asarray(actions)):
        state, _ = adapter.step(None, state, batch)
    for env, expected in zip(made[1:], given, strict=True):
        assert len(env.actions) == 2
        for action in env.actions:
            np.testing.assert_allclose(action, expected)
            assert not isinstance(action, jax.Array)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1.0, 1.0, (3,), np.float64),
        spaces.Box(0, 255, (8, 8, 3), np.uint8),
        spaces.Box(-1.0, 1.0, (), np.float32),
        spaces.Discrete(5, start=2),
        spaces.MultiDiscrete([3, 4]),
        spaces.MultiBinary(3),
        spaces.Dict({"a": spaces.Box(0.0, 1.0, (2,)), "b": spaces.Discrete(3)}),
        spaces.Tuple((spaces.Box(0.0, 1.0, (2,)), spaces.Discrete(3))),
        NESTED,
    ],
    ids=str,
)
def test_observations_of_every_space(space):
    """Spaces have JAX's dtypes, and next_obs is what the environment returned last, row by row."""
    returned = []

    class Kept(Echo):
        def step(self, action):
            result = super().step(action)
            returned.append(result[0])
            return result

    adapter, state, obs = start(lambda: Kept(space, spaces.Discrete(2)), 3)
    described = [((3, *leaf.shape), jax_dtype(leaf)) for leaf in leaves(space)]
    ends = 0
    for _ in range(20):
        returned.clear()
        state, step = adapter.step(None, state, np.zeros(3, np.int32))
        for batch in (obs, step.obs, step.next_obs):
            assert [(x.shape, x.dtype) for x in jax.tree.leaves(batch)] == described
            assert jax.tree.structure(batch) == jax.tree.structure(map_space(lambda leaf: 0, space))
        for index, single in enumerate(returned):
            rows = jax.tree.map(lambda x, index=index: x[index], step.next_obs)
            jax.tree.map(
                lambda row, one: np.testing.assert_array_equal(
                    row, np.asarray(one).astype(row.dtype)
                ),
                rows,
                single,
            )
        ends += int((step.terminated | step.truncated).sum())
    assert ends > 0


def test_actions_out_of_bounds_are_clipped_for_pendulum():
    """Gymnasium itself accepts 5.0, and Pendulum's reward would hide it (but not its torque)."""
    adapter = GymnasiumAdapter("Pendulum-v1", 2)
    one = play(adapter, np.array([[[5.0], [-9.0]]] * 5), jax.random.key(0))
    other = play(adapter, np.array([[[2.0], [-2.0]]] * 5), jax.random.key(0))
    assert_same(one, other)


def test_rescaled_actions():
    adapter = GymnasiumAdapter("Pendulum-v1", 2, rescale_actions=True)
    assert adapter.action_space == spaces.Box(-1.0, 1.0, (1,), np.float32)
    one = play(adapter, np.array([[[0.25], [-3.0]]] * 5), jax.random.key(0))
    other = play(
        GymnasiumAdapter("Pendulum-v1", 2), np.array([[[0.5], [-2.0]]] * 5), jax.random.key(0)
    )
    assert_same(one, other)
    with pytest.raises(ConfigError, match="only Box actions can be rescaled"):
        GymnasiumAdapter("CartPole-v1", 2, rescale_actions=True)
    with pytest.raises(ConfigError, match="needs finite bounds"):
        GymnasiumAdapter(
            lambda: Echo(NESTED, spaces.Box(-np.inf, 1.0, (2,))), 2, rescale_actions=True
        )


@pytest.mark.parametrize(
    ("observation_space", "action_space", "message"),
    [
        (spaces.Text(3), spaces.Discrete(2), "observation space Text"),
        (
            spaces.Dict({"g": spaces.Graph(spaces.Box(0, 1, (2,)), None)}),
            spaces.Discrete(2),
            r"observation space\['g'\] Graph",
        ),
        (spaces.Sequence(spaces.Discrete(2)), spaces.Discrete(2), "observation space Sequence"),
        (spaces.Discrete(2), spaces.MultiBinary(2), "action space MultiBinary"),
        (
            spaces.Discrete(2),
            spaces.Dict({"a": spaces.Text(3)}),
            r"action space\['a'\] Text",
        ),
        (spaces.Discrete(2), spaces.Box(0, 1, (2,), np.int32), "is a Box of int32"),
    ],
    ids=["Text", "Graph", "Sequence", "MultiBinary", "Dict", "Box of integers"],
)
def test_spaces_that_cannot_be_learnt_from(observation_space, action_space, message):
    with pytest.raises(SpaceError, match=message):
        GymnasiumAdapter(lambda: Echo(observation_space, action_space), 2)


# --- seeds ---


def test_equal_keys_give_equal_episodes_and_every_reset_seeds_anew():
    adapter = GymnasiumAdapter("CartPole-v1", 3)
    actions = np.random.default_rng(0).integers(0, 2, (60, 3))
    first = play(adapter, actions, jax.random.key(3))
    assert_same(first, play(adapter, actions, jax.random.key(3)))
    assert_same(first, play(adapter.remake(3), actions, jax.random.key(3)))
    assert not np.array_equal(first[0][0], play(adapter, actions[:1], jax.random.key(4))[0][0])


def test_runs_share_no_seed_and_a_block_of_seeds_is_the_single_run():
    """Gymnasium would seed the environments s, s + 1, …: runs 0, 1, 2 would have nearly the same
    episodes.
    """
    keys = [jax.random.key(seed) for seed in (0, 1, 2, np.int64(7), -1, 2**31)]
    drawn = [seeds(key, 8) for key in keys]
    assert len({seed for run in drawn for seed in run}) == 8 * len(keys)
    assert all(type(seed) is int and 0 <= seed < 2**32 for run in drawn for seed in run)
    adapter = GymnasiumAdapter("CartPole-v1", 6)
    _, obs = adapter.reset(jnp.stack(keys[:3]))
    for block, key in enumerate(keys[:3]):
        _, single = adapter.remake(2).reset(key)
        np.testing.assert_array_equal(obs[2 * block : 2 * block + 2], single)
    with pytest.raises(ConfigError, match="6 environments cannot be split evenly over 4 seeds"):
        adapter.reset(jax.random.split(keys[0], 4))


@pytest.mark.parametrize("num_seeds", [1, 2])
def test_shares_have_the_seeds_of_the_whole(num_seeds):
    """Each of several processes has those of its own environments, of every seed of the run."""
    keys = jax.random.split(jax.random.key(5), num_seeds)
    whole = np.reshape(seeds(keys, 6 * num_seeds), (num_seeds, 6))
    parts = [seeds(keys, 2 * num_seeds, (index, 3)) for index in range(3)]
    joined = [np.reshape(part, (num_seeds, 2)) for part in parts]
    np.testing.assert_array_equal(np.concatenate(joined, 1), whole)


def test_sync_cartpole_is_not_the_vector_entry_point():
    """make_vec would choose CartPoleVectorEnv, which resets one step late and seeds differently."""
    _, _, obs = start("CartPole-v1", 2, seed=5)
    for index, seed in enumerate(seeds(jax.random.key(5), 2)):
        np.testing.assert_array_equal(obs[index], gymnasium.make("CartPole-v1").reset(seed=seed)[0])


def test_two_adapters_of_one_class_stay_apart():
    """In Gymnasium a second vector environment changes the metadata of the first and the class."""
    metadata = dict(gymnasium.make("CartPole-v1").unwrapped.metadata)
    one, two = GymnasiumAdapter("CartPole-v1", 2), GymnasiumAdapter("CartPole-v1", 2)
    actions = np.random.default_rng(0).integers(0, 2, (40, 2))
    alone = play(one, actions, jax.random.key(0))
    state_one, _ = one.reset(jax.random.key(0))
    state_two, _ = two.reset(jax.random.key(1))
    for action, (_, next_obs, *_) in zip(actions, alone[1:], strict=True):
        state_one, step = one.step(None, state_one, action)
        state_two, _ = two.step(None, state_two, 1 - action)
        np.testing.assert_array_equal(step.next_obs, next_obs)
    assert gymnasium.make("CartPole-v1").unwrapped.metadata == metadata


# --- what environments are made of ---


def test_classes_callables_and_instances():
    clock = Clock(2)
    adapter, state, _ = start(clock, 1)
    state, step = adapter.step(None, state, np.zeros(1, np.int32))
    state, step = adapter.step(None, state, np.zeros(1, np.int32))
    assert step.terminated[0] and step.next_obs[0, 0] == 2 and step.obs[0, 0] == 0
    adapter.close()
    assert clock.closed == 0  # it is the user's
    with pytest.raises(
        ConfigError,
        match=r"Clock was passed as an object, which cannot be created again; pass its class",
    ):
        adapter.remake(1)
    for wrong in (
        {"num_envs": 2},
        {"num_envs": 1, "vectorization": "async"},
        {"num_envs": 1, "length": 2},
    ):
        with pytest.raises(ConfigError, match=r"a gymnasium.Env object cannot be copied"):
            GymnasiumAdapter(clock, **wrong)
    built = []
    adapter, _, _ = start(lambda **kwargs: built.append(Clock(**kwargs)) or built[-1], 2, length=7)
    assert [env.length for env in built] == [7, 7, 7] and built[0].closed == 1
    adapter.close()
    assert [env.closed for env in built] == [1, 1, 1]


@pytest.mark.parametrize("own_hash", [None, lambda self: 0], ids=["no hash", "equal hashes"])
def test_objects_that_are_equal_are_two_environments(own_hash):
    """As dataclasses are."""
    kind = type("Equal", (Clock,), {"__eq__": lambda self, other: True, "__hash__": own_hash})
    for adapter, state, _ in [start(kind(), 1) for _ in range(2)]:
        adapter.step(None, state, np.zeros(1, np.int32))


def test_construction_starts_nothing_that_stays():
    built = []
    adapter = GymnasiumAdapter(lambda: built.append(Clock()) or built[-1], 4)
    assert len(built) == 1 and built[0].closed == 1
    remade = adapter.remake(2)
    assert len(built) == 1 and remade.num_envs == 2 and adapter.num_envs == 4
    remade.reset(jax.random.key(0))
    assert len(built) == 3 and adapter.remake(2).observation_space is adapter.observation_space


def test_time_limits():
    assert GymnasiumAdapter("CartPole-v1", 1).max_episode_steps == 500
    assert GymnasiumAdapter("CartPole-v1", 1, max_episode_steps=7).max_episode_steps == 7
    assert GymnasiumAdapter(Clock, 1, length=99).max_episode_steps is None
    assert (
        GymnasiumAdapter(lambda: gymnasium.wrappers.TimeLimit(Clock(99), 8), 1).max_episode_steps
        == 8
    )
    own = GymnasiumAdapter(lambda: Clock(99, max_episode_steps=9), 1)
    assert own.max_episode_steps == 9
    for none in (-1, 0):
        unlimited = functools.partial(Clock, 99, max_episode_steps=none)
        assert GymnasiumAdapter(unlimited, 1).max_episode_steps is None
        limited = gymnasium.wrappers.TimeLimit(unlimited(), 4)
        assert GymnasiumAdapter(limited, 1).max_episode_steps == 4
    adapter, state, _ = start(Clock, 1, length=99, max_episode_steps=4)
    ends = []
    for _ in range(9):
        state, step = adapter.step(None, state, np.zeros(1, np.int32))
        ends.append((bool(step.terminated[0]), bool(step.truncated[0])))
    assert adapter.max_episode_steps == 4
    assert ends == ([(False, False)] * 3 + [(False, True)]) * 2 + [(False, False)]


def test_pictures():
    adapter, state, _ = start(Clock, 2, render_mode="rgb_array")
    adapter.step(None, state, np.zeros(2, np.int32))
    picture = adapter.render()
    assert picture.shape == (2, 4, 5, 3) and picture.dtype == np.uint8 and (picture == 1).all()
    with pytest.raises(EnvContractError, match="call reset"):
        adapter.remake(2).render()
    with pytest.raises(ConfigError, match=r"render_mode=None; pass render_mode='rgb_array'"):
        start(Clock, 2)[0].render()


RGB = np.ones((4, 5, 3), np.uint8)


@pytest.mark.parametrize(
    ("picture", "message"),
    [
        (None, "got None; return one picture, with red, green and blue alone"),
        ("no display", "got 'no display'; return one picture"),
        (RGB[..., 0], r"got \(4, 5\) uint8; return one picture"),
        (RGB[..., :1], r"got \(4, 5, 1\) uint8; return one picture"),
        (np.ones((4, 5, 4), np.uint8), r"got \(4, 5, 4\) uint8; return one picture"),
        (np.ones((3, 4, 5), np.uint8), r"got \(3, 4, 5\) uint8; return one picture"),
        ([RGB, RGB], r"got \(2, 4, 5, 3\) uint8; return one picture"),
        ([RGB, RGB[:2]], r"got \[array.* characters\); return one picture"),
        (RGB[:0], r"got \(0, 5, 3\) uint8; return one picture"),
        (0.5 * RGB, r"float64; convert it with \(255 \* picture\).astype\(np.uint8\)"),
        (99.0 * RGB, r"float64; convert it with picture.astype\(np.uint8\)"),
        (256 * RGB.astype(int), r"int64; return integers from 0 to 255"),
    ],
    ids=[
        "None",
        "text",
        "gray",
        "gray with an axis",
        "RGBA",
        "colours first",
        "two",
        "two of two sizes",
        "empty",
        "shares",
        "floats",
        "large integers",
    ],
)
def test_what_is_no_picture(picture, message):
    class Draws(Clock):
        def render(self):
            return picture

    adapter, *_ = start(Draws, 2, render_mode="rgb_array")
    wrong = r"Draws.render\(\) must return \[height, width, 3\] uint8, "
    with pytest.raises(ConfigError, match=wrong + ".*" + message):
        adapter.render()


def test_integers_of_another_type_are_pictures():
    class Draws(Clock):
        def render(self):
            return 255 * RGB.astype(int)

    picture = start(Draws, 1, render_mode="rgb_array")[0].render()
    assert picture.dtype == np.uint8 and (picture == 255).all()


# --- errors before training ---


def test_unknown_names():
    with pytest.raises(UnknownNameError, match="did you mean 'gymnasium/CartPole-v1'"):
        GymnasiumAdapter("CartPol-v1", 2)
    with pytest.raises(UnknownNameError, match="gymnasium/CartPole-v1"):
        GymnasiumAdapter("CartPole-v9", 2)
    with pytest.raises(ConfigError, match=r"names a module to import; import it yourself"):
        GymnasiumAdapter("antigravity:Foo-v0", 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_envs": 0}, "num_envs must be a positive integer, got 0"),
        ({"vectorization": "asinc"}, "did you mean 'async'"),
        ({"context": "fork"}, "JAX threads.*use 'forkserver'"),
        ({"context": "spwan"}, "did you mean 'spawn'"),
        (
            {"step_timeout": 0},
            "step_timeout must be positive or None, got 0; pass a number of seconds",
        ),
        ({"max_episode_steps": 0}, "max_episode_steps must be a positive integer or None, got 0"),
        ({"gravitas": 3}, "gravitas"),
        ({"render_mode": 3}, "render_mode must be a string or None, got 3; pass 'rgb_array'"),
    ],
)
def test_settings_that_cannot_work(settings, message):
    with pytest.raises(ConfigError, match=message):
        GymnasiumAdapter("CartPole-v1", **{"num_envs": 2, **settings})


@pytest.mark.parametrize("dtype", [np.float16, np.longdouble])
def test_floats_that_processes_cannot_share(dtype):
    space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(0.0, 1.0, (2,), dtype)})

    def halved():
        return Echo(space, spaces.Discrete(2))

    message = rf"^halved observation\['b'\] is {np.dtype(dtype)}, .*vectorization='sync', or return"
    with pytest.raises(ConfigError, match=message):
        GymnasiumAdapter(halved, 2, vectorization="async")
    assert GymnasiumAdapter(halved, 2).num_envs == 2


def test_things_that_are_no_environment():
    class NoStep(gymnasium.Env):
        observation_space = action_space = spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return 0, {}

    class NoSpace(Clock):
        def __init__(self):
            super().__init__()
            del self.action_space

    def broken():
        raise RuntimeError("no licence")

    for env, error, message in (
        (3, ConfigError, "env must be an environment or create one, got 3; pass an id"),
        (lambda: 3, EnvContractError, "int is not a gymnasium.Env"),
        (NoStep, EnvContractError, "NoStep has no method 'step'"),
        (NoSpace, EnvContractError, r"NoSpace.action_space is None; set it"),
        (broken, EnvFailedError, "broken cannot be built: it raised RuntimeError: no licence"),
        (
            lambda length: Clock(length),
            ConfigError,
            "missing a required argument: 'length'; it takes length",
        ),
    ):
        with pytest.raises(error, match=message):
            GymnasiumAdapter(env, 2)
    with pytest.raises(ConfigError, match="takes length, max_episode_steps, render_mode"):
        GymnasiumAdapter(Clock, 2, speed=3)


@pytest.mark.parametrize(
    ("env_id", "kind"),
    [("HalfCheetah-v5", "mujoco"), ("LunarLander-v3", "box2d"), ("ALE/Pong-v5", "atari")],
)
def test_a_missing_simulator_names_what_to_install(env_id, kind, monkeypatch):
    import sys

    for name in ("mujoco", "Box2D", "ale_py", "gymnasium.envs.mujoco", "gymnasium.envs.box2d"):
        for module in [
            other for other in sys.modules if other == name or other.startswith(f"{name}.")
        ]:
            monkeypatch.delitem(sys.modules, module)
        if not name.startswith("gymnasium"):
            monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=re.escape(INSTALL[kind])):
        GymnasiumAdapter(env_id, 2)


def test_copies_with_other_spaces():
    made = iter([2, 2, 3])
    adapter = GymnasiumAdapter(
        lambda: Echo(spaces.Box(0.0, 1.0, (next(made),)), spaces.Discrete(2)), 2
    )
    with pytest.raises(
        EnvFailedError,
        match=r"environment 1 raised .*its observation_space is Box.*\(3,\).*same spaces",
    ):
        adapter.reset(jax.random.key(0))


# --- real simulators ---


@pytest.mark.filterwarnings(
    "ignore:builtin type:DeprecationWarning"
)  # as an error it crashes Box2D's import (SWIG)
@pytest.mark.parametrize(
    ("env_id", "shape", "limit"),
    [
        ("CartPole-v1", (4,), 500),
        ("Pendulum-v1", (3,), 200),
        ("LunarLander-v3", (8,), 1000),
        ("HalfCheetah-v5", (17,), 1000),
        ("Hopper-v5", (11,), 1000),
        ("ALE/Breakout-v5", (84, 84, 4), 27000),
    ],
)
def test_real_simulators(env_id, shape, limit, tmp_path, monkeypatch):
    """Eighty random steps, compared with Gymnasium stepped by hand (same seeds and actions)."""
    needed = {
        "LunarLander-v3": "Box2D",
        "HalfCheetah-v5": "mujoco",
        "Hopper-v5": "mujoco",
        "ALE/Breakout-v5": "ale_py",
    }
    if env_id in needed and importlib.util.find_spec(needed[env_id]) is None:
        pytest.skip(f"{needed[env_id]} is not installed")
    # MuJoCo writes its warnings to MUJOCO_LOG.TXT in the working directory.
    monkeypatch.chdir(tmp_path)
    adapter, state, obs = start(env_id, 2, seed=4)
    assert obs.shape == (2, *shape) and adapter.max_episode_steps == limit
    assert obs.dtype == (np.uint8 if env_id.startswith("ALE") else np.float32)
    hand = [adapter.recipe.build() for _ in range(2)]
    for index, seed in enumerate(seeds(jax.random.key(4), 2)):
        np.testing.assert_allclose(obs[index], hand[index].reset(seed=seed)[0], rtol=1e-6)
    adapter.action_space.seed(0)
    ends = 0
    for _ in range(80):
        action = np.stack([adapter.action_space.sample() for _ in range(2)])
        state, step = adapter.step(None, state, action)
        for index, env in enumerate(hand):
            after, reward, terminated, truncated, _ = env.step(action[index])
            np.testing.assert_allclose(
                step.next_obs[index], np.asarray(after, obs.dtype), rtol=1e-6
            )
            np.testing.assert_allclose(step.reward[index], reward, rtol=1e-6)
            assert (step.terminated[index], step.truncated[index]) == (terminated, truncated)
            if terminated or truncated:
                after, ends = env.reset()[0], ends + 1
            np.testing.assert_allclose(step.obs[index], np.asarray(after, obs.dtype), rtol=1e-6)
    assert ends > 0 or env_id not in ("CartPole-v1", "Hopper-v5")
    adapter.close()
