"""Soft actor-critic for discrete actions: a categorical policy, two critics and a temperature."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import nnx
from gymnasium import spaces
from jax import Array

from rlkit.agents.base import unsupported_actions
from rlkit.agents.configs import DiscreteSoftActorCriticConfig
from rlkit.agents.masking import ignoring_masks, observed_space, only_allowed
from rlkit.agents.memory import WithCritics, one_step
from rlkit.agents.memory_torso import InitialCarry, torso_and_memory
from rlkit.agents.networks import Network, TorsoBuilder
from rlkit.agents.torso import WithHead, custom_torsos, make_remembering
from rlkit.agents.twin_critics import TwinCritics, discrete_critics
from rlkit.errors import require
from rlkit.spaces import Space
from rlkit.types import Action, Carry, Key, Obs, Params, PyTree, Sequences
from rlkit.validation import settings


@dataclasses.dataclass(frozen=True)
class DiscreteSoftActorCritic:
    """Build it with `discrete_soft_actor_critic`. Every method takes one batch axis: obs [B, ...].

    `log_probs` and `q_values` cover all actions, so losses can sum over them where
    `SoftActorCritic` samples. With memory, they take `Sequences` in place of observations.
    """

    actor: Network[tuple[Carry, Array]]  # (memory, logits)
    critics: TwinCritics
    memory: InitialCarry | None  # the actor's
    start: int  # the smallest action
    initial_temperature: float
    spec: tuple[str, object]
    custom: tuple[str, ...]  # what was passed in addition to the config
    action_space: Space = dataclasses.field(compare=False)  # spaces are not hashable, agents are

    def init(self, key: Key) -> Params:
        """Parameters {"actor", "critic", "log_temperature": [] float32}; the key is consumed."""
        actor_key, critic_key = jax.random.split(key)
        return {
            "actor": self.actor.init(actor_key),
            "critic": self.critics.init(critic_key),
            "log_temperature": jnp.log(jnp.asarray(self.initial_temperature, jnp.float32)),
        }

    def initial_carry(self, num_envs: int) -> Carry:
        """(), or `WithCritics`."""
        if self.memory is None:
            return ()
        critics = self.critics.initial_carry(num_envs)
        return WithCritics(memory=self.memory(num_envs), noise=(), critics=critics)

    def explore(
        self, params: Params, obs: Obs, carry: Carry, key: Key, progress: Array
    ) -> tuple[Action, Carry, dict[str, PyTree]]:
        """Samples from the policy."""
        log_probs, carry = self._act(params, obs, carry)
        if isinstance(carry, WithCritics):
            critics = self.critics.remember(params["critic"], obs, carry.critics)
            carry = carry.replace(critics=critics)
        index = jax.random.categorical(key, log_probs).astype(jnp.int32)
        return self.start + index, carry, {}

    def exploit(self, params: Params, obs: Obs, carry: Carry, key: Key) -> tuple[Action, Carry]:
        """The most likely actions."""
        log_probs, carry = self._act(params, obs, carry)
        return self.start + log_probs.argmax(axis=-1).astype(jnp.int32), carry

    def log_probs(self, actor_params: Params, obs: Obs) -> Array:
        """The log-prob of every action, [B, A]; -inf for those that a mask does not allow."""
        if isinstance(obs, Sequences):
            obs = obs.replace(carry=obs.carry.memory)
        return self._log_probs(self.actor.apply(actor_params, obs)[1], obs)

    def q_values(self, critic_params: Params, obs: Obs) -> Array:
        """Both critics' values of every action, [2, B, A]."""
        if isinstance(obs, Sequences):
            obs = obs.replace(carry=obs.carry.critics)
        return self.critics.apply(critic_params, obs)

    def _act(self, params: Params, obs: Obs, carry: Carry) -> tuple[Array, Carry]:
        """The log-probs for one step, and the carry with the actor's memory from after it."""
        if not isinstance(carry, WithCritics):
            return self.log_probs(params["actor"], obs), carry
        memory, logits = self.actor.apply(params["actor"], one_step(obs, carry.memory))
        return self._log_probs(logits, obs), carry.replace(memory=memory)

    def _log_probs(self, logits: Array, obs: Obs) -> Array:
        return jax.nn.log_softmax(only_allowed(logits, obs, self.action_space))

    def index(self, action: Action) -> Array:
        """The index of each action, [B], from 0."""
        return action - self.start


def discrete_soft_actor_critic(
    observation_space: Space,
    action_space: Space,
    config: DiscreteSoftActorCriticConfig | None = None,
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
    config = settings(config, DiscreteSoftActorCriticConfig)
    if not isinstance(action_space, spaces.Discrete):
        raise unsupported_actions("discrete_soft_actor_critic", "Discrete", action_space)
    seen = observed_space(observation_space, action_space)
    num_actions = int(action_space.n)
    build, features, memory = torso_and_memory(config, seen, torso)
    critics = discrete_critics(seen, num_actions, config, critic_torso)
    require(
        memory is not None or critics.memory is None,
        "the critics have memory and the actor has none, so what is collected has no memory",
        "pass a torso with memory as well, or a critic_torso without",
    )

    def actor(rngs: nnx.Rngs) -> WithHead:
        return WithHead(build(rngs), features, num_actions, 0.01)

    return DiscreteSoftActorCritic(
        actor=ignoring_masks(make_remembering(actor, config)),
        critics=critics,
        memory=memory,
        start=int(action_space.start),
        initial_temperature=config.initial_temperature,
        spec=("discrete_soft_actor_critic", config),
        custom=custom_torsos(torso, critic_torso),
        action_space=action_space,
    )
