"""`check_env` finds each planted mistake in a Gymnasium environment, and none in correct ones."""

import random
import re
import threading
import time
from itertools import count

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces
from tiers import by_default

from rlkit.envs import GymnasiumAdapter, check_env, make_env
from rlkit.envs.checking.gymnasium_checker import gymnasium_findings
from rlkit.envs.host.base import HostState, check_state
from rlkit.errors import ConfigError, EnvContractError, UnknownNameError

pytestmark = pytest.mark.fast
START = 3.0
CLOCK = count()


class Sound(gymnasium.Env):
    """A noisy walk that ends outside [-3, 3]; every mistake below changes one thing."""

    observation_space = spaces.Box(-10.0, 10.0, (2,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.x = 0, self.np_random.uniform(-1, 1)
        return self.look(), {}

    def step(self, action):
        self.steps += 1
        self.x += 2.0 * np.ravel(action)[0] - 1.0 + self.np_random.uniform(-1, 1)
        self.x = float(np.clip(self.x, -5, 5))
        return self.look(), abs(self.x), abs(self.x) > 3.0, False, {"x": self.x}

    def look(self):
        return np.array([self.x, self.steps % 2], np.float32)


def changed(index, change):
    """`Sound` with one of `step`'s five values changed by a function of (value, environment)."""

    class Changed(Sound):
        def step(self, action):
            result = list(super().step(action))
            result[index] = change(result[index], self)
            return tuple(result)

    return Changed


def looking(change, space=Sound.observation_space):
    """`Sound` with another observation."""

    class Looking(Sound):
        observation_space = space

        def look(self):
            return change(super().look(), self)

    return Looking


def acting(space, **methods):
    return type("Acting", (Sound,), {"action_space": space, **methods})


class OldReset(Sound):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


class TwoSpaces(Sound):
    """Observes a pair that is not (observation, info)."""

    observation_space = spaces.Tuple((Sound.observation_space, spaces.Discrete(2)))

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]

    def look(self):
        return super().look(), self.steps % 2


class NoInfo(Sound):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0], None


class OldStep(Sound):
    def step(self, action):
        obs, reward, terminated, _, info = super().step(action)
        return obs, reward, terminated, info


class NoSeed(Sound):
    def reset(self, *, options=None):
        return super().reset()


class NoOptions(Sound):
    def reset(self, *, seed=None):
        return super().reset(seed=seed)


class ShapeOfLateReset(Sound):
    """Correct at first, when Gymnasium's checker runs."""

    resets = 0

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        self.resets += 1
        return (obs, info) if self.resets == 1 else (obs[:1], info)


class Raises(Sound):
    def step(self, action):
        if self.steps > 4:
            raise RuntimeError("stuck")
        return super().step(action)


class RaisesAtTheBound(Sound):
    action_space = spaces.Box(-1.0, 1.0, (1,))

    def step(self, action):
        assert action[0] < 1.0, "too much"
        return super().step(action)


class SameArray(Sound):
    def __init__(self):
        self.buffer = np.zeros(2, np.float32)

    def look(self):
        self.buffer[:] = super().look()
        return self.buffer


class WritesIntoTheAction(Sound):
    action_space = spaces.Box(-1.0, 1.0, (1,))

    def step(self, action):
        action *= 0.5
        return super().step(action)


class GlobalNumpy(Sound):
    def step(self, action):
        result = super().step(action)
        self.x += np.random.normal()
        return result


class GlobalRandomStart(Sound):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = random.random()
        return self.look(), {}


class SeedsTheGlobalGenerator(Sound):
    def reset(self, *, seed=None, options=None):
        if seed is not None:
            np.random.seed(seed)
        return super().reset(seed=seed)


class OwnGeneratorIgnoresSeed(Sound):
    def __init__(self):
        self.own = np.random.default_rng(0)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.own.uniform(-1, 1)
        return self.look(), {}


class OwnGeneratorInStep(Sound):
    def __init__(self):
        self.own = np.random.default_rng(0)

    def step(self, action):
        result = super().step(action)
        self.x += self.own.normal()
        return result


class NewGeneratorInEachReset(Sound):
    def reset(self, *, seed=None, options=None):
        _, info = super().reset(seed=seed)
        if seed is None:
            self.np_random = np.random.default_rng()
            self.x = self.np_random.uniform(-1, 1)
        return self.look(), info


class ReseedsItself(Sound):
    def reset(self, *, seed=None, options=None):
        self.last = getattr(self, "last", 0) if seed is None else seed
        return super().reset(seed=self.last)


