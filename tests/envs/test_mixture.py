"""`rlkit/Mixture`: each episode in one of several environments, jittable and on the host."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from rlkit.envs import TimeLimit, check_env, gymnax_env, make_env, register_env, registry
from rlkit.envs.ids import MIXTURE
from rlkit.errors import ConfigError, EnvStateError

CART = "gymnax/CartPole-v1"
SHORT = {"id": CART, "arguments": {"params": {"max_steps_in_episode": 7}}}
LONG_POLE = {"id": CART, "arguments": {"params": {"length": 1.0}}}


@pytest.fixture(autouse=True)
def clean_registry(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})


def jax_mix(num_envs=1, envs=(SHORT, LONG_POLE), **arguments):
    return make_env(MIXTURE, num_envs, envs=list(envs), **arguments)


def of_two_kinds():
    """CartPole, and the same with another class around it."""
    register_env("mine/Short", lambda: TimeLimit(gymnax_env("CartPole-v1"), 5))
    return [CART, "mine/Short"]


def equal(one, other):
    """Parameters are inputs in a mixture and constants in its members, so to rounding."""
    np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


@pytest.mark.full
def test_each_episode_steps_as_its_member_does():
    """The law of mixtures, for members of one kind and of two: they are played as they are."""
    for envs in ((SHORT, LONG_POLE), [*reversed(of_two_kinds()), LONG_POLE]):
        mixture = jax_mix(envs=envs).env
        seen = set()
        for seed in range(12):
            state, obs = mixture.reset(jax.random.key(seed))
            which, own = mixture.member_state(state)
            seen.add(which)
            key = jax.random.key(100 + seed)
            after, *outcome = jax.jit(mixture.step)(key, state, jnp.int32(1))
            expected, *wanted = jax.jit(mixture.members[which].step)(key, own, jnp.int32(1))
            jax.tree.map(equal, outcome[:4], wanted[:4])
            jax.tree.map(equal, mixture.member_state(after), (which, expected))
            assert obs.shape == (4,)
        assert seen == set(range(len(envs)))


def test_members_that_differ_in_parameters_are_one_family():
    assert len(jax_mix().env.families) == 1
    mixture = jax_mix(envs=[SHORT, *of_two_kinds(), LONG_POLE]).env
    assert mixture.places == ((0, 0), (0, 1), (1, 0), (0, 2))
    lengths = mixture.params.families[0].length
    np.testing.assert_allclose(lengths, [0.5, 0.5, 1.0])


def test_episodes_follow_the_weights():
    env = jax_mix(4_000, envs=[SHORT, LONG_POLE, CART], weights=[1, 3, 0])
    which = np.asarray(jax.jit(env.reset)(jax.random.key(0))[0].envs.which)
    first = int((which == 0).sum())
    assert abs(first - 1_000) < 5 * np.sqrt(4_000 * 0.25 * 0.75) and not (which == 2).any()


def test_the_next_episode_is_drawn_anew():
    """Both lengths of episodes occur in one environment: limits of 7 steps, and falls earlier."""
    env = jax_mix(64)
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    first, step = np.asarray(state.envs.which), jax.jit(env.step)
    for i in range(7):
        state, outcome = step(jax.random.key(i), state, jnp.full(64, i % 2))
    np.testing.assert_array_equal(outcome.truncated, first == 0)
    second = np.asarray(state.envs.which)
    np.testing.assert_array_equal(second[first == 1], 1)  # these episodes go on
    assert set(second[first == 0]) == {0, 1}


@pytest.mark.parametrize("envs", [(SHORT, LONG_POLE), "two kinds"], ids=["family", "kinds"])
def test_jittable_mixtures_keep_the_contract(envs):
    envs = of_two_kinds() if envs == "two kinds" else list(envs)
    report = check_env(MIXTURE, env_arguments={"envs": envs}, num_steps=50)
    assert report.ok
    assert all("max_episode_steps is 500, but" in str(found) for found in report.warnings)


def test_limits_and_spaces_cover_all_members():
    register_env("mine/Wide", lambda: Wide())
    env = jax_mix(envs=[CART, "mine/Wide"])
    assert env.max_episode_steps is None  # of Wide
    np.testing.assert_array_equal(
        env.observation_space.low, np.minimum(Wide.low, make_env(CART, 1).observation_space.low)
    )
    assert jax_mix(envs=[SHORT, CART]).max_episode_steps == 500


class Wide:
    """Observations of CartPole's form, with other bounds and without a time limit."""

    low = np.array([-9, -9, -0.1, -9], np.float32)
    observation_space = spaces.Box(low, -low, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, key):
        return jnp.int32(0), jnp.zeros(4)

    def step(self, key, state, action):
        return state + 1, jnp.zeros(4), 0.0, state > 3, jnp.bool_(False), {}


class Untyped(Wide):
    """Its steps return Python numbers in its state."""

    def reset(self, key):
        return {"time": jnp.int32(0), "seen": 2.0}, jnp.zeros(4)

    def step(self, key, state, action):
        time = state["time"] + 1
        after = {"time": time, "seen": 2.0}
        return after, jnp.zeros(4), 0.0, time > 3, jnp.bool_(False), {}


def test_states_may_hold_numbers_of_python():
    register_env("mine/Wide", lambda: Wide())
    register_env("mine/Untyped", lambda: Untyped())
    env = jax_mix(4, envs=["mine/Wide", "mine/Untyped"])
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    _, outcome = jax.jit(env.step)(jax.random.key(1), state, jnp.zeros(4, jnp.int32))
    assert outcome.obs.shape == (4, 4)


