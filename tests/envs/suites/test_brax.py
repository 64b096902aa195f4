"""Brax's environments: what they do is Brax's, where episodes end is told apart."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlkit.envs import check_env, make_env
from rlkit.envs.ids import MIXTURE
from rlkit.envs.jittable.contract import trace_findings
from rlkit.envs.suites.brax_ids import IDS, LEFT_OUT
from rlkit.errors import ConfigError

pytest.importorskip("brax")
pytestmark = [  # what Brax says about itself, which users are spared
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Brax System:UserWarning"),
]

PENDULUM = "brax/inverted_pendulum"
ONES = jnp.ones(1)  # it falls within a few steps


def single(env_id=PENDULUM, **arguments):
    """A `JaxEnv`, of the backend that compiles fastest unless told otherwise."""
    return make_env(env_id, 1, **{"backend": "spring", **arguments}).env


def episode(env, action=ONES, limit=100):
    """(states, rows of obs, reward, terminated, truncated, info), to the end of an episode."""
    step = jax.jit(env.step)
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    states, rows = [state], []
    while len(rows) < limit and not (rows and (rows[-1][2] or rows[-1][3])):
        state, *row = step(jax.random.key(1), state, action)
        states.append(state)
        rows.append(row)
    return states, rows


def test_the_ids_are_those_of_brax():
    from brax import envs

    assert sorted({*IDS, *LEFT_OUT}) == sorted(envs._envs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"backend": "mj"}, "Brax has no backend 'mj'; did you mean 'mjx'?"),
        ({"episode_length": 0}, "episode_length must be a positive integer, got 0"),
        ({"healthy_rewrd": 1}, "healthy_rewrd"),
        ({"params": {"gravty": [0, 0, -9]}}, "has no number 'gravty'; did you mean 'gravity'"),
        ({"params": {"gravity": -9}}, r"gravity .* is an array of shape \[3\], got -9"),
        ({"params": {"viscosity": "thick"}}, "viscosity .* is a number, got 'thick'"),
        ({"params": {"opt.gravity": [0, 0, -9]}}, "opt.gravity changes nothing in .*'spring'"),
    ],
)
def test_wrong_arguments_are_refused_at_once(arguments, message):
    with pytest.raises(ConfigError, match=message):
        single(**arguments)


@pytest.mark.full
@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("backend", ["generalized", "spring", "positional", "mjx"])
def test_every_environment_is_traced_with_every_backend(name, backend):
    assert not list(trace_findings(single(f"brax/{name}", backend=backend)))


@pytest.mark.full
@pytest.mark.parametrize("backend", ["generalized", "mjx"])
def test_there_is_no_mistake_in_it(backend):
    arguments = {"backend": backend, "episode_length": 60}
    report = check_env(PENDULUM, env_arguments=arguments)
    assert not report.findings, report


@pytest.mark.full
@pytest.mark.parametrize("name", ["inverted_pendulum", "reacher"])
def test_steps_are_those_of_brax(name):
    from brax import envs

    env = single(f"brax/{name}", episode_length=12)
    action = jnp.ones(env.action_space.shape)
    _, rows = episode(env, action)
    own = envs.get_environment(name, backend="spring")
    state, step = jax.jit(own.reset)(jax.random.key(0)), jax.jit(own.step)
    for obs, reward, terminated, _, _ in rows:
        state = step(state, action)
        np.testing.assert_allclose(obs, state.obs, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(reward, state.reward, rtol=1e-5, atol=1e-5)
        assert bool(terminated) == bool(state.done)


@pytest.mark.full
def test_a_fall_terminates_and_the_limit_truncates():
    _, rows = episode(single())
    fall = len(rows)
    ends = {fall: (True, False), fall - 1: (False, True)}
    for limit, wanted in {1000: ends[fall], fall - 1: ends[fall - 1], fall: (True, True)}.items():
        _, rows = episode(single(episode_length=limit))
        assert (bool(rows[-1][2]), bool(rows[-1][3])) == wanted
        assert len(rows) == min(limit, fall)


@pytest.mark.full
def test_parts_of_the_reward_are_summed_over_the_episode():
    _, rows = episode(single("brax/reacher", episode_length=5), jnp.ones(2))
    total = sum(float(reward) for _, reward, *_ in rows)
    last = rows[-1][-1]
    assert len(rows) == 5
    np.testing.assert_allclose(last["reward_dist"] + last["reward_ctrl"], total, rtol=1e-5)


@pytest.mark.full
def test_other_numbers_change_what_happens_and_compile_nothing(counted):
    env = make_env(PENDULUM, 2, params={"gravity": [0, 0, -9.81]})
    step = counted(env.step)
    starts = [
        env.replace_params({"gravity": jnp.asarray([0, 0, g])}).reset(jax.random.key(0))[0]
        for g in (-9.81, -50.0)
    ]
    after = [step(jax.random.key(1), state, jnp.zeros((2, 1)))[1].obs for state in starts]
    assert step.traces == 1 and step.jitted._cache_size() == 1
    assert not np.allclose(*after, atol=1e-3)
    plain = make_env(PENDULUM, 2)
    same, _ = plain.reset(jax.random.key(0))
    _, wanted = jax.jit(plain.step)(jax.random.key(1), same, jnp.zeros((2, 1)))
    np.testing.assert_allclose(after[0], wanted.obs, rtol=1e-5, atol=1e-5)


@pytest.mark.full
def test_a_mixture_draws_the_numbers_of_each_episode():
    members = [
        {"id": PENDULUM, "arguments": {"backend": "spring", "params": {"gravity": [0, 0, g]}}}
        for g in (-9.81, -1.0)
    ]
    mixture = make_env(MIXTURE, 2, envs=members).env
    assert len(mixture.families) == 1
    assert mixture.params.families[0]["gravity"].shape == (2, 3)


@pytest.mark.full
@pytest.mark.process
def test_it_is_drawn_without_a_display():
    program = """
import jax, numpy as np
from rlkit.envs import make_env
env = make_env("brax/ant", 1, backend="spring").env
state, _ = jax.jit(env.reset)(jax.random.key(0))
picture = env.render(jax.tree.map(np.asarray, state))
assert picture.shape == (240, 320, 3) and picture.dtype == np.uint8
assert np.unique(picture).size > 50 and env.render_fps == 20
"""
    environment = os.environ | {"MUJOCO_GL": "egl"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=200)


@pytest.mark.full
def test_without_opengl_the_error_says_what_to_set(monkeypatch):
    import mujoco

    def no_display(*_, **__):
        raise RuntimeError("no OpenGL")

    monkeypatch.setattr(mujoco, "Renderer", no_display)
    env = single()
    state, _ = env.reset(jax.random.key(0))
    with pytest.raises(ConfigError, match=r"no OpenGL.*set MUJOCO_GL=egl"):
        env.render(jax.tree.map(np.asarray, state))
