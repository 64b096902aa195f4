"""Wrappers, with values that can be checked by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from rlkit.envs import (
    CastObservation,
    FlattenObservation,
    FrameStack,
    RescaleAction,
    SelectObservation,
    TimeLimit,
    Wrapper,
    check_env,
    vectorize,
)
from rlkit.envs.jittable.gymnax import gymnax_env
from rlkit.envs.probes.space_probes import ContinuousAction, Counter, DictObservation
from rlkit.envs.probes.value_probes import ActionChoice, TimeLimitProbe, ValueByObservation
from rlkit.envs.registry import make_env
from rlkit.errors import ConfigError, EnvContractError, SpaceError

ZERO, ONE, TWO = jnp.int32(0), jnp.int32(1), jnp.int32(2)


def play(env, actions, key):
    """(obs of reset, [(obs, reward, terminated, truncated), ...]) without resets in between."""
    state, first = env.reset(key)
    rows = []
    for action in actions:
        state, obs, reward, terminated, truncated, _ = env.step(key, state, action)
        rows.append((np.asarray(obs).tolist(), float(reward), bool(terminated), bool(truncated)))
    return np.asarray(first).tolist(), rows


@dataclasses.dataclass(frozen=True)
class Structured:
    """One leaf of every kind; the reward echoes actions with unequal bounds."""

    observation_space = spaces.Dict(
        {
            "z": spaces.Tuple([spaces.Discrete(3, start=5), spaces.MultiBinary(2)]),
            "a": spaces.Box(np.array([[-1.0, -2.0]]), np.array([[1.0, np.inf]]), dtype=np.float64),
            "m": spaces.MultiDiscrete([2, 3], start=[0, 1]),
        }
    )
    action_space = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 10.0], np.float32))

    def reset(self, key):
        obs = {
            "z": (jnp.int32(6), jnp.array([1, 0], jnp.int8)),
            "a": jnp.array([[0.5, 7.0]]),
            "m": jnp.array([1, 3], jnp.int32),
        }
        return obs, obs

    def step(self, key, state, action):
        return state, state, jnp.float32(0), jnp.bool_(False), jnp.bool_(False), {"action": action}


@pytest.fixture(scope="module")
def deep_sea():
    """Resets itself after three steps; action 0 always walks down the left side."""
    return gymnax_env(
        "DeepSea-bsuite", size=3, params={"randomize_actions": False, "max_steps_in_episode": 3}
    )


def test_time_limit_truncates_and_leaves_terminated_alone(key):
    """With goal 4 and actions 1, the third step truncates; a fourth step also terminates."""
    env = TimeLimit(Counter(goal=4, max_episode_steps=8), 3)
    assert env.max_episode_steps == 3
    first, rows = play(env, [ONE] * 4, key)
    assert first == [0, 0]
    assert rows == [
        ([1, 1], 1.0, False, False),
        ([2, 2], 1.0, False, False),
        ([3, 3], 1.0, False, True),
        ([4, 4], 1.0, True, True),
    ]


def test_time_limit_on_the_step_that_terminates_says_both(key):
    _, rows = play(TimeLimit(Counter(goal=4), 2), [TWO, TWO], key)
    assert rows[-1] == ([2, 4], 2.0, True, True)


@dataclasses.dataclass(frozen=True)
class LimitInParams(ValueByObservation):
    """Its own limit is a parameter, and so it is traced."""

    params: int = 8

    @property
    def max_episode_steps(self):
        return self.params

    def replace_params(self, params):
        return dataclasses.replace(self, params=params)


def test_a_time_limit_around_one_among_the_parameters(key):
    env = TimeLimit(LimitInParams(), 3)
    assert check_env(env, num_steps=20).ok
    state, _ = jax.jit(vectorize(env, 2).reset)(key)
    assert int(state.params) == 8
    with pytest.raises(ConfigError, match="never reached: LimitInParams stops after 8 steps"):
        TimeLimit(LimitInParams(), 9)


def test_time_limit_counts_anew_after_a_reset(key):
    adapter = vectorize(TimeLimit(Counter(goal=3), 2), 2)
    state, _ = adapter.reset(key)
    flags = []
    for _ in range(4):
        state, step = adapter.step(key, state, jnp.array([0, 2]))
        flags.append(
            (
                step.terminated.tolist(),
                step.truncated.tolist(),
                step.next_obs.tolist(),
                step.obs.tolist(),
            )
        )
    assert flags == 2 * [
        ([False, False], [False, False], [[1, 0], [1, 2]], [[1, 0], [1, 2]]),
        ([False, True], [True, True], [[2, 0], [2, 4]], [[0, 0], [0, 0]]),
    ]


def test_rescale_action_is_affine_in_every_dimension(key):
    env = RescaleAction(Structured())
    assert env.action_space == spaces.Box(-1.0, 1.0, (2,), np.float32)
    state, _ = env.reset(key)
    for action, inner in (
        ([-1.0, -1.0], [-2.0, 0.0]),
        ([1.0, 1.0], [2.0, 10.0]),
        ([0.0, 0.5], [0.0, 7.5]),
    ):
        np.testing.assert_allclose(env.step(key, state, jnp.array(action))[-1]["action"], inner)
    wide = RescaleAction(Structured(), low=0.0, high=4.0)
    np.testing.assert_allclose(
        wide.step(key, state, jnp.array([1.0, 4.0]))[-1]["action"], [-1.0, 10.0]
    )


def test_flatten_orders_like_jax_and_encodes_discrete_parts(key):
    env = FlattenObservation(Structured())
    _, obs = env.reset(key)
    # A; m = 1 of 2, 3 of {1,2,3}; z = 6 of {5,6,7}.
    np.testing.assert_array_equal(obs, [0.5, 7, 0, 1, 0, 0, 1, 0, 1, 0, 1, 0])
    np.testing.assert_array_equal(env.observation_space.low, [-1, -2] + [0] * 10)
    np.testing.assert_array_equal(env.observation_space.high, [1, np.inf] + [1] * 10)
    assert obs.dtype == env.observation_space.dtype == np.float32
    assert env.observation_space.contains(np.asarray(obs))


def test_frame_stack_repeats_the_first_and_drops_the_oldest(key):
    env = FrameStack(Counter(), 3)
    assert env.observation_space.shape == (6,) and env.observation_space.dtype == np.int32
    np.testing.assert_array_equal(env.observation_space.high, [8, 11] * 3)
    first, rows = play(env, [ONE, TWO, TWO, ONE], key)
    assert first == [0, 0, 0, 0, 0, 0]
    assert [row[0] for row in rows] == [
        [0, 0, 0, 0, 1, 1],
        [0, 0, 1, 1, 2, 3],
        [1, 1, 2, 3, 3, 5],
        [2, 3, 3, 5, 4, 6],
    ]


def test_what_is_not_selected_is_hidden(key):
    env = SelectObservation(Counter(), (1,))
    assert env.observation_space.shape == (1,) and env.observation_space.dtype == np.int32
    np.testing.assert_array_equal(env.observation_space.high, [11])
    whole, hidden = play(Counter(), [ONE, TWO], key), play(env, [ONE, TWO], key)
    assert hidden[0] == whole[0][1:]
    assert [row[0] for row in hidden[1]] == [row[0][1:] for row in whole[1]] == [[1], [3]]


def test_entries_are_chosen_in_the_order_given(key):
    env, whole = (gymnax_env("CartPole-v1"), gymnax_env("CartPole-v1"))
    env = SelectObservation(env, (2, 0))
    obs, wanted = env.reset(key)[1], whole.reset(key)[1]
    np.testing.assert_array_equal(obs, [wanted[2], wanted[0]])


@pytest.mark.parametrize(("observed", "shape"), [([0, 2], (2,)), ((1,), (1,)), (3, (1,))])
def test_an_argument_of_gymnax_environments_hides_entries(observed, shape):
    env = make_env("gymnax/CartPole-v1", 2, observed=observed)
    assert env.observation_space.shape == shape
    assert env.spec == ("gymnax/CartPole-v1", {"observed": observed})


@pytest.mark.parametrize(
    ("name", "whole", "seen"),
    [
        ("CartPoleNoVel-v1", "CartPole-v1", [0, 2]),
        ("MountainCarContinuousNoVel-v0", "MountainCarContinuous-v0", [0]),
        ("MountainCarNoVel-v0", "MountainCar-v0", [0]),
        ("PendulumNoVel-v1", "Pendulum-v1", [0, 1]),
    ],
)
def test_tasks_without_velocities(key, name, whole, seen):
    hidden, whole = (
        make_env(each, 2, params={"max_steps_in_episode": 50})
        for each in (f"rlkit/{name}", f"gymnax/{whole}")
    )
    assert hidden.spec == (f"rlkit/{name}", {"params": {"max_steps_in_episode": 50}})
    assert hidden.max_episode_steps == whole.max_episode_steps == 50
    np.testing.assert_array_equal(hidden.reset(key)[1], whole.reset(key)[1][:, seen])


def test_frame_stack_starts_anew_with_a_self_resetting_environment(key, deep_sea):
    env = FrameStack(deep_sea, 2)
    assert env.observation_space.shape == (3, 6)
    adapter = vectorize(env, 1)
    state, obs = adapter.reset(key)
    start, move = obs[0], jax.jit(adapter.step)
    for _ in range(3):
        state, step = move(key, state, jnp.zeros(1, jnp.int32))
    assert step.terminated.all()
    np.testing.assert_array_equal(step.obs[0], start)
    last_row = np.zeros((3, 3))
    last_row[2, 0] = 1
    np.testing.assert_array_equal(
        step.next_obs[0], np.concatenate([last_row, np.zeros((3, 3))], axis=-1)
    )


@pytest.mark.parametrize("wrap", [FlattenObservation, lambda env: CastObservation(env, "uint8")])
def test_the_final_observation_is_wrapped_too(wrap, key, deep_sea):
    env = wrap(deep_sea)
    state, obs = env.reset(key)
    final = jax.eval_shape(env.step, key, state, ZERO)[-1]["final_observation"]
    assert (
        (final.shape, final.dtype)
        == (obs.shape, obs.dtype)
        == (env.observation_space.shape, env.observation_space.dtype)
    )


def test_cast_changes_boxes_only(key):
    env = CastObservation(DictObservation(), np.float16)
    assert env.observation_space["sign"].dtype == np.float16 and env.observation_space[
        "flag"
    ] == spaces.Discrete(2)
    _, obs = env.reset(key)
    assert obs["sign"].dtype == jnp.float16 and jnp.issubdtype(obs["flag"].dtype, jnp.integer)
    assert env.step(key, env.reset(key)[0], ONE)[1]["sign"].dtype == jnp.float16


def test_wrappers_hand_through_what_they_do_not_change(key):
    env = FlattenObservation(FrameStack(CastObservation(gymnax_env("CartPole-v1"), np.float16), 2))
    assert (env.max_episode_steps, env.auto_reset, env.params.gravity) == (500, False, 9.8)
    heavier = env.replace_params(env.params.replace(gravity=20.0))
    assert (
        type(heavier) is FlattenObservation
        and heavier.params.gravity == 20.0
        and env.params.gravity == 9.8
    )
    adapter = vectorize(env, 2)
    state, _ = adapter.reset(key)
    assert state.params.gravity.dtype == jnp.float32  # traced: see test_vectorized
    assert TimeLimit(env, 9).params is env.params
    assert jax.tree.leaves(RescaleAction(ContinuousAction()).params) == []


ERRORS = [
    (lambda: TimeLimit(Counter(), 0), ConfigError, "must be a positive integer, got 0; pass"),
    (lambda: TimeLimit(Counter(), 2.5), ConfigError, "must be a positive integer, got 2.5"),
    (
        lambda: TimeLimit(TimeLimitProbe(5), 6),
        ConfigError,
        r"never reached: TimeLimitProbe stops after 5 steps; raise",
    ),
    (lambda: TimeLimit(vectorize(Counter(), 2), 6), EnvContractError, "wrap first, then vectorize"),
    (
        lambda: TimeLimit(Counter, 6),
        EnvContractError,
        r"got Counter \(the class\); pass an instance",
    ),
    (lambda: TimeLimit("Counter", 6), EnvContractError, "wraps a JaxEnv, got str"),
    (lambda: RescaleAction(ActionChoice()), SpaceError, r"needs a Box, not Discrete\(2\)"),
    (
        lambda: RescaleAction(ContinuousAction(), low=1, high=1),
        ConfigError,
        "finite low < high, got 1 and 1; pass low=-1",
    ),
    (lambda: RescaleAction(ContinuousAction(), low=-np.inf), ConfigError, "finite low < high"),
    (
        lambda: FrameStack(DictObservation(), 2),
        SpaceError,
        "wrap the environment in FlattenObservation first",
    ),
    (lambda: FrameStack(Counter(), 0), ConfigError, "num_frames must be a positive integer"),
    (
        lambda: SelectObservation(DictObservation(), (0,)),
        SpaceError,
        "wrap the environment in FlattenObservation first",
    ),
    *(
        (lambda i=indices: SelectObservation(Counter(), i), ConfigError, "indices from 0 to 1, got")
        for indices in ((), (2,), (-1,), (0, 0), (True,), ("0",))
    ),
    (
        lambda: CastObservation(Counter(goal=300), np.uint8),
        SpaceError,
        "uint8 holds 0 to 255, which Box.* exceeds; cast to",
    ),
    (lambda: CastObservation(ValueByObservation(), np.uint8), SpaceError, "uint8 holds 0 to 255"),
    (
        lambda: CastObservation(Counter(), "float64"),
        ConfigError,
        "cannot cast to 'float64'; use float32",
    ),
    (lambda: CastObservation(Counter(), "colour"), ConfigError, "cannot cast to 'colour'"),
]


@pytest.mark.fast
@pytest.mark.parametrize(("make", "error", "message"), ERRORS)
def test_mistakes_are_refused_at_construction(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_unbounded_actions_and_self_resetting_environments_are_refused(deep_sea):
    class Unbounded(ContinuousAction):
        action_space = spaces.Box(-np.inf, np.inf, (1,))

    with pytest.raises(SpaceError, match="needs finite bounds"):
        RescaleAction(Unbounded())
    with pytest.raises(
        EnvContractError,
        match=r"resets itself \(auto_reset=True\); set its own limit",
    ):
        TimeLimit(deep_sea, 2)


@dataclasses.dataclass(frozen=True)
class Halved(Wrapper):
    """A wrapper of a user: half the reward, and a count of steps in the state."""

    share: float = 0.5

    def reset(self, key):
        state, obs = self.env.reset(key)
        return (state, jnp.int32(0)), obs

    def step(self, key, state, action):
        inner, count = state
        inner, obs, reward, *rest = self.env.step(key, inner, action)
        return (inner, count + 1), obs, reward * self.share, *rest

    def inner_state(self, state):
        return state[0]


def test_a_wrapper_of_a_user_passes_on_what_it_does_not_change():
    cartpole = make_env("gymnax/CartPole-v1", 1).env
    for wrapped, share in ((Wrapper(cartpole), 1.0), (Halved(cartpole), 0.5)):
        env = vectorize(wrapped, 4)
        assert env.observation_space == cartpole.observation_space
        assert env.action_space == cartpole.action_space and env.max_episode_steps == 500
        assert check_env(env, num_steps=20).ok
        state, _ = env.reset(jax.random.key(0))
        _, outcome = env.step(jax.random.key(1), state, jnp.zeros(4, jnp.int32))
        np.testing.assert_array_equal(outcome.reward, np.full(4, share))
    heavy = Halved(cartpole).replace_params(cartpole.params.replace(gravity=20.0))
    assert heavy.params.gravity == 20.0 and heavy.share == 0.5
    with pytest.raises(EnvContractError, match=r"Halved wraps a single .*its `env` is the single"):
        Halved(make_env("gymnax/CartPole-v1", 2))
