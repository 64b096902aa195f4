"""An environment in JAX that has no time limit, and takes none; `SOURCE` is this file's text."""

import dataclasses
from pathlib import Path

import gymnasium
import jax.numpy as jnp

SOURCE = Path(__file__).read_text(encoding="utf-8")


@dataclasses.dataclass(frozen=True)
class Endless:
    goal: int = 10
    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, key):
        return (), jnp.zeros(1)

    def step(self, key, state, action):
        return (), jnp.zeros(1), jnp.float32(1), jnp.bool_(False), jnp.bool_(False), {}
