"""What the contract tests need to know of an algorithm, derived from its row in the registry: a new
one needs no row here.

Settings go by the names of fields: a config that has one gets the value. So a field of a known
meaning should bear its known name (docs/new_algorithm.md lists them).
"""

import dataclasses
import functools
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from rlkit.agents.registry import agent_entry, make_agent
from rlkit.algorithms.registry import (
    AlgorithmEntry,
    algorithm_entry,
    list_algorithms,
    make_algorithm,
)
from rlkit.envs.probes import space_probes
from rlkit.envs.probes import value_probes as probes
from rlkit.errors import SpaceError
from rlkit.testing.small_runs import SMALL, SMALL_AGENT, known

NAMES = tuple(list_algorithms())
# Algorithms with settings of their agent: ways to explore whose noise has a state, and memory.
# Every function here takes these names as well.
EXPLORING: dict[str, dict[str, Any]] = {
    "ppo.gsde": {"use_sde": True, "sde_sample_freq": 3},
    "a2c.gsde": {"use_sde": True},
    "sac.gsde": {"use_sde": True, "sde_sample_freq": 3},
    "sac.pink": {"noise_color": "pink"},
    "td3.pink": {"noise_color": "pink", "exploration_noise": 0.5},
}
MEMORY: dict[str, dict[str, Any]] = {
    "ppo.gru": {"memory": "gru", "memory_size": 5},
    "ppo.lstm_gsde": {"memory": "lstm", "memory_size": 4, "use_sde": True, "share_torso": True},
    "a2c.lstm": {"memory": "lstm", "memory_size": 4},
    "pqn.min_gru": {"memory": "min_gru", "memory_size": 6},
    "dqn.gru": {"memory": "gru", "memory_size": 5},
    "qr_dqn.min_gru": {"memory": "min_gru", "memory_size": 6},
    "sac.lstm_gsde": {"memory": "lstm", "memory_size": 4, "use_sde": True},
    "discrete_sac.gru": {"memory": "gru", "memory_size": 5},
}
# How those that replay cut sequences, short enough for `SMALL`.
REPLAYED: dict[str, dict[str, Any]] = {
    "dqn.gru": {"sequence_length": 4, "burn_in": 2},
    "qr_dqn.min_gru": {
        "sequence_length": 3,
        "burn_in": 0,
        "n_step": 2,
        "priority_exponent": 0.6,
    },
    "sac.lstm_gsde": {"sequence_length": 4, "burn_in": 2},
    "discrete_sac.gru": {"sequence_length": 3, "burn_in": 3},
}
VARIANTS = EXPLORING | MEMORY

# Small, but enough to learn a probe in 400 iterations of 8 environments; every update moves the
# parameters visibly.
LEARNING = SMALL | {
    "num_epochs": 4,
    "prefill_steps": 64,
    "capacity": 512,
    "batch_size": 64,
    "n_step": 2,
    "target_period": 128,
    "tau": 0.02,
    "learning_rate": 0.01,
    "learning_rate_schedule": "constant",
    "optimizer": "adam",
}
# What lets values be compared with those of the best policy: rewards and nothing else.
PLAIN_VALUES = {"entropy_coef": 0.0, "temperature": 0.01, "clip_value_loss": False}
NORMALIZED = {"normalize_observations": True, "normalize_rewards": True}

ACTION_SPACES: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(3, start=-1),
    "box": spaces.Box(np.float32([-1, -2]), np.float32([1, 4])),
    "multi_discrete": spaces.MultiDiscrete([2, 3]),
    "composite": spaces.Dict(
        {
            "jump": spaces.Discrete(3, start=-1),
            "hands": spaces.Tuple([spaces.Box(-2.0, 4.0, (2,)), spaces.MultiDiscrete([2, 3])]),
        }
    ),
}
# One environment for each kind of action space that the training loop is tested in.
TRAINING_ENVS = {
    "probe/Counter": space_probes.Counter(),
    "probe/ContinuousAction": space_probes.ContinuousAction(),
}


def registered(name: str) -> str:
    """The name in the registry, for one that says how the agent explores."""
    return name.split(".")[0]


def entry(name: str) -> AlgorithmEntry:
    """The algorithm's row in the registry."""
    return algorithm_entry(registered(name))


def fields(name: str) -> set[str]:
    """Fields of the algorithm's config."""
    return {field.name for field in dataclasses.fields(entry(name).config)}


def config_of(name: str, table: Mapping[str, Any] = SMALL, **settings: Any) -> Any:
    """A config of the algorithm: `table` where it applies, and `settings` in any case."""
    kind = entry(name).config
    return kind(**(known(kind, table) | REPLAYED.get(name, {}) | settings))


def algorithm_of(name: str, table: Mapping[str, Any] = SMALL, **settings: Any) -> Any:
    """The algorithm with `config_of` the same arguments."""
    return make_algorithm(registered(name), config_of(name, table, **settings))


def agent_kind(name: str) -> type:
    """The config of the agent that the algorithm learns by default."""
    return agent_entry(entry(name).agent).config


def network_of(name: str) -> Any:
    """A small config of the agent that the algorithm learns by default."""
    return small_agent(entry(name).agent, **VARIANTS.get(name, {}))


