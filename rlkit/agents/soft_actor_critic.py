"""Soft actor-critic agent: a squashed Gaussian policy, two critics and a temperature.

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
from rlkit.agents.action_noise import action_noise
from rlkit.agents.configs import SoftActorCriticConfig
from rlkit.agents.heads import TanhGaussian
from rlkit.agents.masking import check_observed
from rlkit.agents.memory import WithCritics, one_step
from rlkit.agents.memory_torso import InitialCarry, torso_and_memory
from rlkit.agents.networks import TorsoBuilder
from rlkit.agents.squashed_actors import GaussianActor, SquashedActor, StateDependentActor
from rlkit.agents.state_dependent_noise import state_dependent_noise
from rlkit.agents.torso import WithHead, custom_torsos, make_remembering
from rlkit.agents.twin_critics import TwinCritics, action_critics
from rlkit.spaces import Space
from rlkit.types import Action, Carry, Key, Obs, Params, PyTree, Sequences
from rlkit.validation import settings


@dataclasses.dataclass(frozen=True)
class SoftActorCritic:
    """Build it with `soft_actor_critic`. Every method takes one batch axis: obs [B, ...].

    `policy` and `q_values` use unit actions, in [-1, 1] whatever the environment's bounds.
    `explore` and `exploit` return actions within the environment's bounds; `to_unit` maps them
    back. With memory, the methods that losses call take `Sequences` in place of observations.
    """

    actor: SquashedActor
    critics: TwinCritics
    memory: InitialCarry | None  # the actor's
    initial_temperature: float
    spec: tuple[str, object]
    custom: tuple[str, ...]  # what was passed in addition to the config
    # Spaces are not hashable, agents are.
    action_space: spaces.Box = dataclasses.field(compare=False)

    def init(self, key: Key) -> Params:
        """Parameters {"actor", "critic", "log_temperature": [] float32}; the key is consumed."""
        actor_key, critic_key = jax.random.split(key)
        return {
            "actor": self.actor.init(actor_key),
            "critic": self.critics.init(critic_key),
            "log_temperature": jnp.log(jnp.asarray(self.initial_temperature, jnp.float32)),
        }

    def initial_carry(self, num_envs: int) -> Carry:
        """(), the state of pink noise or gSDE, or `WithCritics`."""
        noise = self.actor.initial_carry(num_envs)
        if self.memory is None:
            return noise
        return WithCritics(
            memory=self.memory(num_envs), noise=noise, critics=self.critics.initial_carry(num_envs)
        )

    def explore(
        self, params: Params, obs: Obs, carry: Carry, key: Key, progress: Array
    ) -> tuple[Action, Carry, dict[str, PyTree]]:
        """Samples from the policy, within the environment's bounds."""
        actor = params["actor"]
        if not isinstance(carry, WithCritics):
            unit_action, _, noise = self.actor.explore(actor, obs, carry, key)
            return self.from_unit(unit_action), noise, {}
        inputs = one_step(obs, carry.memory)
        unit_action, memory, noise = self.actor.explore(actor, inputs, carry.noise, key)
        critics = self.critics.remember(params["critic"], obs, carry.critics, unit_action)
        carry = carry.replace(memory=memory, noise=noise, critics=critics)
        return self.from_unit(unit_action), carry, {}

    def exploit(self, params: Params, obs: Obs, carry: Carry, key: Key) -> tuple[Action, Carry]:
        """The squashed means of the policy, within the environment's bounds."""
        if not isinstance(carry, WithCritics):
            return self.from_unit(self.policy(params["actor"], obs).mode()), carry
        memory, policy = self.actor.policy(params["actor"], one_step(obs, carry.memory))
        return self.from_unit(policy.mode()), carry.replace(memory=memory)

    def policy(self, actor_params: Params, obs: Obs) -> TanhGaussian:
        """The distribution over unit actions for each observation."""
        if isinstance(obs, Sequences):
            obs = obs.replace(carry=obs.carry.memory)
        return self.actor.policy(actor_params, obs)[1]

    def q_values(self, critic_params: Params, obs: Obs, unit_action: Action) -> Array:
        """Both critics' values [2, B] of unit actions [B, ...]."""
        if isinstance(obs, Sequences):
            obs = obs.replace(carry=obs.carry.critics)
        return self.critics.apply(critic_params, obs, unit_action)

    def to_unit(self, action: Action) -> Action:
        """Maps actions from the environment's bounds to [-1, 1]; anything outside is clipped."""
        return action_scaling.to_unit(self.action_space, action)

    def from_unit(self, unit_action: Action) -> Action:
        """Maps unit actions to the environment's bounds, which rounding cannot exceed."""
        return action_scaling.from_unit(self.action_space, unit_action)


def soft_actor_critic(
    observation_space: Space,
    action_space: Space,
    config: SoftActorCriticConfig | None = None,
    *,
    torso: TorsoBuilder | None = None,
    critic_torso: TorsoBuilder | None = None,
) -> SoftActorCritic:
    """A `SoftActorCritic` for ONE environment, whose actions are a Box with finite bounds.

    `torso` replaces the actor's torso, as for `actor_critic`, and `critic_torso` those of the two
    critics: `critic_torso(rngs)` returns an `nnx.Module` that maps (obs [B, ...], unit actions
    [B, A]) to features [B, F]. With memory, actor and critics each have their own.

    Actor and critics share nothing. Weights are orthogonal, √2 in the torso, as in jaxrl and our
    other agents (Stable-Baselines3 and CleanRL leave PyTorch's uniform default). The last layer's
    scale is 1 in the critics and 0.01 in the actor, whose actions thus start with a mean of 0 and a
    standard deviation of 1 before tanh. Raises `SpaceError` or `ConfigError` for spaces and
    settings that do not fit.
    """
    config = settings(config, SoftActorCriticConfig)
    box = action_scaling.bounded_box(action_space, "soft_actor_critic")
    check_observed(observation_space, action_space)
    build, features, memory = torso_and_memory(config, observation_space, torso)

    size = math.prod(box.shape)

    def actor(rngs: nnx.Rngs) -> WithHead:
        num_outputs = size if config.use_sde else 2 * size
        return WithHead(build(rngs), features, num_outputs, 0.01, keep_features=config.use_sde)

    network = make_remembering(actor, config)
    return SoftActorCritic(
        actor=(
            # as in Stable-Baselines3's SAC, the std trains the features
            StateDependentActor(
                network,
                box.shape,
                state_dependent_noise(config, features, box, learn_features=True),
            )
            if config.use_sde
            else GaussianActor(network, box.shape, action_noise(config.noise_color, box.shape))
        ),
        critics=action_critics(observation_space, box, config, critic_torso),
        memory=memory,
        initial_temperature=config.initial_temperature,
        spec=("soft_actor_critic", config),
        custom=custom_torsos(torso, critic_torso),
        action_space=box,
    )
