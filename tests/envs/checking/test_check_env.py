"""`check_env` finds each planted mistake in a JAX environment, and none in correct ones."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from fragile_envs import Fragile
from gymnasium import spaces

from rlkit.envs import TimeLimit, check_env, make_env, vectorize
from rlkit.envs.checking import compiled_env
from rlkit.envs.checking.compiled_env import CompiledEnv, Tracing
from rlkit.envs.checking.jax_rollout import random_rollout
from rlkit.envs.jittable.contract import trace_findings
from rlkit.envs.jittable.gymnax import gymnax_env
from rlkit.envs.probes.space_probes import Counter
from rlkit.envs.probes.value_probes import UNIT
from rlkit.errors import ConfigError, EnvContractError

LIMIT = 6
NO = np.False_


@dataclasses.dataclass(frozen=True)
class Sound:
    """A walk with a random start; every mistake below changes one thing."""

    observation_space = spaces.Box(-10.0, 10.0, (1,))
    action_space = spaces.Discrete(2)
    max_episode_steps = LIMIT

    def reset(self, key):
        x = jax.random.uniform(key)
        return {"x": x, "time": jnp.int32(0)}, x[None]

    def step(self, key, state, action):
        state = self.move(state, action)
        return state, state["x"][None], state["x"], state["x"] > 3.0, state["time"] >= LIMIT, {}

    def move(self, state, action):
        return {"x": state["x"] + action, "time": state["time"] + 1}

    def fresh_where(self, done, key, state):
        return jax.tree.map(lambda new, old: jnp.where(done, new, old), self.reset(key)[0], state)


class PythonIf(Sound):
    def step(self, key, state, action):
        if action > 0:
            state = self.move(state, action)
        return super().step(key, state, action)


class NumpyCall(Sound):
    def step(self, key, state, action):
        return super().step(
            key, {**state, "x": jnp.float32(np.sin(np.asarray(state["x"])))}, action
        )


class Raises(Sound):
    def step(self, key, state, action):
        return super().step(key, state, action["left"])


class Swapped(Sound):
    def reset(self, key):
        return super().reset(key)[::-1]


class SwappedStep(Sound):
    def step(self, key, state, action):
        state, obs, *rest = super().step(key, state, action)
        return obs, state, *rest


class Four(Sound):
    def step(self, key, state, action):
        state, obs, reward, terminated, _, info = super().step(key, state, action)
        return obs, reward, terminated, info


class Five(Sound):
    def step(self, key, state, action):
        return super().step(key, state, action)[1:]


class VectorReward(Sound):
    def step(self, key, state, action):
        state, obs, reward, *rest = super().step(key, state, action)
        return state, obs, reward[None], *rest


class FloatFlag(Sound):
    def step(self, key, state, action):
        *rest, terminated, truncated, info = super().step(key, state, action)
        return *rest, jnp.float32(terminated), truncated, info


class NoInfo(Sound):
    def step(self, key, state, action):
        return *super().step(key, state, action)[:-1], None


class TextInfo(Sound):
    def step(self, key, state, action):
        return *super().step(key, state, action)[:-1], {"name": "Sound"}


class KeyInfo(Sound):
    def step(self, key, state, action):
        return *super().step(key, state, action)[:-1], {"keys": {"next": key}}


@struct.dataclass
class Parts:
    distance: jax.Array


class StructInfo(Sound):
    def step(self, key, state, action):
        return *super().step(key, state, action)[:-1], {"parts": [Parts(distance=jnp.float32(0))]}


class NanReward(Sound):
    def step(self, key, state, action):
        state, obs, reward, *rest = super().step(key, state, action)
        return state, obs, jnp.log(reward - 1.5), *rest


class NanAtTheBound(Sound):
    """Fine inside the box, infinite on its upper bound."""

    action_space = UNIT

    def step(self, key, state, action):
        state, obs, _, *rest = super().step(key, state, action[0])
        return state, obs, jnp.log(1.0 - action[0]), *rest


class WrongShape(Sound):
    observation_space = spaces.Box(-10.0, 10.0, (3,))


class WrongType(Sound):
    observation_space = spaces.Box(-10, 10, (1,), np.int32)


class WrongStructure(Sound):
    observation_space = spaces.Dict({"x": spaces.Box(-10.0, 10.0, (1,))})


class ListForTuple(Sound):
    observation_space = spaces.Tuple([spaces.Box(-10.0, 10.0, (1,))])

    def reset(self, key):
        state, obs = super().reset(key)
        return state, [obs]

    def step(self, key, state, action):
        state, obs, *rest = super().step(key, state, action)
        return state, [obs], *rest


class OutOfBounds(Sound):
    observation_space = spaces.Box(-1.0, 1.0, (1,))


class OutOfDiscrete(Sound):
    observation_space = spaces.Discrete(2)

    def reset(self, key):
        return super().reset(key)[0], jax.random.randint(key, (), 0, 2)

    def step(self, key, state, action):
        state, _, *rest = super().step(key, state, action)
        return state, state["time"], *rest


class NanObservation(Sound):
    def step(self, key, state, action):
        state, obs, *rest = super().step(key, state, action)
        return state, jnp.sqrt(1.5 - obs), *rest


class NoSpace(Sound):
    observation_space = None


class BadActions(Sound):
    action_space = spaces.Box(0, 5, (1,), np.int32)


class StateGrows(Sound):
    def move(self, state, action):
        return {"x": jnp.stack([state["x"], state["x"]])[:1] + action, "time": state["time"] + 1}

    def step(self, key, state, action):
        state = self.move(state, action)
        return state, state["x"], state["x"][0], state["x"][0] > 3.0, state["time"] >= LIMIT, {}


class StateChangesType(Sound):
    def move(self, state, action):
        return {"x": state["x"] + action, "time": state["time"] + 1.0}


class StateLosesField(Sound):
    def step(self, key, state, action):
        state, *rest = super().step(key, state, action)
        return {"x": state["x"]}, *rest


class WeakState(Sound):
    def reset(self, key):
        state, obs = super().reset(key)
        return {**state, "time": jnp.asarray(0)}, obs

    def move(self, state, action):
        return {"x": state["x"] + action, "time": jnp.int32(state["time"] + 1)}


class ResetsItself(Sound):
    def step(self, key, state, action):
        state, _, reward, terminated, truncated, info = super().step(key, state, action)
        state = self.fresh_where(terminated | truncated, jax.random.fold_in(key, 5), state)
        return state, state["x"][None], reward, terminated, truncated, info


class ResetsItselfUncounted:
    """Has no step counter and always starts at zero."""

    observation_space = spaces.Box(-10.0, 10.0, (1,))
    action_space = spaces.Discrete(2)

    def reset(self, key):
        return jnp.float32(0), jnp.zeros(1)

    def step(self, key, state, action):
        x = state + 0.5 + action
        done = x > 3
        x = jnp.where(done, 0.0, x)
        return x, x[None], x, done, jnp.bool_(NO), {}


class ReturnsHome(ResetsItselfUncounted):
    """Ends where it starts, which is no reset."""

    auto_reset = False


class ClaimsToReset(Sound):
    auto_reset = True

    def step(self, key, state, action):
        *rest, _ = super().step(key, state, action)
        return *rest, {"final_observation": rest[1]}


class ResetsAndHidesIt(Sound):
    auto_reset = True


class NeverTruncates(Sound):
    observation_space = spaces.Box(-1e6, 1e6, (1,))

    def step(self, key, state, action):
        *rest, _, _, info = super().step(key, state, action)
        return *rest, jnp.bool_(NO), jnp.bool_(NO), info


class LimitIsDeath(Sound):
    def step(self, key, state, action):
        *rest, terminated, truncated, info = super().step(key, state, action)
        return *rest, terminated | truncated, jnp.bool_(NO), info


class OtherLimit(Sound):
    max_episode_steps = 20


class UndeclaredLimit(Sound):
    max_episode_steps = None


class Endless(Sound):
    observation_space = spaces.Box(-1e6, 1e6, (1,))
    max_episode_steps = None

    def step(self, key, state, action):
        *rest, _, _, info = super().step(key, state, action)
        return *rest, jnp.bool_(NO), jnp.bool_(NO), info


class LimitByHand(Sound):
    """A limit of its own that it calls the end of the task, below the one that it declares."""

    def step(self, key, state, action):
        *rest, _, _, info = super().step(key, state, action)
        return *rest, rest[0]["time"] >= LIMIT, jnp.bool_(NO), info


class LimitByHandBelowAnother(LimitByHand):
    max_episode_steps = 30


class UndeclaredLimitByHand(LimitByHand):
    max_episode_steps = None


class ConstantNumber(Sound):
    observation_space = spaces.Box(np.float32([-10.0, 1.0]), np.float32([10.0, 1.0]))

    def reset(self, key):
        state, obs = super().reset(key)
        return state, jnp.append(obs, 1.0)

    def step(self, key, state, action):
        state, obs, *rest = super().step(key, state, action)
        return state, jnp.append(obs, 1.0), *rest


class PicturesOfChannels(Sound):
    observation_space = spaces.Box(-10.0, 10.0, (3, 8, 8))

    def reset(self, key):
        state, obs = super().reset(key)
        return state, jnp.full((3, 8, 8), obs)

    def step(self, key, state, action):
        state, obs, *rest = super().step(key, state, action)
        return state, jnp.full((3, 8, 8), obs), *rest


class CountsOn(Sound):
    """Resets itself, all but one of its counters."""

    auto_reset = True

    def reset(self, key):
        state, obs = super().reset(key)
        return {**state, "all": jnp.int32(0)}, obs

    def step(self, key, state, action):
        count = state["all"] + 1
        state, obs, reward, terminated, truncated, _ = super().step(key, state, action)
        done = terminated | truncated
        fresh, first = super().reset(jax.random.fold_in(key, 5))
        state = jax.tree.map(lambda new, old: jnp.where(done, new, old), fresh, state)
        info = {"final_observation": obs}
        obs = jnp.where(done, first, obs)
        return {**state, "all": count}, obs, reward, terminated, truncated, info


class AssertsNumber(Sound):
    def step(self, key, state, action):
        assert state["x"] < 5.0, "too far"
        return super().step(key, state, action)


class AssertsShape(Sound):
    def step(self, key, state, action):
        assert action.shape == (1,), "no axis"
        return super().step(key, state, action)


class IgnoresKey(Sound):
    def reset(self, key):
        return super().reset(jax.random.key(3))


class NumpyRandom(Sound):
    def step(self, key, state, action):
        return super().step(
            key, {**state, "x": state["x"] + np.random.default_rng().uniform()}, action
        )


class NumpyRandomReset(Sound):
    def reset(self, key):
        x = jax.random.uniform(key) + np.random.default_rng().uniform()
        return {"x": x, "time": jnp.int32(0)}, x[None]


class WritesToItself(Sound):
    def step(self, key, state, action):
        object.__setattr__(self, "calls", getattr(self, "calls", 0) + 1)
        return super().step(key, state, action)


class NoVmap(Sound):
    """Compiles alone but not in a batch, because the callback has no batching rule."""

    def step(self, key, state, action):
        state, obs, reward, *rest = super().step(key, state, action)
        reward = jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct((), jnp.float32), reward)
        return state, obs, reward, *rest


@dataclasses.dataclass(frozen=True)
class SizeIsTraced(Sound):
    """A parameter that is a shape: a number while it is traced alone, and not in a run."""

    params: int = 1

    def replace_params(self, params):
        return dataclasses.replace(self, params=params)

    def reset(self, key):
        state, _ = super().reset(key)
        return state, jnp.zeros(self.params)


class SizeIsTracedInStep(SizeIsTraced):
    def reset(self, key):
        return Sound.reset(self, key)

    def step(self, key, state, action):
        state, _, *rest = super().step(key, state, action)
        return state, jnp.zeros(self.params), *rest


@dataclasses.dataclass(frozen=True)
class TextIsTraced(SizeIsTraced):
    params: str = "text"  # pyright: ignore[reportIncompatibleVariableOverride]

    def reset(self, key):
        return Sound.reset(self, key)


PARAMS_FIX = r"params are traced, .* mark sizes .* with struct.field\(pytree_node=False\)"
ERRORS = [
    (
        SizeIsTraced,
        r"SizeIsTraced.reset with traced params .* test_check_env.py:\d+ `return state, jnp.zeros",
        PARAMS_FIX,
    ),
    (SizeIsTracedInStep, "SizeIsTracedInStep.step with traced params ", PARAMS_FIX),
    (TextIsTraced, "TextIsTraced.reset with traced params raises TypeError", PARAMS_FIX),
    (
        PythonIf,
        r"PythonIf.step cannot be compiled: test_check_env.py:\d+ `if action > 0:` needs the value",
        "jnp.where or jax.lax.cond",
    ),
    (
        NumpyCall,
        r"NumpyCall.step cannot be compiled: .*np.asarray.*TracerArrayConversionError",
        "jnp instead of numpy",
    ),
    (Raises, r"Raises.step raises \w+ at test_check_env.py:\d+ .*left", "fix that line"),
    (
        AssertsNumber,
        r"AssertsNumber.step cannot be compiled: .*:\d+ `assert state\[\"x\"\] < 5.0, \"too far\"`",
        "assert shapes and dtypes alone, and check numbers in a test .* jax.disable_jit",
    ),
    (
        AssertsShape,
        r"AssertsShape.step raises AssertionError at .*:\d+ `assert action.shape .*no axis",
        "look at what that line compares: while it is compiled, shapes, dtypes and attributes",
    ),
    (Swapped, r"Swapped.reset returned \(obs, state\)", r"return \(state, obs\)"),
    (SwappedStep, r"SwappedStep.step returned \(obs, state", "return .state, obs, reward"),
    (
        Four,
        "Four.step returned 4 values instead of six",
        "old Gym order .* time limits reported as truncated",
    ),
    (Five, "Five.step returned 5 values instead of six", "Gymnasium order"),
    (VectorReward, r"step reward has shape \(1,\)", "return a scalar"),
    (FloatFlag, "step terminated is float32, not bool", "boolean flags"),
    (NoInfo, "step info is a NoneType", "return a dict of arrays"),
    (TextInfo, r"TextInfo.step raises TypeError at its call: ", "only return arrays and numbers"),
    (KeyInfo, r"KeyInfo.step info\['keys'\]\['next'\] is a key<fry>, not numbers", "key_data"),
    (StructInfo, r"StructInfo.step info\['parts'\]\[0\] is a Parts", "a dict of arrays: logs"),
    (NanReward, r"NanReward.step reward is (nan|-inf) at step \d+", "division by zero"),
    (NanAtTheBound, r"NanAtTheBound.step reward is -inf at step \d+", "an action on its bound"),
    (WrongShape, r"observation has shape \(1,\), but its space has \(3,\)", "make them agree"),
    (
        WrongType,
        "observation is float32, but its space has int32: fractions would be cut off",
        "jnp.int32",
    ),
    (WrongStructure, "reset observation is structured", "dict for Dict"),
    (ListForTuple, r"reset observation is structured PyTreeDef\(\[\*\]\), .* Tuple", "tuple for"),
    (OutOfDiscrete, r"observation is [2-6], outside \[0, 1\]", "widen the bounds"),
    (NanObservation, "observation is NaN or infinite", "look for the division"),
    (NoSpace, "NoSpace.observation_space is None", "set it to a gymnasium space"),
    (BadActions, "is a Box of int32", "use MultiDiscrete"),
    (StateGrows, r"changes state\['x'\] from float32\[\] to float32\[1\]", "keep shape and dtype"),
    (
        StateChangesType,
        r"changes state\['time'\] from int32\[\] to float32\[\]",
        "keep shape and dtype",
    ),
    (StateLosesField, "changes the state's structure", "same fields as reset"),
    (ResetsItself, "seems to reset by itself", "auto_reset=True"),
    (ResetsItselfUncounted, "seems to reset by itself", "auto_reset=True"),
    (ClaimsToReset, "sets auto_reset=True, but its step counter continues", "remove auto_reset"),
    (
        ResetsAndHidesIt,
        "auto_reset=True but info has no 'final_observation'",
        "before the reset there",
    ),
    (
        NeverTruncates,
        "max_episode_steps is 6, but step 6 .* neither terminated nor truncated",
        "TimeLimit",
    ),
    (LimitIsDeath, "step 6 sets terminated alone", "truncated = time >= max_episode_steps"),
    (
        NumpyRandom,
        "step gives two different results for the same key, state and action",
        "draw all randomness from the key",
    ),
    (
        NumpyRandomReset,
        "reset gives two different results for the same key",
        "draw all randomness from the key",
    ),
    (NoVmap, r"NoVmap.step under vmap raises \w+ at test_check_env.py", "fix that line"),
    (
        WritesToItself,
        r"sets its own attributes in reset or step \(calls\)",
        "keep everything that changes in the state",
    ),
]
WARNINGS = [
    (OutOfBounds, r"observation\[0\] is .*, outside \[-1.0, 1.0\]", "widen the bounds"),
    (
        WeakState,
        r"changes the weak type of state\['time'\]: a jitted loop compiles twice",
        "jnp.int32",
    ),
    (
        OtherLimit,
        "max_episode_steps is 20, but an episode was truncated after 6 steps",
        "make them agree",
    ),
    (
        UndeclaredLimit,
        "truncated an episode after 6 steps, but max_episode_steps is not declared",
        "declare max_episode_steps = 6",
    ),
    (Endless, "ended no episode in 40 random steps", "wrap it in TimeLimit"),
    (
        UndeclaredLimitByHand,
        r"all \d+ episodes terminated after exactly 6 steps",
        "set truncated instead of terminated there, or use max_episode_steps=6",
    ),
    (LimitByHandBelowAnother, r"all \d+ episodes terminated after exactly 6 steps", "truncated"),
    (
        ConstantNumber,
        r"observation has low = high in 1 of 2 numbers, such as \[1\] \(1.0\)",
        "correct the bounds of observation_space, or leave constant numbers out",
    ),
    (
        PicturesOfChannels,
        r"observation has shape \(3, 8, 8\), which looks channels-first",
        "np.moveaxis",
    ),
    (
        CountsOn,
        r"CountsOn counts steps on over the ends of episodes, in state\['all'\]",
        "begin anew in reset what belongs to an episode",
    ),
    (IgnoresKey, "same observation for 8 different keys", "draw the initial state from the key"),
]


@pytest.mark.parametrize(("env", "what", "fix"), ERRORS, ids=lambda x: getattr(x, "__name__", ""))
def test_each_mistake_is_reported_with_its_fix(env, what, fix):
    report = check_env(env(), num_steps=40, raise_on_error=False)
    assert not report.ok
    assert any(re.search(what, x.what) and re.search(fix, x.fix) for x in report.errors), str(
        report
    )
    assert len(report.errors) <= 2, str(report)


@pytest.mark.parametrize(("env", "what", "fix"), WARNINGS, ids=lambda x: getattr(x, "__name__", ""))
def test_likely_mistakes_are_warnings(env, what, fix):
    report = check_env(env(), num_steps=40)
    assert report.ok and len(report.warnings) == 1, str(report)
    assert re.search(what, report.warnings[0].what) and re.search(fix, report.warnings[0].fix), str(
        report
    )


def test_sound_environments_pass():
    report = check_env(Sound(), num_steps=40)
    assert report.ok and not report.findings
    assert str(report) == "Sound: no problems found"
    assert check_env(vectorize(TimeLimit(Sound(), 4), 3), num_steps=40).ok


SHIPPED = [
    f"probe/{name}"
    for name in ("Counter", "DictObservation", "MultiDiscreteAction", "TimeLimitProbe")
]
SHIPPED += ["gymnax/DeepSea-bsuite"]


@pytest.mark.parametrize("env_id", SHIPPED)
def test_what_ships_passes(env_id):
    report = check_env(make_env(env_id, 2), num_steps=20)
    assert report.ok and report.name == env_id
    assert all("same observation for 8" in finding.what for finding in report.findings)


def test_errors_raise_the_whole_report():
    with pytest.raises(
        EnvContractError, match=r"Four: 1 error\(s\), 0 warning\(s\)\n  error   .*\n +fix: "
    ):
        check_env(Four())
    with pytest.raises(EnvContractError, match="Sound is a class; pass an instance"):
        check_env(Sound)
    with pytest.raises(ConfigError, match="num_steps must be positive"):
        check_env(Sound(), num_steps=0)
    assert "has no method reset" in str(check_env(object(), raise_on_error=False))


@struct.dataclass
class BatchState:
    """The state of `Batch`."""

    inner: object
    extra: jax.Array


class Batch:
    """A third-party adapter around one of rlkit's, with a switchable mistake."""

    num_envs, is_jittable, spec = 3, True, None
    max_episode_steps = 8

    def __init__(self, mistake=None):
        self.env, self.mistake = vectorize(Counter(), 3), mistake
        self.observation_space, self.action_space = (
            self.env.observation_space,
            self.env.action_space,
        )

    def reset(self, key):
        state, obs = self.env.reset(key)
        return BatchState(state, jnp.zeros(3)), obs

    def step(self, key, state, action):
        inner, step = self.env.step(key, state.inner, action)
        if self.mistake == "tuple":
            return BatchState(inner, state.extra), (step.obs, step.reward)
        count = state.extra + 1 if self.mistake == "counter" else state.extra
        changes = {
            "nan": {"reward": step.reward / 0},
            "shape": {"reward": step.reward[0]},
            "limit": {"truncated": step.truncated & False},
        }
        step = step.replace(**changes.get(self.mistake, {}))
        return BatchState(inner, 0 * count.astype(int) if self.mistake == "state" else count), step

    def close(self): ...


