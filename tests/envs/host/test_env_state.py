"""States of single environments: what follows after `load_env` is what followed after `save_env`,
in another copy too, and nothing but the documented fields can be set.
"""

import contextlib
import importlib
from collections import deque

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces, wrappers
from gymnasium.wrappers.utils import RunningMeanStd
from tiers import by_default

from rlkit.envs.host.env_state import load_env, save_env
from rlkit.envs.host.gymnasium import GymnasiumAdapter
from rlkit.envs.host.known_states import KNOWN
from rlkit.envs.host.plain_bytes import pack, unpack
from rlkit.errors import EnvContractError, EnvStateError
from tests.envs.host_envs import Clock

CLASSIC = (
    "CartPole-v1",
    "Acrobot-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Pendulum-v1",
)
TEXT = ("FrozenLake-v1", "Taxi-v4", "CliffWalking-v1", "Blackjack-v1")
MUJOCO = tuple(
    f"{name}-v5"
    for name in (
        "Ant",
        "HalfCheetah",
        "Hopper",
        "Humanoid",
        "HumanoidStandup",
        "InvertedDoublePendulum",
        "InvertedPendulum",
        "Pusher",
        "Reacher",
        "Swimmer",
        "Walker2d",
    )
)
SAVED_AFTER, REPLAYED = (37, 90), 210  # steps; episodes of most environments end within the second


class Dice(gymnasium.Env):
    """A user's environment: throws that its generator and that of its action space decide."""

    def __init__(self):
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = spaces.Discrete(6)
        self.total, self.log = 0, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.action_space.seed(seed)
        self.total = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        throw = int(self.np_random.integers(6)) + int(self.action_space.sample())
        self.total += throw
        self.log = [*self.log[-3:], throw]
        obs = np.array([self.total, sum(self.log)], np.float32)
        return obs, float(throw == action), self.total > 60, False, {}

    def get_state(self):
        return {"total": self.total, "log": np.array(self.log)}

    def set_state(self, state):
        self.total, self.log = state["total"], [int(x) for x in state["log"]]


def _frozen(env):
    """Its statistics stay as they are from some time on."""
    step = env.step

    def step_and_freeze(action):
        env.update_running_mean = env.env.update_running_mean = env.return_rms.count < 20
        return step(action)

    env.step = step_and_freeze
    return env


WRAPPED = {
    "statistics": wrappers.RecordEpisodeStatistics,
    "normalised": lambda env: wrappers.NormalizeReward(wrappers.NormalizeObservation(env)),
    "stacked": lambda env: wrappers.FrameStackObservation(env, 3),
    "delayed": lambda env: wrappers.DelayObservation(env, 2),
    "timed": wrappers.TimeAwareObservation,
    "frozen": lambda env: _frozen(wrappers.NormalizeReward(wrappers.NormalizeObservation(env))),
    "resetting": wrappers.Autoreset,
    "sticky": lambda env: wrappers.StickyAction(env, 0.5, repeat_action_duration=(1, 3)),
    "skipping": lambda env: wrappers.MaxAndSkipObservation(env, 3),
    "checked": wrappers.PassiveEnvChecker,
    "limited": lambda env: wrappers.TimeLimit(env, 11),
    "scaled": lambda env: wrappers.TransformReward(env, lambda reward: 2.0 * reward),
}
CASES = [
    *(("id", name) for name in (*CLASSIC, *TEXT, *MUJOCO)),
    *(("wrapped", name) for name in WRAPPED),
    ("user", "Dice"),
]
DEFAULTS = [case for case in CASES if case[1] not in MUJOCO or case[1] in ("Ant-v5", "Pusher-v5")]


def make(kind, name):
    if kind == "user":
        return wrappers.TimeLimit(Dice(), 20)
    if kind == "wrapped":
        return WRAPPED[name](gymnasium.make("CartPole-v1"))
    options = {"Taxi-v4": {"fickle_passenger": True, "is_rainy": True}}.get(name, {})
    return gymnasium.make(name, disable_env_checker=True, **options)


