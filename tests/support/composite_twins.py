"""Levers with a composite action, for both kinds of environments, on the same integer dynamics."""

import dataclasses
from typing import ClassVar

import gymnasium
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

TOP, LIMIT = 5, 8


@dataclasses.dataclass(frozen=True)
class Levers:
    """A `JaxEnv`: each part of an action moves a weight by its own number of steps.

    Its leaves are in another order than their declaration. Terminates at the top or after it,
    truncates at the time limit.
    """

    max_episode_steps = LIMIT
    observation_space = spaces.Box(-64.0, 64.0, (2,))
    action_space = spaces.Dict(
        [  # pairs are kept in this order; a dict would be sorted
            ("pull", spaces.Box(-1.0, 1.0, (2,))),
            ("flip", spaces.Tuple([spaces.MultiDiscrete([2, 3]), spaces.Discrete(3, start=-1)])),
        ]
    )

    def reset(self, key):
        return (jnp.int32(0), jnp.int32(0)), jnp.zeros(2)

    def step(self, key, state, action):
        pair, lever = action["flip"]
        pulled = jnp.where(action["pull"] > 0, 1, -1)
        up = 4 * pulled[0] + 2 * pulled[1] + pair[0] - pair[1] + lever
        time, height = state[0] + 1, state[1] + up
        obs = jnp.stack([time, height]).astype(jnp.float32)
        ends = height >= TOP, time >= LIMIT
        return (time, height), obs, up.astype(jnp.float32), *ends, {}


class HostLevers(gymnasium.Env):
    """The same, which refuses actions that are not in its space to the dtype."""

    max_episode_steps = LIMIT
    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space = Levers.observation_space
    action_space = Levers.action_space

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = self.height = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        pair, lever = action["flip"]
        pulled = np.where(action["pull"] > 0, 1, -1)
        up = int(4 * pulled[0] + 2 * pulled[1] + pair[0] - pair[1] + lever)
        self.time, self.height = self.time + 1, self.height + up
        obs = np.float32([self.time, self.height])
        return obs, float(up), self.height >= TOP, self.time >= LIMIT, {}

    def render(self):
        return np.full((16, 16, 3), 8 * (self.time + 1), np.uint8)

    def get_state(self):
        return [self.time, self.height]

    def set_state(self, state):
        self.time, self.height = state
