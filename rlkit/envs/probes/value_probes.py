"""Probe environments: so small that all values and the best action are known exactly.

Each isolates one thing that an agent can get wrong, so the first failing probe shows where to look:
the value head, reading observations, discounting, the policy gradient, time limits, and so on.
After Andy Jones, "Debugging RL, Without the Agonizing Pain" (2021).

All but `Counter` and `Recall` have `observations()` (a batch of every observation, [M, ...]),
`expected_value(gamma)` (their values under the best policy, [M]), `best_action()` ([M, ...], `None`
if actions do not matter) and `best_return` (undiscounted, per episode).
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnasium import spaces
from jax import Array

from rlkit.envs.base import JaxStep
from rlkit.errors import require
from rlkit.types import EnvState, Key, Obs

YES, NO = np.True_, np.False_
UNIT = spaces.Box(-1.0, 1.0, (1,), np.float32)


def end(state: EnvState, obs: Obs, reward: Array) -> JaxStep:
    """The last step of a one-step episode."""
    return state, obs, jnp.float32(reward), jnp.bool_(YES), jnp.bool_(NO), {}


class OneObservation:
    """What probes with a single observation share."""

    observation_space = UNIT

    def reset(self, key: Key) -> tuple[Array, Obs]:
        """Always the same observation; ignores the key."""
        return jnp.zeros((1,)), jnp.zeros((1,))

    def observations(self) -> np.ndarray:
        """[1, 1]."""
        return np.zeros((1, 1), np.float32)


class RandomSign:
    """What probes that observe a random sign ±1 share."""

    observation_space = UNIT

    def reset(self, key: Key) -> tuple[Array, Obs]:
        """-1 or 1; consumes the key."""
        obs = jax.random.rademacher(key, (1,), jnp.float32)
        return obs, obs

    def observations(self) -> np.ndarray:
        """[2, 1]."""
        return np.array([[-1.0], [1.0]], np.float32)


@dataclasses.dataclass(frozen=True)
class ValueOnly(OneObservation):
    """One observation, one step, reward 1. Tests the value loss and its optimizer."""

    action_space = spaces.Discrete(2)
    best_return = 1.0

    def step(self, key: Key, state: Array, action: Array) -> JaxStep:
        """Ends the episode."""
        return end(state, state, jnp.float32(1.0))

    def expected_value(self, gamma: float) -> np.ndarray:
        """1."""
        return np.ones(1, np.float32)

    def best_action(self) -> None:
        """`None`: actions do not matter."""


@dataclasses.dataclass(frozen=True)
class ValueByObservation(RandomSign):
    """A random observation ±1, one step, reward equal to it. Tests reading observations."""

    action_space = spaces.Discrete(2)
    best_return = 0.0

    def step(self, key: Key, state: Array, action: Array) -> JaxStep:
        """Ends the episode."""
        return end(state, state, state[0])

    def expected_value(self, gamma: float) -> np.ndarray:
        """The observation itself."""
        return self.observations()[:, 0]

    def best_action(self) -> None:
        """`None`: actions do not matter."""


@dataclasses.dataclass(frozen=True)
class Discounting:
    """Two steps, observations 0 and 1, reward 1 at the end. Tests bootstrapping and discounting."""

    observation_space = UNIT
    action_space = spaces.Discrete(2)
    best_return = 1.0

    def reset(self, key: Key) -> tuple[Array, Obs]:
        """Starts at time 0; ignores the key."""
        return jnp.int32(0), jnp.zeros((1,))

    def step(self, key: Key, state: Array, action: Array) -> JaxStep:
        """Ends the episode after the second step."""
        ended = state == 1
        return state + 1, jnp.ones((1,)), ended.astype(jnp.float32), ended, jnp.bool_(NO), {}

    def observations(self) -> np.ndarray:
        """[2, 1]."""
        return np.array([[0.0], [1.0]], np.float32)

    def expected_value(self, gamma: float) -> np.ndarray:
        """gamma, then 1."""
        return np.array([gamma, 1.0], np.float32)

    def best_action(self) -> None:
        """`None`: actions do not matter."""


@dataclasses.dataclass(frozen=True)
class ActionChoice(OneObservation):
    """One observation, one step, reward 1 for action 1, -1 for action 0. Tests the policy loss."""

    action_space = spaces.Discrete(2)
    best_return = 1.0

    def step(self, key: Key, state: Array, action: Array) -> JaxStep:
        """Ends the episode."""
        return end(state, state, jnp.where(action == 1, 1.0, -1.0))

    def expected_value(self, gamma: float) -> np.ndarray:
        """1."""
        return np.ones(1, np.float32)

    def best_action(self) -> np.ndarray:
        """1."""
        return np.ones(1, np.int32)


@dataclasses.dataclass(frozen=True)
class ObservationDependentAction(RandomSign):
    """A random observation ±1, one step, reward 1 for the action of the same sign, else -1.

    Action 0 stands for -1. Tests that observations, actions and advantages stay paired when batches
    are shuffled and reshaped.
    """

    action_space = spaces.Discrete(2)
    best_return = 1.0

    def step(self, key: Key, state: Array, action: Array) -> JaxStep:
        """Ends the episode."""
        return end(state, state, jnp.where((state[0] > 0) == (action == 1), 1.0, -1.0))

    def expected_value(self, gamma: float) -> np.ndarray:
        """1, 1."""
        return np.ones(2, np.float32)

    def best_action(self) -> np.ndarray:
        """0, then 1."""
        return np.array([0, 1], np.int32)


@dataclasses.dataclass(frozen=True)
class TimeLimitProbe:
    """One observation, reward 1 forever, truncated every `max_episode_steps` steps.

    Tests that a time limit is not treated as termination (the value would stay below 1 / (1 -
    gamma)).
    """

    max_episode_steps: int = 5
    observation_space = UNIT
    action_space = spaces.Discrete(2)

    def __post_init__(self) -> None:
        require(
            self.max_episode_steps >= 1,
            f"max_episode_steps must be positive, got {self.max_episode_steps}",
            "pass 5",
        )

    @property
    def best_return(self) -> float:
        """1 per step."""
        return float(self.max_episode_steps)

    def reset(self, key: Key) -> tuple[Array, Obs]:
        """Starts at time 0; ignores the key."""
        return jnp.int32(0), jnp.zeros((1,))

    def step(self, key: Key, state: Array, action: Array) -> JaxStep:
        """Truncates at the limit."""
        time = state + 1
        return (
            time,
            jnp.zeros((1,)),
            jnp.float32(1.0),
            jnp.bool_(NO),
            time >= self.max_episode_steps,
            {},
        )

    def observations(self) -> np.ndarray:
        """[1, 1]."""
        return np.zeros((1, 1), np.float32)

    def expected_value(self, gamma: float) -> np.ndarray:
        """1 / (1 - gamma), since the limit is not observed."""
        return np.array([1.0 / (1.0 - gamma)], np.float32)

    def best_action(self) -> None:
        """`None`: actions do not matter."""


class RecallState(struct.PyTreeNode, kw_only=True):
    """The cue of the episode and the steps taken."""

    cue: Array  # [] int32, 0 or 1
    time: Array  # [] int32


@dataclasses.dataclass(frozen=True)
class Recall:
    """A cue is shown at the first step; a reward of 1 is for the last action, if it names it.

    Tests memory: without it no policy has a return above ½ on average.
    """

    length: int = 4
    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.Discrete(2)

    def __post_init__(self) -> None:
        require(
            self.length >= 2,
            f"length must be at least 2, got {self.length}",
            "pass 4",
        )

    @property
    def best_return(self) -> float:
        """1."""
        return 1.0

    def reset(self, key: Key) -> tuple[RecallState, Obs]:
        """Draws the cue."""
        cue = jax.random.bernoulli(key).astype(jnp.int32)
        state = RecallState(cue=cue, time=jnp.int32(0))
        return state, self._observe(state)

    def step(self, key: Key, state: RecallState, action: Array) -> JaxStep:
        """Terminates after the last step."""
        time = state.time + 1
        last = time >= self.length
        reward = jnp.where(last & (action == state.cue), 1.0, 0.0)
        state = state.replace(time=time)
        return state, self._observe(state), reward, last, jnp.bool_(NO), {}

    def _observe(self, state: RecallState) -> Array:
        """The cue as ±1, 0 after the first step; and whether this is the last step."""
        cue = jnp.where(state.time == 0, 2.0 * state.cue - 1.0, 0.0)
        return jnp.stack([cue, jnp.float32(state.time == self.length - 1)])
