"""A run as plain data: whatever its parts hold, YAML can write it."""

import dataclasses
import enum

import algorithm_rows
import jax
import numpy as np
import pytest
import yaml
from flax import nnx
from gymnasium import spaces
from untrained_policies import ACTIONS, OBSERVATIONS, policy_of

import rlkit
from rlkit.envs import registry
from rlkit.envs.probes.space_probes import Counter
from rlkit.training.files.run_description import describe, hparams_to_dict, plain
from rlkit.training.files.same_parts import same

pytestmark = pytest.mark.fast


class Mode(enum.Enum):
    DAY = 1


class Level(enum.IntEnum):
    HIGH = 3


class Season(enum.StrEnum):
    SUMMER = "summer"


class Metres(float):
    pass


class Place:
    def __init__(self):
        self.mode, self.level, self.season, self.size = Mode.DAY, Level.HIGH, Season.SUMMER, 2
        self.height, self.space, self.weights = Metres(1.5), spaces.Discrete(3), np.ones(2)
        self._hidden = 5


def test_every_value_becomes_what_yaml_can_write():
    found = plain({"env": Place(), "modes": (Mode.DAY, True, None)})
    assert found == {
        "env": {
            "type": "Place",
            "mode": "Mode.DAY",
            "level": "3",
            "season": "summer",
            "size": 2,
            "height": 1.5,
            "space": "Discrete(3)",
            "weights": [1.0, 1.0],
        },
        "modes": ["Mode.DAY", True, None],
    }
    assert yaml.safe_load(yaml.safe_dump(found)) == found


@pytest.mark.parametrize(
    ("argument", "custom"),
    [
        (3, []),
        ((1, 2), []),
        (np.ones(2), []),
        (Mode.DAY, ["env.arguments"]),
        (Place, ["env.arguments"]),
    ],
)
def test_arguments_that_no_file_holds_are_named(tiny, monkeypatch, argument, custom):
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    registry.register_env("mine/Counter-v0", lambda when=None: Counter())
    env = registry.make_env("mine/Counter-v0", 2, when=argument)
    found = describe(tiny.module(env=env), None, tiny.config(), 0)
    assert found.get("custom", []) == custom
    yaml.safe_dump(found)


CART = "gymnax/CartPole-v1"


@dataclasses.dataclass(frozen=True)
class Around:
    """Passes everything on, the `spec` too, but explores otherwise."""

    inner: object

    def __getattr__(self, name):
        return getattr(object.__getattribute__(self, "inner"), name)


def changed(part, name, **settings):
    return dataclasses.replace(part, **{name: dataclasses.replace(getattr(part, name), **settings)})


def narrow(agent):
    space = rlkit.make_env(CART, 1).observation_space
    config = rlkit.ActorCriticConfig(hidden_sizes=(8,))
    return rlkit.actor_critic(space, agent.action_space, config).network


@pytest.mark.parametrize("name", [*algorithm_rows.NAMES, *algorithm_rows.VARIANTS])
def test_parts_that_were_not_changed_have_names(name):
    """All algorithms, with memory, gSDE and pink noise among them."""
    env = rlkit.make_env(algorithm_rows.training_env(name), 2)
    agent = algorithm_rows.agent_of(name, env)
    algorithm = algorithm_rows.algorithm_of(name)
    assert same(algorithm, algorithm_rows.algorithm_of(name))
    assert same(agent, algorithm_rows.agent_of(name, env))
    config = rlkit.TrainerConfig(total_steps=50_000, enable_evaluation=False)
    with rlkit.Trainer(env, None, agent, algorithm, config) as trainer:
        assert "custom" not in trainer.description()


@pytest.mark.parametrize(
    ("algorithm", "agent", "custom"),
    [
        ("ppo", lambda agent: agent, None),
        ("dqn", lambda agent: agent, None),
        (changed(rlkit.ppo(), "collector", num_steps=16), lambda agent: agent, ["algorithm"]),
        (changed(rlkit.dqn(), "updater", simultaneous=True), lambda agent: agent, ["algorithm"]),
        (
            dataclasses.replace(
                rlkit.ppo(), updater=rlkit.ppo(rlkit.PPOConfig(clip_epsilon=0.9)).updater
            ),
            lambda agent: agent,
            ["algorithm"],
        ),
        (
            dataclasses.replace(
                rlkit.ppo(), updater=rlkit.ppo(rlkit.PPOConfig(learning_rate=1.0)).updater
            ),
            lambda agent: agent,
            ["algorithm"],
        ),
        ("ppo", lambda agent: dataclasses.replace(agent, network=narrow(agent)), ["agent"]),
        ("dqn", Around, ["agent"]),
        ("ppo", lambda agent: dataclasses.replace(agent, keeps_outputs=True), ["agent"]),
    ],
)
def test_parts_that_were_changed_have_no_name(algorithm, agent, custom):
    """Or `rlkit resume` would train the parts as they were before."""
    env = rlkit.make_env(CART, 8)
    algorithm = getattr(rlkit, algorithm)() if isinstance(algorithm, str) else algorithm
    network = rlkit.actor_critic if algorithm.spec[0] == "ppo" else rlkit.q_network
    given = agent(network(env.observation_space, env.action_space))
    config = rlkit.TrainerConfig(total_steps=50_000, warmup_steps=None)
    if algorithm.replay_buffer is not None:
        config = dataclasses.replace(config, warmup_steps=20_000, replay_buffer_capacity=30_000)
    with rlkit.Trainer(env, None, given, algorithm, config) as trainer:
        assert trainer.description().get("custom") == custom
        assert hparams_to_dict(trainer.module).get("custom") == custom
        if custom == ["algorithm"]:  # what is written is what it trains with
            assert trainer.description()["algorithm"]["type"] == "Algorithm"


def test_a_wrapped_adapter_has_no_name():
    env = Around(rlkit.make_env(CART, 8))
    agent = rlkit.actor_critic(env.observation_space, env.action_space)
    config = rlkit.TrainerConfig(total_steps=50_000)
    with rlkit.Trainer(env, env, agent, rlkit.ppo(), config) as trainer:
        assert "env" in trainer.description()["custom"]


@pytest.mark.parametrize("observations", ["dict", "large image"])
@pytest.mark.parametrize("name", ["actor_critic", "soft_actor_critic"])
def test_agents_of_equal_settings_are_the_same(name, observations):
    action = ACTIONS["box"]
    one, other = (policy_of(name, OBSERVATIONS[observations], action).agent for _ in range(2))
    assert one is not other and same(one, other)


def torso_of(width: int):
    class Torso(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            self.layer = nnx.Linear(3, width, rngs=rngs)

        def __call__(self, obs: jax.Array) -> jax.Array:
            return nnx.relu(self.layer(obs))

    return Torso


def test_classes_made_by_the_same_function_are_the_same():
    """As of an agent with a name, whose factory defines the torso."""

    def agent(width: int):
        return rlkit.actor_critic(OBSERVATIONS["floats"], ACTIONS["box"], torso=torso_of(width))

    assert torso_of(8) is not torso_of(8)
    assert same(agent(8), agent(8))
    assert not same(agent(8), agent(16))


def test_other_classes_of_a_function_are_not_the_same():
    def of(number: int, base: type = object):
        class Part(base):
            weight = number

        return Part

    assert same(of(1), of(1))
    assert not same(of(1), of(2))
    assert not same(of(1), of(1, Place))
