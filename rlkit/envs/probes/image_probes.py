"""`ImageGoal`: a probe whose answer is in an image, and whose returns are large and negative."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnasium import spaces
from jax import Array

from rlkit.envs.base import JaxStep
from rlkit.types import Key, Obs

SIZE = 7  # fields a side
GOAL = SIZE // 2  # row and column, in the middle
MOVES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]], np.int32)  # up, down, left, right
COSTS = np.array([1.0, 2.0], np.float32)
PLACES = np.array(
    [(i, j) for i in range(SIZE) for j in range(SIZE) if (i, j) != (GOAL, GOAL)], np.int32
)


class GoalState(struct.PyTreeNode, kw_only=True):
    """An episode of `ImageGoal`."""

    place: Array  # [2] int32, row and column
    cost: Array  # [1] float32
    time: Array  # [] int32


@dataclasses.dataclass(frozen=True)
class ImageGoal:
    """Walk to the middle of the image; a step costs 1 or 2, which is observed beside it.

    The image shows where the agent is. Walls stop moves. Truncated every `max_episode_steps` steps,
    which is not observed. Tests that networks read images and what stands beside them, and learn
    values far from 0.
    """

    max_episode_steps: int = 30
    observation_space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (SIZE, SIZE, 1), np.uint8),
            "cost": spaces.Box(COSTS[0], COSTS[1], (1,), np.float32),
        }
    )
    action_space = spaces.Discrete(len(MOVES))

    @property
    def best_return(self) -> float:
        """The mean over all starts."""
        return float(self.expected_value(1.0).mean())

    def reset(self, key: Key) -> tuple[GoalState, Obs]:
        """Any place but the goal, and a cost for the whole episode; consumes the key."""
        place_key, cost_key = jax.random.split(key)
        place = jax.random.choice(place_key, jnp.asarray(PLACES))
        cost = jax.random.choice(cost_key, jnp.asarray(COSTS), (1,))
        state = GoalState(place=place, cost=cost, time=jnp.int32(0))
        return state, _look(state)

    def step(self, key: Key, state: GoalState, action: Array) -> JaxStep:
        """Moves by one field, if there is no wall."""
        place = jnp.clip(state.place + jnp.asarray(MOVES)[action], 0, SIZE - 1)
        state = state.replace(place=place, time=state.time + 1)
        late = state.time >= self.max_episode_steps
        return state, _look(state), -state.cost[0], (place == GOAL).all(), late, {}

    def observations(self) -> dict[str, np.ndarray]:
        """All places for one cost, then for the other: image [96, 7, 7, 1], cost [96, 1]."""
        image = np.zeros((len(PLACES), SIZE, SIZE, 1), np.uint8)
        image[np.arange(len(PLACES)), *PLACES.T] = 255
        cost = np.repeat(COSTS, len(PLACES))[:, None]
        return {"image": np.concatenate([image, image]), "cost": cost}

    def expected_value(self, gamma: float) -> np.ndarray:
        """-cost (1 + gamma + ...), one term for each step to the goal."""
        distances = np.abs(PLACES - GOAL).sum(-1)
        steps = np.array([sum(gamma**k for k in range(d)) for d in distances])
        return np.concatenate([-cost * steps for cost in COSTS]).astype(np.float32)

    def best_actions(self) -> np.ndarray:
        """[96, 4] bool: those that lead nearer to the goal, one or two."""
        nearer = (np.sign(GOAL - PLACES)[:, None] == MOVES) & (MOVES != 0)
        return np.concatenate([nearer.any(-1)] * 2)

    def best_action(self) -> np.ndarray:
        """[96]: the first of them."""
        return self.best_actions().argmax(-1).astype(np.int32)


def _look(state: GoalState) -> Obs:
    fields = jnp.arange(SIZE)
    here = (fields[:, None] == state.place[0]) & (fields[None] == state.place[1])
    return {"image": jnp.where(here, 255, 0).astype(jnp.uint8)[..., None], "cost": state.cost}
