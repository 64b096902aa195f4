"""Deterministic actor-critic agent: a deterministic policy and two critics.

For bounded continuous actions.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
from flax import nnx
from gymnasium import spaces
from jax import Array

from rlkit.agents import action_scaling
from rlkit.agents.action_noise import ActionNoise, action_noise
from rlkit.agents.configs import DeterministicActorCriticConfig
from rlkit.agents.masking import check_observed
from rlkit.agents.networks import Network, TorsoBuilder, make_network
from rlkit.agents.torso import WithHead, custom_torsos, torso_of
from rlkit.agents.twin_critics import TwinCritics, action_critics
from rlkit.spaces import Space
from rlkit.types import Action, Carry, Key, Obs, Params, PyTree
from rlkit.validation import settings


@dataclasses.dataclass(frozen=True)
class DeterministicActorCritic:
    """Build it with `deterministic_actor_critic`. Every method takes one batch axis: obs [B, ...].

    `act` and `q_values` use unit actions, in [-1, 1] whatever the environment's bounds. `explore`
    and `exploit` return actions within the environment's bounds; `to_unit` maps them back.
    """

    actor: Network[Array]
    critics: TwinCritics
    noise: ActionNoise
    exploration_noise: float
    spec: tuple[str, object]
    custom: tuple[str, ...]  # what was passed in addition to the config
    # Spaces are not hashable, agents are.
    action_space: spaces.Box = dataclasses.field(compare=False)

    def init(self, key: Key) -> Params:
        """Fresh parameters {"actor", "critic"}; the key is consumed."""
        actor_key, critic_key = jax.random.split(key)
        return {"actor": self.actor.init(actor_key), "critic": self.critics.init(critic_key)}

    def initial_carry(self, num_envs: int) -> Carry:
        """(), or the state of pink noise."""
        return self.noise.initial_carry(num_envs)

    def explore(
        self, params: Params, obs: Obs, carry: Carry, key: Key, progress: Array
    ) -> tuple[Action, Carry, dict[str, PyTree]]:
        """The actor's actions plus Gaussian noise, clipped to the environment's bounds.

        `exploration_noise` is its standard deviation, for unit actions.
        """
        unit_action = self.act(params["actor"], obs)
        noise, carry = self.noise.draw(carry, key, unit_action.shape[0])
        noisy = unit_action + self.exploration_noise * noise
        return self.from_unit(jnp.clip(noisy, -1.0, 1.0)), carry, {}

    def exploit(self, params: Params, obs: Obs, carry: Carry, key: Key) -> tuple[Action, Carry]:
        """The actor's actions, within the environment's bounds."""
        return self.from_unit(self.act(params["actor"], obs)), carry

    def act(self, actor_params: Params, obs: Obs) -> Action:
        """The unit action for each observation, [B, ...]."""
        raw = self.actor.apply(actor_params, obs)
        return jnp.tanh(raw).reshape(raw.shape[0], *self.action_space.shape)

    def q_values(self, critic_params: Params, obs: Obs, unit_action: Action) -> Array:
        """Both critics' values [2, B] of unit actions [B, ...]."""
        return self.critics.apply(critic_params, obs, unit_action)

    def to_unit(self, action: Action) -> Action:
        """Maps actions from the environment's bounds to [-1, 1]; anything outside is clipped."""
        return action_scaling.to_unit(self.action_space, action)

    def from_unit(self, unit_action: Action) -> Action:
        """Maps unit actions to the environment's bounds, which rounding cannot exceed."""
        return action_scaling.from_unit(self.action_space, unit_action)


def deterministic_actor_critic(
    observation_space: Space,
    action_space: Space,
    config: DeterministicActorCriticConfig | None = None,
    *,
    torso: TorsoBuilder | None = None,
    critic_torso: TorsoBuilder | None = None,
) -> DeterministicActorCritic:
    """A `DeterministicActorCritic` for ONE environment, whose actions are a Box with finite bounds.

    `torso` replaces the actor's torso, as for `actor_critic`, and `critic_torso` those of the two
    critics: `critic_torso(rngs)` returns an `nnx.Module` that maps (obs [B, ...], unit actions
    [B, A]) to features [B, F].

    Actor and critics share nothing and start like those of `soft_actor_critic`: orthogonal weights,
    with the actor's last layer scaled by 0.01, so that the first actions are near the middle of the
    bounds (the paper's code and Stable-Baselines3 leave PyTorch's uniform default). Raises
    `SpaceError` or `ConfigError` for spaces and settings that do not fit.
    """
    config = settings(config, DeterministicActorCriticConfig)
    box = action_scaling.bounded_box(action_space, "deterministic_actor_critic")
    check_observed(observation_space, action_space)
    build, features = torso_of(config, observation_space, torso)

    def actor(rngs: nnx.Rngs) -> WithHead:
        return WithHead(build(rngs), features, math.prod(box.shape), 0.01)

    return DeterministicActorCritic(
        actor=make_network(actor, config),
        critics=action_critics(observation_space, box, config, critic_torso),
        noise=action_noise(config.noise_color, box.shape),
        exploration_noise=config.exploration_noise,
        spec=("deterministic_actor_critic", config),
        custom=custom_torsos(torso, critic_torso),
        action_space=box,
    )
