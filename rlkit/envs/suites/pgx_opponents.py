"""Who plays the other side in Pgx's games."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from rlkit.types import Key

Opponent = Callable[[Key, Array, Array], Array]  # (key, observation, legal actions [A]) -> action


def random_move(key: Key, observation: Array, legal: Array) -> Array:
    """An opponent that draws among the legal actions."""
    return jax.random.categorical(key, jnp.where(legal, 0.0, -jnp.inf))


def first_move(key: Key, observation: Array, legal: Array) -> Array:
    """An opponent that takes the first legal action, always the same in the same state."""
    return legal.argmax()


OPPONENTS: dict[str, Opponent] = {"random": random_move, "first": first_move}
