"""Algorithms by name. Imports no JAX until one is built.

Three sources: the rows below, `register_algorithm`, and installed packages with an entry point that
names an `AlgorithmEntry`. Such a package is only imported when its name is used; using a name that
two sources claim is an error:

    [project.entry-points."rlkit.algorithms"]
    munchausen_dqn = "my_package.munchausen_dqn:ENTRY"
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlkit import plugins
from rlkit.algorithms.configs import (
    A2CConfig,
    DiscreteSACConfig,
    DQNConfig,
    PPOConfig,
    PQNConfig,
    QRDQNConfig,
    SACConfig,
    TD3Config,
)
from rlkit.errors import ConfigError, require, shown
from rlkit.lazy import resolve

if TYPE_CHECKING:
    from rlkit.algorithms.base import Algorithm

ENTRY_POINT_GROUP = "rlkit.algorithms"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlgorithmEntry:
    """What the registry knows about an algorithm."""

    config: type
    # "module:function", imported when used, or the function: factory(config) -> Algorithm.
    factory: str | Callable[..., Any]
    agent: str  # name of the default agent
    summary: str


ALGORITHMS: dict[str, AlgorithmEntry] = {
    "ppo": AlgorithmEntry(
        config=PPOConfig,
        factory="rlkit.algorithms.ppo:ppo",
        agent="actor_critic",
        summary="Proximal Policy Optimisation, on-policy; discrete and continuous actions",
    ),
    "a2c": AlgorithmEntry(
        config=A2CConfig,
        factory="rlkit.algorithms.a2c:a2c",
        agent="actor_critic",
        summary="Advantage Actor-Critic, on-policy; discrete and continuous actions",
    ),
    "pqn": AlgorithmEntry(
        config=PQNConfig,
        factory="rlkit.algorithms.pqn:pqn",
        agent="normalized_q_network",
        summary="Parallelised Q-Network, on-policy; discrete actions",
    ),
    "dqn": AlgorithmEntry(
        config=DQNConfig,
        factory="rlkit.algorithms.dqn:dqn",
        agent="q_network",
        summary="Deep Q-Network, off-policy; discrete actions",
    ),
    "qr_dqn": AlgorithmEntry(
        config=QRDQNConfig,
        factory="rlkit.algorithms.qr_dqn:qr_dqn",
        agent="quantile_network",
        summary="Quantile-regression DQN, off-policy; discrete actions",
    ),
    "sac": AlgorithmEntry(
        config=SACConfig,
        factory="rlkit.algorithms.sac:sac",
        agent="soft_actor_critic",
        summary="Soft Actor-Critic, off-policy; continuous actions",
    ),
    "td3": AlgorithmEntry(
        config=TD3Config,
        factory="rlkit.algorithms.td3:td3",
        agent="deterministic_actor_critic",
        summary="Twin Delayed Deep Deterministic policy gradient, off-policy; continuous actions",
    ),
    "discrete_sac": AlgorithmEntry(
        config=DiscreteSACConfig,
        factory="rlkit.algorithms.discrete_sac:discrete_sac",
        agent="discrete_soft_actor_critic",
        summary="Soft Actor-Critic, off-policy; discrete actions",
    ),
}


def algorithm_entry(name: str) -> AlgorithmEntry:
    """The registry's row for `name`.

    Raises `UnknownNameError`, or `ConfigError` if the package that provides it is broken.
    """
    return plugins.find_row(name, ALGORITHMS, ENTRY_POINT_GROUP, "algorithm", AlgorithmEntry)


def list_algorithms() -> dict[str, str]:
    """Names and summaries of all algorithms.

    Algorithms of installed packages are not imported; their summary is the package's name.
    """
    return plugins.summaries(ALGORITHMS, ENTRY_POINT_GROUP)


def make_algorithm(name: str, config: object = None) -> "Algorithm":
    """The algorithm `name` with its config, None: the defaults. Raises `ConfigError`.

    Its `spec` is this name, whatever its factory calls it, and the factory's own parts are not
    `custom`: the name is what rebuilds them.
    """
    from rlkit.algorithms.base import Algorithm

    entry = algorithm_entry(name)
    if config is not None and not isinstance(config, entry.config):
        raise ConfigError(
            f"{name} takes a {entry.config.__name__}, got {type(config).__name__}; pass that one"
        )
    config = config or entry.config()
    made = resolve(entry.factory)(config)
    require(
        isinstance(made, Algorithm),
        f"the factory of {name!r} returned {shown(made)}",
        "let it return an Algorithm, such as rlkit.ppo(config, loss=...)",
    )
    return plugins.named(made, name, config)


def register_algorithm(
    name: str,
    factory: Callable[..., Any],
    *,
    config: type,
    agent: str = "actor_critic",
    summary: str = "",
) -> None:
    """Adds an algorithm: `factory(config) -> Algorithm`.

    Raises `ConfigError` if the name is taken, or if factory or config are no such things.
    """
    plugins.check_new(name, ALGORITHMS, "algorithm", factory, config)
    ALGORITHMS[name] = AlgorithmEntry(config=config, factory=factory, agent=agent, summary=summary)
