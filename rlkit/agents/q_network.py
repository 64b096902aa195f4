"""Q-network agent: a value for each discrete action, explored ε-greedily."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import nnx
from gymnasium import spaces
from jax import Array

from rlkit.agents.base import unsupported_actions
from rlkit.agents.configs import NormalizedQNetworkConfig, QNetworkConfig
from rlkit.agents.layers import Linear
from rlkit.agents.masking import ignoring_masks, observed_space, only_allowed
from rlkit.agents.memory import features_of, one_step
from rlkit.agents.memory_torso import InitialCarry, torso_and_memory
from rlkit.agents.networks import Network, TorsoBuilder, make_network
from rlkit.ops.choices import random_index
from rlkit.ops.random_bits import as_integers, as_uniform
from rlkit.spaces import Space, allowed_actions
from rlkit.types import Action, Carry, Key, Obs, Params, PyTree, Sequences
from rlkit.validation import settings


@dataclasses.dataclass(frozen=True)
class QNetwork:
    """Build it with `q_network`. Every method takes one batch axis: obs [B, ...].

    With memory, those that losses call take `Sequences` in place of observations.
    """

    network: Network[tuple[Carry, Array]]  # (memory, a value for each action)
    memory: InitialCarry | None  # that of the network
    config: QNetworkConfig
    num_actions: int
    start: int  # the smallest action
    spec: tuple[str, QNetworkConfig] | None
    custom: tuple[str, ...]  # what was passed in addition to the config
    action_space: Space = dataclasses.field(compare=False)  # spaces are not hashable, agents are

    def init(self, key: Key) -> Params:
        """Fresh parameters; the key is consumed."""
        return self.network.init(key)

    def initial_carry(self, num_envs: int) -> Carry:
        """The memory, () without."""
        return () if self.memory is None else self.memory(num_envs)

    def explore(
        self, params: Params, obs: Obs, carry: Carry, key: Key, progress: Array
    ) -> tuple[Action, Carry, dict[str, PyTree]]:
        """The best action or, with probability `epsilon(progress)`, a random one.

        Drawn for each environment.
        """
        best, carry = self._best(params, obs, carry)
        bits = jax.random.bits(key, (3, *best.shape))  # one word for whether, two for which action
        at_random = as_uniform(bits[0]) < self.epsilon(progress)
        mask = allowed_actions(obs, self.action_space)
        if mask is None:
            drawn = as_integers(bits[1:], self.num_actions)
        else:
            drawn = random_index(bits[1:], mask)
        return jnp.where(at_random, self.start + drawn, best), carry, {}

    def exploit(self, params: Params, obs: Obs, carry: Carry, key: Key) -> tuple[Action, Carry]:
        """The actions with the highest value."""
        return self._best(params, obs, carry)

    def epsilon(self, progress: Array) -> Array:
        """ε, which falls linearly over the first `exploration_fraction` of the run."""
        config = self.config
        share = jnp.clip(progress / config.exploration_fraction, 0.0, 1.0)
        return config.epsilon_start + share * (config.epsilon_end - config.epsilon_start)

    def q_values(self, params: Params, obs: Obs) -> Array:
        """The value of every action, [B, A]; -inf for those that a mask does not allow."""
        return only_allowed(self.network.apply(params, obs)[1], obs, self.action_space)

    def value(self, params: Params, obs: Obs) -> Array:
        """The value of the best action, [B]."""
        return self.q_values(params, obs).max(axis=-1)

    def _best(self, params: Params, obs: Obs, carry: Carry) -> tuple[Action, Carry]:
        inputs = obs if self.memory is None else one_step(obs, carry)
        carry, values = self.network.apply(params, inputs)
        values = only_allowed(values, obs, self.action_space)
        return self.start + values.argmax(axis=-1).astype(jnp.int32), carry

    def index(self, action: Action) -> Array:
        """The index of each action, [B], from 0."""
        return action - self.start


def q_network(
    observation_space: Space,
    action_space: Space,
    config: QNetworkConfig | None = None,
    *,
    torso: TorsoBuilder | None = None,
) -> QNetwork:
    """A `QNetwork` for the spaces of ONE environment; `torso` as for `actor_critic`.

    Raises `SpaceError` or `ConfigError` for spaces and torsos that do not fit.
    """
    config = settings(config, QNetworkConfig)
    if not isinstance(action_space, spaces.Discrete):
        raise unsupported_actions("a Q-network", "Discrete", action_space)
    num_actions = int(action_space.n)
    seen = observed_space(observation_space, action_space)
    build, features, memory = torso_and_memory(config, seen, torso, layer_norm=config.layer_norm)
    network = make_network(
        lambda rngs: QValues(build, features, num_actions, dueling=config.dueling, rngs=rngs),
        config,
    )
    return QNetwork(
        network=ignoring_masks(network),
        memory=memory,
        config=config,
        num_actions=num_actions,
        start=int(action_space.start),
        spec=("q_network", config),
        custom=("torso",) if torso else (),
        action_space=action_space,
    )


def normalized_q_network(
    observation_space: Space,
    action_space: Space,
    config: NormalizedQNetworkConfig | None = None,
    *,
    torso: TorsoBuilder | None = None,
) -> QNetwork:
    """A `q_network` with layer norm, which stabilises learning without a target network (PQN)."""
    config = settings(config, NormalizedQNetworkConfig)
    network = q_network(observation_space, action_space, config, torso=torso)
    return dataclasses.replace(network, spec=("normalized_q_network", config))


class QValues(nnx.Module):
    """Values of all actions: obs [B, ...] -> (memory, values [B, A]).

    Dueling: the state's value plus advantages of zero mean.
    """

    def __init__(
        self, build: TorsoBuilder, features: int, num_actions: int, *, dueling: bool, rngs: nnx.Rngs
    ):
        self.torso = build(rngs)
        self.advantage_head = Linear(features, num_actions, scale=1.0, is_last=True)
        self.value_head = Linear(features, 1, scale=1.0, is_last=True) if dueling else None

    def __call__(self, obs: Obs | Sequences) -> tuple[Carry, Array]:
        memory, features = features_of(self.torso, obs)
        values = self.advantage_head(features)
        if self.value_head is None:
            return memory, values
        return memory, self.value_head(features) + values - values.mean(axis=-1, keepdims=True)
