"""The same tests for every built-in environment: a new environment is a new row."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import in_full

from rlkit import spaces
from rlkit.envs import (
    CastObservation,
    FlattenObservation,
    FrameStack,
    RescaleAction,
    SelectObservation,
    TimeLimit,
    make_env,
    vectorize,
)
from rlkit.envs.ids import GYMNAX_IDS, NEEDS_NETWORK, PROBE_IDS
from rlkit.envs.jittable.gymnax import gymnax_env
from rlkit.envs.probes.space_probes import ContinuousAction, Counter, DictObservation
from rlkit.envs.probes.value_probes import ValueByObservation
from rlkit.testing import assert_same

NUM_ENVS, NUM_STEPS, LIMIT = 3, 12, 5
ROUNDING = {"rtol": 1e-5, "atol": 1e-6}
SHORT = {"max_steps_in_episode": LIMIT}

WRAPPED = {
    "TimeLimit(ValueByObservation)": lambda: TimeLimit(ValueByObservation(), LIMIT),
    "TimeLimit(CartPole)": lambda: TimeLimit(gymnax_env("CartPole-v1"), LIMIT),
    "RescaleAction(Pendulum)": lambda: RescaleAction(gymnax_env("Pendulum-v1", params=SHORT)),
    "RescaleAction(ContinuousAction)": lambda: RescaleAction(
        ContinuousAction(), low=0.0, high=10.0
    ),
    "FlattenObservation(DictObservation)": lambda: FlattenObservation(DictObservation()),
    "FlattenObservation(FrozenLake)": lambda: FlattenObservation(
        gymnax_env("FrozenLake-misc", params=SHORT)
    ),
    "FrameStack(Catch)": lambda: FrameStack(gymnax_env("Catch-bsuite", params=SHORT), 3),
    "FrameStack(DeepSea)": lambda: FrameStack(gymnax_env("DeepSea-bsuite", params=SHORT), 2),
    "SelectObservation(Counter)": lambda: SelectObservation(Counter(max_episode_steps=LIMIT), (1,)),
    "CastObservation(Counter)": lambda: CastObservation(
        Counter(max_episode_steps=LIMIT), jnp.float32
    ),
    "FlattenObservation(DeepSea)": lambda: FlattenObservation(
        gymnax_env("DeepSea-bsuite", params=SHORT)
    ),
}
# Eager and single runs compile op by op, which is slow for the large games: the laws that need them
# run on these rows.
SMALL = ("CartPole-v1", "Pendulum-v1", "Catch-bsuite", "DeepSea-bsuite", "FrozenLake-misc")
# The other environments of Gymnax behind the same adapter, only in the full matrix; Breakout stands
# for images.
DEFAULT_GYMNAX = (*SMALL, "Breakout-MinAtar", "FourRooms-misc")

ROWS = {
    **{
        f"gymnax/{name}": functools.partial(make_env, f"gymnax/{name}", NUM_ENVS, params=SHORT)
        for name in GYMNAX_IDS
    },
    **{
        f"probe/{name}": functools.partial(make_env, f"probe/{name}", NUM_ENVS)
        for name in PROBE_IDS
    },
    **{name: (lambda make=make: vectorize(make(), NUM_ENVS)) for name, make in WRAPPED.items()},
}
ROWS = {
    name: make for name, make in ROWS.items() if name.removeprefix("gymnax/") not in NEEDS_NETWORK
}
SMALL_ROWS = [
    name for name in ROWS if not name.startswith("gymnax/") or name.removeprefix("gymnax/") in SMALL
]

SLOW_EAGERLY = [
    name
    for name in ROWS
    if any(part in name for part in ("Catch", "DeepSea", "FrozenLake", "TimeLimit(CartPole)"))
]


class Run:
    """Twelve random steps of one row, with compiled reset and step."""

    def __init__(self, name, counted):
        self.env = ROWS[name]()
        self.reset, self.step = counted(self.env.reset), counted(self.env.step)
        key = jax.random.key(7)
        self.keys = jax.random.split(key, NUM_STEPS)
        self.actions = [spaces.sample(self.env.action_space, k, NUM_ENVS) for k in self.keys]
        self.start = self.reset(key)
        self.states, self.timesteps, state = [], [], self.start[0]
        for step_key, action in zip(self.keys, self.actions, strict=True):
            state, timestep = self.step(step_key, state, action)
            self.states.append(state)
            self.timesteps.append(timestep)


@functools.cache
def run_of(name, counted):
    return Run(name, counted)


@pytest.fixture
def run(request, counted):
    return run_of(request.param, counted)


def is_default(name):
    return name.removeprefix("gymnax/") in DEFAULT_GYMNAX or not name.startswith("gymnax/")


every_row = pytest.mark.parametrize(
    "run", [name if is_default(name) else in_full(name) for name in ROWS], indirect=True
)
eager_rows = pytest.mark.parametrize(
    "run", [name for name in SMALL_ROWS if name not in SLOW_EAGERLY], indirect=True
)
small_rows = pytest.mark.parametrize("run", SMALL_ROWS, indirect=True)


def shapes(tree):
    return jax.tree.map(lambda x: (x.shape, x.dtype, x.weak_type), tree)


@every_row
def test_shapes_and_types_are_those_of_the_space(run):
    wanted = shapes(spaces.example(run.env.observation_space, (NUM_ENVS,)))
    assert shapes(run.start[1]) == wanted
    for step in run.timesteps:
        assert shapes(step.obs) == wanted
        assert shapes(step.next_obs) == wanted
        assert shapes(step.reward) == ((NUM_ENVS,), jnp.float32, False)
        assert shapes(step.terminated) == shapes(step.truncated) == ((NUM_ENVS,), jnp.bool_, False)
        assert all(x.shape[:1] == (NUM_ENVS,) for x in jax.tree.leaves(step.info))
        assert np.isfinite(step.reward).all()


@every_row
def test_one_trace_whatever_the_state(run):
    assert (run.reset.traces, run.step.traces) == (1, 1)
    assert shapes(run.start[0]) == shapes(run.states[-1])


@every_row
def test_time_limit_is_the_declared_one(run):
    """Episodes never exceed the limit; the step that reaches it is truncated, even if it
    terminates.
    """
    age = np.zeros(NUM_ENVS, int)
    limit = run.env.max_episode_steps or np.inf
    for step in jax.device_get(run.timesteps):
        age += 1
        assert (age <= limit).all()
        np.testing.assert_array_equal(step.truncated, age == limit)
        age[step.terminated | step.truncated] = 0


@every_row
def test_obs_and_next_obs_differ_only_where_an_episode_ends(run):
    for step in jax.device_get(run.timesteps):
        running = ~(step.terminated | step.truncated)
        pair = (jax.tree.map(lambda x, r=running: x[r], o) for o in (step.obs, step.next_obs))
        assert_same(*pair, "")


@small_rows
def test_batch_is_a_loop_over_single_environments(run):
    """Recomputes the adapter from single steps with the same keys, true successors, and resets."""
    env = run.env.env
    reset, step, before = jax.jit(env.reset), jax.jit(env.step), jax.device_get(run.start[0])
    rest = jax.device_get((run.actions, run.states, run.timesteps))
    for key, action, after, timestep in zip(run.keys, *rest, strict=True):
        step_key, reset_key = jax.random.split(key)
        for i, k in enumerate(jax.random.split(step_key, NUM_ENVS)):
            state, obs, reward, terminated, truncated, info = step(
                k,
                jax.tree.map(lambda x, i=i: x[i], before.envs),
                jax.tree.map(lambda x, i=i: x[i], action),
            )
            done, self_reset = bool(terminated or truncated), getattr(env, "auto_reset", False)
            successor = info.pop("final_observation") if self_reset else obs
            if done and not self_reset:
                state, obs = reset(jax.random.fold_in(reset_key, i))
            mine = (obs, reward, terminated, truncated, successor, info)
            fields = ("obs", "reward", "terminated", "truncated", "next_obs", "info")
            theirs = jax.tree.map(
                lambda x, i=i: x[i], tuple(getattr(timestep, name) for name in fields)
            )
            assert_same(mine, theirs, "", **ROUNDING)
            kept = jax.tree.map(
                lambda new, old: new.astype(old.dtype),
                state,
                jax.tree.map(lambda x, i=i: x[i], after.envs),
            )
            assert_same(kept, jax.tree.map(lambda x, i=i: x[i], after.envs), "", **ROUNDING)
        before = after


@eager_rows
def test_compiled_is_eager(run):
    state, timestep = run.env.step(run.keys[4], run.states[3], run.actions[4])
    assert_same((state, timestep), (run.states[4], run.timesteps[4]), "", **ROUNDING)


def test_gymnax_ids_that_are_left_out_say_why():
    assert set(NEEDS_NETWORK) == {
        name.removeprefix("gymnax/")
        for name in (f"gymnax/{n}" for n in GYMNAX_IDS)
        if name not in ROWS
    }
