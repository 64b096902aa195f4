"""Actors of `soft_actor_critic`: squashed Gaussian policies, and how they explore."""

import dataclasses
from typing import Protocol

import jax.numpy as jnp
from jax import Array

from rlkit.agents.action_noise import ActionNoise
from rlkit.agents.heads import TanhGaussian
from rlkit.agents.networks import Network
from rlkit.agents.state_dependent_noise import StateDependentNoise
from rlkit.types import Action, Carry, Key, NoiseState, Obs, Params, Sequences

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

    def policy(self, params: Params, obs: Obs | Sequences) -> tuple[Carry, TanhGaussian]:
        """The new memory, () without, and the distribution over unit actions for each observation.

        With memory, `obs` are `Sequences`.
        """
        ...

    def explore(
        self, params: Params, obs: Obs | Sequences, noise: Carry, key: Key
    ) -> tuple[Action, Carry, Carry]:
        """Unit actions to collect with, the new memory and the new state of the noise.

        The key is consumed.
        """
        ...


@dataclasses.dataclass(frozen=True)
class GaussianActor:
    """The standard deviation is an output of the network, as in the paper.

    Its logarithm is clipped, as in the paper's code and Stable-Baselines3, but to CleanRL's range
    [-5, 2] (Stable-Baselines3: [-20, 2]).
    """

    network: Network[tuple[Carry, Array]]  # obs -> (memory, [B, 2 · A])
    shape: tuple[int, ...]
    noise: ActionNoise

    def init(self, key: Key) -> Params:
        """See `SquashedActor`."""
        return self.network.init(key)

    def initial_carry(self, num_envs: int) -> Carry:
        """See `SquashedActor`."""
        return self.noise.initial_carry(num_envs)

    def policy(self, params: Params, obs: Obs | Sequences) -> tuple[Carry, TanhGaussian]:
        """See `SquashedActor`."""
        memory, out = self.network.apply(params, obs)
        mean, log_std = jnp.split(out, 2, axis=-1)
        shape = (mean.shape[0], *self.shape)
        log_std = jnp.clip(log_std, *LOG_STD_RANGE).reshape(shape)
        return memory, TanhGaussian(mean.reshape(shape), log_std)

    def explore(
        self, params: Params, obs: Obs | Sequences, noise: Carry, key: Key
    ) -> tuple[Action, Carry, Carry]:
        """Samples from the policy, whose noise may be correlated over steps."""
        memory, policy = self.policy(params, obs)
        drawn, noise = self.noise.draw(noise, key, policy.mean.shape[0])
        return policy.transform(drawn)[0], memory, noise


@dataclasses.dataclass(frozen=True)
class StateDependentActor:
    """The noise depends on the state, see `StateDependentNoise`.

    Means are clipped to [-2, 2] before tanh, as in Stable-Baselines3. Losses sample each action of
    a batch with noise of its own, where Stable-Baselines3 draws one matrix for all.
    """

    network: Network[tuple[Carry, Array]]  # obs -> (memory, [B, A + features]), means and features
    shape: tuple[int, ...]
    noise: StateDependentNoise

    def init(self, key: Key) -> Params:
        """Parameters {"network", "log_std"}; the key is consumed."""
        return {"network": self.network.init(key), **self.noise.init_params()}

    def initial_carry(self, num_envs: int) -> NoiseState:
        """See `SquashedActor`."""
        return self.noise.initial_carry(num_envs)

    def policy(self, params: Params, obs: Obs | Sequences) -> tuple[Carry, TanhGaussian]:
        """See `SquashedActor`."""
        memory, mean, features = self._outputs(params, obs)
        std = self.noise.std(params, features)
        return memory, TanhGaussian(mean, jnp.log(std).reshape(mean.shape))

    def explore(
        self, params: Params, obs: Obs | Sequences, noise: NoiseState, key: Key
    ) -> tuple[Action, Carry, NoiseState]:
        """The means plus the noise of the matrices in `noise`, squashed."""
        memory, mean, features = self._outputs(params, obs)
        drawn, noise = self.noise.draw(noise, key, params, features)
        return jnp.tanh(mean + drawn.reshape(mean.shape)), memory, noise

    def _outputs(self, params: Params, obs: Obs | Sequences) -> tuple[Carry, Array, Array]:
        """(memory, means [B, *shape], features [B, features])"""
        memory, out = self.network.apply(params["network"], obs)
        mean, features = jnp.split(out, [self.noise.num_outputs], axis=-1)
        mean = jnp.clip(mean, -LARGEST_MEAN, LARGEST_MEAN)
        return memory, mean.reshape(mean.shape[0], *self.shape), features