class DefaultSeed(Sound):
    def reset(self, *, seed=0, options=None):
        return super().reset(seed=seed)


class Deterministic(Sound):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.steps = 0.5, 0
        return self.look(), {}

    def step(self, action):
        self.steps += 1
        self.x += 1.0 if action else -0.7
        return self.look(), self.x, abs(self.x) > 3.0, False, {}


class ForgetsSuper(Deterministic):
    def reset(self, *, seed=None, options=None):
        self.x, self.steps = 0.5, 0
        return self.look(), {}


class Limited(Sound):
    """Ends only by its time limit."""

    max_episode_steps = 8

    def step(self, action):
        obs, reward, _, _, info = super().step(action)
        return obs, reward, False, self.steps >= 8, info


class BothAtTheLimit(Limited):
    """The task may end exactly in the last step that the time limit allows."""

    def step(self, action):
        obs, reward, _, truncated, info = super().step(action)
        return obs, reward, truncated, truncated, info


class TwoStarts(Limited):
    """Different seeds often give the same episode, correctly."""

    max_episode_steps = 150

    start = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.start = self.np_random.integers(2)
        return self.look(), {}

    def step(self, action):
        self.steps += 1
        return self.look(), 0.0, False, self.steps >= 150, {}

    def look(self):
        return np.array([self.start, self.steps % 3], np.float32)


class LimitNotKept(Limited):
    max_episode_steps = 5


class LimitIsDeath(Limited):
    def step(self, action):
        obs, reward, _, truncated, info = super().step(action)
        return obs, reward, truncated, False, info


class LimitTooLong(Limited):
    max_episode_steps = 20


class UndeclaredLimit(Limited):
    max_episode_steps = None


class CountsOn(Sound):
    all_steps = None

    def reset(self, **kwargs):
        self.all_steps = self.all_steps or 0
        return super().reset(**kwargs)

    def step(self, action):
        self.all_steps += 1
        return super().step(action)


class UndeclaredDeath(LimitIsDeath):
    max_episode_steps = None


class Endless(Limited):
    max_episode_steps = None

    def step(self, action):
        obs, reward, _, _, info = super().step(action)
        return obs, reward, False, False, info


class BothFlags(Sound):
    def step(self, action):
        obs, reward, terminated, _, info = super().step(action)
        return obs, reward, terminated, terminated, info


class Slow(Sound):
    def step(self, action):
        time.sleep(0.002)
        return super().step(action)


class CloseRaises(Sound):
    def close(self):
        raise OSError("socket is gone")


class CloseRaisesTwice(Sound):
    def __init__(self):
        self.window = object()

    def close(self):
        del self.window


class ClockInInfo(Sound):
    def step(self, action):
        *rest, _ = super().step(action)
        return *rest, {"moment": next(CLOCK)}


class SeedMethod(Sound):
    def seed(self, seed=None):
        return [seed]


class ReturnInfo(Sound):
    def reset(self, *, seed=None, options=None, return_info=True):
        return super().reset(seed=seed)


class Warns(Sound):
    def reset(self, *, seed=None, options=None):
        import warnings

        warnings.warn("the simulator is 2.1 versions old", UserWarning, stacklevel=2)
        return super().reset(seed=seed)


class NoPictures(Sound):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012
    render_mode = "rgb_array"

    def render(self):
        return np.zeros((4, 4), np.uint8)


class NeedsSize(Sound):
    def __init__(self, size):
        self.size = size


def unpicklable():
    lock = threading.Lock()

    class Locked(Sound):
        def step(self, action):
            with lock:
                return super().step(action)

    return Locked


class PicturesOfChannels(Sound):
    observation_space = spaces.Box(0, 255, (3, 8, 8), np.uint8)

    def look(self):
        return np.full((3, 8, 8), self.np_random.integers(256), np.uint8)


def two(obs, env):
    return {"a": obs, "b": env.steps % 2}


PAIR = spaces.Dict({"a": Sound.observation_space, "b": spaces.Discrete(2)})
TUPLE = spaces.Tuple((Sound.observation_space, spaces.Discrete(2)))
WIDE = spaces.Box(-10.0, 10.0, (2,), np.float64)
INTEGERS = spaces.Box(-10, 10, (2,), np.int64)
NOT_A_SPACE = type("NotASpace", (Sound,), {"observation_space": (2,)})

