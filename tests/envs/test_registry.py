"""Ids, factories and plugins."""

import dataclasses
import importlib.metadata
import re
import subprocess
import sys

import jax.numpy as jnp
import pytest

import rlkit.envs
from rlkit.envs import EnvAdapter, TimeLimit, make_env, register_env, registry, vectorize
from rlkit.envs.space_probes import Counter
from rlkit.errors import ConfigError, EnvContractError, UnknownNameError


@pytest.fixture(autouse=True)
def clean_registry(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [])


def install(monkeypatch, **plugins):
    """Pretends that packages with these entry points (name=value, `__` for `/`) are installed."""
    found = [importlib.metadata.EntryPoint(name.replace("__", "/"), value, "rlkit.envs") for name, value in plugins.items()]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: found if group == "rlkit.envs" else [])


def test_make_env_builds_an_adapter_that_knows_its_spec():
    env = make_env("probe/Counter", 3, goal=4)
    assert isinstance(env, EnvAdapter) and env.num_envs == 3 and env.env.goal == 4
    assert env.spec == ("probe/Counter", {"goal": 4})
    assert make_env("gymnax/CartPole-v1", 2).spec == ("gymnax/CartPole-v1", {})


IDS = [
    ("gymnax/CartPole-v2", UnknownNameError, "no environment 'gymnax/CartPole-v2'; did you mean 'gymnax/CartPole-v1'"),
    ("gymnax/cartpole-v1", UnknownNameError, "did you mean 'gymnax/CartPole-v1'"),
    ("CartPole-v1", UnknownNameError, "'CartPole-v1' has no suite; did you mean 'gymnax/CartPole-v1'"),
    (
        "gymnx/CartPole-v1",
        UnknownNameError,
        r"no environment suite 'gymnx' \(known: gymnax, probe\); did you mean 'gymnax/Cart",
    ),
    ("brax/ant", UnknownNameError, "no environment suite 'brax'"),
    (
        "gymnasium/CartPole-v1",
        UnknownNameError,
        r"host environments \(gymnasium\) are not supported by this version; did you mean",
    ),
    ("gymnasium/ALE/Breakout-v5", UnknownNameError, "host environments"),
    ("probe/ValueOnli", UnknownNameError, "did you mean 'probe/ValueOnly'"),
    ("", ConfigError, "the environment id is empty; pass one such as"),
    ("  ", ConfigError, "the environment id is empty"),
    ("gymnax/", ConfigError, "incomplete; write it suite/name"),
    ("/CartPole-v1", ConfigError, "incomplete"),
    (None, ConfigError, "environment id is None; pass a string"),
    (5, ConfigError, "environment id is 5"),
]


@pytest.mark.fast
@pytest.mark.parametrize(("env_id", "error", "message"), IDS)
def test_wrong_ids_get_a_cure(env_id, error, message):
    with pytest.raises(error, match=message):
        make_env(env_id, 2)


def test_wrong_arguments_get_a_cure():
    with pytest.raises(ConfigError, match=r"probe/Counter: got an unexpected keyword argument 'gaol'; it takes goal, max_epis"):
        make_env("probe/Counter", 2, gaol=3)
    with pytest.raises(ConfigError, match=r"probe/ValueOnly: .* it takes no arguments"):
        make_env("probe/ValueOnly", 2, goal=3)
    with pytest.raises(ConfigError, match="num_envs must be a positive integer, got 0"):
        make_env("probe/Counter", 0)
    register_env("mine/Needs", lambda size: Counter(goal=size))
    with pytest.raises(ConfigError, match="mine/Needs: missing a required argument: 'size'; it takes size"):
        make_env("mine/Needs", 2)
    assert make_env("mine/Needs", 2, size=7).env.goal == 7


def test_registered_classes_and_functions_are_vectorised():
    register_env("mine/Counter", Counter)
    register_env("mine/Limited", Counter, max_episode_steps=2)
    assert {"mine/Counter", "mine/Limited"} <= set(registry.list_envs())
    assert make_env("mine/Counter", 2, goal=3).spec == ("mine/Counter", {"goal": 3})
    limited = make_env("mine/Limited", 2)
    assert isinstance(limited.env, TimeLimit) and limited.max_episode_steps == 2


def test_factories_of_adapters_take_num_envs():
    register_env("mine/Batch", lambda num_envs, goal=3: vectorize(Counter(goal=goal), num_envs))
    env = make_env("mine/Batch", 4, goal=5)
    assert (env.num_envs, env.env.goal, env.spec) == (4, 5, ("mine/Batch", {"goal": 5}))
    register_env("mine/Fixed", lambda: vectorize(Counter(), 3))
    assert make_env("mine/Fixed", 3).spec == ("mine/Fixed", {})
    with pytest.raises(EnvContractError, match="made 3 environments instead of 2; give the factory a parameter num_envs"):
        make_env("mine/Fixed", 2)


