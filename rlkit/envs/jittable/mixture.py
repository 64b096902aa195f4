"""`JaxMixture`: each episode is played in one of several JAX environments."""

import dataclasses
import functools
from collections.abc import Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from rlkit.envs.base import JaxEnv, JaxStep, traced_params
from rlkit.envs.jittable.casts import cast_like, cast_obs
from rlkit.errors import ConfigError
from rlkit.ops.strong_types import strong_types
from rlkit.spaces import Space
from rlkit.types import Action, Key, Obs, PyTree


class MixtureParams(struct.PyTreeNode, kw_only=True):
    """The numbers of a mixture of K environments, which do not recompile."""

    weights: Array  # [K], of any sum
    families: tuple[PyTree, ...]  # parameters of the members of each family, leaves [members, ...]


class MixtureState(struct.PyTreeNode, kw_only=True):
    """The episode of one environment; the states of the other families are out of use."""

    which: Array  # [] int32, the member that is played
    families: tuple[PyTree, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class JaxMixture:
    """A `JaxEnv` that draws one of K members for each episode, by `params.weights`.

    Members that differ in parameters alone are a family, whose step is computed once. The steps of
    different families are all computed, since a batch of environments is in all of them.
    """

    members: tuple[JaxEnv, ...]
    families: tuple[JaxEnv, ...]  # a member of each
    places: tuple[tuple[int, int], ...]  # the family of each member, and its place there
    params: MixtureParams
    observation_space: Space
    action_space: Space
    max_episode_steps: int | None

    def replace_params(self, params: MixtureParams) -> "JaxMixture":
        """The same environments with other parameters or weights."""
        return dataclasses.replace(self, params=params)

    def reset(self, key: Key) -> tuple[MixtureState, Obs]:
        """Starts an episode in one of the members. Consumes the key."""
        key, choice = jax.random.split(key)
        which = jax.random.categorical(choice, jnp.log(self.params.weights)).astype(jnp.int32)
        started = [
            self._bound(index, which).reset(jax.random.fold_in(key, index))
            for index in range(len(self.families))
        ]
        states, each = zip(*started, strict=True)
        obs = self._chosen(which, [self._cast(obs) for obs in each])
        return MixtureState(which=which, families=strong_types(states)), obs

    def step(self, key: Key, state: MixtureState, action: Action) -> JaxStep:
        """A step of the member that is played. Consumes the key."""

        def play(index: int, key: Key, state: MixtureState) -> JaxStep:
            env, own = self._bound(index, state.which), state.families[index]
            after, obs, reward, terminated, truncated, info = env.step(key, own, action)
            families = list(state.families)
            families[index] = cast_like(own, strong_types(after))
            ends = jnp.bool_(terminated), jnp.bool_(truncated)
            state = state.replace(families=tuple(families))
            # Other members report other things, which cannot be one array.
            return state, self._cast(obs), jnp.float32(reward), *ends, info if self._is_one else {}

        if self._is_one:
            return play(0, key, state)
        branches = [functools.partial(play, index) for index in range(len(self.families))]
        return jax.lax.switch(self._family_of(state.which), branches, key, state)

    def member_state(self, state: MixtureState) -> tuple[int, PyTree]:
        """Which member is played, and its state; for pictures, so not traced."""
        which = int(state.which)
        return which, state.families[self.places[which][0]]

    @property
    def _is_one(self) -> bool:
        return len(self.families) == 1

    def _family_of(self, which: Array) -> Array:
        return jnp.asarray([family for family, _ in self.places])[which]

    def _bound(self, index: int, which: Array) -> JaxEnv:
        """The family `index` with the parameters of the member `which`, if it is one of its."""
        env: Any = self.families[index]
        rows = self.params.families[index]
        if not jax.tree.leaves(rows):
            return env
        place = jnp.asarray([place if family == index else 0 for family, place in self.places])
        return env.replace_params(jax.tree.map(lambda x: x[place[which]], rows))

    def _chosen(self, which: Array, each: Sequence[Obs]) -> Obs:
        return jax.tree.map(lambda *x: jnp.stack(x)[self._family_of(which)], *each)

    def _cast(self, obs: Obs) -> Obs:
        return cast_obs(obs, self.observation_space)


def jax_mixture(
    members: Sequence[JaxEnv],
    kinds: Sequence[Hashable],
    weights: np.ndarray,
    observation_space: Space,
) -> JaxMixture:
    """A mixture of `members`; those of equal `kinds` differ in their parameters alone.

    Raises `ConfigError` for environments that reset themselves.
    """
    for member in members:
        if getattr(member, "auto_reset", False):
            raise ConfigError(
                "an environment of a mixture resets itself, in another one's place"
                f" ({type(member).__name__} with auto_reset=True); leave it out"
            )
    families: dict[object, list[int]] = {}
    for index, (member, kind) in enumerate(zip(members, kinds, strict=True)):
        families.setdefault((kind, _form(member)), []).append(index)
    places = {
        index: (number, place)
        for number, rows in enumerate(families.values())
        for place, index in enumerate(rows)
    }
    limits = [getattr(member, "max_episode_steps", None) for member in members]
    known = [limit for limit in limits if limit is not None]
    params = MixtureParams(
        weights=jnp.asarray(weights, jnp.float32),
        families=tuple(_stacked([members[i] for i in rows]) for rows in families.values()),
    )
    return JaxMixture(
        members=tuple(members),
        families=tuple(members[rows[0]] for rows in families.values()),
        places=tuple(places[index] for index in range(len(members))),
        params=params,
        observation_space=observation_space,
        action_space=members[0].action_space,
        max_episode_steps=max(known) if len(known) == len(limits) else None,
    )


def _form(env: JaxEnv) -> Hashable:
    """What parameters must have in common to be stacked; of its own if there are none."""
    params = jax.tree.map(jnp.asarray, traced_params(env))
    leaves = jax.tree.leaves(params)
    shapes = tuple((x.shape, str(x.dtype)) for x in leaves)
    return (jax.tree.structure(params), shapes) if leaves else ()


def _stacked(members: Sequence[JaxEnv]) -> PyTree:
    params = [strong_types(traced_params(env)) for env in members]
    return jax.tree.map(lambda *x: jnp.stack([jnp.asarray(v) for v in x]), *params)