def test_adapters_of_third_parties_are_checked():
    assert check_env(Batch(), num_steps=20).findings == ()
    for mistake, what in (
        ("tuple", "step returned tuple"),
        ("nan", "reward is (nan|inf)"),
        ("shape", r"step reward is float32\[\], not float32\[3\]"),
        ("limit", "max_episode_steps is 8, but"),
        ("state", "changes the state from"),
    ):
        with pytest.raises(EnvContractError, match=what):
            check_env(Batch(mistake), num_steps=20)


def test_an_adapters_counter_that_survives_resets_is_reported():
    (finding,) = check_env(Batch("counter"), num_steps=20).findings
    assert finding.severity == "warning" and "counts steps on over the ends" in finding.what
    assert finding.what.endswith("in state.extra") and finding.what.startswith("Batch ")


def test_reports_name_the_environment_and_not_what_wraps_it():
    problem = "observation.* is .*, outside"
    for env, name in (
        (TimeLimit(OutOfBounds(), 4), "OutOfBounds"),
        (vectorize(TimeLimit(OutOfBounds(), 4), 2), "OutOfBounds"),
        (Named(), "suite/Named"),
    ):
        report = check_env(env, num_steps=40)
        assert report.name == name
        assert re.search(f"^{name} {problem}", report.warnings[0].what), str(report)
    report = check_env(gymnax_env("PointRobot-misc", params={"max_steps_in_episode": 20}))
    assert all(x.what.startswith("PointRobot-misc") for x in report.findings), str(report)
    with pytest.raises(EnvContractError, match=r"^suite/Four\.step returned 4 values"):
        vectorize(NamedFour(), 2)


