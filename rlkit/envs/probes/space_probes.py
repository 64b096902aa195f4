"""Probes with continuous, multi-discrete and dict spaces, and `Counter`, which is exact."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnasium import spaces
from jax import Array

from rlkit.envs.base import JaxStep
from rlkit.envs.probes.value_probes import UNIT, OneObservation, end
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
