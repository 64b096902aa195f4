"""Actors of `soft_actor_critic`: squashed Gaussian policies, and how they explore."""

import dataclasses
from typing import Protocol

import jax.numpy as jnp
from jax import Array

from rlkit.agents.action_noise import ActionNoise
from rlkit.agents.heads import TanhGaussian
from rlkit.agents.networks import Network
from rlkit.agents.state_dependent_noise import StateDependentNoise
from rlkit.types import Action, Carry, Key, NoiseState, Obs, Params

LOG_STD_RANGE = (-5.0, 2.0)
LARGEST_MEAN = 2.0  # before tanh, with gSDE


class SquashedActor(Protocol):
    """Unit actions, [B, *shape] in [-1, 1], for observations [B, ...]."""

    def init(self, key: Key) -> Params:
        """Fresh parameters; the key is consumed."""
        ...

    def initial_carry(self, num_envs: int) -> Carry:
        """The state of the exploration noise at the start of an episode, leaves [N, ...]."""
        ...

    def policy(self, params: Params, obs: Obs) -> TanhGaussian:
        """The distribution over unit actions for each observation."""
        ...

    def explore(self, params: Params, obs: Obs, carry: Carry, key: Key) -> tuple[Action, Carry]:
        """Unit actions to collect with, and the new carry; the key is consumed."""
        ...


@dataclasses.dataclass(frozen=True)
class GaussianActor:
    """The standard deviation is an output of the network, as in the paper.

    Its logarithm is clipped, as in the paper's code and Stable-Baselines3, but to CleanRL's range
    [-5, 2] (Stable-Baselines3: [-20, 2]).
    """

    network: Network[Array]  # obs -> [B, 2 · A]
    shape: tuple[int, ...]
    noise: ActionNoise

    def init(self, key: Key) -> Params:
        """See `SquashedActor`."""
        return self.network.init(key)

    def initial_carry(self, num_envs: int) -> Carry:
        """See `SquashedActor`."""
        return self.noise.initial_carry(num_envs)

    def policy(self, params: Params, obs: Obs) -> TanhGaussian:
        """See `SquashedActor`."""
        mean, log_std = jnp.split(self.network.apply(params, obs), 2, axis=-1)
        shape = (mean.shape[0], *self.shape)
        return TanhGaussian(mean.reshape(shape), jnp.clip(log_std, *LOG_STD_RANGE).reshape(shape))

    def explore(self, params: Params, obs: Obs, carry: Carry, key: Key) -> tuple[Action, Carry]:
        """Samples from the policy, whose noise may be correlated over steps."""
        policy = self.policy(params, obs)
        noise, carry = self.noise.draw(carry, key, policy.mean.shape[0])
        return policy.transform(noise)[0], carry


@dataclasses.dataclass(frozen=True)
class StateDependentActor:
    """The noise depends on the state, see `StateDependentNoise`.

    Means are clipped to [-2, 2] before tanh, as in Stable-Baselines3. Losses sample each action of
    a batch with noise of its own, where Stable-Baselines3 draws one matrix for all.
    """

    network: Network[Array]  # obs -> [B, A + features], means and features
    shape: tuple[int, ...]
    noise: StateDependentNoise

    def init(self, key: Key) -> Params:
        """Parameters {"network", "log_std"}; the key is consumed."""
        return {"network": self.network.init(key), **self.noise.init_params()}

    def initial_carry(self, num_envs: int) -> NoiseState:
        """See `SquashedActor`."""
        return self.noise.initial_carry(num_envs)

    def policy(self, params: Params, obs: Obs) -> TanhGaussian:
        """See `SquashedActor`."""
        mean, features = self._outputs(params, obs)
        std = self.noise.std(params, features)
        return TanhGaussian(mean, jnp.log(std).reshape(mean.shape))

    def explore(
        self, params: Params, obs: Obs, carry: NoiseState, key: Key
    ) -> tuple[Action, NoiseState]:
        """The means plus the noise of the matrices in `carry`, squashed."""
        mean, features = self._outputs(params, obs)
        noise, carry = self.noise.draw(carry, key, params, features)
        return jnp.tanh(mean + noise.reshape(mean.shape)), carry

    def _outputs(self, params: Params, obs: Obs) -> tuple[Array, Array]:
        """(means [B, *shape], features [B, features])"""
        out = self.network.apply(params["network"], obs)
        mean, features = jnp.split(out, [self.noise.num_outputs], axis=-1)
        mean = jnp.clip(mean, -LARGEST_MEAN, LARGEST_MEAN)
        return mean.reshape(mean.shape[0], *self.shape), features
