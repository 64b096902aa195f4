"""Policy heads: from a network's output to a distribution over actions, for each action space."""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import distrax
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from rlkit.agents.state_dependent_noise import StateDependentNoise
from rlkit.errors import SpaceError, require
from rlkit.ops.losses import at_index
from rlkit.spaces import COMPOSITE, Space, check_action_space, map_space
from rlkit.types import Action, Carry, Key, Params, PyTree


class Distribution(Protocol):
    """What losses need from a policy, for a batch of observations [B, ...]."""

    def sample(self, key: Key) -> Action:
        """Sampled actions [B, ...]; the key is consumed."""
        ...

    def mode(self) -> Action:
        """The most likely actions [B, ...]."""
        ...

    def log_prob(self, action: Action) -> Array:
        """[B]"""
        ...

    def entropy(self) -> Array:
        """[B]"""
        ...


@dataclasses.dataclass(frozen=True)
class PolicyHead:
    """Turns a network's output [B, num_outputs] into a `Distribution`.

    `init_params` makes the head's own parameters, which are learned with the network's. With
    `noise` (gSDE), the output [B, num_outputs + features] ends with the policy's features.
    """

    num_outputs: int
    init_params: Callable[[], Params]
    distribution: Callable[[Array, Params], Distribution]
    noise: StateDependentNoise | None = None

    @property
    def reads_features(self) -> bool:
        """Whether outputs end with the policy's features."""
        return self.noise is not None

    def initial_carry(self, num_envs: int) -> Carry:
        """The state of the noise at the start of an episode, () without."""
        return () if self.noise is None else self.noise.initial_carry(num_envs)

    def explore(self, out: Array, params: Params, carry: Carry, key: Key) -> tuple[Action, Carry]:
        """Actions to collect with, and the new carry; the key is consumed."""
        policy = self.distribution(out, params)
        if self.noise is None:
            return policy.sample(key), carry
        mean = policy.mode()
        noise, carry = self.noise.draw(carry, key, params, out[:, self.num_outputs :])
        return mean + noise.reshape(mean.shape), carry


def policy_head(
    space: Space, *, initial_std: float = 1.0, noise: StateDependentNoise | None = None
) -> PolicyHead:
    """The head for `space`: Discrete, MultiDiscrete, Box, or Dict or Tuple of them.

    MultiDiscrete gets independent categoricals, Box a Gaussian with a state-independent std, or
    that of `noise`. Dict and Tuple get a head for each part, on a slice of the outputs.
    Gaussian samples are not clipped: log-probs belong to the unclipped sample, and environments
    clip to their bounds. Raises `SpaceError` for other spaces, `ConfigError` for noise of actions
    that are no Box.
    """
    check_action_space(space)
    require(
        noise is None or isinstance(space, spaces.Box),
        f"use_sde=True adds noise to the actions of a Box, got {space}",
        "leave use_sde out (use_sde=False): policies of other actions explore by sampling",
    )
    if isinstance(space, COMPOSITE):
        return _joint_head(map_space(partial(policy_head, initial_std=initial_std), space))
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return PolicyHead(
            int(space.n), dict, lambda out, _: Categoricals((jax.nn.log_softmax(out),), start)
        )
    if isinstance(space, spaces.MultiDiscrete):
        splits, starts = np.cumsum(space.nvec)[:-1].tolist(), np.asarray(space.start, np.int32)

        def factored(out: Array, _: Params) -> Distribution:
            return Categoricals(
                tuple(jax.nn.log_softmax(logits) for logits in jnp.split(out, splits, axis=-1)),
                starts,
            )

        return PolicyHead(int(space.nvec.sum()), dict, factored)
    if isinstance(space, spaces.Box):
        size = math.prod(space.shape)

        def init_params() -> Params:
            is_traced = not isinstance(initial_std, int | float)
            log_std = jnp.log(initial_std) if is_traced else math.log(initial_std)
            return {"log_std": jnp.full((size,), log_std, jnp.float32)}

        def gaussian(out: Array, params: Params) -> Distribution:
            return Gaussian(
                distrax.MultivariateNormalDiag(
                    out, jnp.exp(params["log_std"]) * jnp.ones_like(out)
                ),
                space.shape,
            )

        if noise is None:
            return PolicyHead(size, init_params, gaussian)
        std = noise.std

        def state_dependent(out: Array, params: Params) -> Distribution:
            mean, features = jnp.split(out, [size], axis=-1)
            return Gaussian(
                distrax.MultivariateNormalDiag(mean, std(params, features)), space.shape
            )

        return PolicyHead(size, noise.init_params, state_dependent, noise)
    raise SpaceError(f"no policy head for {space}; use Discrete, MultiDiscrete, Box, Dict or Tuple")


