"""Every law of `rlkit.testing`: it holds for a sound environment, and says what is wrong with one
that breaks it on purpose.
"""

import dataclasses

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from tiers import by_default, in_full

import rlkit
from rlkit import testing
from rlkit.envs import ResumeByReplay, TimeLimit
from rlkit.errors import ConfigError, UnknownNameError


@dataclasses.dataclass(frozen=True)
class Drift:
    """Sound: a number that drifts; ends beyond 3, or after eight steps."""

    max_episode_steps: int = 8

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, key):
        place = jax.random.normal(key)
        return (place, jnp.int32(0)), place[None]

    def step(self, key, state, action):
        place, time = state
        place, time = place + action - 0.5 + 0.1 * jax.random.normal(key), time + 1
        ends = jnp.abs(place) > 3.0, time >= self.max_episode_steps
        return (place, time), place[None], -jnp.abs(place), *ends, {}


class HostDrift(gymnasium.Env):
    """The same on the host, which can be saved."""

    observation_space, action_space = Drift.observation_space, Drift.action_space
    max_episode_steps = 8

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.time = self.np_random.normal(), 0
        return self.look(), {}

    def step(self, action):
        self.place += float(action) - 0.5 + 0.1 * self.np_random.normal()
        self.time += 1
        ends = bool(abs(self.place) > 3), self.time >= self.max_episode_steps
        return self.look(), -abs(self.place), *ends, {}

    def look(self):
        return np.array([self.place], np.float32)

    def get_state(self):
        return {"place": self.place, "time": self.time}

    def set_state(self, state):
        self.place, self.time = state["place"], state["time"]


def changed(base, **methods):
    """A class with other methods."""
    return type("Broken", (base,), methods)


def late(self, key, state, action):
    """The limit is promised and not kept."""
    state, obs, reward, terminated, _, info = Drift.step(self, key, state, action)
    return state, obs, reward, terminated, jnp.bool_(False), info


def deadly(self, key, state, action):
    """The limit counts as the end of the task."""
    state, obs, reward, terminated, truncated, info = Drift.step(self, key, state, action)
    return state, obs, reward, terminated | truncated, jnp.bool_(False), info


def frozen(self, key, state, action):
    """NumPy draws once while it is traced."""
    state, obs, *rest = Drift.step(self, key, state, action)
    return state, obs + np.float32(np.random.default_rng().normal()), *rest


def mixed(self, key, state, action):
    """What Python computes sees the whole batch."""
    state, obs, *rest = Drift.step(self, key, state, action)

    def largest(x):
        return np.broadcast_to(x.max(0, keepdims=True), x.shape)

    return state, jax.pure_callback(largest, obs, obs, vmap_method="broadcast_all"), *rest


def infinite(self, key, state, action):
    state, obs, _, *rest = Drift.step(self, key, state, action)
    return state, obs, jnp.float32(jnp.inf), *rest


def remembering(self, *, seed=None, options=None):
    """The number of resets is seen."""
    obs, info = HostDrift.reset(self, seed=seed)
    self.resets = getattr(self, "resets", 0) + 1
    return obs + self.resets, info


def unseeded(self, *, seed=None, options=None):
    return HostDrift.reset(self, seed=None)


def confused(self, *, seed=None, options=None):
    return HostDrift.reset(self, seed=seed)[0]


class Rewritten:
    """A batch whose `next_obs` is not what follows, where no episode ends."""

    def __init__(self):
        self.inner = rlkit.vectorize(Drift(), 2)

    def __getattr__(self, name):
        if name == "inner":  # while being copied
            raise AttributeError(name)
        return getattr(self.inner, name)

    def reset(self, key):
        return self.inner.reset(key)

    def step(self, key, state, action):
        state, step = self.inner.step(key, state, action)
        return state, dataclasses.replace(step, next_obs=step.next_obs + 1)

    def close(self):
        pass


def forgetful(self, state):
    self.place, self.time = state["place"], 0


BROKEN = [
    ("check_contract", Drift(), {"step": late}, "sets neither terminated nor truncated"),
    ("check_contract", HostDrift, {"reset": confused}, "reset"),
    ("same_seed_same_episode", HostDrift, {"reset": unseeded}, "two copies with the same seed"),
    ("resets_restart", HostDrift, {"reset": remembering}, "what was played before a reset"),
    ("resets_restart", Drift(), {"step": late}, "beyond its limit of 8|no episode ended"),
    ("time_limit_truncates", Drift(), {"step": late}, "step 8, the time limit, neither"),
    ("time_limit_truncates", Drift(), {"step": deadly}, "without truncating it"),
    ("jit_equals_eager", Drift(), {"step": frozen}, r"step 1 differs when it is compiled"),
    ("vmap_equals_loop", Drift(), {"step": mixed}, "step 1 of environment 0 differs in a batch"),
    ("trains", Drift(), {"step": infinite}, "ppo"),
    ("resumes_exactly", HostDrift, {"set_state": forgetful}, "resumed is not the one"),
    ("resumes_exactly", HostDrift, {"get_state": None}, "has no methods get_state"),
]