ERRORS = {
    "old reset": (
        OldReset,
        r"reset returned only the observation, not \(observation, info\)",
        "return obs, {}",
    ),
    "old reset of a pair": (
        TwoSpaces,
        r"reset returned only the observation, not \(observation, info\)",
        "return obs, {}",
    ),
    "reset info": (NoInfo, "reset returned info of type NoneType, not a dict", "return obs, {}"),
    "old step": (
        OldStep,
        r"step returned 4 values instead of five: \(observation, reward, done, info\)",
        "terminated when",
    ),
    "no seed": (NoSeed, "reset takes no seed", r"reset\(self, \*, seed=None, options=None\)"),
    "no options": (
        NoOptions,
        "reset takes no options",
        r"reset\(self, \*, seed=None, options=None\)",
    ),
    "raises": (
        Raises,
        r"step raises RuntimeError at test_gymnasium_env.py:\d+ `raise .*: stuck \(with action",
        "fix it",
    ),
    "raises at a bound": (
        RaisesAtTheBound,
        r"step raises AssertionError .*too much \(with action \[1.0\]",
        "look at what that line asserts: actions may be any of action_space, its bounds included",
    ),
    "no reward": (
        changed(1, lambda _, env: None),
        r"reward is of type NoneType and shape \(\), not a number \(step 1\)",
        r"float\(reward\)",
    ),
    "array reward": (
        changed(1, lambda r, _: np.array([r])),
        r"reward is of type ndarray and shape \(1,\)",
        "a single number",
    ),
    "NaN reward": (
        changed(1, lambda r, e: r if e.steps < 3 else np.nan),
        r"reward is nan \(step 3\)",
        "division by zero",
    ),
    "infinite reward": (
        changed(1, lambda r, e: np.float32(-np.inf)),
        r"reward is -inf \(step 1\)",
        "division by zero",
    ),
    "no flag": (
        changed(2, lambda flag, _: None),
        "terminated is None of type NoneType, not a bool",
        r"bool\(terminated\)",
    ),
    "float flag": (
        changed(3, lambda flag, _: 0.0),
        "truncated is 0.0 of type float",
        r"bool\(truncated\)",
    ),
    "step info": (
        changed(4, lambda info, _: []),
        "step returned info of type list, not a dict",
        "return {}",
    ),
    "late shape": (
        ShapeOfLateReset,
        r"observation has shape \(1,\), but its space has \(2,\) \(reset\(\)\)",
        "after every reset",
    ),
    "shape": (
        changed(0, lambda obs, _: obs[:, None]),
        r"observation has shape \(2, 1\), but its space has \(2,\)",
        "make them",
    ),
    "NaN observation": (
        looking(lambda o, e: o * np.float32(np.nan if e.steps == 3 else 1)),
        r"observation is NaN or infinite \(step 3\)",
        "division",
    ),
    "no numbers": (looking(lambda o, e: "left"), "observation is of type str", "np.float32"),
    "nothing": (looking(lambda o, e: None), "observation is of type NoneType", "np.float32"),
    "ragged list": (
        looking(lambda o, e: [[1.0], [1.0, 2.0]]),
        "observation is of type list",
        "np.float32",
    ),
    "whole floats": (
        looking(lambda o, e: np.round(o), INTEGERS),
        "is float32, but its space has int64 ",
        "np.int64.*, or declare the space as float32",
    ),
    "signed": (
        looking(lambda o, e: abs(o).astype(int), spaces.Box(0, 10, (2,), np.uint8)),
        "is int64, but its space has uint8 ",
        "np.uint8.*, or declare the space as int64",
    ),
    "fractions": (
        looking(lambda o, e: o + 0.5, INTEGERS),
        "is float32, but its space has int64: fractions",
        "as float32",
    ),
    "Discrete": (
        looking(lambda o, e: e.steps, spaces.Discrete(2)),
        r"observation is 2, outside \[0, 1\]",
        "widen",
    ),
    "MultiBinary": (
        looking(lambda o, e: np.array([2, 0], np.int8), spaces.MultiBinary(2)),
        r"is 2, outside \[0, 1\]",
        "widen",
    ),
    "huge integers": (
        looking(lambda o, e: np.int64(2**40 + e.steps), spaces.Discrete(2**50)),
        r"contains 1099511627\d+, which does not fit into int32",
        "float32",
    ),
    "keys": (
        looking(lambda o, e: {"a": o, "c": 0}, PAIR),
        r"lacks the keys \['b'\] and has the unknown keys \['c'\]",
        "keys of the space",
    ),
    "part": (
        looking(lambda o, e: {"a": o, "b": 2}, PAIR),
        r"observation\['b'\] is 2, outside",
        "widen",
    ),
    "no dict": (
        looking(lambda o, e: o, PAIR),
        "observation is of type ndarray, but its space is a Dict",
        "return a dict",
    ),
    "list for tuple": (
        looking(lambda o, e: [o, 0], TUPLE),
        "is of type list, but its space is a Tuple of 2",
        "return a tuple",
    ),
    "short tuple": (
        looking(lambda o, e: (o,), TUPLE),
        "is 1 values, but its space is a Tuple of 2",
        "one value per part",
    ),
    "no space": (
        NOT_A_SPACE,
        r"NotASpace.observation_space is \(2,\)",
        "set it to a gymnasium space",
    ),
    "action space": (
        acting(spaces.Dict(a=spaces.MultiBinary(2))),
        r"action space\['a'\] MultiBinary.* is not supported",
        r"MultiDiscrete\(\[2\] \* 2\)",
    ),
    "integer Box": (
        acting(spaces.Box(0, 4, (1,), np.int64)),
        "is a Box of int64",
        "use MultiDiscrete",
    ),
    "observation space": (
        looking(lambda o, e: "", spaces.Text(4)),
        "Text.* is not supported",
        "use Box",
    ),
    "global NumPy": (GlobalNumpy, "draws from the global generators", "self.np_random"),
    "global random": (GlobalRandomStart, "draws from the global generators", "self.np_random"),
    "ignores seed": (
        OwnGeneratorIgnoresSeed,
        "reset returns different observations for the same seed",
        "self.np_random",
    ),
    "reseeds itself": (
        ReseedsItself,
        r"reset\(\) without a seed starts the same episode every time",
        "seed is not None",
    ),
    "limit not kept": (
        LimitNotKept,
        "limit of 5 steps, but step 5 of an episode sets neither",
        "truncated = steps >= 5",
    ),
    "limit is death": (
        LimitIsDeath,
        "limit of 8 steps, but step 8 sets terminated alone",
        "truncated = steps >= 8",
    ),
    "arguments": (NeedsSize, r"NeedsSize\(\) raises TypeError: .*'size'", r"NeedsSize\(...\)"),
}
WARNINGS = {
    "codes": (
        looking(lambda o, e: np.uint8([0, 3]), spaces.Box(0, 3, (2,), np.uint8)),
        "observation holds integers from 0 to 3",
        "MultiDiscrete",
    ),
    "0-d reward": (
        changed(1, lambda r, _: np.array(r)),
        r"reward is of type ndarray and shape \(\), not a number",
        r"float\(reward\)",
    ),
    "JAX reward": (
        changed(1, lambda r, _: jax.numpy.float32(r)),
        r"reward is of type \w+ and shape \(\)",
        r"float\(reward\)",
    ),
    "reward range": (
        type("Ranged", (Sound,), {"reward_range": (0, 1)}),
        r"rewards from 0\.\d+ to [345]\.?\d*, but its reward_range is 0 to 1",
        "no longer has it",
    ),
    "bool reward": (changed(1, lambda r, _: r > 1), "reward is a bool", r"float\(reward\)"),
    "integer flag": (
        changed(2, lambda flag, _: int(flag)),
        "terminated is 0 of type int, not a bool",
        r"bool\(terminated\)",
    ),
    "array flag": (
        changed(3, lambda flag, _: np.array(flag)),
        "truncated is array.* of type ndarray",
        r"bool\(truncated\)",
    ),
    "float64": (
        looking(lambda o, e: o.astype(float)),
        "observation is float64, but its space has float32",
        "np.float32",
    ),
    "list": (looking(lambda o, e: o.tolist()), "observation is a list, not an array", "np.asarray"),
    "out of bounds": (
        looking(lambda o, e: o, spaces.Box(-1.0, 1.0, (2,))),
        r"observation\[0\] is -?[1-5]\..*, outside \[-1.0, 1.0\] \(step",
        "widen",
    ),
    "same array": (
        SameArray,
        "step overwrites the observation that the previous call returned",
        r"obs.copy\(\)",
    ),
    "action in place": (WritesIntoTheAction, "step changes the action in place", "np.clip"),
    "seeds globally": (SeedsTheGlobalGenerator, "seeds the global generators", "self.np_random"),
    "own generator": (
        OwnGeneratorInStep,
        "different episodes for the same seed and actions, though they start the same",
        "self.np_r",
    ),
    "new generator": (
        NewGeneratorInEachReset,
        r"reset\(\) returns a different observation each time it follows",
        "seed is not None",
    ),
    "undeclared limit": (
        UndeclaredLimit,
        "truncated an episode after 8 steps, but no time limit",
        "max_episode_steps=8",
    ),
    "undeclared death": (
        UndeclaredDeath,
        r"all \d+ episodes terminated after exactly 8 steps",
        "truncated instead",
    ),
    "early death": (
        lambda: gymnasium.wrappers.TimeLimit(UndeclaredDeath(), 50),
        r"all \d+ episodes terminated after exactly 8 steps",
        "truncated instead",
    ),
    "counts on": (
        CountsOn,
        r"CountsOn counts steps on over the ends of episodes, in self.all_steps",
        "begin anew in reset what belongs to an episode",
    ),
    "constant": (
        looking(
            lambda obs, env: np.append(obs, np.float32(0)),
            spaces.Box(np.float32([-10, 0, 0]), np.float32([10, 1, 0])),
        ),
        r"observation has low = high in 1 of 3 numbers, such as \[2\] \(0.0\)",
        "correct the bounds of observation_space, or leave constant numbers out",
    ),
    "endless": (
        Endless,
        "ended no episode in 200 random steps and declares no time limit",
        "max_episode_steps=...",
    ),
    "limit too long": (
        LimitTooLong,
        "limit of 20 steps, but an episode was truncated after 8",
        "make them agree",
    ),
    "both flags": (
        BothFlags,
        "terminated and truncated together at the end of every",
        "truncated when a time limit",
    ),
    "unbounded actions": (
        acting(spaces.Box(-np.inf, np.inf, (1,))),
        "action_space is not bounded",
        "declare the bounds",
    ),
    "cannot be sent": (unpicklable(), "class cannot be pickled .*lock", "its own module"),
    "close": (CloseRaises, r"close\(\) raises OSError .*socket is gone", "nothing left to free"),
    "close twice": (
        CloseRaisesTwice,
        r"close\(\) the second time raises AttributeError",
        "nothing left to free",
    ),
    "channels first": (
        PicturesOfChannels,
        r"shape \(3, 8, 8\), which looks channels-first",
        "np.moveaxis",
    ),
    "no super": (
        ForgetsSuper,
        r"reset does not call super\(\).reset\(seed=seed\)",
        "self.np_random",
    ),
    "method seed": (SeedMethod, r"has a method seed\(\)", "remove it"),
    "return_info": (ReturnInfo, "has a parameter return_info", "remove it"),
    "own statistics": (
        lambda: gymnasium.wrappers.NormalizeObservation(Sound()),
        "is wrapped in NormalizeObservation, whose statistics are its own",
        "normalize_observations=True",
    ),
    "of rewards": (
        lambda: gymnasium.wrappers.NormalizeReward(Sound()),
        "is wrapped in NormalizeReward, whose statistics are its own",
        "normalize_rewards=True",
    ),
}
INFOS = {
    "actions": (
        acting(spaces.Box(-2.0, 2.0, (1,))),
        "action_space ranges from -2 to 2",
        "rescale_actions=True",
    ),
    "uneven actions": (
        acting(spaces.Box(np.float32([-1, 0]), np.float32(1))),
        r"from \[-1.  0.\] to 1",
        "rescale_actions",
    ),
    "big": (
        looking(lambda o, e: o * 50, spaces.Box(-500.0, 500.0, (2,))),
        r"observation reaches \d+",
        "normalize_observations",
    ),
    "float64 space": (
        looking(lambda o, e: o.astype(float), WIDE),
        "returns float64 observations; rlkit casts",
        "no change needed",
    ),
    "slow": (Slow, r"takes [2-9]\.\d ms per step", 'vectorization="async"'),
    "no chance": (
        Deterministic,
        "the same episode for the same actions, whatever the seed",
        "self.np_random",
    ),
    "clock": (ClockInInfo, "different info for the same seed and actions", "leave them out"),
    "warns": (
        Warns,
        "raised a UserWarning: the simulator is 2.1 versions old",
        "follow its advice",
    ),
}
ALL = [
    (severity, *row)
    for severity, rows in (("error", ERRORS), ("warning", WARNINGS), ("info", INFOS))
    for row in rows.items()
]


