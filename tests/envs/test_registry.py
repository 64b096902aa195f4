"""Ids, factories and plugins."""

import dataclasses
import functools
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
from typing import ClassVar

import ale_py
import envpool
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from endless_env import Endless

import rlkit
import rlkit.envs
from rlkit import plugins
from rlkit.envs import (
    EnvAdapter,
    EnvPoolAdapter,
    GymnasiumAdapter,
    TimeLimit,
    ids,
    make_env,
    register_env,
    registry,
    vectorize,
)
from rlkit.envs.ids import INSTALL
from rlkit.envs.probes.space_probes import Counter
from rlkit.errors import ConfigError, EnvContractError, EnvFailedError, UnknownNameError
from rlkit.training.run_parts import as_adapter


@pytest.fixture(autouse=True)
def clean_registry(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(plugins, "scan", lambda group, path: [])


def install(monkeypatch, **values):
    """Pretends that packages with these entry points are installed (name=value, `__` for `/`)."""
    found = [
        importlib.metadata.EntryPoint(name.replace("__", "/"), value, "rlkit.envs")
        for name, value in values.items()
    ]
    monkeypatch.setattr(plugins, "scan", lambda group, path: found if group == "rlkit.envs" else [])


def test_make_env_builds_an_adapter_that_knows_its_spec():
    env = make_env("probe/Counter", 3, goal=4)
    assert isinstance(env, EnvAdapter) and env.num_envs == 3 and env.env.goal == 4
    assert env.spec == ("probe/Counter", {"goal": 4})
    assert make_env("gymnax/CartPole-v1", 2).spec == ("gymnax/CartPole-v1", {})


IDS = [
    (
        "gymnax/CartPole-v2",
        UnknownNameError,
        "no environment 'gymnax/CartPole-v2'; did you mean 'gymnax/CartPole-v1'",
    ),
    ("gymnax/cartpole-v1", UnknownNameError, "did you mean 'gymnax/CartPole-v1'"),
    (
        "CartPole-v1",
        UnknownNameError,
        "'CartPole-v1' has no suite; did you mean 'gymnax/CartPole-v1'",
    ),
    (
        "gymnx/CartPole-v1",
        UnknownNameError,
        (
            r"no environment suite 'gymnx' \(known: .*gymnasium, gymnax, .*rlkit.*\); did"
            r" you mean 'gymnax/Cart"
        ),
    ),
    ("procgen/coinrun", UnknownNameError, "no environment suite 'procgen'"),
    (
        "gymnasium/CartPole-v3",
        UnknownNameError,
        "no environment 'gymnasium/CartPole-v3'; did you mean 'gymnasium/CartPole-v1'",
    ),
    ("gymnasium/Cartpole-v1", UnknownNameError, "did you mean 'gymnasium/CartPole-v1'"),
    ("gymnasium/CartPole", UnknownNameError, "did you mean 'gymnasium/CartPole-v1'"),
    ("gymnasium/Breakout-v5", UnknownNameError, "did you mean 'gymnasium/ALE/Breakout-v5'"),
    ("gymnasium/ALE/Breakout-v4", UnknownNameError, "did you mean 'gymnasium/ALE/Breakout-v5'"),
    (
        "gymnasium/HalfCheetah-v2",
        UnknownNameError,
        "did you mean 'gymnasium/HalfCheetah-v5'",
    ),  # gymnasium has an error by it
    (
        "gymnasium/zzzzz",
        UnknownNameError,
        "no environment 'gymnasium/zzzzz'; run `rlkit list envs`",
    ),
    (
        "gymnasium/antigravity:Foo-v0",
        ConfigError,
        "would import the module 'antigravity', which ids never do; import it",
    ),
    (
        "envpool/CartPole-v7",
        UnknownNameError,
        "no environment 'envpool/CartPole-v7'; did you mean 'envpool/CartPole-v1'",
    ),
    (
        "antigravity:Foo",
        UnknownNameError,
        "'antigravity:Foo' names a class, but ids never import modules; import it, and call",
    ),
    ("antigravity:Foo-v0", UnknownNameError, "'antigravity:Foo-v0' has no suite"),
    ("zzzzz", UnknownNameError, "'zzzzz' has no suite; run `rlkit list envs`"),
    ("probe/ValueOnli", UnknownNameError, "did you mean 'probe/ValueOnly'"),
    ("", ConfigError, "the environment id is empty; pass an id such as"),
    ("  ", ConfigError, "the environment id is empty"),
    ("gymnax/", ConfigError, "incomplete; use suite/name"),
    ("/CartPole-v1", ConfigError, "incomplete"),
    (None, ConfigError, "an id, a class, a function or an environment, got None; pass a string"),
    (5, ConfigError, "a function or an environment, got 5"),
]


@pytest.mark.fast
@pytest.mark.parametrize(("env_id", "error", "message"), IDS)
def test_wrong_ids_get_a_hint(env_id, error, message):
    with pytest.raises(error, match=message):
        make_env(env_id, 2)


def test_wrong_arguments_get_a_hint():
    with pytest.raises(
        ConfigError,
        match=r"probe/Counter: got an unexpected keyword argument 'gaol'; it takes goal, max_epis",
    ):
        make_env("probe/Counter", 2, gaol=3)
    with pytest.raises(ConfigError, match=r"probe/ValueOnly: .* it takes no arguments"):
        make_env("probe/ValueOnly", 2, goal=3)
    with pytest.raises(ConfigError, match="num_envs must be a positive integer, got 0"):
        make_env("probe/Counter", 0)
    register_env("mine/Needs", lambda size: Counter(goal=size))
    with pytest.raises(
        ConfigError, match="mine/Needs: missing a required argument: 'size'; it takes size"
    ):
        make_env("mine/Needs", 2)
    assert make_env("mine/Needs", 2, size=7).env.goal == 7


def test_registered_classes_and_functions_are_vectorised():
    register_env("mine/Counter", Counter)
    register_env("mine/Limited", Counter, max_episode_steps=2)
    assert {"mine/Counter", "mine/Limited"} <= set(registry.list_envs())
    assert make_env("mine/Counter", 2, goal=3).spec == ("mine/Counter", {"goal": 3})
    limited = make_env("mine/Limited", 2)
    assert isinstance(limited.env, TimeLimit) and limited.max_episode_steps == 2


def test_a_time_limit_is_an_argument_of_any_environment_of_jax():
    register_env("mine/Endless", Endless)
    register_env("mine/Limited", lambda goal=5: Endless(goal=goal), max_episode_steps=2)
    for env_id in ("mine/Endless", "mine/Limited"):
        env = make_env(env_id, 2, goal=4, max_episode_steps=3)
        assert isinstance(env.env, TimeLimit) and env.max_episode_steps == 3
        arguments = {"goal": 4, "max_episode_steps": 3}
        assert env.spec == (env_id, arguments) and env.env.env.goal == 4
    for made in (Endless, Endless()):
        assert make_env(made, 2, max_episode_steps=3).max_episode_steps == 3
    for made in ("mine/Endless", Endless()):
        with pytest.raises(ConfigError, match="TimeLimit max_episode_steps must be a positive int"):
            make_env(made, 2, max_episode_steps=0)


def test_numbers_of_numpy_become_those_of_python():
    class Limited(Endless):
        max_episode_steps = np.int64(5)

    given = {"num_envs": np.int64(2), "max_episode_steps": np.int32(3)}
    made = [make_env(env, **given) for env in (Endless, "gymnasium/CartPole-v1")]
    made.append(make_env("envpool/CartPole-v1", **given))
    made.append(make_env(Limited(), np.int64(2)))
    for env, limit in zip(made, (3, 3, 3, 5), strict=True):
        assert (env.num_envs, env.max_episode_steps) == (2, limit)
        assert type(env.num_envs) is type(env.max_episode_steps) is int
        env.close()
    assert made[1].remake(np.int64(3)).num_envs == 3
    with pytest.raises(ConfigError, match=r"must be a positive integer, got np\.int64\(0\)"):
        make_env(Endless, np.int64(0))


class Named(gymnasium.Env):
    """Keeps something of its own as its `spec`."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, spec=None):
        self.spec, self.time = spec, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.zeros(2, np.float32), 0.0, False, self.time >= 5, {}


@pytest.mark.parametrize("spec", [{"id": 1}, "mine", ("a", {}), (), 5], ids=repr)
def test_a_spec_of_ones_own(spec):
    """Gymnasium keeps its own in that attribute; an environment in JAX needs none."""
    named = functools.partial(Named, spec)
    for given in (named, Named(spec)):
        with pytest.raises(EnvContractError, match=r"Named\.spec is .* give the attribute another"):
            make_env(given, 1, max_episode_steps=4) if given is named else make_env(given, 1)
    report = rlkit.check_env(named, num_steps=20, raise_on_error=False)
    assert report.name == "Named" and any("Named.spec is" in x.what for x in report.errors)
    endless = Endless()
    object.__setattr__(endless, "spec", spec)
    batch = make_env(endless, 2)
    assert batch.spec is None and as_adapter(batch, []) is batch
    with pytest.raises(EnvContractError, match=r"VectorizedEnv\.spec must be .* or None, got"):
        as_adapter(dataclasses.replace(batch, spec=[spec]), [])


def test_what_an_environment_wraps_may_be_of_another_library():
    """And then has no `spec`."""

    class Simulator:
        reset, step = Named.reset, Named.step

    class Around(Named):
        @property
        def unwrapped(self):
            return Simulator()

    env = make_env(Around, 1, max_episode_steps=4)
    assert env.max_episode_steps == 4


def test_a_time_limit_that_an_environment_of_jax_takes_itself_is_its_own():
    for factory in (Counter, lambda **arguments: Counter(**arguments)):
        env = make_env(factory, 2, max_episode_steps=3)
        assert isinstance(env.env, Counter) and env.max_episode_steps == 3


def test_factories_of_adapters_take_num_envs():
    register_env("mine/Batch", lambda num_envs, goal=3: vectorize(Counter(goal=goal), num_envs))
    env = make_env("mine/Batch", 4, goal=5)
    assert (env.num_envs, env.env.goal, env.spec) == (4, 5, ("mine/Batch", {"goal": 5}))
    register_env("mine/Fixed", lambda: vectorize(Counter(), 3))
    assert make_env("mine/Fixed", 3).spec == ("mine/Fixed", {})
    with pytest.raises(
        EnvContractError,
        match="made 3 environments instead of 2; give the factory a parameter num_envs",
    ):
        make_env("mine/Fixed", 2)


def test_an_id_is_registered_once():
    register_env("mine/Counter", Counter)
    with pytest.raises(
        ConfigError,
        match="'mine/Counter' is already registered; choose another id, or pass overwrite=True",
    ):
        register_env("mine/Counter", Counter)
    with pytest.raises(ConfigError, match="already registered"):
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
    register_env("mine/Forgotten", lambda: None)
    with pytest.raises(EnvContractError, match="'mine/Forgotten' returned None; return the env"):
        make_env("mine/Forgotten", 2)


def test_batches_of_gymnasium_are_refused():
    def makes():
        return gymnasium.make_vec("CartPole-v1", 2)

    for env in (makes, makes()):
        with pytest.raises(ConfigError, match="is one of Gymnasium's own batches; pass"):
            make_env(env, 2)


@pytest.mark.parametrize(
    ("failure", "error", "message"),
    [
        (ZeroDivisionError("by 0"), EnvFailedError, r"ZeroDivisionError: by 0; fix .*\n.*in makes"),
        (SystemExit(3), EnvFailedError, "SystemExit: 3; fix"),
        (ModuleNotFoundError("no maze"), ConfigError, r"without a package \(no maze\); install"),
        (ConfigError("too large; use 3"), ConfigError, "^too large; use 3$"),
    ],
    ids=["raises", "exits", "imports", "refuses"],
)
def test_a_factory_that_raises_is_named(failure, error, message):
    def makes(goal=3):
        raise failure

    register_env("mine/Maze", makes)
    named = "" if failure.__class__ is ConfigError else "mine/Maze cannot be built.*"
    with pytest.raises(error, match=f"(?s){named}{message}"):
        make_env("mine/Maze", 2)


def test_plugins_are_listed_and_loaded_when_made(monkeypatch):
    install(
        monkeypatch,
        plug__Counter="rlkit.envs.probes.space_probes:Counter",
        plug__Gone="no_such_module:Env",
    )
    assert {"plug/Counter", "plug/Gone", "gymnax/CartPole-v1"} <= set(registry.list_envs())
    assert make_env("plug/Counter", 2, goal=3).spec == ("plug/Counter", {"goal": 3})
    assert make_env("probe/ValueOnly", 2).num_envs == 2
    with pytest.raises(UnknownNameError, match="did you mean 'plug/Counter'"):
        make_env("plug/Cuonter", 2)


def test_plugins_may_be_gymnasium_environments(monkeypatch):
    install(monkeypatch, plug__Pole="gymnasium.envs.classic_control:CartPoleEnv")
    env = make_env("plug/Pole", 2, max_episode_steps=7)
    assert isinstance(env, GymnasiumAdapter)
    assert (env.spec, env.max_episode_steps) == (("plug/Pole", {"max_episode_steps": 7}), 7)


def walks():
    """A suite of both kinds."""
    return {"Walk-v0": Walk, "Far-v0": functools.partial(Walk, goal=9), "Counter-v0": Counter}


def test_one_entry_point_stands_for_a_whole_suite(monkeypatch):
    install(monkeypatch, **{"walks__*": "no_such_module:ENVS", "walks__Own": f"{__name__}:Walk"})
    assert {"walks/*", "walks/Own"} <= {*registry.list_envs()}
    registry.check_id("walks/Counter-v0")  # which loads no package
    loaded = {"walks/*": walks(), "walks/Own": gymnasium.envs.classic_control.CartPoleEnv}
    monkeypatch.setattr(plugins, "load_only", lambda claims, kind: loaded[claims[0].name])
    env = make_env("walks/Counter-v0", 2, goal=4)
    assert env.is_jittable and env.spec == ("walks/Counter-v0", {"goal": 4})
    env = make_env("walks/Far-v0", 2, max_episode_steps=7)
    assert (env.spec, env.max_episode_steps) == (("walks/Far-v0", {"max_episode_steps": 7}), 7)
    assert env.name == "walks/Far-v0"
    assert make_env("walks/Own", 2).name == "CartPoleEnv"  # an id of its own comes first
    with pytest.raises(UnknownNameError, match="no environment 'walks/Wlak-v0'; did you mean 'w"):
        make_env("walks/Wlak-v0", 2)
    with pytest.raises(UnknownNameError, match=r"no environment 'walks/\*'"):
        make_env("walks/*", 2)
    loaded["walks/*"] = Walk
    with pytest.raises(ConfigError, match="is of type type; let it name a dict of factories"):
        make_env("walks/Walk-v0", 2)


def test_a_suite_is_registered_name_by_name():
    rlkit.register_suite("walks", walks())
    assert {"walks/Walk-v0", "walks/Far-v0", "walks/Counter-v0"} <= {*registry.list_envs()}
    assert make_env("walks/Counter-v0", 2, goal=4).spec == ("walks/Counter-v0", {"goal": 4})
    with pytest.raises(ConfigError, match="'walks/Walk-v0' is already registered"):
        rlkit.register_suite("walks", walks())
    rlkit.register_suite("walks", {"Walk-v0": Counter}, overwrite=True)
    assert make_env("walks/Walk-v0", 2).is_jittable


def test_a_broken_plugin_is_named_and_breaks_nothing_else(monkeypatch):
    install(
        monkeypatch,
        plug__Gone="no_such_module:Env",
        plug__Empty="rlkit.envs.probes.space_probes:Nothing",
    )
    message = re.escape(
        "environment 'plug/Gone' of an unnamed package (no_such_module:Env) cannot be loaded:"
        " ModuleNotFoundError"
    )
    with pytest.raises(ConfigError, match=message + ".*; repair, upgrade or uninstall"):
        make_env("plug/Gone", 2)
    with pytest.raises(ConfigError, match=r"'plug/Empty'.*AttributeError"):
        make_env("plug/Empty", 2)
    assert make_env("probe/Counter", 2).num_envs == 2


def test_badly_named_and_doubled_plugins(monkeypatch):
    twice = [
        importlib.metadata.EntryPoint(
            "plug/Counter", "rlkit.envs.probes.space_probes:Counter", "rlkit.envs"
        )
    ] * 2
    monkeypatch.setattr(plugins, "scan", lambda group, path: twice)
    with pytest.raises(ConfigError, match="'plug/Counter' is claimed by several packages"):
        make_env("plug/Counter", 2)
    install(monkeypatch, Nameless="rlkit.envs.probes.space_probes:Counter")
    with pytest.warns(
        UserWarning, match="names an environment 'Nameless', which is not suite/name: ignored"
    ):
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
        "import sys, rlkit.envs\nassert 'gymnax/CartPole-v1' in rlkit.envs.list_envs()\nassert"
        " 'gymnasium/ALE/Pong-v5' in rlkit.envs.list_envs() and 'gymnasium' not in sys.modules\nfor"
        " mistyped in ('CartPole', 'gymnasium/Hoper-v5', 'gymnasium/ALE/Pung-v5'):\n    try:"
        " rlkit.envs.make_env(mistyped, 2)\n    except rlkit.errors.UnknownNameError as error:"
        " print(error)\nfor known in ('gymnasium/Hopper-v5', 'gymnasium/ALE/Pong-v5',"
        " 'envpool/Ant-v5', 'gymnax/CartPole-v1'):\n   "
        " rlkit.envs.registry.check_id(known)\nprint({'jax', 'gymnax', 'flax', 'mujoco', 'ale_py',"
        " 'envpool'} & sys.modules.keys())\n"
    )
    program = "import rlkit.errors\n" + program
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "set()" and "has no suite" in done.stdout


def test_every_public_name_loads():
    assert all(getattr(rlkit.envs, name) is not None for name in rlkit.envs.__all__)
    assert {"make_env", "check_env", "vectorize", "TimeLimit", "EnvAdapter"} <= set(dir(rlkit.envs))


# Gymnasium and EnvPool


class Walk(gymnasium.Env):
    """Counts up to `goal`; all instances are remembered."""

    observation_space = gymnasium.spaces.Box(0.0, 100.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    made: ClassVar[list[dict]] = []

    def __init__(self, goal=3, render_mode=None):
        self.goal, self.render_mode, self.closed = goal, render_mode, False
        self.made.append({"goal": goal, "env": self})

    def reset(self, *, seed=None, options=None):
        self.count = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.count += 1
        return np.full(2, self.count, np.float32), 1.0, self.count >= self.goal, False, {}

    def render(self):
        return np.full((4, 5, 3), self.count, np.uint8)

    def close(self):
        self.closed = True


class Limited(Walk):
    def __init__(self, max_episode_steps=7, step_timeout=1):
        super().__init__()
        self.max_episode_steps = max_episode_steps


def ends(env, steps):
    """(terminated, truncated) of each step of the first environment."""
    state, _ = env.reset(jax.random.key(0))
    found = []
    for _ in range(steps):
        state, timestep = env.step(None, state, np.zeros(env.num_envs, np.int64))
        found.append((bool(timestep.terminated[0]), bool(timestep.truncated[0])))
    env.close()
    return found


def test_gymnasium_ids_make_host_adapters():
    env = make_env("gymnasium/CartPole-v1", 2)
    assert isinstance(env, GymnasiumAdapter) and not env.is_jittable
    assert (env.num_envs, env.spec, env.max_episode_steps) == (
        2,
        ("gymnasium/CartPole-v1", {}),
        500,
    )
    env = make_env("gymnasium/Hopper-v5", 1, max_episode_steps=10, rescale_actions=True)
    assert env.spec == ("gymnasium/Hopper-v5", {"max_episode_steps": 10, "rescale_actions": True})
    assert env.max_episode_steps == 10 and env.action_space.high.max() == 1.0
    again = make_env(env.spec[0], 3, **env.spec[1])
    assert (again.num_envs, again.spec, again.max_episode_steps) == (3, env.spec, 10)


def test_atari_ids_are_preprocessed():
    env = make_env("gymnasium/ALE/Breakout-v5", 1, frame_stack=2, max_episode_steps=5)
    assert env.observation_space.shape == (84, 84, 2)
    assert env.max_episode_steps == 5 and env.spec[1] == {"frame_stack": 2, "max_episode_steps": 5}
    with pytest.raises(ConfigError, match="does not take 'frame_stak'; did you mean 'frame_stack'"):
        make_env("gymnasium/ALE/Breakout-v5", 1, frame_stak=2)


def test_what_others_registered_with_gymnasium_is_found():
    gymnasium.register("mine/Walk-v3", entry_point=Walk, max_episode_steps=2, kwargs={"goal": 9})
    try:
        env = make_env("gymnasium/mine/Walk-v3", 2)
        assert env.max_episode_steps == 2 and env.spec == ("gymnasium/mine/Walk-v3", {})
        assert ends(env, 2) == [(False, False), (False, True)]
        with pytest.raises(UnknownNameError, match="did you mean 'gymnasium/mine/Walk-v3'"):
            make_env("gymnasium/Walk-v2", 2)
    finally:
        del gymnasium.registry["mine/Walk-v3"]


def test_envpool_ids_make_host_adapters():
    env = make_env("envpool/CartPole-v1", 2, max_episode_steps=9)
    assert isinstance(env, EnvPoolAdapter)
    assert (env.num_envs, env.spec, env.max_episode_steps) == (
        2,
        ("envpool/CartPole-v1", {"max_episode_steps": 9}),
        9,
    )


@pytest.mark.parametrize(
    "factory", [Walk, lambda **kwargs: Walk(**kwargs)], ids=["class", "function"]
)
def test_registered_gymnasium_environments_become_host_adapters(factory):
    register_env("mine/Walk", factory, max_episode_steps=2)
    env = make_env("mine/Walk", 3, goal=5)
    assert isinstance(env, GymnasiumAdapter) and env.num_envs == 3
    assert env.spec == ("mine/Walk", {"goal": 5})
    assert env.max_episode_steps == 2  # the default of the registration
    assert ends(env, 2) == [(False, False), (False, True)]
    env = make_env(
        "mine/Walk", 1, goal=3, max_episode_steps=4, step_timeout=9.0, render_mode="rgb_array"
    )
    assert env.max_episode_steps == 4
    assert ends(env, 3) == [(False, False), (False, False), (True, False)]
    env.reset(jax.random.key(0))
    assert env.render().shape == (1, 4, 5, 3)
    env.close()


def test_factories_of_host_adapters_take_num_envs():
    register_env(
        "mine/Batch",
        lambda num_envs, goal=3: GymnasiumAdapter(Walk, num_envs, goal=goal, max_episode_steps=2),
    )
    env = make_env("mine/Batch", 2, goal=5)
    assert (env.num_envs, env.spec, env.max_episode_steps) == (2, ("mine/Batch", {"goal": 5}), 2)
    assert env.remake(3).spec == env.spec


def test_a_class_is_not_made_to_see_what_it_is_and_all_others_are_closed():
    Walk.made.clear()
    make_env(Walk, 2)
    by_class = len(Walk.made)
    Walk.made.clear()
    make_env(lambda: Walk(), 2)
    assert len(Walk.made) == by_class + 1
    assert all(each["env"].closed for each in Walk.made)


class Held(Walk):
    """Its `close` needs what only `reset` makes."""

    def close(self):
        assert self.count >= 0


def test_environments_that_cannot_be_closed_before_a_reset():
    register_env("mine/Held", lambda: Held())
    for env in (Held, "mine/Held"):
        with pytest.warns(UserWarning, match=r"AttributeError: 'Held' .* in close") as caught:
            adapter = make_env(env, 2)
        assert len(caught) == 1
        assert ends(adapter, 3)[2] == (True, False)


def test_names_that_the_environment_takes_itself_are_its_own():
    env = make_env(Limited, 1, max_episode_steps=2, step_timeout=5)
    assert env.max_episode_steps == 2  # it says so itself
    assert ends(env, 3)[2] == (True, False)  # and enforces none


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"gaol": 3},
            r"mine/Walk: got an unexpected keyword argument 'gaol'; it takes goal, render_mode",
        ),
        ({"vectorization": "asink"}, "unknown vectorization 'asink'; did you mean 'async'"),
        ({"max_episode_steps": 0}, "max_episode_steps must be a positive integer or None, got 0"),
    ],
)
@pytest.mark.parametrize(
    "factory", [Walk, lambda goal=3, render_mode=None: Walk(goal)], ids=["class", "function"]
)
def test_wrong_arguments_of_gymnasium_environments_get_a_hint(factory, arguments, message):
    register_env("mine/Walk", factory)
    with pytest.raises(ConfigError, match=message):
        make_env("mine/Walk", 2, **arguments)


def test_settings_of_the_host_are_refused_by_jax_environments():
    with pytest.raises(
        ConfigError,
        match="probe/Counter: got an unexpected keyword argument 'vectorization'; it takes goal",
    ):
        make_env("probe/Counter", 2, vectorization="async")
    with pytest.raises(ConfigError, match="vectorization"):
        make_env("gymnax/CartPole-v1", 2, vectorization="async")


def test_environments_in_place_of_an_id():
    env = make_env(Walk, 2, goal=4)
    assert isinstance(env, GymnasiumAdapter) and (env.num_envs, env.spec) == (2, None)
    env = make_env(Counter, 2, goal=4)
    assert (env.num_envs, env.spec, env.env.goal) == (2, None, 4)
    assert make_env(lambda: Counter(goal=5), 2).env.goal == 5
    assert make_env(Counter(goal=6), 2).env.goal == 6
    assert make_env(Walk(), 1).num_envs == 1
    with pytest.raises(ConfigError, match=r"cannot be copied or changed; pass its class"):
        make_env(Walk(), 2)
    with pytest.raises(
        ConfigError,
        match="Counter is already constructed and takes no arguments, got goal; pass its class",
    ):
        make_env(Counter(), 2, goal=3)
    with pytest.raises(
        ConfigError, match="VectorizedEnv is already a batch of environments; use it as it is"
    ):
        make_env(vectorize(Counter(), 2), 2)


@pytest.mark.parametrize("factories", [{}, [dict], {"*": dict}, {"A-v0": dict, "B-v0": 3}])
def test_a_suite_is_registered_whole_or_not_at_all(factories):
    before = registry.list_envs()
    with pytest.raises(ConfigError):
        registry.register_suite("mine", factories)
    assert registry.list_envs() == before


@pytest.mark.parametrize("env_id", ["gymnax/CartPole-v1", "rlkit/MemoryChain20-v0"])
def test_params_that_are_no_dict_are_one_error(env_id):
    with pytest.raises(ConfigError, match="params is 5; pass a dict"):
        make_env(env_id, 2, params=5)


def test_class_ids_are_found_once_registered():
    register_env("my_package.envs:Walk", Walk)
    assert make_env("my_package.envs:Walk", 2, goal=2).spec == ("my_package.envs:Walk", {"goal": 2})
    assert "my_package.envs:Walk" in registry.list_envs()
    with pytest.raises(
        UnknownNameError,
        match=r"environment suite 'my' \(known: .*gymnasium, gymnax, .*rlkit.*\)",
    ):
        make_env("my/Walk", 2)


@pytest.mark.parametrize(
    "env_id",
    [
        "hostile:Env",
        "hostile:boom",
        "gymnasium/hostile:Env-v0",
        "gymnax/hostile:E",
        "probe/hostile:E",
    ],
)
def test_no_id_has_a_module_imported(env_id, tmp_path, monkeypatch):
    (tmp_path / "hostile.py").write_text(
        "import pathlib\npathlib.Path('ran').touch()\ndef boom(): pass\nclass Env: pass\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError):
        make_env(env_id, 1)
    assert not (tmp_path / "ran").exists() and "hostile" not in sys.modules


@pytest.mark.parametrize(
    ("env_id", "package", "kind"),
    [
        ("gymnasium/Hopper-v5", "mujoco", "mujoco"),
        ("gymnasium/LunarLander-v3", "Box2D", "box2d"),
        ("gymnasium/ALE/Pong-v5", "ale_py", "atari"),
        ("gymnasium/ALE/Pong-v5", "cv2", "atari"),
        ("envpool/CartPole-v1", "envpool", "envpool"),
    ],
)
def test_a_missing_package_is_named(env_id, package, kind, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == package else find_spec(name)
    )
    monkeypatch.setattr(
        gymnasium,
        "registry",
        {k: v for k, v in gymnasium.registry.items() if not k.startswith("ALE/")},
    )
    with pytest.raises(
        ConfigError,
        match=rf"{env_id} needs the package '{package}'.*; {re.escape(INSTALL[kind])}",
    ):
        registry.check_id(env_id)


def test_the_tables_name_what_there_is():
    """The tables hold all that gymnasium, Atari and EnvPool can create, except what ids.py
    excludes.
    """
    gymnasium.register_envs(ale_py)
    own = {
        name: spec.entry_point
        for name, spec in gymnasium.registry.items()
        if isinstance(spec.entry_point, str)
    }
    kinds = ("classic_control", "toy_text", "box2d", "mujoco")
    tables = (ids.CLASSIC_IDS, ids.TOY_TEXT_IDS, ids.BOX2D_IDS, ids.MUJOCO_IDS)
    for kind, table in zip(kinds, tables, strict=True):
        there = {
            name
            for name, entry_point in own.items()
            if entry_point.startswith(f"gymnasium.envs.{kind}.")
        }
        assert set(table) == there - {"CartPole-v0", "Pusher-v4"}, kind
    assert set(ids.ATARI_IDS) == {name for name in own if name.startswith("ALE/")}
    assert set(ids.ENVPOOL_IDS) == set(ids.GYMNASIUM_IDS) & set(envpool.list_all_envs())
    assert {"gymnasium/Ant-v5", "gymnasium/ALE/Pong-v5", "envpool/Ant-v5"} <= set(
        registry.list_envs()
    )


@pytest.mark.filterwarnings(
    "ignore:.*is out of date:DeprecationWarning", "ignore:builtin type:DeprecationWarning"
)
@pytest.mark.parametrize("suite", ["gymnasium", "envpool"])
def test_every_listed_environment_can_be_made(suite, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo writes a log
    for name in ids.GYMNASIUM_IDS if suite == "gymnasium" else ids.ENVPOOL_IDS:
        make_env(f"{suite}/{name}", 1)