class Named(OutOfBounds):
    name = "suite/Named"


class NamedFour(Four):
    name = "suite/Four"


def test_each_function_is_compiled_once_and_traced_three_times(monkeypatch):
    """Traced to be compiled, in a batch, and again for randomness of Python."""
    calls = {"reset": 0, "step": 0}
    compiled = []

    class Counts(Sound):
        def reset(self, key):
            calls["reset"] += 1
            return super().reset(key)

        def step(self, key, state, action):
            calls["step"] += 1
            return super().step(key, state, action)

    stages = []
    real = jax.stages.Lowered.compile
    monkeypatch.setattr(
        jax.stages.Lowered, "compile", lambda *args: compiled.append(1) or real(*args)
    )
    assert check_env(Counts(), num_steps=40, progress=stages.append).findings == ()
    assert calls == {"reset": 3, "step": 3} and len(compiled) == 2
    assert stages == [
        "making the environment",
        "tracing reset and step",
        "tracing them in a batch",
        "compiling reset",
        "compiling step",
        "calling reset",
        "playing 40 random steps",
    ]


def test_what_is_slow_at_its_first_call_is_compiled_well(monkeypatch):
    """Once, so that all calls that are compared are of one program."""
    options, stages = [], []
    real = jax.stages.Lowered.compile
    monkeypatch.setattr(compiled_env, "SLOW", 0.0)
    monkeypatch.setattr(
        jax.stages.Lowered, "compile", lambda *args: options.append(args[1:]) or real(*args)
    )
    assert check_env(Sound(), num_steps=40, progress=stages.append).findings == ()
    assert options == [(compiled_env.QUICK,), (compiled_env.QUICK,), (), ()]
    assert stages[3:] == [
        "compiling reset",
        "compiling step",
        "calling reset",
        "compiling reset again, for faster calls",
        "playing 40 random steps",
        "compiling step again, for faster calls",
    ]