@pytest.mark.parametrize(
    ("severity", "name", "planted"), ALL, ids=lambda x: x if isinstance(x, str) else ""
)
def test_each_mistake_gives_its_finding_and_no_other(severity, name, planted):
    kind, what, fix = planted
    report = check_env(kind, raise_on_error=False)
    found = [finding for finding in report.findings if re.search(what, finding.what)]
    assert found and found[0].severity == severity and re.search(fix, found[0].fix), str(report)
    assert report.findings == (found[0],), str(report)
    assert report.ok == (severity != "error")


def test_a_default_seed_is_reported_by_both_checkers():
    report = check_env(DefaultSeed, raise_on_error=False)
    assert [finding.severity for finding in report.findings] == ["error"], str(report)
    assert "without a seed starts the same episode" in report.errors[0].what


def test_a_sound_environment_has_no_findings():
    for env in (
        Sound,
        Sound(),
        Limited,
        BothAtTheLimit,
        TwoStarts,
        gymnasium.wrappers.TimeLimit(Sound(), 20),
        looking(two, PAIR),
    ):
        report = check_env(env)
        assert report.findings == (), str(report)
    assert all(check_env(TwoStarts, seed=seed).findings == () for seed in range(4))
    assert str(check_env(Sound)).startswith("Sound: no problems found\n  steps 200, episodes ")
    assert check_env(NeedsSize, env_arguments={"size": 3}).findings == ()
    assert check_env(Sound, num_steps=7).measured["steps"] == 7