# Clocks; what the next reset or step writes before anything reads it; and the seed of a generator.
OVERWRITTEN = {
    "episode_start_time",
    "time_queue",
    "stacked_obs",
    "padding_value",
    "_np_random_seed",
}


def attributes(env):
    """The plain attributes of an environment and its wrappers, as bytes."""
    found = {}
    while env is not None:
        for name, value in vars(env).items():
            value = vars(value) if isinstance(value, RunningMeanStd) else value
            value = list(value) if isinstance(value, deque) else value
            with contextlib.suppress(EnvStateError):
                found[type(env).__name__, name] = pack(value).tobytes()
        env = vars(env).get("env")
    return {where: value for where, value in found.items() if where[1] not in OVERWRITTEN}


def play(env, actions):
    """Everything that the steps return, infos and clocks apart, with resets at the ends."""
    seen = []
    for action in actions:
        obs, reward, terminated, truncated, _ = env.step(action)
        seen += [obs, reward, terminated, truncated]
        if terminated or truncated:
            seen.append(env.reset()[0])
    return seen


def same(first, second):
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(same, first, second))
    first, second = np.asarray(first), np.asarray(second)
    return first.dtype == second.dtype and first.tobytes() == second.tobytes()


def begun(kind, name, steps):
    """An environment amid an episode, and the actions to come."""
    if name in MUJOCO:
        pytest.importorskip("mujoco")
    env = make(kind, name)
    env.action_space.seed(1)
    actions = [env.action_space.sample() for _ in range(steps + REPLAYED)]
    env.reset(seed=4)
    play(env, actions[:steps])
    return env, actions[steps:]


@pytest.mark.fast
@pytest.mark.parametrize(("kind", "name"), by_default(DEFAULTS, CASES))
@pytest.mark.parametrize("steps", SAVED_AFTER)
@pytest.mark.filterwarnings("ignore::UserWarning")  # of Gymnasium's checker
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_follows_a_loaded_state_is_what_followed_when_it_was_saved(kind, name, steps):
    env, actions = begun(kind, name, steps)
    state, before = save_env(env), attributes(env)
    wanted = play(env, actions)
    other = make(kind, name)
    other.reset(seed=5)
    load_env(other, state)
    assert attributes(other) == before
    assert same(play(other, actions), wanted)
    load_env(env, state)  # where it was before, too
    assert same(play(env, actions), wanted)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("name", "wrapper", "field", "value"),
    [
        ("CartPole-v1", None, "steps_beyond_terminated", 2),
        ("Taxi-v4", None, "fickle_step", True),
        ("Taxi-v4", None, "taxi_orientation", 3),
        ("CartPole-v1", wrappers.Autoreset, "autoreset", True),
        ("CartPole-v1", wrappers.OrderEnforcing, "_has_reset", False),
        ("CartPole-v1", wrappers.PassiveEnvChecker, "checked_reset", False),
        ("CartPole-v1", wrappers.PassiveEnvChecker, "checked_render", True),
    ],
)
def test_fields_that_seldom_change_come_back(name, wrapper, field, value):
    def made():
        env = gymnasium.make(name, disable_env_checker=True)
        env = env.unwrapped if wrapper is None else wrapper(env)
        env.reset(seed=1)
        return env

    env, other = made(), made()
    setattr(env, field, value)
    load_env(other, save_env(env))
    assert getattr(other, field) == value


@pytest.mark.fast
def test_every_known_class_exists():
    """A class that Gymnasium renames would silently have no hooks."""
    for name in KNOWN:
        module, _, kind = name.rpartition(".")
        assert isinstance(getattr(importlib.import_module(module), kind), type)


@pytest.mark.fast
def test_a_subclass_may_have_more_fields_and_is_unknown():
    class Windy(gymnasium.envs.classic_control.CartPoleEnv):
        pass

    with pytest.raises(EnvStateError, match=r"^Windy has no methods get_state"):
        save_env(Windy())


