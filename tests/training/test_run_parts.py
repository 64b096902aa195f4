"""Parts that do not belong into a Trainer are refused at once, and the message says what does."""

import re

import pytest

from rlkit.agents.actor_critic import actor_critic
from rlkit.algorithms.configs import PPOConfig, SACConfig
from rlkit.algorithms.ppo import ppo
from rlkit.envs.registry import make_env
from rlkit.errors import ConfigError
from rlkit.training.callbacks import Callback, ProgressBar
from rlkit.training.config import TrainerConfig
from rlkit.training.trainer import Trainer

pytestmark = pytest.mark.fast
CONFIG = TrainerConfig(total_steps=2000, num_checkpoints=1)


@pytest.fixture(scope="module")
def parts():
    env = make_env("probe/Counter", num_envs=2)
    agent = actor_critic(env.observation_space, env.action_space)
    return {"env": env, "eval_env": None, "agent": agent, "algorithm": ppo(), "config": CONFIG}


MISTAKES = [
    ({"algorithm": ppo}, "got the function ppo; call it: ppo()"),
    ({"agent": actor_critic}, "got the function actor_critic; call it: actor_critic(env.observ"),
    ({"algorithm": PPOConfig}, "got PPOConfig; pass rlkit.ppo("),
    ({"algorithm": PPOConfig()}, "got PPOConfig; pass rlkit.ppo(PPOConfig(...))"),
    ({"algorithm": SACConfig()}, "got SACConfig; pass rlkit.sac(SACConfig(...))"),
    ({"algorithm": "ppo"}, "got 'ppo'; pass one, for example rlkit.ppo() or rlkit.make_algorithm("),
    ({"algorithm": None}, "got None; pass one"),
    ({"config": TrainerConfig}, "got the class TrainerConfig; add parentheses: TrainerConfig()"),
    ({"config": {"total_steps": 5}}, "got a dict; pass TrainerConfig(total_steps=5)"),
    ({"callbacks": [ProgressBar]}, "got the class ProgressBar; add parentheses: ProgressBar()"),
    ({"callbacks": [print]}, "is not a Callback; wrap a function: rlkit.log_callback(function)"),
    ({"callbacks": [3]}, "3 is not a Callback; pass a list of instances of subclasses of rlkit.C"),
    ({"callbacks": print}, "callbacks must be a list, got <built-in"),
    ({"eval_fn": 3}, "eval_fn must be a function of the state, got 3"),
    (
        {"checkpointer": {"directory": "x"}},
        "checkpoints to {'directory': 'x'}; pass a CheckpointerConfig, the path of a directory, or",
    ),
]


@pytest.mark.parametrize(("given", "said"), MISTAKES, ids=range(len(MISTAKES)))
def test_what_is_no_part_is_refused(parts, given, said):
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        Trainer(**(parts | given))
    assert "\n" not in str(caught.value)


def test_one_callback_alone_belongs_into_a_list(parts):
    with pytest.raises(ConfigError, match=r"put it into a list: callbacks=\[\.\.\.\]"):
        Trainer(**parts, callbacks=Callback())


def test_agent_and_algorithm_in_the_wrong_order(parts):
    swapped = {"agent": parts["algorithm"], "algorithm": parts["agent"]}
    with pytest.raises(ConfigError, match="got ActorCritic; swap the two: the agent comes first"):
        Trainer(**(parts | swapped))