def test_what_is_random_elsewhere_is_left_alone():
    np.random.seed(5)
    random.seed(5)
    expected = np.random.random(), random.random()
    np.random.seed(5)
    random.seed(5)
    check_env(GlobalNumpy, raise_on_error=False)
    assert (np.random.random(), random.random()) == expected


def test_made_environments_are_checked_without_gymnasiums_wrappers_in_the_way():
    gymnasium.register(
        "Float64-v0", looking(lambda obs, env: obs.astype(float)), max_episode_steps=20
    )
    try:
        report = check_env(gymnasium.make("Float64-v0"))
        assert (
            report.name == "Float64-v0"
            and len(report.findings) == 1
            and "float64" in report.warnings[0].what
        )
        assert check_env("gymnasium/Float64-v0").name == "gymnasium/Float64-v0"
    finally:
        del gymnasium.registry["Float64-v0"]


def test_unknown_messages_of_gymnasium_are_passed_on(monkeypatch):
    def fails(env):
        gymnasium.logger.warn("Something new is odd.")
        raise AssertionError("Something new is wrong.")

    def lacks(env):
        raise ModuleNotFoundError("No module named 'array_api_compat'")

    monkeypatch.setattr(gymnasium.utils.env_checker, "check_reset_options", lacks)
    (unable,) = gymnasium_findings(Sound(), "Sound")
    assert unable.severity == "info" and "array_api_compat" in unable.what
    monkeypatch.setattr(gymnasium.utils.env_checker, "check_reset_options", fails)
    odd, wrong = gymnasium_findings(Sound(), "Sound")
    assert odd.severity == "warning" and odd.what.endswith("Something new is odd.")
    assert wrong.severity == "error" and wrong.what.endswith("Something new is wrong.")