def _joint_head(heads: PyTree) -> PolicyHead:
    """The head of a Dict or Tuple space, from those of its parts in its structure.

    Outputs are those of the parts, one after the other in the order of leaves; the parameters have
    the structure of an action.
    """
    parts, structure = jax.tree.flatten(heads)
    splits = np.cumsum([part.num_outputs for part in parts]).tolist()

    def joint(out: Array, params: Params) -> Distribution:
        outs, own = jnp.split(out, splits[:-1], axis=-1), structure.flatten_up_to(params)
        return Joint(
            tuple(part.distribution(*each) for part, *each in zip(parts, outs, own, strict=True)),
            structure,
        )

    return PolicyHead(
        splits[-1], lambda: structure.unflatten([part.init_params() for part in parts]), joint
    )


@dataclasses.dataclass(frozen=True)
class Joint:
    """Independent distributions of the parts of an action: trees of arrays [B, ...]."""

    parts: tuple[Distribution, ...]  # in the order of leaves
    structure: Any  # jax.tree.structure of an action

    def sample(self, key: Key) -> Action:
        """Every part with a key of its own; the key is consumed."""
        keys = jax.random.split(key, len(self.parts))
        return self.structure.unflatten(
            [part.sample(k) for part, k in zip(self.parts, keys, strict=True)]
        )

    def mode(self) -> Action:
        """The most likely actions of every part."""
        return self.structure.unflatten([part.mode() for part in self.parts])

    def log_prob(self, action: Action) -> Array:
        """[B], the sum over parts."""
        own = self.structure.flatten_up_to(action)
        return sum(
            (part.log_prob(x) for part, x in zip(self.parts, own, strict=True)),
            start=jnp.float32(0.0),
        )

    def entropy(self) -> Array:
        """[B], the sum over parts."""
        return sum((part.entropy() for part in self.parts), start=jnp.float32(0.0))


@dataclasses.dataclass(frozen=True)
class Categoricals:
    """Independent categorical choices: one makes actions [B], several make [B, choices].

    `start` is the smallest action. For finite network outputs, samples, log-probs and entropies
    equal those of `distrax.Categorical`, which normalises again for each of them and checks every
    sample, in separate kernels. A log-prob of -inf means probability 0. NaN outputs give arbitrary
    samples.
    """

    log_probs: tuple[Array, ...]  # [B, n] for each choice
    start: int | np.ndarray  # [choices]

    def sample(self, key: Key) -> Action:
        """Actions of the space; the key is consumed."""
        if self._single:
            return self._join([jax.random.categorical(key, self.log_probs[0])])
        keys = jax.random.split(key, len(self.log_probs))
        return self._join(
            [
                jax.random.categorical(k, log_probs)
                for k, log_probs in zip(keys, self.log_probs, strict=True)
            ]
        )

    def mode(self) -> Action:
        """The most likely actions."""
        return self._join([jnp.argmax(log_probs, axis=-1) for log_probs in self.log_probs])

    def log_prob(self, action: Action) -> Array:
        """[B], the sum over choices; -inf for an action outside the space."""
        index = action - self.start
        indices = [index] if self._single else [index[..., i] for i in range(len(self.log_probs))]
        return sum(map(_chosen, self.log_probs, indices), start=jnp.float32(0.0))

    def entropy(self) -> Array:
        """[B], the sum over choices."""
        return sum(map(_entropy, self.log_probs), start=jnp.float32(0.0))

    @property
    def _single(self) -> bool:
        return isinstance(self.start, int)

    def _join(self, choices: list[Array]) -> Action:
        return (choices[0] if self._single else jnp.stack(choices, axis=-1)).astype(
            jnp.int32
        ) + self.start