@pytest.mark.fast
def test_what_a_wrapper_forwards_or_mujoco_calls_set_state_is_no_hook():
    class Simulator(Dice):
        def set_state(self, qpos, qvel):
            raise AssertionError("not called")

    with pytest.raises(EnvStateError, match=r"^Simulator has no methods"):
        save_env(Simulator())


CRAFTED = {
    "a string": {"state": "four"},
    "too long": {"state": np.zeros(5)},
    "not finite": {"state": np.array([0.0, np.nan, 0.0, 0.0])},
    "integers": {"state": np.arange(4)},
    "another field": {"state": np.zeros(4), "step": 1},
    "a method": {"step": np.zeros(4), "steps_beyond_terminated": None},
    "a negative count": {"state": np.zeros(4), "steps_beyond_terminated": -1},
    "a dunder": {"__class__": np.zeros(4), "steps_beyond_terminated": None},
    "no dict": [1, 2],
}


@pytest.mark.fast
@pytest.mark.parametrize("case", CRAFTED)
def test_crafted_fields_are_refused_and_set_nothing(case):
    env = gymnasium.make("CartPole-v1", disable_env_checker=True)
    env.reset(seed=1)
    before = save_env(env)
    crafted = unpack(before)
    fields = CRAFTED[case]
    if case in ("a string", "too long", "not finite", "integers"):
        fields = {**fields, "steps_beyond_terminated": None}
    crafted["layers"][-1][1] = pack(fields)
    with pytest.raises(EnvStateError, match=r"^the saved state of CartPoleEnv does not fit: "):
        load_env(env, pack(crafted))
    assert save_env(env).tobytes() == before.tobytes()


@pytest.mark.fast
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda s: s["layers"].pop(), "is not that of TimeLimit around OrderEnforcing around"),
        (lambda s: s["layers"][0].__setitem__(0, "Autoreset"), "is not that of TimeLimit"),
        (lambda s: s["layers"].__setitem__(0, "TimeLimit"), "is not that of TimeLimit"),
        (lambda s: s.pop("generators"), "is not that of TimeLimit"),
        (lambda s: s["generators"].pop("np_random"), "states of random generators do not fit"),
        (lambda s: s["generators"]["np_random"].pop("state"), "random generators do not fit"),
        (
            lambda s: s["generators"]["np_random"].__setitem__("bit_generator", "MT19937"),
            "random generators do not fit",
        ),
        (
            lambda s: s["generators"]["np_random"]["state"].__setitem__("state", -1),
            "random generators do not fit",
        ),
        (lambda s: s["layers"][0].__setitem__(1, np.zeros(9, np.uint8)), "cannot be read"),
    ],
)
def test_crafted_states_are_refused(change, told):
    env = gymnasium.make("CartPole-v1", disable_env_checker=True)
    env.reset(seed=1)
    crafted = unpack(save_env(env))
    change(crafted)
    with pytest.raises(EnvStateError, match=told):
        load_env(env, pack(crafted))


@pytest.mark.fast
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("simulation", np.full(1, np.nan)),
        ("xpos", np.zeros((1, 3))),
        ("xpos", "text"),
        ("goal", np.zeros(3)),
    ],
)
def test_crafted_states_of_mujoco_are_refused(name, value):
    pytest.importorskip("mujoco")
    env = gymnasium.make("Reacher-v5", disable_env_checker=True)
    env.reset(seed=1)
    crafted = unpack(save_env(env))
    fields = unpack(crafted["layers"][-1][1]) | {name: value}
    crafted["layers"][-1][1] = pack(fields)
    with pytest.raises(EnvStateError, match=f"ReacherEnv does not fit: {name} is no finite array"):
        load_env(env, pack(crafted))


# Plain values as bytes