def test_an_id_is_registered_once():
    register_env("mine/Counter", Counter)
    with pytest.raises(ConfigError, match="'mine/Counter' is registered already; choose another id, or pass overwrite=True"):
        register_env("mine/Counter", Counter)
    with pytest.raises(ConfigError, match="registered already"):
        register_env("gymnax/CartPole-v1", Counter)
    register_env("mine/Counter", lambda: Counter(goal=2), overwrite=True)
    assert make_env("mine/Counter", 2).env.goal == 2
    with pytest.raises(ConfigError, match="pass the environment's class"):
        register_env("mine/Other", "Counter")
    with pytest.raises(UnknownNameError, match="has no suite"):
        register_env("Counter", Counter)


def test_what_is_no_environment_is_refused():
    register_env("mine/Text", lambda: "hello")
    with pytest.raises(EnvContractError, match="observation_space is None"):
        make_env("mine/Text", 2)


def test_plugins_are_listed_and_loaded_when_made(monkeypatch):
    install(monkeypatch, plug__Counter="rlkit.envs.space_probes:Counter", plug__Gone="no_such_module:Env")
    assert {"plug/Counter", "plug/Gone", "gymnax/CartPole-v1"} <= set(registry.list_envs())
    assert make_env("plug/Counter", 2, goal=3).spec == ("plug/Counter", {"goal": 3})
    assert make_env("probe/ValueOnly", 2).num_envs == 2
    with pytest.raises(UnknownNameError, match="did you mean 'plug/Counter'"):
        make_env("plug/Cuonter", 2)


def test_a_broken_plugin_is_named_and_breaks_nothing_else(monkeypatch):
    install(monkeypatch, plug__Gone="no_such_module:Env", plug__Empty="rlkit.envs.space_probes:Nothing")
    message = re.escape("environment 'plug/Gone' of an unnamed package (no_such_module:Env) does not load: ModuleNotFoundError")
    with pytest.raises(ConfigError, match=message + ".*; repair, upgrade or uninstall"):
        make_env("plug/Gone", 2)
    with pytest.raises(ConfigError, match=r"'plug/Empty'.*AttributeError"):
        make_env("plug/Empty", 2)
    assert make_env("probe/Counter", 2).num_envs == 2


def test_badly_named_and_doubled_plugins(monkeypatch):
    twice = [importlib.metadata.EntryPoint("plug/Counter", "rlkit.envs.space_probes:Counter", "rlkit.envs")] * 2
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: twice)
    with pytest.raises(ConfigError, match="'plug/Counter' is claimed by several packages"):
        make_env("plug/Counter", 2)
    install(monkeypatch, Nameless="rlkit.envs.space_probes:Counter")
    with pytest.warns(UserWarning, match="names an environment 'Nameless', not suite/name: ignored"):
        assert "Nameless" not in registry.list_envs()


def test_environments_registered_with_gymnax_itself_are_found():
    import gymnax
    from gymnax.environments.classic_control.cartpole import CartPole

    name = "OwnCartPole-v0"
    gymnax.register(name, CartPole)
    try:
        assert make_env(f"gymnax/{name}", 2).max_episode_steps == 500
    finally:
        gymnax.registered_envs.remove(name)  # what the test of the table looks at


def test_other_adapters_get_their_spec():
    @dataclasses.dataclass(frozen=True)
    class Adapter:
        num_envs: int
        spec: tuple | None = None
        is_jittable = True
        observation_space = Counter().observation_space
        action_space = Counter.action_space
        max_episode_steps = None

        def reset(self, key):
            return jnp.zeros(()), jnp.zeros((self.num_envs, 2), jnp.int32)

        def step(self, key, state, action): ...

        def close(self): ...

    register_env("mine/Adapter", Adapter)
    # A dataclass with a field spec takes it; `spec` is no argument of the environment.
    assert make_env("mine/Adapter", 2).spec == ("mine/Adapter", {})


@pytest.mark.process
def test_listing_and_mistyping_import_neither_jax_nor_gymnax():
    program = (
        "import sys, rlkit.envs\n"
        "assert 'gymnax/CartPole-v1' in rlkit.envs.list_envs()\n"
        "try: rlkit.envs.make_env('CartPole', 2)\n"
        "except rlkit.errors.UnknownNameError as error: print(error)\n"
        "print({'jax', 'gymnax', 'flax'} & sys.modules.keys())\n"
    )
    program = "import rlkit.errors\n" + program
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "set()" and "has no suite" in done.stdout


def test_every_public_name_loads():
    assert all(getattr(rlkit.envs, name) is not None for name in rlkit.envs.__all__)
    assert {"make_env", "check_env", "vectorize", "TimeLimit", "EnvAdapter"} <= set(dir(rlkit.envs))