def _chosen(log_probs: Array, index: Array) -> Array:
    """[B, n] and [B] -> [B]: the entry at the index, or -inf if it is out of range."""
    is_known = (index >= 0) & (index < log_probs.shape[-1])
    return jnp.where(is_known, at_index(log_probs, index), -jnp.inf)


def _entropy(log_probs: Array) -> Array:
    """[B, n] -> [B]; impossible choices add nothing to it or to its gradient."""
    impossible = log_probs == -jnp.inf
    known = jnp.where(impossible, 0.0, log_probs)
    return -jnp.sum(jnp.where(impossible, 0.0, jnp.exp(known) * known), axis=-1)


@dataclasses.dataclass(frozen=True)
class Gaussian:
    """Independent normal distributions over actions of a Box, [B, *shape], not squashed."""

    flat: Any  # distrax.MultivariateNormalDiag over [B, size]; its types are wider than JAX's
    shape: tuple[int, ...]

    def sample(self, key: Key) -> Action:
        """Unclipped samples; the key is consumed."""
        return self._unflatten(self.flat.sample(seed=key))

    def mode(self) -> Action:
        """The means."""
        return self._unflatten(self.flat.mode())

    def log_prob(self, action: Action) -> Array:
        """[B]"""
        return self.flat.log_prob(action.reshape(action.shape[0], -1))

    def entropy(self) -> Array:
        """[B]"""
        return self.flat.entropy()

    def _unflatten(self, flat: Array) -> Action:
        return flat.reshape(flat.shape[0], *self.shape)


@dataclasses.dataclass(frozen=True)
class TanhGaussian:
    """tanh of independent normal variables: actions [B, ...] in [-1, 1].

    Haarnoja et al. 2018, appendix C. Log-probs are densities over [-1, 1], and the entropy is
    estimated from them. For actions scaled to other bounds both differ by the sum of log
    half-widths, which CleanRL includes and Stable-Baselines3, brax and rlkit do not. There is no
    log-prob of a given action: the variable behind ±1 cannot be recovered in floating point.
    """

    mean: Array  # [B, ...] before tanh
    log_std: Array  # [B, ...]

    def sample(self, key: Key) -> Action:
        """[B, ...]; the key is consumed."""
        return self.sample_and_log_prob(key)[0]

    def sample_and_log_prob(self, key: Key) -> tuple[Action, Array]:
        """Samples [B, ...] and log-probs [B], differentiable in mean and std; consumes the key."""
        return self.transform(jax.random.normal(key, self.mean.shape))

    def mode(self) -> Action:
        """tanh of the means. The density itself may peak at ±1 instead."""
        return jnp.tanh(self.mean)

    def transform(self, noise: Array) -> tuple[Action, Array]:
        """Maps standard normal `noise` [B, ...] to actions [B, ...] and their log-probs [B]."""
        u = self.mean + jnp.exp(self.log_std) * noise
        log_normal = -0.5 * jnp.square(noise) - self.log_std - 0.5 * math.log(2 * math.pi)
        # log(1 - tanh²(u)), finite and exact for any u
        log_slope = 2.0 * (math.log(2.0) - u - jax.nn.softplus(-2.0 * u))
        return jnp.tanh(u), (log_normal - log_slope).reshape(u.shape[0], -1).sum(-1)
