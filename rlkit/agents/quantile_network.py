"""Quantile network: quantiles of each discrete action's return; ε-greedy on their mean."""

import dataclasses

from gymnasium import spaces
from jax import Array

from rlkit.agents.base import unsupported_actions
from rlkit.agents.configs import QuantileNetworkConfig
from rlkit.agents.masking import observed_space, only_allowed
from rlkit.agents.networks import Network, TorsoBuilder
from rlkit.agents.q_network import QNetwork, q_network
from rlkit.spaces import Space
from rlkit.types import Action, Carry, Key, Obs, Params, PyTree
from rlkit.validation import settings


@dataclasses.dataclass(frozen=True)
class QuantileNetwork:
    """Build it with `quantile_network`. Every method takes one batch axis: obs [B, ...]."""

    inner: QNetwork  # values are means of quantiles
    wide: QNetwork  # a value for each quantile of each action
    num_quantiles: int
    spec: tuple[str, object]
    custom: tuple[str, ...]  # what was passed in addition to the config
    action_space: Space = dataclasses.field(compare=False)  # spaces are not hashable, agents are

    def init(self, key: Key) -> Params:
        """Fresh parameters; the key is consumed."""
        return self.inner.init(key)

    def initial_carry(self, num_envs: int) -> Carry:
        """The memory, () without."""
        return self.inner.initial_carry(num_envs)

    def explore(
        self, params: Params, obs: Obs, carry: Carry, key: Key, progress: Array
    ) -> tuple[Action, Carry, dict[str, PyTree]]:
        """See `QNetwork.explore`."""
        return self.inner.explore(params, obs, carry, key, progress)

    def exploit(self, params: Params, obs: Obs, carry: Carry, key: Key) -> tuple[Action, Carry]:
        """The actions with the highest mean."""
        return self.inner.exploit(params, obs, carry, key)

    def quantiles(self, params: Params, obs: Obs) -> Array:
        """Quantiles of the return of every action, [N, B, A]: the i-th is at level (i + ½) / N.

        Nothing keeps them in order. Those of actions that a mask does not allow are -inf.
        """
        outputs = split(self.wide.network.apply(params, obs)[1], self.num_quantiles)
        return only_allowed(outputs, obs, self.action_space)

    def q_values(self, params: Params, obs: Obs) -> Array:
        """The value of every action, [B, A]."""
        return self.inner.q_values(params, obs)

    def value(self, params: Params, obs: Obs) -> Array:
        """The value of the best action, [B]."""
        return self.inner.value(params, obs)

    def index(self, action: Action) -> Array:
        """The index of each action, [B], from 0."""
        return self.inner.index(action)


def quantile_network(
    observation_space: Space,
    action_space: Space,
    config: QuantileNetworkConfig | None = None,
    *,
    torso: TorsoBuilder | None = None,
) -> QuantileNetwork:
    """A `QuantileNetwork` for the spaces of ONE environment; `torso` as for `actor_critic`.

    It is a `q_network` with `num_quantiles` outputs for each action. If dueling, it adds one state
    value to all quantiles of all actions, where Rainbow has one for each quantile. Raises
    `SpaceError` or `ConfigError` for spaces that do not fit.
    """
    config = settings(config, QuantileNetworkConfig)
    if not isinstance(action_space, spaces.Discrete):
        raise unsupported_actions("a quantile network", "Discrete", action_space)
    num_actions = int(action_space.n)
    outputs = spaces.Discrete(config.num_quantiles * num_actions)
    seen = observed_space(observation_space, action_space)
    wide = q_network(seen, outputs, config, torso=torso)

    def means(params: Params, obs: Obs) -> tuple[Carry, Array]:
        memory, values = wide.network.apply(params, obs)
        return memory, split(values, config.num_quantiles).mean(axis=0)

    inner = dataclasses.replace(
        wide,
        network=Network(wide.init, means, wide.network.module),
        num_actions=num_actions,
        start=int(action_space.start),
        action_space=action_space,
    )
    return QuantileNetwork(
        inner=inner,
        wide=wide,
        num_quantiles=config.num_quantiles,
        spec=("quantile_network", config),
        custom=wide.custom,
        action_space=action_space,
    )


def split(outputs: Array, num_quantiles: int) -> Array:
    """[B, N·A] -> [N, B, A]"""
    return outputs.reshape(outputs.shape[0], num_quantiles, -1).swapaxes(0, 1)
