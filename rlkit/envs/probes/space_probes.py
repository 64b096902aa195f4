"""Probes with continuous, multi-discrete, composite and masked spaces, and the exact `Counter`."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnasium import spaces
from jax import Array

from rlkit.envs.base import JaxStep
from rlkit.envs.probes.value_probes import NO, UNIT, OneObservation, end
from rlkit.errors import require
from rlkit.types import EnvState, Key, Obs


@dataclasses.dataclass(frozen=True)
class ContinuousAction(OneObservation):
    """One observation, one step, reward -(action - target)². Tests Gaussian policies, action
    bounds.
    """

    target: float = 0.5
    action_space = UNIT
    best_return = 0.0

    def __post_init__(self) -> None:
        require(
            -1 <= self.target <= 1,
            f"target must lie in [-1, 1], got {self.target}",
            "pass target=0.5",
        )

    def step(self, key: Key, state: Array, action: Array) -> JaxStep:
        """Ends the episode."""
        return end(state, state, -jnp.square(action[0] - self.target))

    def expected_value(self, gamma: float) -> np.ndarray:
        """0; a Gaussian policy around the target with standard deviation s has -s²."""
        return np.zeros(1, np.float32)

    def best_action(self) -> np.ndarray:
        """[1, 1]: the target."""
        return np.full((1, 1), self.target, np.float32)


@dataclasses.dataclass(frozen=True)
class MultiDiscreteAction(OneObservation):
    """One observation, one step, 2 × 3 actions, half a point for each correct part of (1, 2)."""

    action_space = spaces.MultiDiscrete([2, 3])
    best_return = 1.0

    def step(self, key: Key, state: Array, action: Array) -> JaxStep:
        """Ends the episode."""
        return end(state, state, jnp.mean(action == jnp.array([1, 2]), dtype=jnp.float32))

    def expected_value(self, gamma: float) -> np.ndarray:
        """1."""
        return np.ones(1, np.float32)

    def best_action(self) -> np.ndarray:
        """[1, 2]."""
        return np.array([[1, 2]], np.int32)


@dataclasses.dataclass(frozen=True)
class MixedAction(OneObservation):
    """One observation, one step, a dict of three actions, each of which earns at most 1/3.

    Right are 1 of 3 for "jump", (1, 0) of 2 × 2 for "hands", each hand for half of its third, and
    (-0.5, 0.5) for "move", which loses a third of its mean squared distance. Tests that no part of
    a composite action is dropped or mixed up with another.
    """

    action_space = spaces.Dict(
        {
            "move": spaces.Box(-1.0, 1.0, (2,), np.float32),
            "jump": spaces.Discrete(3),
            "hands": spaces.MultiDiscrete([2, 2]),
        }
    )
    best_return = 1.0

    def step(self, key: Key, state: Array, action: dict[str, Array]) -> JaxStep:
        """Ends the episode."""
        jump = jnp.float32(action["jump"] == 1)
        hands = jnp.mean(action["hands"] == jnp.array([1, 0]), dtype=jnp.float32)
        move = 1.0 - jnp.mean(jnp.square(action["move"] - jnp.array([-0.5, 0.5])))
        return end(state, state, (jump + hands + move) / 3)

    def expected_value(self, gamma: float) -> np.ndarray:
        """1; a Gaussian policy around the best move with standard deviation s has 1 - s²/3."""
        return np.ones(1, np.float32)

    def best_action(self) -> dict[str, np.ndarray]:
        """jump [1], hands [1, 2], move [1, 2]."""
        return {
            "jump": np.array([1], np.int32),
            "hands": np.array([[1, 0]], np.int32),
            "move": np.array([[-0.5, 0.5]], np.float32),
        }


@dataclasses.dataclass(frozen=True)
class DictObservation:
    """A random sign ±1 and a random flag; reward 1 if the action is (sign > 0) xor flag, else -1.

    Tests that no part of a dict observation is dropped.
    """

    observation_space = spaces.Dict({"sign": UNIT, "flag": spaces.Discrete(2)})
    action_space = spaces.Discrete(2)
    best_return = 1.0

    def reset(self, key: Key) -> tuple[EnvState, Obs]:
        """One of four observations; consumes the key."""
        sign_key, flag_key = jax.random.split(key)
        obs = {
            "sign": jax.random.rademacher(sign_key, (1,), jnp.float32),
            "flag": jax.random.randint(flag_key, (), 0, 2),
        }
        return obs, obs

    def step(self, key: Key, state: EnvState, action: Array) -> JaxStep:
        """Ends the episode."""
        right = (state["sign"][0] > 0) ^ (state["flag"] == 1)
        return end(state, state, jnp.where(right == (action == 1), 1.0, -1.0))

    def observations(self) -> dict[str, np.ndarray]:
        """All four: sign [4, 1], flag [4]."""
        return {
            "sign": np.array([[-1.0], [-1.0], [1.0], [1.0]], np.float32),
            "flag": np.array([0, 1, 0, 1], np.int32),
        }

    def expected_value(self, gamma: float) -> np.ndarray:
        """1, four times."""
        return np.ones(4, np.float32)

    def best_action(self) -> np.ndarray:
        """[4]."""
        return np.array([0, 1, 1, 0], np.int32)


class AllowedState(struct.PyTreeNode, kw_only=True):
    """The state of `AllowedActions`."""

    place: Array  # [] int32, of four
    time: Array  # [] int32


@dataclasses.dataclass(frozen=True)
class AllowedActions:
    """Two random places of four, each of which allows 2 of 8 actions: one costs 1, the other 2.

    An action that is not allowed costs 10. Observes the place and the time, and the mask. Tests
    that agents keep to masks, and that no target takes the value of an action that is never tried,
    which is near 0 and so higher than any other.
    """

    action_space = spaces.Discrete(8)
    observation_space = spaces.Dict(
        {"observation": spaces.MultiDiscrete([4, 2]), "action_mask": spaces.MultiBinary(8)}
    )
    best_return = -2.0

    def reset(self, key: Key) -> tuple[AllowedState, Obs]:
        """A random place; consumes the key."""
        state = AllowedState(place=jax.random.randint(key, (), 0, 4), time=jnp.int32(0))
        return state, self._observe(state)

    def step(self, key: Key, state: AllowedState, action: Array) -> JaxStep:
        """Another place; ends the episode after two steps. Consumes the key."""
        cost = jnp.where(action == 2 * state.place + 1, 1.0, 2.0)
        reward = -jnp.where(action // 2 == state.place, cost, 10.0)
        done = state.time == 1
        place = jax.random.randint(key, (), 0, 4)
        state = AllowedState(place=place, time=jnp.minimum(state.time + 1, 1))
        return state, self._observe(state), reward, done, jnp.bool_(NO), {}

    def observations(self) -> dict[str, np.ndarray]:
        """All eight: observation [8, 2] and action_mask [8, 8]."""
        states = [(place, time) for time in range(2) for place in range(4)]
        mask = np.arange(8) // 2 == np.array(states)[:, :1]
        return {"observation": np.array(states, np.int32), "action_mask": mask.astype(np.int8)}

    def expected_value(self, gamma: float) -> np.ndarray:
        """-1 - γ at the first step, -1 at the second."""
        return np.repeat(np.array([-1.0 - gamma, -1.0], np.float32), 4)

    def best_action(self) -> np.ndarray:
        """[8]."""
        return np.tile(np.array([1, 3, 5, 7], np.int32), 2)

    def _observe(self, state: AllowedState) -> Obs:
        mask = jnp.arange(8) // 2 == state.place
        where = jnp.stack([state.place, state.time])
        return {"observation": where, "action_mask": mask.astype(jnp.int8)}


class CounterState(struct.PyTreeNode, kw_only=True):
    """The counts of `Counter`."""

    time: Array  # [] int32
    total: Array  # [] int32


@dataclasses.dataclass(frozen=True)
class Counter:
    """Adds up actions 0, 1, 2 and pays each out as reward; terminates when the sum reaches `goal`.

    It uses integers without rounding or randomness: two ways of running it must agree bit for bit,
    and every number can be recomputed by hand. Observes [time, total].
    """

    goal: int = 10
    max_episode_steps: int = 8
    action_space = spaces.Discrete(3)

    def __post_init__(self) -> None:
        require(self.goal >= 1, f"goal must be positive, got {self.goal}", "pass goal=10")
        require(
            self.max_episode_steps >= 1,
            f"max_episode_steps must be positive, got {self.max_episode_steps}",
            "pass 8",
        )

    @property
    def observation_space(self) -> spaces.Box:
        """Time and total of actions."""
        return spaces.Box(0, np.array([self.max_episode_steps, self.goal + 1]), dtype=np.int32)

    @property
    def best_return(self) -> float:
        """The best return: two per step, one more if the last step overshoots the goal."""
        return float(min(2 * self.max_episode_steps, self.goal + 1))

    def reset(self, key: Key) -> tuple[CounterState, Obs]:
        """Starts at zero; ignores the key."""
        state = CounterState(time=jnp.int32(0), total=jnp.int32(0))
        return state, jnp.zeros(2, jnp.int32)

    def step(self, key: Key, state: CounterState, action: Array) -> JaxStep:
        """Adds the action."""
        state = CounterState(time=state.time + 1, total=state.total + action.astype(jnp.int32))
        obs = jnp.stack([state.time, state.total])
        return (
            state,
            obs,
            action.astype(jnp.float32),
            state.total >= self.goal,
            state.time >= self.max_episode_steps,
            {},
        )
