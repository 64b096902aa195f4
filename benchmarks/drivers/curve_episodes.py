"""For peers on gymnax 0.0.9: an environment that sums the returns of its episodes in its state.

The peers run as they are; their final state holds the curve.
"""

import jax
import jax.numpy as jnp
from cells import PARTS
from flax import struct


@struct.dataclass
class Episodes:
    """The state of one environment, and its episodes so far."""

    env_state: object
    steps: jax.Array  # [], since the start of the run
    running_return: jax.Array  # []
    return_sums: jax.Array  # [PARTS]
    counts: jax.Array  # [PARTS]


class CountsEpisodes:
    """Wraps one environment of a task, as a member of its vector."""

    def __init__(self, env, task):
        self._env = env
        self._prefill = (task.total_steps - task.env_steps) // task.num_envs
        self._steps = task.env_steps // task.num_envs

    def __getattr__(self, name):
        if name == "_env":  # of a copy that is being made
            raise AttributeError(name)
        return getattr(self._env, name)

    def reset(self, key, params=None):
        """As the environment's own; for the start of a run."""
        obs, state = self._env.reset(key, params)
        zeros = jnp.zeros(PARTS)
        return obs, Episodes(state, jnp.int32(0), jnp.float32(0.0), zeros, zeros)

    def step(self, key, state, action, params=None):
        """As the environment's own, which begins the next episode in the same step."""
        obs, env_state, reward, done, info = self._env.step(key, state.env_state, action, params)
        running = state.running_return + reward
        learned = state.steps - self._prefill  # steps before this one
        part = jnp.clip(learned, 0, self._steps - 1) * PARTS // self._steps
        counted = jnp.where(done & (learned >= 0), 1.0, 0.0)
        after = Episodes(
            env_state=env_state,
            steps=state.steps + 1,
            running_return=jnp.where(done, 0.0, running),
            return_sums=state.return_sums.at[part].add(counted * running),
            counts=state.counts.at[part].add(counted),
        )
        return obs, after, reward, done, info


def curve(state):
    """The sums and counts of all environments, from anything that holds their `Episodes`."""
    found = [
        x
        for x in jax.tree.leaves(state, is_leaf=lambda x: isinstance(x, Episodes))
        if isinstance(x, Episodes)
    ]
    (episodes,) = found
    return episodes.return_sums.sum(0), episodes.counts.sum(0)
