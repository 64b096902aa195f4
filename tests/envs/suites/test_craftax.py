"""What is specific to Craftax: ends against limits, pixels, parameters, pictures."""

import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("craftax")

from craftax import craftax_env
from craftax.craftax_classic.constants import BlockType

from rlkit.envs import check_env, make_env
from rlkit.envs.ids import MIXTURE
from rlkit.envs.suites import craftax_ids
from rlkit.envs.suites.craftax import make
from rlkit.errors import ConfigError

CLASSIC, LIMIT, SLEEP = "Craftax-Classic-Symbolic-v1", 25, 6


def test_the_ids_are_those_that_craftax_names():
    """It has no registry, only a function that compares names."""
    source = inspect.getsource(craftax_env.make_craftax_env_from_name)
    names = {name for name in re.findall(r'"([\w-]+)"', source) if "AutoReset" not in name}
    assert names == {*craftax_ids.IDS, *craftax_ids.LEFT_OUT}


def test_errors_name_the_fix():
    with pytest.raises(ConfigError, match=r"no parameter 'max_steps'; did you mean 'max_timesteps"):
        make(CLASSIC, params={"max_steps": 3})
    with pytest.raises(ConfigError, match=r"max_timesteps='long' does not fit its default 10000"):
        make(CLASSIC, params={"max_timesteps": "long"})
    with pytest.raises(ConfigError, match="max_timesteps must be a positive integer, got 0"):
        make(CLASSIC, params={"max_timesteps": 0})


def test_the_limit_is_that_of_the_parameters():
    assert make("Craftax-Symbolic-v1").max_episode_steps == 100_000
    assert make(CLASSIC, params={"max_timesteps": LIMIT}).max_episode_steps == LIMIT


def test_a_mixture_of_parameters_is_compiled_once():
    name = f"craftax/{CLASSIC}"
    members = [{"id": name, "arguments": {"params": {"day_length": n}}} for n in (200, 300)]
    mixture = make_env(MIXTURE, 2, envs=[*members, name]).env
    assert len(mixture.families) == 1
    np.testing.assert_array_equal(mixture.params.families[0].day_length, [200, 300, 300])
    jax.eval_shape(mixture.reset, jax.random.key(0))


@pytest.fixture(scope="module")
def both():
    """(environment, a step of it and of Craftax's own with the same key, parameters traced)."""
    env = make(CLASSIC, params={"max_timesteps": LIMIT})

    def step(params, key, state, action):
        return (
            env.replace_params(params).step(key, state, action),
            env.env.step_env(key, state, action, params),
        )

    return env, jax.jit(step)


def _same(one, other, rtol=0.0):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol), _plain(one), _plain(other))


def _plain(tree):
    is_key = lambda x: jnp.issubdtype(jnp.asarray(x).dtype, jax.dtypes.prng_key)  # noqa: E731
    return jax.tree.map(lambda x: jax.random.key_data(x) if is_key(x) else x, tree)


@pytest.mark.full
def test_transitions_are_those_of_craftax_until_the_limit(both, key):
    env, step = both
    state, obs = jax.jit(env.reset)(key)
    # Constants of ours are arguments there, so XLA rounds once more.
    _same(jax.jit(env.env.reset_env)(key, env.params), (obs, state), rtol=1e-6)
    for number in range(1, LIMIT + 1):
        ours, theirs = step(env.params, jax.random.fold_in(key, number), state, number % 17)
        state, obs, reward, terminated, truncated, info = ours
        own_obs, own_state, own_reward, done, own_info = theirs
        _same((own_obs, own_state, own_reward), (obs, state, reward))
        assert own_info.items() >= info.items()
        assert not terminated and truncated == done == (number == LIMIT)
    assert info["Achievements/collect_sapling"] in (0, 100)
    assert len(info) == 23 and "discount" not in info


@pytest.mark.full
def test_death_terminates_also_at_the_limit(both, key):
    env, step = both
    state, _ = jax.jit(env.reset)(key)
    x, y = state.player_position
    in_lava = state.replace(map=state.map.at[x, y].set(BlockType.LAVA.value))
    last = jnp.int32(LIMIT - 1)
    ends = [
        tuple(map(bool, step(env.params, key, start, SLEEP)[0][3:5]))
        for start in (in_lava, in_lava.replace(timestep=last), state.replace(timestep=last))
    ]
    assert ends == [(True, False), (True, True), (False, True)]
    longer = env.params.replace(max_timesteps=LIMIT + 1)
    assert not step(longer, key, state.replace(timestep=last), SLEEP)[0][4]


@pytest.mark.full
def test_pixels_are_integers_that_differ_from_craftax_by_rounding(key):
    env = make("Craftax-Classic-Pixels-v1")
    state, obs = jax.jit(env.reset)(key)
    own, _ = jax.jit(env.env.reset_env)(key, env.params)
    assert obs.dtype == jnp.uint8 and obs.shape == env.observation_space.shape
    assert obs.max() > 200 and np.abs(obs / 255.0 - own).max() <= 0.5 / 255 + 1e-6
    assert env.render(jax.device_get(state)).shape == (432, 432, 3)


@pytest.mark.full
def test_pictures_show_what_the_agent_sees(key):
    env = make(CLASSIC)
    state, _ = jax.jit(env.reset)(key)
    picture = env.render(jax.device_get(state))
    assert picture.shape == (432, 432, 3) and picture.dtype == np.uint8
    night = env.render(jax.device_get(state.replace(light_level=jnp.float32(0.0))))
    assert night[:336].mean() < picture[:336].mean()


@pytest.mark.full
def test_it_passes_the_checks_and_nothing_is_printed(capsys):
    report = check_env(make_env(f"craftax/{CLASSIC}", 2, params={"max_timesteps": LIMIT}))
    assert not report.findings
    assert not capsys.readouterr().out
