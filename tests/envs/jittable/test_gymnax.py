"""What is specific to Gymnax: its registry, its own resets, its parameters."""

import contextlib
import re

import gymnax
import jax
import jax.numpy as jnp
import pytest
from flax import struct
from gymnax import registration
from gymnax.environments import spaces
from gymnax.environments.classic_control.cartpole import CartPole
from gymnax.environments.environment import Environment

from rlkit.envs import GymnaxAdapter, check_env, gymnax_env, make_env, vectorize
from rlkit.envs.ids import GYMNAX_IDS
from rlkit.errors import ConfigError, EnvContractError, UnknownNameError


def test_the_table_of_ids_is_gymnax_own_registry():
    import gymnax

    assert sorted(GYMNAX_IDS) == sorted(gymnax.registered_envs)


def test_only_deep_sea_resets_itself():
    from gymnax.environments.environment import Environment

    assert gymnax_env("DeepSea-bsuite").auto_reset
    assert not gymnax_env("CartPole-v1").auto_reset
    assert type(gymnax_env("CartPole-v1").env).step is Environment.step


def test_deep_sea_keeps_its_count_of_bad_episodes(key):
    """Walking left from the first row spoils the episode: the count, which rlkit's reset would
    clear, grows by one each time.
    """
    adapter = make_env(
        "gymnax/DeepSea-bsuite",
        2,
        size=3,
        params={"randomize_actions": False, "max_steps_in_episode": 3},
    )
    state, _ = adapter.reset(key)
    counts, move = [], jax.jit(adapter.step)
    for _ in range(9):
        state, step = move(key, state, jnp.zeros(2, jnp.int32))
        counts.append(int(state.envs.total_bad_episodes[0]))
    assert counts == [0, 0, 1, 1, 1, 2, 2, 2, 3]
    assert step.terminated.all() and (state.envs.row == 0).all()
    assert (step.next_obs == 0).all() and (step.obs[:, 0, 0] == 1).all()


def test_adapter_knows_how_to_be_rebuilt():
    adapter = GymnaxAdapter("CartPole-v1", 2, params={"max_steps_in_episode": 7})
    assert adapter.spec == ("gymnax/CartPole-v1", {"params": {"max_steps_in_episode": 7}})
    env_id, kwargs = adapter.spec
    assert make_env(env_id, 2, **kwargs).max_episode_steps == adapter.max_episode_steps == 7


def test_parameters_take_the_type_of_their_default():
    """BernoulliBandit works with 100.0 but not with 5."""
    assert isinstance(
        gymnax_env(
            "BernoulliBandit-misc", params={"max_steps_in_episode": 5}
        ).params.max_steps_in_episode,
        float,
    )
    with pytest.raises(ConfigError, match=r"max_steps_in_episode=2.5 does not fit its default 500"):
        gymnax_env("CartPole-v1", params={"max_steps_in_episode": 2.5})
    with pytest.raises(ConfigError, match="gravity='strong' does not fit"):
        gymnax_env("CartPole-v1", params={"gravity": "strong"})


def test_observations_and_rewards_come_in_the_types_of_the_space(key):
    for name, dtype in (
        ("FourRooms-misc", "float32"),
        ("Catch-bsuite", "int32"),
        ("FrozenLake-misc", "int32"),
    ):
        env = gymnax_env(name)
        state, obs = jax.eval_shape(env.reset, key)
        _, after, reward, terminated, truncated, _ = jax.eval_shape(
            env.step, key, state, jnp.int32(0)
        )
        assert obs.dtype == after.dtype == dtype
        assert (reward.dtype, terminated.dtype, truncated.dtype) == ("float32", "bool", "bool")


def test_environments_of_gymnax_own_kind_are_registered_there():
    class Mine(CartPole):
        pass

    def made():
        return gymnax.make("CartPole-v1")

    def refuse(call, *arguments):
        with pytest.raises(EnvContractError) as error:
            call(*arguments)
        return str(error.value)

    cure = r"call gymnax.register\('Mine-v0', Mine\), then make_env\('gymnax/Mine-v0', num_envs\)"
    for call in (vectorize, make_env):
        told = refuse(call, Mine(), 2)
        assert re.fullmatch(f"Mine is an environment of Gymnax, .*; {cure}", told)
    own = r"CartPole is an .*; call make_env\('gymnax/CartPole-v1', num_envs\)"
    assert re.fullmatch(own, refuse(make_env, made, 2))
    for env, kind in ((Mine(), "Mine"), (made, "CartPole")):
        found = check_env(env, raise_on_error=False).findings
        assert len(found) == 1 and found[0].what.startswith(f"{kind} is an environment of Gymnax")
    with registered(Mine):
        assert make_env("gymnax/Mine-v0", 2).spec == ("gymnax/Mine-v0", {})


def test_parameters_of_ones_own_need_no_limit(key):
    @struct.dataclass
    class Gravity:
        gravity: float = 9.8

    class Mine(Environment):
        default_params = Gravity()

        def reset_env(self, key, params):
            return jnp.float32([params.gravity]), jnp.int32(0)

        def step_env(self, key, state, action, params):
            obs = jnp.float32([params.gravity])
            return obs, state + 1, jnp.float32(1.0), state >= 2, {}

        def is_truncated(self, state, params):
            return jnp.bool_(False)

        def action_space(self, params):
            return spaces.Discrete(2)

        def observation_space(self, params):
            return spaces.Box(0.0, 20.0, (1,))

    with registered(Mine):
        env = make_env("gymnax/Mine-v0", 2, params={"gravity": 5})
    _, obs = env.reset(key)
    assert env.max_episode_steps is None and obs.tolist() == [[5.0], [5.0]]


@contextlib.contextmanager
def registered(kind):
    gymnax.register("Mine-v0", kind)
    try:
        yield
    finally:
        gymnax.registered_envs.remove("Mine-v0")
        del registration._registry["Mine-v0"]


def test_errors_name_the_fix():
    with pytest.raises(UnknownNameError, match="did you mean 'CartPole-v1'"):
        gymnax_env("CartPole-v0")
    with pytest.raises(
        ConfigError, match="no parameter 'max_steps'; did you mean 'max_steps_in_episode'"
    ):
        gymnax_env("CartPole-v1", params={"max_steps": 3})
    with pytest.raises(ConfigError, match="does not take"):
        gymnax_env("CartPole-v1", size=3)
    with pytest.raises(ConfigError, match=r'use its own limit, params={"max_steps_in_episode": '):
        make_env("gymnax/CartPole-v1", 2, max_episode_steps=3)
