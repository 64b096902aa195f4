"""Agents that an algorithm refuses: those that lack what its losses call, and those with a state
that it would not learn to use.
"""

import dataclasses
import re

import pytest
from algorithm_rows import NAMES, TRAINING_ENVS, acts_in, agent_of, algorithm_of, known
from host_twins import CountingAgent

from rlkit.agents.base import Agent, QAndStateValueAgent, SoftActorCriticAgent, methods_of
from rlkit.algorithms.agent_checks import check_family
from rlkit.algorithms.compatibility import check_compatible
from rlkit.algorithms.registry import algorithm_entry
from rlkit.envs.jittable.vectorized import vectorize
from rlkit.errors import ConfigError


def parts(name):
    """The algorithm, its agent and an environment that both take."""
    env = next(env for env in TRAINING_ENVS.values() if acts_in(name, env.action_space))
    env = vectorize(env, 2)
    return algorithm_of(name), agent_of(name, env), env


@pytest.mark.parametrize("name", NAMES)
def test_an_agent_with_memory_is_refused_by_what_does_not_learn_through_it(name):
    algorithm, agent, env = parts(name)
    check_compatible(algorithm, agent, env)
    recurrent, short = CountingAgent(agent), {"sequence_length": 4, "burn_in": 2}
    algorithm = algorithm_of(name, **known(algorithm_entry(name).config, short))
    if not algorithm.learns_through_carry:
        wanted = f"CountingAgent has memory, but {name} does not learn .*; use sac.*FrameStack"
        with pytest.raises(ConfigError, match=wanted):
            check_compatible(algorithm, recurrent, env)
        algorithm = dataclasses.replace(algorithm, learns_through_carry=True)
    check_compatible(algorithm, recurrent, env)


@pytest.mark.fast
def test_all_but_td3_learn_through_memory():
    assert [name for name in NAMES if not algorithm_of(name).learns_through_carry] == ["td3"]


@pytest.mark.parametrize("name", NAMES)
def test_an_agent_of_no_family_is_refused(name):
    algorithm, _, env = parts(name)
    with pytest.raises(ConfigError, match=f"{name} needs an agent with `") as error:
        check_compatible(algorithm, object(), env)  # pyright: ignore[reportArgumentType]
    assert f"use rlkit.{algorithm_entry(name).agent}(" in str(error.value)


def test_what_is_missing_is_named():
    _, agent, _ = parts("dqn")
    wanted = re.escape(
        "mine needs an agent with `policy`, `q_values`, `to_unit` (SoftActorCriticAgent),"
        " got QNetwork without `policy`, `to_unit`; use rlkit.soft_actor_critic("
    )
    with pytest.raises(ConfigError, match=wanted):
        check_family("mine", agent, SoftActorCriticAgent, "soft_actor_critic")


def test_methods_of_families_and_of_those_that_they_extend():
    assert methods_of(Agent) == ()
    assert methods_of(QAndStateValueAgent) == ("q_values", "index", "value")


class Mine(Agent):
    """A family of somebody else's."""

    def novelty(self, params, obs):
        """Called by a loss."""


def test_a_family_of_ones_own():
    _, agent, _ = parts("ppo")
    with pytest.raises(ConfigError, match=r"without `novelty`; use rlkit\.actor_critic"):
        check_family("mine", agent, Mine, "actor_critic")