@pytest.mark.parametrize(
    ("law", "base", "methods", "told"),
    [in_full(row) if row[0] in ("trains", "resumes_exactly") else row for row in BROKEN],
    ids=[f"{row[0]}-{index}" for index, row in enumerate(BROKEN)],
)
def test_a_broken_environment_is_told_what_is_wrong(law, base, methods, told, tmp_path):
    is_class = isinstance(base, type)
    broken = changed(base if is_class else type(base), **methods)
    with pytest.raises(AssertionError, match=told):
        testing.check_law(law, broken if is_class else broken(), tmp_path)


KINDS = {
    "jittable": Drift(),
    "host": HostDrift,
    "class": Drift,
    "object": HostDrift(),
    "id": "probe/Counter",
    "batch": rlkit.vectorize(Drift(), 2),
}
CASES = [
    (law, kind)
    for kind in KINDS
    for law in testing.list_laws("host" if kind in ("host", "object") else "jittable")
]
RUNS = ("trains", "resumes_exactly", "exports_the_same_actions")
EPISODES = [case for case in CASES if case[1] in ("jittable", "host") and case[0] not in RUNS]
DEFAULTS = [*EPISODES, ("resumes_exactly", "host")]


@pytest.mark.parametrize(("law", "kind"), by_default(DEFAULTS, CASES))
def test_a_sound_environment_keeps_every_law(law, kind, tmp_path):
    if (law, kind) == ("vmap_equals_loop", "batch"):
        pytest.skip("tested as jittable: a batch made by vectorize")
    testing.check_law(law, KINDS[kind], tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("law", RUNS)
@pytest.mark.parametrize("env", [Drift(), HostDrift], ids=["jittable", "host"])
def test_runs_of_another_algorithm(law, env, tmp_path):
    testing.check_law(law, env, tmp_path, algorithm="dqn")


def test_a_batch_that_rewrites_next_obs_is_found():
    with pytest.raises(AssertionError, match="step 1: obs is not next_obs"):
        testing.resets_restart(Rewritten())


@pytest.mark.full
def test_replay_lets_a_run_resume(tmp_path):
    unsaved = changed(HostDrift, get_state=None)
    testing.resumes_exactly(lambda: ResumeByReplay(unsaved()), tmp_path)


@pytest.mark.parametrize(
    ("law", "env", "told"),
    [
        ("resets_restart", TimeLimit(Drift(10**6), 10**6), "no episode ended in 5 random steps"),
        ("time_limit_truncates", Drift(10**6), "no episode lasted until the time limit"),
    ],
)
def test_a_law_that_saw_too_little_says_so(law, env, told, tmp_path):
    with pytest.raises(AssertionError, match=told):
        testing.check_law(law, env, tmp_path, num_steps=5)


def test_arguments_go_to_the_constructor(tmp_path):
    testing.check_law(
        "time_limit_truncates", Drift, tmp_path, env_arguments={"max_episode_steps": 3}
    )
    with pytest.raises(ConfigError, match="env_arguments need an id or a class"):
        testing.trains(KINDS["batch"], env_arguments={"max_episode_steps": 3})


@pytest.mark.fast
def test_laws_are_listed_with_what_they_say(tmp_path):
    laws, on_host = testing.list_laws(), testing.list_laws("host")
    assert on_host.keys() == laws.keys() - {"jit_equals_eager", "vmap_equals_loop"}
    assert all(said.endswith(".") for said in laws.values())
    public = {name for name in testing.__all__ if name in laws}
    assert public == {*laws}
    with pytest.raises(UnknownNameError, match="there is no law 'train'; did you mean 'trains'"):
        testing.check_law("train", Drift(), tmp_path)
    with pytest.raises(ConfigError, match="unknown kind of environment 'gpu'"):
        testing.list_laws("gpu")


def test_laws_of_jittable_environments_refuse_others():
    with pytest.raises(ConfigError, match="for jittable environments; leave this law out"):
        testing.jit_equals_eager(HostDrift)
