"""`PolicyFunction`: what is exported, a function from arrays of raw observations to actions.

With memory, it is one from observations and memory to actions and memory.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import Array

from rlkit import spaces
from rlkit.agents.base import Agent, memory_of, with_memory
from rlkit.errors import ExportError, require
from rlkit.spaces import Space
from rlkit.training.core.evaluator import choose
from rlkit.types import Carry, Obs, PolicyState

OUTPUT = "action"
Path = tuple[Any, ...]  # of a leaf in its structure: keys of dicts and indices of tuples


@dataclasses.dataclass(frozen=True, kw_only=True)
class Port:
    """One array of an observation, an action or the memory; `shape` is without the batch axis."""

    name: str
    path: Path
    dtype: np.dtype
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicyFunction:
    """An agent as a function of arrays; normalisation, action scaling and clipping are inside."""

    agent: Agent
    state: PolicyState
    observation_space: Space
    action_space: Space

    @property
    def inputs(self) -> list[Port]:
        """The arrays of an observation, in the order of `jax.tree.leaves`.

        They are called `obs`, or `obs.key` and `obs.0` in a dict and a tuple.
        """
        return _ports("obs", self.observation_space)

    @property
    def outputs(self) -> list[Port]:
        """The arrays of an action, named in the same way: `action`, or `action.key` and so on."""
        return _ports(OUTPUT, self.action_space)

    @property
    def memory(self) -> list[Port]:
        """The arrays that the agent remembers, called `memory.0` and so on; [] without memory."""
        return [
            Port(name=f"memory.{i}", path=(i,), dtype=np.dtype(x.dtype), shape=x.shape[1:])
            for i, x in enumerate(self.initial_memory())
        ]

    def initial_memory(self, num_envs: int = 1) -> list[Array]:
        """The memory at the start of episodes, [num_envs, ...] each."""
        return jax.tree.leaves(memory_of(self.agent.initial_carry(num_envs)))

    def carry(self, memory: Sequence[Array]) -> Carry:
        """What the agent carries, with these arrays as its memory, and new noise."""
        return with_memory(self.agent.initial_carry(memory[0].shape[0]), memory)

    def best(self, *arrays: Array) -> tuple[Array, ...]:
        """The arrays of the agent's best actions [N, ...], within the action space, and of its new
        memory, for those of an observation and the memory [N, ...].
        """
        return self._act(arrays, jax.random.key(0), deterministic=True)

    def sampled(self, key_data: Array, *arrays: Array) -> tuple[Array, ...]:
        """The same with sampled actions; `key_data`: two words, `jax.random.key_data` of a key."""
        key = jax.random.wrap_key_data(key_data, impl="threefry2x32")
        return self._act(arrays, key, deterministic=False)

    def observation(self, arrays: Sequence[Any]) -> Obs:
        """Arrays in the order of `inputs`, in the structure of the observation space."""
        structure = jax.tree.structure(spaces.abstract(self.observation_space))
        return jax.tree.unflatten(structure, arrays)

    def _act(
        self, arrays: tuple[Array, ...], key: Array, *, deterministic: bool
    ) -> tuple[Array, ...]:
        count = len(arrays) - len(self.memory)
        obs, memory = self.observation(arrays[:count]), arrays[count:]
        size = arrays[0].shape[0]
        carry = self.carry(memory) if memory else self.agent.initial_carry(size)
        action, carry = choose(self.agent, self.state, obs, carry, key, deterministic=deterministic)
        action = spaces.clip(self.action_space, action)
        return *jax.tree.leaves(action), *jax.tree.leaves(memory_of(carry))


def _ports(root: str, space: Space) -> list[Port]:
    """The leaves of `space`, each called by the path that leads to it from `root`."""
    found = jax.tree.leaves_with_path(spaces.abstract(space))
    paths = [tuple(_part(key) for key in path) for path, _ in found]
    names = [".".join([root, *map(str, path)]) for path in paths]
    require(
        len(set(names)) == len(names),
        f"two arrays would both be called {_first_twice(names)}",
        "rename a key of the Dict",
        ExportError,
    )
    return [
        Port(name=name, path=path, dtype=np.dtype(leaf.dtype), shape=leaf.shape)
        for name, path, (_, leaf) in zip(names, paths, found, strict=True)
    ]


def _part(key: Any) -> Any:
    """The key of a dict or the index of a tuple, from an entry of a path in a pytree."""
    return key.key if hasattr(key, "key") else key.idx


def _first_twice(names: list[str]) -> str:
    return next((name for name in names if names.count(name) > 1), "")
