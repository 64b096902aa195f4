"""`vectorize`: blocks of resets, traced parameters, weak types, keys in the state, errors."""

import dataclasses
import re

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces as gym_spaces

from rlkit.envs import EnvAdapter, JaxEnv, TimeLimit, check_env, make_env, vectorize
from rlkit.envs.jittable import vectorized
from rlkit.envs.probes.space_probes import Counter
from rlkit.envs.probes.value_probes import UNIT, ValueByObservation
from rlkit.errors import ConfigError, EnvContractError, SpaceError


@dataclasses.dataclass(frozen=True)
class Weak:
    """Resets to a weakly typed state, steps to a strong one; keeps a typed key."""

    observation_space = UNIT
    action_space = gym_spaces.Discrete(2)

    def reset(self, key):
        return {"x": jnp.asarray(0.0), "n": 0, "key": key}, jnp.zeros(1)

    def step(self, key, state, action):
        x = state["x"] + jax.random.uniform(state["key"])
        state = {"x": x, "n": jnp.int32(state["n"] + 1), "key": jax.random.split(state["key"])[0]}
        return state, x[None], x, state["n"] >= 3, jnp.bool_(False), {}


def test_trace_gate_sees_a_weakly_typed_environment_and_vectorize_fixes_it(key, counted):
    env = Weak()
    bare = counted(env.step)
    state, _ = env.reset(key)
    for _ in range(3):
        state = bare(key, state, jnp.int32(0))[0]
    assert bare.traces == 2  # the gate of the battery, seen failing

    adapter = vectorize(env, 2)
    step = counted(adapter.step)
    state, _ = adapter.reset(key)
    for _ in range(5):
        state, timestep = step(key, state, jnp.zeros(2, jnp.int32))
    assert step.traces == 1
    assert not any(getattr(x, "weak_type", False) for x in jax.tree.leaves((state, timestep)))


def test_keys_in_the_state_start_anew(key):
    adapter = vectorize(Weak(), 2)
    state, _ = adapter.reset(key)
    first = jax.random.key_data(state.envs["key"])
    for _ in range(3):
        state, step = adapter.step(key, state, jnp.zeros(2, jnp.int32))
    assert step.terminated.all()
    assert (state.envs["n"] == 0).all()
    assert (jax.random.key_data(state.envs["key"]) != first).any()


@pytest.fixture(scope="module")
def rollout_with_blocks():
    env = Weak()

    def roll(block, monkeypatch, num_envs=24):
        monkeypatch.setattr(vectorized, "MIN_RESET_BLOCK", block)
        adapter = vectorize(env, num_envs)
        state, _ = adapter.reset(jax.random.key(1))
        # Staggered ages: some steps reset none, some a few, one all.
        state = state.replace(envs={**state.envs, "n": jnp.arange(num_envs, dtype=jnp.int32) % 3})

        def body(state, key):
            return adapter.step(key, state, jnp.zeros(num_envs, jnp.int32))

        return jax.jit(lambda s: jax.lax.scan(body, s, jax.random.split(jax.random.key(2), 12)))(
            state
        )

    return roll


def test_blocks_of_resets_equal_resetting_everything(rollout_with_blocks, monkeypatch):
    everything = rollout_with_blocks(24, monkeypatch)
    assert 0 < everything[1].terminated.mean() < 0.5
    for block in (1, 5):
        some = rollout_with_blocks(block, monkeypatch)
        assert jax.tree.all(jax.tree.map(lambda x, y: bool((x == y).all()), some, everything))


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="reads what XLA compiles for a CPU")
@pytest.mark.parametrize("num_envs", [4, 40])
@pytest.mark.parametrize("seeds", [1, 2])
def test_resets_are_computed_only_where_an_episode_ended(key, num_envs, seeds):
    """Resets are not computed at every step, although XLA hoists what does not depend on the loop's
    state.
    """

    class Costly(Weak):
        def reset(self, key):
            state, obs = super().reset(key)
            return state | {"x": jnp.cbrt(jax.random.uniform(key))}, obs

    adapter = vectorize(Costly(), num_envs)
    keys = jax.random.split(key, seeds)
    states, _ = jax.vmap(adapter.reset)(keys)
    program = (
        jax.jit(jax.vmap(adapter.step))
        .lower(keys, states, jnp.zeros((seeds, num_envs), jnp.int32))
        .compile()
    )
    computations = dict(
        re.findall(r"\n(?:ENTRY )?%([\w.-]+) \([^\n]*\{\n(.*?)\n\}", program.as_text(), re.DOTALL)
    )
    (entry,) = re.findall(r"\nENTRY %([\w.-]+)", program.as_text())
    assert any(" cbrt(" in body for body in computations.values())

    def always_computed(name):
        yield computations[name]
        for inner in re.findall(
            r"(?:calls|to_apply)=%([\w.-]+)", computations[name]
        ):  # a loop has `body` and `condition`
            yield from always_computed(inner)

    assert not any(" cbrt(" in body for body in always_computed(entry))


