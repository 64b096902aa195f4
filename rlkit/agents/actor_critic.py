"""Actor-critic agent: a policy and a state value, in separate networks or on one torso."""

import dataclasses
import functools
from collections.abc import Callable

import jax.numpy as jnp
from flax import nnx
from jax import Array

from rlkit.agents.base import OUTPUTS, Outputs
from rlkit.agents.configs import ActorCriticConfig
from rlkit.agents.heads import Distribution, PolicyHead, policy_head
from rlkit.agents.layers import MLP, Linear
from rlkit.agents.masking import ignoring_masks, observed_space, only_allowed
from rlkit.agents.memory import WithMemory, features_of, one_step
from rlkit.agents.memory_torso import InitialCarry, memory_and_features, torso_and_memory
from rlkit.agents.networks import Network, TorsoBuilder, make_network
from rlkit.agents.state_dependent_noise import state_dependent_noise
from rlkit.agents.torso import WithHead, activation_of, outputs
from rlkit.spaces import Space
from rlkit.types import Action, Carry, Key, Obs, Params, PyTree, Sequences
from rlkit.validation import settings


@dataclasses.dataclass(frozen=True)
class ActorCritic:
    """Build it with `actor_critic`. Every method takes one batch axis: obs [B, ...].

    With memory, those that losses call take `Sequences` in place of observations.
    """

    network: Network[tuple[Carry, tuple[Array, Array]]]
    head: PolicyHead
    memory: InitialCarry | None  # that of the network
    keeps_outputs: bool  # see `Outputs`
    spec: tuple[str, ActorCriticConfig] | None
    custom: tuple[str, ...]  # what was passed in addition to the config
    action_space: Space = dataclasses.field(compare=False)  # spaces are not hashable, agents are

    def init(self, key: Key) -> Params:
        """Fresh parameters {"network", "head"}; the key is consumed."""
        return {"network": self.network.init(key), "head": self.head.init_params()}

    def initial_carry(self, num_envs: int) -> Carry:
        """(), the state of gSDE, or `WithMemory`."""
        noise = self.head.initial_carry(num_envs)
        if self.memory is None:
            return noise
        return WithMemory(memory=self.memory(num_envs), noise=noise)

    def explore(
        self, params: Params, obs: Obs, carry: Carry, key: Key, progress: Array
    ) -> tuple[Action, Carry, dict[str, PyTree]]:
        """Samples from the policy; log-probs are computed after collection, in one batch.

        So are values, unless acting computes them anyway: then the extras have `Outputs`.
        """
        out, value, carry = self._act(params, obs, carry)
        keeps = self.keeps_outputs and type(self) is ActorCritic  # others may compute more
        extras = {OUTPUTS: Outputs(policy=out, value=value, agent=self)} if keeps else {}
        if isinstance(carry, WithMemory):
            action, noise = self.head.explore(out, params["head"], carry.noise, key)
            return action, carry.replace(noise=noise), extras
        action, noise = self.head.explore(out, params["head"], carry, key)
        return action, noise, extras

    def exploit(self, params: Params, obs: Obs, carry: Carry, key: Key) -> tuple[Action, Carry]:
        """The most likely actions."""
        out, _, carry = self._act(params, obs, carry)
        return self.distribution(params, out).mode(), carry

    def policy(self, params: Params, obs: Obs) -> Distribution:
        """The distribution over actions for each observation."""
        return self.policy_and_value(params, obs)[0]

    def value(self, params: Params, obs: Obs) -> Array:
        """The state values [B]."""
        return self.policy_and_value(params, obs)[1]

    def policy_and_value(self, params: Params, obs: Obs) -> tuple[Distribution, Array]:
        """Both in one call; under `jit`, an unused output is not computed."""
        if isinstance(obs, Sequences):
            obs = obs.replace(carry=obs.carry.memory)
        _, (out, value) = self.network.apply(params["network"], obs)
        out = only_allowed(out, obs, self.action_space)
        return self.distribution(params, out), value

    def distribution(self, params: Params, outputs: Array) -> Distribution:
        """The policy of the network's outputs [B, ...]."""
        return self.head.distribution(outputs, params["head"])

    def _act(self, params: Params, obs: Obs, carry: Carry) -> tuple[Array, Array, Carry]:
        """One step: the policy's outputs, the values, and the carry with the memory after it."""
        if isinstance(carry, WithMemory):
            memory, (out, value) = self.network.apply(
                params["network"], one_step(obs, carry.memory)
            )
            carry = carry.replace(memory=memory)
        else:
            _, (out, value) = self.network.apply(params["network"], obs)
        return only_allowed(out, obs, self.action_space), value, carry