class CallsBack(Sound):
    """Random where no trace shows it."""

    def step(self, key, state, action):
        dice = np.random.default_rng()
        drawn = jax.pure_callback(
            lambda: np.float32(dice.uniform()),
            jax.ShapeDtypeStruct((), jnp.float32),
            vmap_method="broadcast_all",
        )
        return super().step(key, {**state, "x": state["x"] + drawn}, action)


def test_randomness_that_no_trace_shows_is_found():
    report = check_env(CallsBack(), num_steps=40, raise_on_error=False)
    assert "step gives two different results for the same key" in report.errors[0].what


@pytest.mark.parametrize("kind", [NanReward, NanObservation])
def test_nan_is_a_warning_where_it_ends_the_episode(kind):
    """And the check goes on in another one, as a run would."""
    env = vectorize(kind(), 2, non_finite="reset")
    report = check_env(env, num_steps=40)
    assert report.ok and re.search("(nan|-inf|NaN)", report.warnings[0].what), str(report)
    declared = type("Declared", (kind,), {"non_finite": "reset"})
    assert check_env(declared(), num_steps=40).ok
    wrong = type("Wrong", (Sound,), {"non_finite": "ignore"})
    assert "Wrong.non_finite is 'ignore'" in str(check_env(wrong(), raise_on_error=False))


def test_the_check_goes_on_in_another_episode():
    env = Fragile(at=4, always=True)
    tracing = Tracing()
    assert not list(trace_findings(env, "Fragile", by=tracing))
    compiled = CompiledEnv.of(env, tracing, lambda stage: None)
    for resets_broken, longest in ((True, 4), (False, 6)):
        rollout = random_rollout(compiled, jax.random.key(0), 20, resets_broken=resets_broken)
        assert rollout.age.max() == longest


def test_an_id_is_made_and_checked():
    assert check_env("probe/Counter", num_steps=20).name == "probe/Counter"
    with pytest.raises(ConfigError, match="it takes"):
        check_env("probe/Counter", env_arguments={"speed": 3})


def test_an_environment_that_ends_where_it_starts_may_say_that_it_does_not_reset():
    wrapped = TimeLimit(ReturnsHome(), 50)
    for env in (ReturnsHome(), wrapped):
        report = check_env(env, num_steps=40, raise_on_error=False)
        assert report.ok, report