def test_parameters_are_traced_so_changing_them_recompiles_nothing(key, counted):
    adapter = make_env("gymnax/CartPole-v1", 2)
    step = counted(adapter.step)
    state, _ = adapter.reset(key)
    action = jnp.zeros(2, jnp.int32)
    _, ordinary = step(key, state, action)
    changed = state.replace(
        params=state.params.replace(max_steps_in_episode=jnp.int32(1), force_mag=jnp.float32(99.0))
    )
    after, shorter = step(key, changed, action)
    assert step.traces == 1
    assert not ordinary.truncated.any() and shorter.truncated.all()
    assert (abs(shorter.next_obs) > abs(ordinary.next_obs)).any()
    assert after.params.force_mag == 99.0  # kept over the reset


def test_box_actions_are_clipped_to_their_bounds(key):
    adapter = make_env("probe/ContinuousAction", 3)
    state, _ = adapter.reset(key)
    _, step = adapter.step(key, state, jnp.array([[-100.0], [0.5], [100.0]]))
    np.testing.assert_allclose(step.reward, [-2.25, 0.0, -0.25])


def test_protocols_tell_single_from_batched():
    env = Counter()
    assert isinstance(env, JaxEnv) and not isinstance(env, EnvAdapter)
    assert isinstance(vectorize(env, 2), EnvAdapter)


def test_adapter_vmaps_over_seeds(key):
    adapter = vectorize(ValueByObservation(), 3)
    keys = jax.random.split(key, 2)
    action = jnp.zeros((2, 3), jnp.int32)

    def play(key, action):
        state, obs = adapter.reset(key)
        return obs, adapter.step(key, state, action)

    together, one = jax.jit(jax.vmap(play))(keys, action), jax.jit(play)
    alone = [one(k, a) for k, a in zip(keys, action, strict=True)]
    assert jax.tree.all(
        jax.tree.map(lambda x, *y: jnp.array_equal(x, jnp.stack(y)), together, *alone)
    )


@pytest.mark.parametrize("num_envs", [0, -1, 2.0, True, "4", None])
def test_num_envs_must_be_a_positive_integer(num_envs):
    with pytest.raises(ConfigError, match="num_envs must be a positive integer"):
        vectorize(Counter(), num_envs)


def test_vectorizing_twice_is_refused():
    with pytest.raises(
        EnvContractError, match=r"Counter is a class; pass an instance: vectorize\(Counter"
    ):
        vectorize(Counter, 2)
    with pytest.raises(EnvContractError, match="already vectorized"):
        vectorize(vectorize(Counter(), 2), 2)


def test_environments_of_gymnasium_are_not_vectorized():
    env = gymnasium.make("CartPole-v1")
    with pytest.raises(EnvContractError, match=r"CartPoleEnv is a Gymnasium env.*: make_env\(Cart"):
        vectorize(env, 2)


def test_spaces_are_checked_before_anything_is_traced():
    class NoSpaces:
        pass

    with pytest.raises(EnvContractError, match=r"NoSpaces.observation_space is None; set it"):
        vectorize(NoSpaces(), 2)

    class Integers(Counter):
        action_space = gym_spaces.Box(0, 3, (1,), np.int32)

    with pytest.raises(SpaceError, match="use MultiDiscrete"):
        vectorize(Integers(), 2)


@pytest.mark.parametrize(
    "wrap",
    [lambda env: env, lambda env: TimeLimit(env, max_episode_steps=2)],
    ids=["bare", "wrapped"],
)
@pytest.mark.parametrize(
    "own", [{"length": 10}, {"length": 10, "name": "corridor"}], ids=["numbers", "with a string"]
)
def test_params_without_replace_params_are_the_users_own(key, wrap, own):
    class Owner(Counter):
        params = own

    env = wrap(Owner())
    adapter = vectorize(env, 2)
    state, _ = adapter.reset(key)
    state, step = jax.jit(adapter.step)(key, state, jnp.zeros(2, jnp.int32))
    assert state.params == () and step.reward.shape == (2,)
    assert check_env(env).ok