def test_pictures_are_looked_at_where_they_are_drawn():
    report = check_env(NoPictures, raise_on_error=False)
    assert [finding.what for finding in report.errors] == [
        "NoPictures.render() does not return an image"
    ], str(report)


def test_errors_raise_the_report_with_reasons():
    with pytest.raises(
        EnvContractError,
        match=r"OldStep: 1 error\(s\), 0 warning\(s\)\n  error   .*\n +why: .*\n +fix: ",
    ):
        check_env(OldStep())
    with pytest.raises(ConfigError, match="env_arguments need an id or a class"):
        check_env(Sound(), env_arguments={"size": 1})
    with pytest.raises(UnknownNameError, match="did you mean 'gymnasium/CartPole-v1'"):
        check_env("gymnasium/CartPol-v1")
    old_gym = type("Env", (), {"__module__": "gym.core"})
    report = check_env(type("Maze", (old_gym,), {})(), raise_on_error=False)
    assert [finding.what for finding in report.findings] == [
        "Maze is an environment of the old gym package"
    ]


SHIPPED = {  # id: what its warnings and infos say
    "CartPole-v1": [],
    "Acrobot-v1": ["reaches"],
    "MountainCar-v0": [],
    "MountainCarContinuous-v0": [],
    "Pendulum-v1": ["from -2 to 2"],
    "Blackjack-v1": [],
    "Taxi-v4": ["says which actions are allowed"],
    "FrozenLake-v1": [],
    "FrozenLake8x8-v1": [],
    "CliffWalking-v1": [
        "declares no time limit",
        "whatever the seed",
    ],  # truly endless for a bad policy, and without chance
    "CliffWalkingSlippery-v1": ["declares no time limit"],
    "LunarLander-v3": [],
    "BipedalWalker-v3": ["though they start the same"],  # true: Box2D's world outlives resets
    "Hopper-v5": ["returns float64"],
    "InvertedPendulum-v5": ["from -3 to 3", "returns float64"],
}
DEFAULT_SHIPPED = (  # of each kind one
    "CartPole-v1",
    "Pendulum-v1",
    "Taxi-v4",
    "CliffWalking-v1",
    "BipedalWalker-v3",
    "InvertedPendulum-v5",
)


