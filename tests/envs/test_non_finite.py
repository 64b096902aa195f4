"""Environments that are reset where they return NaN or infinity: the same on both kinds."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fragile_envs import (
    Declares,
    Fragile,
    FragileStart,
    HostDeclares,
    HostFragile,
    MaskedFragile,
    registered,
)
from gymnasium import spaces
from tiers import in_full

from rlkit.envs import TimeLimit, make_env, vectorize
from rlkit.envs.host.gymnasium import GymnasiumAdapter
from rlkit.envs.jittable import vectorized
from rlkit.envs.non_finite import TRIES, is_finite
from rlkit.errors import ConfigError, EnvFailedError

FIELDS = ("obs", "reward", "terminated", "truncated", "next_obs", "non_finite")


def actions_of(num_steps, num_envs):
    return np.random.default_rng(0).integers(0, 2, (num_steps, num_envs))


def played(adapter, actions, key, counted=None):
    """(observations acted on, the steps), leaves [T, N, ...]."""
    step = adapter.step if counted is None else counted(adapter.step)
    state, obs = adapter.reset(key)
    seen, steps = [], []
    for time, action in enumerate(actions):
        seen.append(obs)
        state, timestep = step(jax.random.fold_in(key, time), state, action)
        steps.append({name: getattr(timestep, name) for name in FIELDS})
        obs = timestep.obs
    return jax.tree.map(lambda *x: np.stack(x), *seen), jax.tree.map(lambda *x: np.stack(x), *steps)


@pytest.mark.parametrize(
    ("kind", "value"),
    [("both", np.nan), ("observation", np.inf), ("reward", np.nan), in_full(("reward", -np.inf))],
)
@pytest.mark.parametrize("vectorization", ["sync", in_full("async")])
def test_both_kinds_cut_the_same_transitions(key, counted, kind, value, vectorization):
    settings, actions = {"kind": kind, "value": value}, actions_of(24, 3)
    device = vectorize(Fragile(**settings), 3, non_finite="reset")
    host = GymnasiumAdapter(
        HostFragile, 3, non_finite="reset", vectorization=vectorization, **settings
    )
    seen, steps = played(device, actions, key, counted)
    on_host = played(host, actions, key)
    host.close()
    jax.tree.map(np.testing.assert_array_equal, (seen, steps), on_host)
    broken = steps["non_finite"]
    assert broken.sum() > 5 and all(np.isfinite(x).all() for x in jax.tree.leaves((seen, steps)))
    assert (steps["reward"][broken] == 0).all() and steps["terminated"][broken].all()
    assert not steps["truncated"][broken].any()
    # the next episode begins, and stands in for the successor that does not exist
    assert (steps["obs"][broken] == 0).all() and (steps["next_obs"][broken] == 0).all()
    assert (broken == (seen[..., 0] == 3) & (actions == 1)).all()


def test_all_others_are_what_they_would_have_been(key, counted):
    """Each environment up to its first NaN, with the same keys, in resets by blocks."""
    actions = actions_of(12, 40)
    _, sound = played(vectorize(Noisy(at=100), 40), actions, key, counted)
    _, cut = played(vectorize(Noisy(), 40, non_finite="reset"), actions, key, counted)
    before = np.cumsum(cut["non_finite"], axis=0) == 0
    assert before.sum() > 100 and (~before).sum() > 100
    for name in FIELDS[:-1]:
        np.testing.assert_array_equal(sound[name][before], cut[name][before])
    assert sound["non_finite"] is None


@dataclasses.dataclass(frozen=True)
class Noisy(Fragile):
    """`Fragile` that begins anywhere and adds noise."""

    def reset(self, key):
        return super().reset(key)[0], jax.random.normal(key, 2)

    def step(self, key, state, action):
        state, obs, *rest = super().step(key, state, action)
        return state, obs + jax.random.normal(key, 2), *rest


def test_nothing_is_looked_for_where_it_is_an_error(key):
    def program(**settings):
        adapter = vectorize(Fragile(), 2, **settings)
        state, _ = adapter.reset(key)
        return str(jax.make_jaxpr(adapter.step)(key, state, jnp.zeros(2, jnp.int32)))

    assert "is_finite" not in program() and "is_finite" in program(non_finite="reset")


@pytest.mark.parametrize("num_envs", [4, 40])  # at once, and in blocks
def test_resets_are_repeated_until_they_are_finite(key, counted, num_envs):
    adapter = vectorize(FragileStart(), num_envs, non_finite="reset")
    seen, steps = played(adapter, actions_of(24, num_envs), key, counted)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((seen, steps)))


def test_repeated_resets_draw_other_keys(key, monkeypatch):
    monkeypatch.setattr(vectorized, "TRIES", 1)
    adapter = vectorize(FragileStart(), 40)
    broken = np.isnan(adapter.reset(key)[1]).any(1)
    after = np.isnan(dataclasses.replace(adapter, non_finite="reset").reset(key)[1]).any(1)
    assert broken.sum() > after.sum() > 0 and not (after & ~broken).any()


def test_resets_that_never_succeed_are_given_up(key, counted):
    adapter = vectorize(FragileStart(always=True), 2, non_finite="reset")
    _, obs = adapter.reset(key)
    assert np.isnan(obs).all()


class HostFragileStart(HostFragile):
    """Its first resets return NaN."""

    def __init__(self, failures: int):
        super().__init__()
        self.failures = failures

    def reset(self, **kwargs):
        obs, info = super().reset(**kwargs)
        self.failures -= 1
        return obs + np.float32(np.nan if self.failures >= 0 else 0.0), info


def test_resets_are_repeated_on_the_host(key):
    host = GymnasiumAdapter(HostFragileStart, 2, non_finite="reset", failures=TRIES - 1)
    assert (host.reset(key)[1] == 0).all()
    host.close()
    host = GymnasiumAdapter(HostFragileStart, 2, non_finite="reset", failures=TRIES)
    with pytest.raises(EnvFailedError, match="environment 0 returned an observation"):
        host.reset(key)
    host = GymnasiumAdapter(HostFragileStart, 2, failures=1)
    with pytest.raises(EnvFailedError, match="environment 0 returned an observation"):
        host.reset(key)


def test_environments_that_reset_themselves_are_reset_all_the_same(key, counted):
    device = vectorize(Fragile(), 3, non_finite="reset")
    itself = vectorize(ResetsItself(), 3, non_finite="reset")
    actions = actions_of(24, 3)
    one, other = (played(env, actions, key, counted) for env in (device, itself))
    jax.tree.map(np.testing.assert_array_equal, one, other)


@dataclasses.dataclass(frozen=True)
class ResetsItself(Fragile):
    """`Fragile` that resets itself when its time is up."""

    auto_reset = True

    def step(self, key, state, action):
        state, obs, reward, terminated, truncated, info = super().step(key, state, action)
        info = info | {"final_observation": obs}
        start, first = self.reset(key)
        state, obs = jax.tree.map(
            lambda new, old: jnp.where(truncated, new, old), (start, first), (state, obs)
        )
        return state, obs, reward, terminated, truncated, info


def test_what_stands_in_for_the_successor_allows_an_action(key, counted):
    adapter = vectorize(MaskedFragile(always=True), 3, non_finite="reset")
    _, steps = played(adapter, actions_of(12, 3), key, counted)
    assert steps["non_finite"].sum() == 9
    assert steps["next_obs"]["action_mask"].all() and steps["obs"]["action_mask"].all()


# Where it is set


@pytest.mark.fast
@pytest.mark.parametrize("env", [Declares, Declares(), HostDeclares, lambda: Declares()])
def test_an_environment_says_itself_unless_it_is_set(env):
    assert make_env(env, 1).non_finite == "reset"
    assert make_env(env, 1, non_finite="raise").non_finite == "raise"


@pytest.mark.fast
@pytest.mark.parametrize("env", [Fragile, Fragile(), HostFragile, "gymnax/CartPole-v1"])
def test_the_default_is_an_error(env):
    assert make_env(env, 1).non_finite == "raise"
    assert make_env(env, 1, non_finite="reset").non_finite == "reset"


@pytest.mark.fast
@pytest.mark.parametrize(
    "env_id", ["probe/Counter", "gymnasium/CartPole-v1", "envpool/CartPole-v1"]
)
def test_it_is_part_of_the_spec(env_id):
    env = make_env(env_id, 2, non_finite="reset")
    assert env.spec == (env_id, {"non_finite": "reset"}) and env.non_finite == "reset"
    again = make_env(env_id, 3, **env.spec[1])
    assert again.non_finite == "reset"
    if not env.is_jittable:
        assert env.remake(1).non_finite == "reset"


@pytest.mark.fast
def test_wrappers_keep_it():
    wrapped = TimeLimit(Declares(), 3)
    assert vectorize(wrapped, 1).non_finite == "reset"
    assert vectorize(TimeLimit(Fragile(), 3), 1).non_finite == "raise"


@pytest.mark.fast
def test_other_words_are_refused():
    problem = r'non_finite is \'ignore\'; use "raise" \(NaN or infinity ends the run\) or "reset"'
    for env in (Fragile, Fragile(), HostFragile, "gymnasium/CartPole-v1", "envpool/CartPole-v1"):
        with pytest.raises(ConfigError, match=problem):
            make_env(env, 1, non_finite="ignore")
    wrong = dataclasses.make_dataclass("Wrong", [], bases=(Fragile,), frozen=True)
    wrong.non_finite = True
    with pytest.raises(ConfigError, match=r"Wrong\.non_finite is True"):
        vectorize(wrong(), 1)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["", "Host"])
def test_mixtures_are_reset_if_one_of_their_environments_is(key, counted, kind):
    fragile, declares = f"mine/{kind}Fragile", f"mine/{kind}Declares"

    def mixed(*envs, **settings):
        return make_env("rlkit/Mixture", 4, envs=list(envs), **settings)

    with registered():
        assert mixed(fragile, fragile).non_finite == "raise"
        assert mixed(fragile, declares).non_finite == "reset"
        assert mixed(fragile, declares, non_finite="raise").non_finite == "raise"
        env = mixed(fragile, {"id": fragile, "arguments": {"at": 2}}, non_finite="reset")
    seen, steps = played(env, actions_of(20, 4), key, counted if env.is_jittable else None)
    env.close()
    assert steps["non_finite"].sum() > 5
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((seen, steps)))


def test_envpool_resets_those_alone(monkeypatch, key):
    """With numbers broken on their way from EnvPool, whose environments are sound."""
    adapter = make_env("envpool/CartPole-v1", 3, non_finite="reset")
    state, _ = adapter.reset(key)
    pool, moves = adapter._pool, np.ones(3, np.int64)
    receive = pool.recv

    def broken(**of_a_reset):
        obs, *rest = receive(**of_a_reset)
        if not of_a_reset:
            obs[1, 2] = np.nan
        return obs, *rest

    state, first = adapter.step(None, state, moves)
    monkeypatch.setattr(pool, "recv", broken)
    state, step = adapter.step(None, state, moves)
    monkeypatch.undo()
    assert step.non_finite.tolist() == step.terminated.tolist() == [False, True, False]
    assert step.reward.tolist() == [1.0, 0.0, 1.0] and np.isfinite(step.next_obs).all()
    assert (step.obs[1] == step.next_obs[1]).all() and np.abs(step.obs[1]).max() <= 0.05
    state, after = adapter.step(None, state, moves)
    assert not after.non_finite.any() and not first.non_finite.any()
    adapter.close()


@pytest.mark.fast
def test_finite_is_what_float32_holds():
    assert is_finite({"a": np.float64([1.0, -3e38]), "b": (np.int64(2**62), 1.5)})
    for bad in (np.nan, np.inf, -np.inf, 1e39):
        assert not is_finite(bad) and not is_finite({"a": (np.zeros(2), np.float64([0.0, bad]))})
    assert is_finite(spaces.Discrete(3).sample())
