"""The integer dynamics of `probe/Counter` as a `gymnasium.Env`, and a recurrent agent that counts
the steps of an episode.
"""

import dataclasses

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from algorithm_rows import acts_in, agent_of
from gymnasium import spaces

from rlkit.envs.host.gymnasium import GymnasiumAdapter
from rlkit.envs.jittable.observation_wrappers import CastObservation
from rlkit.envs.jittable.vectorized import vectorize
from rlkit.envs.probes.space_probes import Counter
from rlkit.ops.rows import flatten
from rlkit.types import Sequences


class SizedCounter(gymnasium.Wrapper):
    """`HostCounter` as a class of a reader's own, with an argument."""

    def __init__(self, size: int = 5):
        super().__init__(HostCounter())
        self.size = size


class HostCounter(gymnasium.Env):
    """`rlkit.envs.probes.space_probes.Counter`, step for step; with `floats` its observations are
    float32.
    """

    def __init__(self, floats: bool = False):
        self.twin = Counter()
        self.max_episode_steps = self.twin.max_episode_steps
        space = self.twin.observation_space
        self.observation_space = (
            spaces.Box(space.low.astype(np.float32), space.high.astype(np.float32))
            if floats
            else space
        )
        self.action_space = self.twin.action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = self.total = 0
        return self._observe(), {}

    def step(self, action):
        self.time, self.total = self.time + 1, self.total + int(action)
        terminated, truncated = self.total >= self.twin.goal, self.time >= self.max_episode_steps
        return self._observe(), float(action), terminated, truncated, {"total": self.total}

    def _observe(self):
        return np.array([self.time, self.total], self.observation_space.dtype)


@dataclasses.dataclass(frozen=True)
class CountingAgent:
    """An actor-critic that also carries the number of steps since its episode began, and hands it
    over in `extras`.
    """

    inner: object
    spec: None = None

    @property
    def action_space(self):
        return self.inner.action_space

    def __getattr__(self, name):
        if name == "inner":  # while being unpickled or copied
            raise AttributeError(name)
        return getattr(self.inner, name)

    def init(self, key):
        return self.inner.init(key)

    def initial_carry(self, num_envs):
        return jnp.zeros(num_envs, jnp.int32)

    def explore(self, params, obs, carry, key, progress):
        action, _, _ = self.inner.explore(params, obs, (), key, progress)
        return action, carry + 1, {"age": carry}

    def exploit(self, params, obs, carry, key):
        return self.inner.exploit(params, obs, (), key)[0], carry + 1

    def policy_and_value(self, params, obs):
        """Of what the inner agent sees: each step by itself."""
        steps = flatten(obs.obs) if isinstance(obs, Sequences) else obs
        return self.inner.policy_and_value(params, steps)

    def value(self, params, obs):
        return self.policy_and_value(params, obs)[1]


@dataclasses.dataclass(frozen=True)
class Stairs:
    """Up or down a stair by the sign of a continuous action; ends on the second stair, or after
    eight steps. A `JaxEnv`.
    """

    max_episode_steps = 8
    observation_space = spaces.Box(-8.0, 8.0, (2,))
    # The second one does nothing.
    action_space = spaces.Box(np.float32([-1.0, -3.0]), np.float32([1.0, 2.0]))

    def reset(self, key):
        return (jnp.int32(0), jnp.int32(0)), jnp.zeros(2)

    def step(self, key, state, action):
        time, stair = state
        up = jnp.where(action[0] > 0, 1, -1)
        time, stair = time + 1, stair + up
        obs = jnp.stack([time, stair]).astype(jnp.float32)
        return (
            (time, stair),
            obs,
            up.astype(jnp.float32),
            stair >= 2,
            time >= self.max_episode_steps,
            {},
        )


class HostStairs(gymnasium.Env):
    """`Stairs`, step for step."""

    max_episode_steps = 8
    observation_space, action_space = Stairs.observation_space, Stairs.action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = self.stair = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        up = 1 if action[0] > 0 else -1
        self.time, self.stair = self.time + 1, self.stair + up
        return np.float32([self.time, self.stair]), float(up), self.stair >= 2, self.time >= 8, {}


def agent_for(env, *, counting=False, algorithm="ppo"):
    agent = agent_of(algorithm, env)
    return CountingAgent(agent) if counting else agent


def keys_as_data(tree):
    def plain(x):
        return (
            jax.random.key_data(x)
            if jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
            else np.asarray(x)
        )

    return jax.tree.map(plain, tree)


def twin_envs(name, num_envs):
    """The same dynamics in JAX and as simulators, in which the algorithm can act."""
    if acts_in(name, Counter.action_space):
        jittable = vectorize(CastObservation(Counter(), np.float32), num_envs)
        return jittable, GymnasiumAdapter(HostCounter, num_envs, floats=True)
    return vectorize(Stairs(), num_envs), GymnasiumAdapter(HostStairs, num_envs)