def small_agent(agent: str, **settings: Any) -> Any:
    """A small config of an agent."""
    kind = agent_entry(agent).config
    return kind(**(known(kind, SMALL_AGENT) | settings))


def agent_of(name: str, env: Any, **settings: Any) -> Any:
    """The agent that the algorithm learns by default, small, for the spaces of `env`. Raises
    `SpaceError`.
    """
    agent = entry(name).agent
    settings = VARIANTS.get(name, {}) | settings
    return make_agent(
        agent, env.observation_space, env.action_space, small_agent(agent, **settings)
    )


def acts_in(name: str, space: Any) -> bool:
    """Whether the algorithm's default agent takes `space` as its action space."""
    continuous = VARIANTS.get(name, {}).keys() & {"use_sde", "noise_color"}
    fits = not continuous or isinstance(space, spaces.Box)
    return fits and _takes(entry(name).agent, _Spaces(space))


@dataclasses.dataclass(frozen=True)
class _Spaces:
    """The spaces of no environment in particular; hashed by what they are."""

    action_space: Any

    observation_space = probes.UNIT

    def __hash__(self) -> int:
        return hash(repr(self.action_space))


@functools.cache
def _takes(agent: str, env: _Spaces) -> bool:
    try:
        make_agent(agent, env.observation_space, env.action_space, small_agent(agent))
    except SpaceError:
        return False
    return True


def action_spaces(name: str) -> list[str]:
    """Keys of `ACTION_SPACES` that the algorithm acts in."""
    return [key for key, space in ACTION_SPACES.items() if acts_in(name, space)]


def sharing(name: str) -> list[str]:
    """The algorithms with the same default agent, in the order of the registry."""
    agent = entry(name).agent
    return [other for other in NAMES if entry(other).agent == agent]


def law_space(name: str) -> Any:
    """The action space that the laws are checked in: algorithms with the same agent take turns over
    those that it acts in.
    """
    fitting = action_spaces(name)
    assert fitting, f"{name}: its agent acts in none of {', '.join(ACTION_SPACES)}"
    return ACTION_SPACES[fitting[sharing(name).index(registered(name)) % len(fitting)]]


def training_env(name: str) -> str:
    """The registry id of an environment that the algorithm can be trained in."""
    return next(env_id for env_id, env in TRAINING_ENVS.items() if acts_in(name, env.action_space))


def long_episodes(algorithm):
    """An environment for what is kept over an episode; those of the probe are a step long."""
    continuous = acts_in(algorithm, ACTION_SPACES["box"])
    return "gymnax/Pendulum-v1" if continuous else "gymnax/CartPole-v1"


def updates_per_iteration(config: Any, num_steps: int) -> int:
    """Gradient steps that an iteration of `num_steps` environment steps makes, by the meaning of
    the settings.
    """
    if hasattr(config, "updates_per_step"):
        return round(config.updates_per_step * num_steps)
    return getattr(config, "num_epochs", 1) * getattr(config, "num_minibatches", 1)


# Probes: what must have been learned is known, and which one fails says what is broken.

LOSS_PROBES: dict[str, tuple[Any, float]] = {  # (environment, discount): what an algorithm computes
    "value_by_observation": (probes.ValueByObservation(), 0.9),
    "discounting": (probes.Discounting(), 0.5),
    "time_limit": (probes.TimeLimitProbe(), 0.8),
    "observation_dependent_action": (probes.ObservationDependentAction(), 0.9),
    "continuous_action": (space_probes.ContinuousAction(target=0.4), 0.9),
    "mixed_action": (space_probes.MixedAction(), 0.9),
    "allowed_actions": (space_probes.AllowedActions(), 0.4),
}
AGENT_PROBES: dict[str, tuple[Any, float]] = {  # what an agent reads and chooses from
    "multi_discrete_action": (space_probes.MultiDiscreteAction(), 0.9),
    "dict_observation": (space_probes.DictObservation(), 0.9),
}
PROBES = LOSS_PROBES | AGENT_PROBES


def probe_cases() -> list[tuple[str, str]]:
    """(algorithm, probe): those of the loss for every algorithm that acts in them, those of an
    agent once for each agent.

    A probe in which actions do not matter tells something only of agents whose values can be read.
    """
    cases = []
    for name in NAMES:
        for probe, (env, _) in PROBES.items():
            fits = acts_in(name, env.action_space) and (
                probe in LOSS_PROBES or sharing(name)[0] == name
            )
            if fits and (
                env.best_action() is not None or values_of(agent_of(name, env)) is not None
            ):
                cases.append((name, probe))
    return cases


def values_of(agent: Any) -> Any:
    """`values(params, obs)`, [B]: of states, or of the best actions; None where the agent tells
    neither.

    An agent tells by `value(params, obs)` or `q_values(params, obs)`, from all of its parameters;
    `q_values` of a part of them (`critic_params`), or of given actions, are an affair of its own
    losses.
    """
    if hasattr(agent, "value"):
        return agent.value
    if list(inspect.signature(getattr(agent, "q_values", lambda: None)).parameters) == [
        "params",
        "obs",
    ]:
        return lambda params, obs: agent.q_values(params, obs).max(-1)
    return None
