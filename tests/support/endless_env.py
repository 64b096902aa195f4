"""The text of a module with an environment in JAX that has no time limit, and takes none."""

ENDLESS = """
import gymnasium
import jax.numpy as jnp


class Endless:
    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, key):
        return (), jnp.zeros(1)

    def step(self, key, state, action):
        return (), jnp.zeros(1), jnp.float32(1), jnp.bool_(False), jnp.bool_(False), {}
"""