def actor_critic(
    observation_space: Space,
    action_space: Space,
    config: ActorCriticConfig | None = None,
    *,
    torso: TorsoBuilder | None = None,
) -> ActorCritic:
    """An `ActorCritic` for the spaces of ONE environment.

    `torso` replaces the default torso: `torso(rngs)` returns an `nnx.Module` that maps observations
    [B, ...] to features [B, F], or a `MemoryTorso`. Weights are orthogonal: √2 in the torso, 0.01
    on the policy's last layer, 1 on the value's (Andrychowicz et al. 2021; "The 37 implementation
    details of PPO").
    Raises `SpaceError` or `ConfigError` for spaces and torsos that do not fit.
    """
    config = settings(config, ActorCriticConfig)
    seen = observed_space(observation_space, action_space)
    kind: Callable[..., nnx.Module]
    if config.share_torso and config.memory is not None:
        build, joined, memory = memory_and_features(config, seen, torso)
        features = config.hidden_sizes[-1]

        def last_layer() -> MLP:
            return MLP(joined, (features,), activation_of(seen, config))

        kind = functools.partial(SharedActorCritic, last_layer=last_layer)
    else:
        build, features, memory = torso_and_memory(config, seen, torso)
        kind = SharedActorCritic if config.share_torso else SeparateActorCritic
    head = policy_head(
        action_space,
        initial_std=config.initial_std,
        noise=(
            # as in Stable-Baselines3's actor-critic, the std does not train the features
            state_dependent_noise(config, features, action_space, learn_features=False)
            if config.use_sde
            else None
        ),
    )
    network = make_network(lambda rngs: kind(build, features, head, rngs=rngs), config)
    if memory is not None and not config.share_torso:
        memory = _twice(memory)
    return ActorCritic(
        network=ignoring_masks(network),
        head=head,
        memory=memory,
        # Acting computes a shared torso, and with memory the critic's own; outputs with features
        # would fill a rollout.
        keeps_outputs=(config.share_torso or memory is not None) and not head.reads_features,
        spec=("actor_critic", config),
        custom=("torso",) if torso else (),
        action_space=action_space,
    )


class SeparateActorCritic(nnx.Module):
    """Two separate networks: obs [B, ...] -> (memory, (policy outputs, values [B])).

    The outputs are those that `head` takes, of a `WithHead`. The memory is a pair, of actor and
    critic, or () without.
    """

    def __init__(self, build: TorsoBuilder, features: int, head: PolicyHead, *, rngs: nnx.Rngs):
        self.actor = WithHead(
            build(rngs), features, head.num_outputs, 0.01, keep_features=head.reads_features
        )
        self.critic = WithHead(build(rngs), features, 1, 1.0)

    def __call__(self, obs: Obs | Sequences) -> tuple[Carry, tuple[Array, Array]]:
        if not isinstance(obs, Sequences):
            return (), (self.actor(obs), jnp.squeeze(self.critic(obs), -1))
        actor, critic = obs.carry
        actor, out = self.actor.remembering(obs.replace(carry=actor))
        critic, value = self.critic.remembering(obs.replace(carry=critic))
        return (actor, critic), (out, jnp.squeeze(value, -1))


class SharedActorCritic(nnx.Module):
    """Policy and value on one torso: obs [B, ...] -> (memory, (policy outputs, values [B])).

    The outputs are those that `head` takes. The memory is that of the torso, () without. With
    `last_layer`, each head stands on a hidden layer of its own, as in PureJaxRL's `ppo_rnn.py`:
    behind a memory, one for both learns later on CartPole (benchmarks/notes.md).
    """

    def __init__(
        self,
        build: TorsoBuilder,
        features: int,
        head: PolicyHead,
        *,
        last_layer: Callable[[], MLP] | None = None,
        rngs: nnx.Rngs,
    ):
        self.keep_features = head.reads_features
        self.torso = build(rngs)
        own = (last_layer(), last_layer()) if last_layer else (None, None)
        self.actor_last, self.critic_last = own
        self.actor_head = Linear(features, head.num_outputs, scale=0.01, is_last=True)
        self.critic_head = Linear(features, 1, scale=1.0, is_last=True)

    def __call__(self, obs: Obs | Sequences) -> tuple[Carry, tuple[Array, Array]]:
        memory, features = features_of(self.torso, obs)
        actor = self.actor_last(features) if self.actor_last else features
        critic = self.critic_last(features) if self.critic_last else features
        out = outputs(self.actor_head, actor, keep_features=self.keep_features)
        return memory, (out, jnp.squeeze(self.critic_head(critic), -1))


def _twice(memory: InitialCarry) -> InitialCarry:
    return lambda num_envs: (memory(num_envs), memory(num_envs))
