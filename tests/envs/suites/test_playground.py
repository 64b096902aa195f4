"""MuJoCo Playground's environments: what they do is Playground's, where episodes end is told."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlkit.envs import check_env, make_env
from rlkit.envs.jittable.contract import trace_findings
from rlkit.envs.suites.playground_ids import IDS, LEFT_OUT
from rlkit.errors import ConfigError

pytest.importorskip("mujoco_playground")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # its imports

CARTPOLE = "playground/CartpoleBalance"


def single(env_id=CARTPOLE, **arguments):
    return make_env(env_id, 1, **arguments).env


def test_the_ids_are_those_of_playground():
    from mujoco_playground import registry

    assert sorted({*IDS, *LEFT_OUT}) == sorted(registry.ALL_ENVS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"config": 3}, "config is 3; pass a dict"),
        (
            {"config": {"episode_lengt": 5}},
            "no config 'episode_lengt'; did you mean 'episode_length'",
        ),
        ({"config": {"episode_length": 0}}, "episode_length must be a positive integer, got 0"),
        ({"config": {"action_repeat": 2}}, "repeats no actions, got action_repeat=2"),
        ({"config": {"impl": "jx"}}, "'jx' is not a valid Impl"),
        ({"params": {"opt.gravty": [0, 0, -9]}}, "has no number 'opt.gravty'; did you mean"),
        ({"params": {"body_subtreemass": [1, 2, 3]}}, "body_subtreemass changes nothing"),
    ],
)
def test_wrong_arguments_are_refused_at_once(arguments, message):
    with pytest.raises(ConfigError, match=message):
        single(**arguments)


@pytest.mark.full
@pytest.mark.parametrize("name", IDS)
def test_every_environment_is_traced(name):
    assert not list(trace_findings(single(f"playground/{name}")))


@pytest.mark.full
def test_there_is_no_mistake_in_it():
    arguments = {"config": {"episode_length": 60}}
    report = check_env(CARTPOLE, env_arguments=arguments, raise_on_error=False)
    # The checker steps twice in one program and compares bits. As the tests compile, without most
    # optimisations, the two differ by 6e-8 in one step of 200; as users compile, they do not.
    rounding = "two different results for the same key, state and action"
    assert not [finding for finding in report.findings if rounding not in finding.what], report


@pytest.mark.full
def test_steps_are_those_of_playground_and_the_limit_truncates():
    from mujoco_playground import registry

    env = single(config={"episode_length": 6})
    own = registry.load("CartpoleBalance", config_overrides={"impl": "jax"})
    step, own_step = jax.jit(env.step), jax.jit(own.step)
    state, obs = jax.jit(env.reset)(jax.random.key(0))
    wanted = jax.jit(own.reset)(jax.random.PRNGKey(0))
    np.testing.assert_allclose(obs, wanted.obs, rtol=1e-5, atol=1e-5)
    upright = 0.0
    for time in range(1, 7):
        action = jnp.full(1, 0.3 * time)
        state, obs, reward, terminated, truncated, info = step(jax.random.key(1), state, action)
        wanted = own_step(wanted, action)
        np.testing.assert_allclose(obs, wanted.obs, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(reward, wanted.reward, rtol=1e-5, atol=1e-5)
        upright += float(wanted.metrics["reward/upright"])
        assert not terminated and bool(truncated) == (time == 6)
    np.testing.assert_allclose(info["reward/upright"], upright, rtol=1e-5)


@pytest.mark.full
def test_other_numbers_change_what_happens_and_compile_nothing(counted):
    env = make_env(CARTPOLE, 2, params={"opt.gravity": [0, 0, -9.81]})
    step = counted(env.step)
    after = []
    for g in (-9.81, -50.0):
        changed = env.replace_params({"opt.gravity": jnp.asarray([0, 0, g])})
        state, _ = changed.reset(jax.random.key(0))
        after.append(step(jax.random.key(1), state, jnp.zeros((2, 1)))[1].obs)
    assert step.traces == 1 and step.jitted._cache_size() == 1
    assert not np.allclose(*after, atol=1e-4)


@pytest.mark.full
def test_methods_kept_on_the_environment_see_the_other_numbers():
    """CartpoleBalance keeps a bound method of itself, which would be that of the old one."""
    from rlkit.envs.suites.simulated import _with_numbers

    env = single()
    numbers = {"opt.gravity": jnp.zeros(3)}
    changed = _with_numbers(env.env, "_mjx_model", numbers)
    assert changed._get_reward.__self__ is changed
    assert env.env.mjx_model.opt.gravity[2] != 0 and changed.mjx_model.opt.gravity[2] == 0
