"""Soft actor-critic for discrete actions: a categorical policy, two critics and a temperature."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import nnx
from gymnasium import spaces
from jax import Array

from rlkit.agents.base import unsupported_actions
from rlkit.agents.configs import SoftActorCriticConfig
from rlkit.agents.masking import ignoring_masks, observed_space, only_allowed
from rlkit.agents.networks import Network, TorsoBuilder, make_network
from rlkit.agents.torso import Twins, WithHead, custom_torsos, torso_of
from rlkit.errors import require
from rlkit.spaces import Space
from rlkit.types import Action, Carry, Key, Obs, Params, PyTree
from rlkit.validation import settings


@dataclasses.dataclass(frozen=True)
class DiscreteSoftActorCritic:
    """Build it with `discrete_soft_actor_critic`. Every method takes one batch axis: obs [B, ...].

    `log_probs` and `q_values` cover all actions, so losses can sum over them where
    `SoftActorCritic` samples.
    """

    actor: Network[Array]
    critic: Network[Array]
    start: int  # the smallest action
    spec: tuple[str, SoftActorCriticConfig]
    custom: tuple[str, ...]  # what was passed in addition to the config
    action_space: Space = dataclasses.field(compare=False)  # spaces are not hashable, agents are

    def init(self, key: Key) -> Params:
        """Parameters {"actor", "critic", "log_temperature": [] float32}; the key is consumed."""
        actor_key, critic_key = jax.random.split(key)
        return {
            "actor": self.actor.init(actor_key),
            "critic": self.critic.init(critic_key),
            "log_temperature": jnp.log(jnp.asarray(self.spec[1].initial_temperature, jnp.float32)),
        }

    def initial_carry(self, num_envs: int) -> Carry:
        """(): the agent has no memory."""
        return ()

    def explore(
        self, params: Params, obs: Obs, carry: Carry, key: Key, progress: Array
    ) -> tuple[Action, Carry, dict[str, PyTree]]:
        """Samples from the policy."""
        return (
            self.start
            + jax.random.categorical(key, self.log_probs(params["actor"], obs)).astype(jnp.int32),
            carry,
            {},
        )

    def exploit(self, params: Params, obs: Obs, carry: Carry, key: Key) -> tuple[Action, Carry]:
        """The most likely actions."""
        return (
            self.start + self.log_probs(params["actor"], obs).argmax(axis=-1).astype(jnp.int32),
            carry,
        )

    def log_probs(self, actor_params: Params, obs: Obs) -> Array:
        """The log-prob of every action, [B, A]; -inf for those that a mask does not allow."""
        logits = self.actor.apply(actor_params, obs)
        return jax.nn.log_softmax(only_allowed(logits, obs, self.action_space))

    def q_values(self, critic_params: Params, obs: Obs) -> Array:
        """Both critics' values of every action, [2, B, A]."""
        return self.critic.apply(critic_params, obs)

    def index(self, action: Action) -> Array:
        """The index of each action, [B], from 0."""
        return action - self.start


def discrete_soft_actor_critic(
    observation_space: Space,
    action_space: Space,
    config: SoftActorCriticConfig | None = None,
    *,
    torso: TorsoBuilder | None = None,
    critic_torso: TorsoBuilder | None = None,
) -> DiscreteSoftActorCritic:
    """A `DiscreteSoftActorCritic` for the spaces of ONE environment.

    `torso` replaces the actor's torso and `critic_torso` those of the two critics, both as for
    `actor_critic`.

    Networks and initial weights are those of `soft_actor_critic`, so the policy starts out nearly
    uniform. Raises `SpaceError` or `ConfigError` for spaces and settings that do not fit.
    """
    config = settings(config, SoftActorCriticConfig)
    if not isinstance(action_space, spaces.Discrete):
        raise unsupported_actions("discrete_soft_actor_critic", "Discrete", action_space)
    seen = observed_space(observation_space, action_space)
    require(
        config.noise_color == "white" and not config.use_sde,
        "pink noise and gSDE are noise of continuous actions, and discrete_soft_actor_critic's are"
        " discrete",
        "leave noise_color and use_sde out: it explores by sampling",
    )
    num_actions = int(action_space.n)
    actor_torso, actor_features = torso_of(config, seen, torso)
    build, features = torso_of(config, seen, critic_torso)

    def actor(rngs: nnx.Rngs) -> WithHead:
        return WithHead(actor_torso(rngs), actor_features, num_actions, 0.01)

    def critic(rngs: nnx.Rngs) -> WithHead:
        return WithHead(build(rngs), features, num_actions, 1.0)

    return DiscreteSoftActorCritic(
        actor=ignoring_masks(make_network(actor, config)),
        critic=ignoring_masks(make_network(lambda rngs: Twins(critic(rngs), critic(rngs)), config)),
        start=int(action_space.start),
        spec=("discrete_soft_actor_critic", config),
        custom=custom_torsos(torso, critic_torso),
        action_space=action_space,
    )