BAD = [
    ({"envs": []}, "needs the environments that it mixes"),
    ({"envs": "gymnax/CartPole-v1"}, "needs the environments that it mixes"),
    ({"envs": [3]}, "a mixture has no 3"),
    ({"envs": [{"id": CART, "params": {}}]}, "params"),
    ({"envs": [CART, {"id": MIXTURE}]}, "no part of another one"),
    ({"envs": [CART, "gymnax/Acrobot-v1"]}, "have the observation spaces"),
    ({"envs": [CART, "probe/Counter"]}, "have the observation spaces"),
    ({"envs": [CART, "gymnasium/CartPole-v1"]}, "cannot be mixed with"),
    ({"envs": ["gymnax/DeepSea-bsuite"]}, "resets itself"),
    ({"envs": [CART, CART], "weights": [1.0]}, "are mixed with weights=[1.0]"),
    ({"envs": [CART, CART], "weights": [0, 0]}, "one of them more"),
    ({"envs": [CART, CART], "weights": [-1, 2]}, "must be 0 or more"),
    ({"envs": [CART, CART], "weights": [float("nan"), 2]}, "must be 0 or more"),
    ({"envs": [CART, CART], "weights": ["a", 2]}, "must be 0 or more"),
    ({"envs": [CART], "vectorization": "async"}, "does not take vectorization"),
]


@pytest.mark.parametrize(("arguments", "said"), BAD)
def test_bad_mixtures(arguments, said):
    with pytest.raises(ConfigError) as error:
        make_env(MIXTURE, 2, **arguments)
    assert said in str(error.value) and "; " in str(error.value)


def test_actions_must_be_equal():
    register_env("mine/Three", Three)
    with pytest.raises(ConfigError, match="have the action spaces"):
        jax_mix(envs=[CART, "mine/Three"])


class Three(Wide):
    observation_space = gymnax_env("CartPole-v1").observation_space
    action_space = spaces.Discrete(3)


# On the host

HOST = [
    {"id": "gymnasium/CartPole-v1", "arguments": {"max_episode_steps": 5}},
    "gymnasium/CartPole-v1",
]


def played(env, steps, seed=3):
    """Observations and ends of `steps` steps with fixed actions."""
    state, obs = env.reset(jax.random.key(seed))
    found = [(obs, np.zeros(env.num_envs, bool))]
    for i in range(steps):
        state, outcome = env.step(None, state, np.full(env.num_envs, i % 2))
        found.append((outcome.obs, outcome.truncated))
    return found


def test_host_mixtures_are_the_same_for_the_same_seed():
    env = make_env(MIXTURE, 3, envs=HOST)
    first, again, other = played(env, 30), played(env, 30), played(env, 30, seed=4)
    jax.tree.map(np.testing.assert_array_equal, first, again)
    assert not all(np.array_equal(a[0], b[0]) for a, b in zip(first, other, strict=True))
    truncated = np.stack([ends for _, ends in first])
    assert truncated.any()  # the member with a limit of 5 steps is played
    env.close()


def test_host_mixtures_follow_the_weights():
    env = make_env(MIXTURE, 1, envs=HOST, weights=[1, 3]).recipe.build()
    env.reset(seed=0)
    drawn = []
    for _ in range(2_000):
        env.reset()
        drawn.append(env._which)
    share = drawn.count(0)
    assert abs(share - 500) < 5 * np.sqrt(2_000 * 0.25 * 0.75)
    assert env.max_episode_steps == 500
    env.close()


def test_a_host_mixture_goes_on_from_its_saved_state():
    """To the bit, into an environment that was never reset with that seed."""
    env, other = (make_env(MIXTURE, 2, envs=HOST) for _ in range(2))
    played(env, 12)
    saved = env.get_state()
    other.reset(jax.random.key(77))
    other.set_state(saved)
    for i in range(40):  # across several ends, so with the choice of the next members
        a, b = (e.step_async(np.full(2, i % 2)) or e.step_wait() for e in (env, other))
        jax.tree.map(np.testing.assert_array_equal, a, b)
    with pytest.raises(EnvStateError, match="HostMixture"):
        make_state_of_three(other)
    env.close()
    other.close()


def make_state_of_three(env):
    """Loads the state of a mixture of three into one of two."""
    three = make_env(MIXTURE, 2, envs=[*HOST, HOST[0]])
    three.reset(jax.random.key(0))
    env.reset(jax.random.key(0))
    env.set_state(three.get_state())


def test_a_seed_seeds_members_that_are_drawn_later():
    """Gymnasium seeds an environment that was never seeded from the operating system."""
    env = make_env(MIXTURE, 1, envs=HOST).recipe.build()
    firsts = []
    for _ in range(2):
        first = {}
        env.reset(seed=11)
        for _ in range(20):
            obs, _ = env.reset()
            first.setdefault(env._which, obs)
        firsts.append(first)
    assert firsts[0].keys() == {0, 1}
    jax.tree.map(np.testing.assert_array_equal, *firsts)
    env.close()


def test_host_mixtures_keep_the_contract():
    report = check_env(MIXTURE, env_arguments={"envs": HOST}, num_steps=50)
    assert report.ok, str(report)


def test_a_registered_gymnasium_class_can_be_a_member():
    register_env("mine/Cart", gymnasium.envs.classic_control.CartPoleEnv, max_episode_steps=9)
    env = make_env(MIXTURE, 1, envs=["mine/Cart", "gymnasium/CartPole-v1"])
    assert env.max_episode_steps == 500
    played(env, 12)
    env.close()