@pytest.mark.fast
def test_plain_values_come_back_with_their_types():
    value = {
        "none": None,
        "numbers": [True, 3, 2**200, 0.1, -0.0, float("inf")],
        "text": "ä\0",
        "tuple": (1, [2, (3,)]),
        "arrays": [np.arange(6, dtype=dtype).reshape(2, 3) for dtype in ("u1", "i8", "f4", ">f8")],
        "scalars": (np.float32(0.1), np.int64(-1), np.bool_(True)),
        "empty": (np.zeros((0, 3)), [], {}, ""),
    }
    back = unpack(pack(value))
    assert repr(back) == repr(
        {**value, "arrays": [x.astype(x.dtype.newbyteorder("=")) for x in value["arrays"]]}
    )
    assert np.isnan(unpack(pack(float("nan"))))
    back["arrays"][0][0, 0] = 7  # environments may write into what they get


@pytest.mark.fast
@pytest.mark.parametrize(
    "value", [object(), {1: 2}, b"bytes", {2, 3}, np.array([None]), np.array("text"), 1j, [print]]
)
def test_other_values_are_not_saved(value):
    with pytest.raises(EnvStateError, match="use numbers, text, arrays"):
        pack(value)


@pytest.mark.fast
def test_a_list_in_itself_is_not_saved():
    value = []
    value.append(value)
    with pytest.raises(EnvStateError, match="use numbers"):
        pack(value)


@pytest.mark.fast
@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[1]",
        b"{}",
        b'{"array": 3}',
        b'{"array": ["O", [1], 0]}',
        b'{"array": ["float64", [1000000], 0]}',
        b'{"array": ["float64", [-1], 0]}',
        b'{"array": ["float64", [0, 99999999999999999999], 0]}',
        b'{"array": ["float64", [true], 0]}',
        b'{"dict": [1]}',
        b'{"list": {"a": 1}, "b": 2}',
        b'{"object": "os.system"}',
        b'{"list": 5}',
        b"[" * 100000,
        b"9" * 5000,
        b"\xff",
    ],
)
def test_crafted_bytes_are_refused(text):
    raw = len(text).to_bytes(8, "little") + text
    with pytest.raises(EnvStateError, match="cannot be read"):
        unpack(np.frombuffer(raw, np.uint8))
    with pytest.raises(EnvStateError, match="cannot be read"):
        unpack(np.frombuffer(raw[:-1] + b"\0" * 0, np.uint8)[: len(raw) - 2])


# Batches


def steps(adapter, state, key_actions):
    return [adapter.step(None, state, action)[1] for action in key_actions]


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_a_batch_goes_on_where_it_was(key, vectorization):
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 2, (80, 3))
    with_limit = {"vectorization": vectorization, "max_episode_steps": 17}
    first = GymnasiumAdapter("CartPole-v1", 3, **with_limit)
    state, _ = first.reset(key)
    steps(first, state, actions[:25])
    saved = first.get_state()
    wanted = steps(first, state, actions[25:])
    assert any(step.truncated.any() for step in wanted)
    assert any(step.terminated.any() for step in wanted)
    first.close()
    second = GymnasiumAdapter("CartPole-v1", 3, **with_limit)
    state, _ = second.reset(key)
    second.set_state(saved)
    for got, want in zip(steps(second, state, actions[25:]), wanted, strict=True):
        for name in ("obs", "reward", "terminated", "truncated", "next_obs"):
            np.testing.assert_array_equal(getattr(got, name), getattr(want, name))
    second.close()


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_an_environment_without_hooks_is_named_and_goes_on(key, vectorization):
    adapter = GymnasiumAdapter(Clock, 2, vectorization=vectorization)
    state, _ = adapter.reset(key)
    told = r"^environment 0: Clock has no methods get_state\(\) and set_state\(state\)$"
    with pytest.raises(EnvStateError, match=told):
        adapter.get_state()
    with pytest.raises(EnvStateError, match="cannot be read"):
        adapter.set_state([np.zeros(3, np.uint8)] * 2)
    np.testing.assert_array_equal(adapter.step(None, state, np.zeros(2, int))[1].obs, [[1, 10]] * 2)
    adapter.close()
    with pytest.raises(EnvContractError, match="cannot be saved now; call reset"):
        adapter.get_state()