# Box2D's bindings warn while they are imported, and crash where that is an error.
@pytest.mark.filterwarnings("ignore:builtin type .* has no __module__ attribute:DeprecationWarning")
@pytest.mark.parametrize("env_id", by_default(DEFAULT_SHIPPED, SHIPPED))
def test_what_gymnasium_ships_has_no_errors_and_no_false_alarms(env_id, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo writes a log where it runs
    report = check_env(f"gymnasium/{env_id}")
    unexpected = [f for f in report.findings if not any(part in f.what for part in SHIPPED[env_id])]
    assert report.ok and not unexpected and report.measured["steps"] >= 200, str(report)


class Batch:
    """A third-party host adapter around one of rlkit's, with a switchable mistake."""

    is_jittable, spec = False, None

    def __init__(self, mistake=None):
        self.mistake, self.inner, self.held = mistake, GymnasiumAdapter(Sound, 2), None
        self.num_envs, self.max_episode_steps = 2, self.inner.max_episode_steps
        self.observation_space, self.action_space = (
            self.inner.observation_space,
            self.inner.action_space,
        )
        self.resets, self.first = 0, {}

    def reset(self, key):
        self.resets += 1
        key = {"other": jax.random.key(self.resets), "copies": jax.random.split(key, 1)[0]}.get(
            self.mistake, key
        )
        self.state, obs = self.inner.reset(key)
        if self.mistake == "copies":
            self.twin, first = GymnasiumAdapter(Sound, 1), None
            self.twin_state, first = self.twin.reset(key)
            obs = np.repeat(first, 2, axis=0)
        return HostState(resets=np.asarray(self.resets, np.int32)), obs

    def step(self, key, state, action):
        if self.mistake != "stale":
            check_state(state, self.resets)
        if self.mistake == "copies":
            _, step = self.twin.step(None, self.twin_state, action[:1])
            return state, jax.tree.map(lambda leaf: np.repeat(leaf, 2, axis=0), step)
        self.state, step = self.inner.step(None, self.state, action)
        return state, self.change(step)

    def change(self, step):
        if self.mistake == "tuple":
            return step.obs, step.reward
        if self.mistake == "buffer":
            self.held = np.zeros_like(step.obs) if self.held is None else self.held
            self.held[:] = step.obs
            return step.replace(obs=self.held)
        changes = {
            "shape": {"reward": step.reward[:1]},
            "dtype": {"obs": step.obs.astype(np.float64)},
            "nan": {"reward": step.reward * np.nan},
            "final": {"obs": step.next_obs},
            "lost": {"next_obs": step.obs},
            "apart": {"next_obs": step.next_obs + 1},
            "info": {"info": {"x": np.float32(0)}},
        }
        return step.replace(**changes.get(self.mistake, {}))

    def close(self):
        if self.mistake == "close":
            raise OSError("gone")
        self.inner.close()


BATCH = {
    "tuple": "step returned tuple",
    "shape": r"step reward is float32\[1\], not float32\[2\]",
    "dtype": r"step obs is float64\[2, 2\], not float32\[2, 2\]",
    "nan": "step reward is .*nan",
    "final": r"obs equal to next_obs at all \d+ episode ends",
    "lost": r"obs equal to next_obs at all \d+ episode ends",
    "apart": "returns different obs and next_obs within an episode",
    "info": r"info\['x'\] has shape \(\), not \[2, ...\]",
    "buffer": "step overwrites the obs",
    "other": "reset with the same key starts different episodes",
    "copies": "all 2 environments of the batch run the same episode",
    "stale": "accepts a state from before the last reset",
    "close": r"close\(\) raises OSError",
}


@pytest.mark.parametrize("mistake", BATCH)
def test_each_mistake_of_a_batch_is_reported(mistake):
    report = check_env(Batch(mistake), num_steps=60, raise_on_error=False)
    assert len(report.findings) == 1 and re.search(BATCH[mistake], report.findings[0].what), str(
        report
    )


def test_sound_batches_have_no_findings():
    report = check_env(Batch(), num_steps=60)
    assert report.findings == () and report.name == "Batch" and report.measured["episodes"] > 3
    assert check_env(GymnasiumAdapter(Sound, 3)).findings == ()
    assert check_env(make_env("envpool/CartPole-v1", 2)).findings == ()


class Hooked(Sound):
    def get_state(self):
        return {"steps": self.steps, "x": self.x}

    def set_state(self, state):
        self.steps, self.x = state["steps"], state["x"]


class ForgetsSteps(Hooked):
    def set_state(self, state):
        self.x = state["x"]


class KeepsItself(Hooked):
    def get_state(self):
        return {"steps": self.steps, "me": self}


class RefusesIts(Hooked):
    def set_state(self, state):
        raise KeyError("y")


class OtherNumbers(Hooked):
    """Draws from a generator that nobody saves."""

    def step(self, action):
        obs, _, *others = super().step(action)
        return obs, self.own.uniform(), *others

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.own = np.random.default_rng(seed)
        return super().reset(seed=seed)


@pytest.mark.parametrize(
    ("env", "severity", "what"),
    [
        (
            ForgetsSteps,
            "warning",
            "ForgetsSteps goes on differently after set_state(get_state()): with the same actions,"
            " call",
        ),
        (OtherNumbers, "warning", "call 1 returns something else"),
        (KeepsItself, "warning", "cannot be saved: KeepsItself state['me'] is a KeepsItself; use"),
        (RefusesIts, "error", "where it was saved: RefusesIts.set_state raised KeyError: 'y'"),
    ],
)
def test_hooks_that_do_not_go_on_where_they_saved_are_found(env, severity, what):
    (finding,) = check_env(env, raise_on_error=False).findings
    assert finding.severity == severity and what in finding.what


def test_hooks_that_go_on_and_missing_ones_are_no_finding():
    assert check_env(Hooked).findings == () == check_env(Sound).findings


def test_a_broken_environment_in_a_batch_is_reported():
    report = check_env(GymnasiumAdapter(OldStep, 2), raise_on_error=False)
    assert len(report.findings) == 1 and "step returned 4 values" in report.errors[0].what
    report = check_env(GymnasiumAdapter(OwnGeneratorInStep, 2), raise_on_error=False)
    assert len(report.findings) == 1 and "though they start the same" in report.warnings[0].what, (
        str(report)
    )


def test_a_function_is_checked_as_what_it_makes():
    def small_cart_pole():
        return gymnasium.make("CartPole-v1")

    assert check_env(small_cart_pole).findings == check_env("gymnasium/CartPole-v1").findings
    with pytest.raises(EnvContractError, match=r"small_cart_pole.*raises ZeroDivisionError"):
        check_env(lambda_of(lambda: 1 / 0, "small_cart_pole"))


def lambda_of(function, name):
    function.__name__ = name
    return function


class NanAtSeven(gymnasium.Env):
    """An observation is NaN in the seventh step of each episode."""

    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        self.time += 1
        obs = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return obs * (np.nan if self.time == 7 else 1), 0.0, False, self.time >= 20, {}


class EndsAtNan(NanAtSeven):
    non_finite = "reset"


@pytest.mark.parametrize(
    ("env", "arguments"),
    [(EndsAtNan, {}), (NanAtSeven, {"non_finite": "reset"})],
    ids=["of the class", "of the adapter"],
)
def test_nan_is_a_warning_where_it_ends_the_episode(env, arguments):
    assert not check_env(NanAtSeven, raise_on_error=False).ok
    report = check_env(env, env_arguments=arguments)
    (warning,) = [finding for finding in report.warnings if "NaN" in finding.what]
    assert "episode ends there" in warning.why


def test_statistics_of_wrappers_go_on_after_a_check():
    env = gymnasium.wrappers.NormalizeObservation(Sound())
    check_env(env, raise_on_error=False)
    assert env.update_running_mean
