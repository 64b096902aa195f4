"""Run configs: YAML in and out, presets, and one clear line for every mistake."""

import dataclasses
from importlib import resources

import pytest

from rlkit.algorithms.configs import A2CConfig, PPOConfig
from rlkit.envs.registry import list_envs
from rlkit.errors import ConfigError, UnknownNameError
from rlkit.training import run_config
from rlkit.training.config import CheckpointerConfig, LoggerConfig, TrainerConfig
from rlkit.training.plain_yaml import dump_yaml, parse_yaml
from rlkit.training.run_config import EnvConfig, RunConfig

pytestmark = pytest.mark.fast

PRESETS = [name.split("/", 1) for name in run_config.preset_names()]
MINIMAL = {"algorithm": "ppo", "env": {"id": "gymnax/CartPole-v1"}}


def write(tmp_path, text):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    return path


def test_the_four_environments_of_the_readme_have_presets():
    ids = {env_id for algorithm, env_id in PRESETS if algorithm == "ppo"}
    assert {
        "gymnax/CartPole-v1",
        "gymnax/Acrobot-v1",
        "gymnax/Pendulum-v1",
        "gymnax/Breakout-MinAtar",
    } <= ids


@pytest.mark.parametrize(("algorithm", "env_id"), PRESETS)
class TestPresets:
    def test_is_for_a_known_environment_and_has_a_length(self, algorithm, env_id):
        config = run_config.preset(algorithm, env_id)
        assert (config.algorithm, config.env.id) == (algorithm, env_id)
        assert env_id in list_envs()
        assert config.trainer.total_steps is not None

    def test_minibatches_divide_the_batch(self, algorithm, env_id):
        config = run_config.preset(algorithm, env_id)
        minibatches = getattr(config.hyperparameters, "num_minibatches", 1)
        assert config.env.num_envs * config.hyperparameters.num_steps % minibatches == 0

    def test_survives_yaml(self, algorithm, env_id, tmp_path):
        config = run_config.preset(algorithm, env_id)
        assert run_config.from_dict(run_config.to_dict(config)) == config
        run_config.save(config, tmp_path / "config.yaml")
        assert run_config.load(tmp_path / "config.yaml") == config

    def test_says_what_it_departs_from(self, algorithm, env_id):
        file = resources.files("rlkit.presets") / algorithm / f"{env_id.replace('/', '--')}.yaml"
        assert file.read_text().startswith(
            ("# Defaults are CleanRL's", "# Defaults are Stable-Baselines3's")
        )


def test_without_a_preset_the_defaults_hold():
    config = run_config.preset("a2c", "gymnax/Catch-bsuite")
    assert config == RunConfig(algorithm="a2c", env=EnvConfig(id="gymnax/Catch-bsuite"))
    assert config.hyperparameters == A2CConfig()


def test_unusual_values_survive_yaml(tmp_path):
    config = RunConfig(
        algorithm="ppo",
        env=EnvConfig(
            id="gymnax/CartPole-v1", num_envs=8, arguments={"params": {"max_steps_in_episode": 20}}
        ),
        hyperparameters=PPOConfig(max_grad_norm=None, learning_rate=3e-5),
        trainer=TrainerConfig(num_checkpoints=3, restore_checkpoint=0, run_dir="runs/ü"),
        seed=2**32 - 1,
    )
    run_config.save(config, tmp_path / "config.yaml")
    assert run_config.load(tmp_path / "config.yaml") == config


def test_saving_never_overwrites(tmp_path):
    path = write(tmp_path, "mine")
    with pytest.raises(ConfigError, match="nothing was overwritten"):
        run_config.save(run_config.from_dict(MINIMAL), path)
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("path", "kept"),
    [("runs/old/a", False), ("runs/older/a", True), ("elsewhere/a", True), (None, True)],
)
def test_settings_for_another_run_name_nothing_inside_the_old_one(path, kept):
    places = {
        "logger_config": LoggerConfig(jsonl=path),
        "checkpointer_config": CheckpointerConfig(directory=path),
    }
    trainer = TrainerConfig(num_checkpoints=3, run_dir="runs/old", restore_checkpoint=0, **places)
    config = RunConfig(algorithm="ppo", env=EnvConfig(id="x/y"), trainer=trainer)
    expected = TrainerConfig(num_checkpoints=3, **(places if kept else {}))
    assert run_config.for_another_run(config) == dataclasses.replace(config, trainer=expected)


def test_a_branch_has_nothing_of_its_parents_places():
    """And needs nothing of its start, which may be gone."""
    settings = {
        "run_dir": "runs/a",
        "warm_start": "runs/teacher",
        "restore_checkpoint": "auto",
        "logger_config": LoggerConfig(jsonl="rows.jsonl", csv=True),
        "checkpointer_config": CheckpointerConfig(directory="saved", max_to_keep=3),
    }
    trainer = TrainerConfig(num_checkpoints=3, **settings)
    config = RunConfig(algorithm="ppo", env=EnvConfig(id="x/y"), trainer=trainer)
    expected = TrainerConfig(
        num_checkpoints=3,
        run_dir="runs/b",
        logger_config=LoggerConfig(csv=True),
        checkpointer_config=CheckpointerConfig(max_to_keep=3),
    )
    found = run_config.for_branch(config, "runs/b")
    assert found == dataclasses.replace(config, trainer=expected)


@pytest.mark.parametrize(
    ("written", "value"),
    [("3e-4", 3e-4), ("1E-3", 1e-3), ("2.5e-4", 2.5e-4), ("1", 1.0), ("1e+0", 1.0)],
)
def test_numbers_may_be_written_as_people_write_them(tmp_path, written, value):
    path = write(
        tmp_path,
        "algorithm: ppo\nenv: {id: gymnax/CartPole-v1}\nhyperparameters: {learning_rate:"
        f" {written}}}",
    )
    assert run_config.load(path).hyperparameters.learning_rate == value


@pytest.mark.parametrize("text", ["3e-4", "1E5", "-2e3", "1.5e+7", "true", "null", "1", "0x1f", ""])
def test_text_that_looks_like_something_else_stays_text(tmp_path, text):
    logs = LoggerConfig(wandb="offline", wandb_name=text, wandb_tags=(text,))
    trainer = TrainerConfig(run_dir=text or None, logger_config=logs)
    config = RunConfig(algorithm="ppo", env=EnvConfig(id="x/y"), trainer=trainer)
    run_config.save(config, tmp_path / "mine.yaml")
    assert run_config.load(tmp_path / "mine.yaml") == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"algorithm": "pppo"}, "unknown algorithm 'pppo'; did you mean 'ppo'?"),
        ({"algorithm": ["ppo"]}, "algorithm must be a name"),
        ({"agent": "actorcritic"}, "did you mean 'actor_critic'?"),
        ({"agent": {}}, "agent must be a name"),
        (
            {"env": "gymnax/CartPole-v1"},
            "RunConfig.env needs a mapping .*; write `env: {id: gymnax/CartPole-v1}`",
        ),
        ({"learning_rate": 1e-3}, "no field 'learning_rate'; write it below `hyperparameters:`"),
        ({"hidden_sizes": [8]}, "no field 'hidden_sizes'; write it below `network:`"),
        ({"total_steps": 8}, "no field 'total_steps'; write it below `trainer:`"),
        ({"num_envs": 8}, "no field 'num_envs'; write it below `env:`"),
        ({"wandb": "online"}, "no field 'wandb'; write it below `trainer: logger_config:`"),
        ({"env": {}}, "EnvConfig is incomplete"),
        ({"env": {"id": 3}}, "EnvConfig.id"),
        ({"env": {"id": "x/y", "num_envs": 0}}, "EnvConfig.num_envs: .*, got 0"),
        ({"env": {"id": "x/y", "numenvs": 8}}, "no field 'numenvs'; did you mean 'num_envs'?"),
        ({"hyperparameters": {"gama": 0.9}}, "PPOConfig has no field 'gama'; did you mean 'gamma'"),
        ({"hyperparameters": {"gamma": 1.5}}, "PPOConfig.gamma: .*, got 1.5"),
        ({"hyperparameters": {"learning_rate": "fast"}}, "PPOConfig.learning_rate: .*, got 'fast'"),
        ({"hyperparameters": {"learning_rate": float("nan")}}, "PPOConfig.learning_rate"),
        ({"hyperparameters": [1]}, "PPOConfig needs a mapping"),
        ({"network": {"hidden_sizes": []}}, "ActorCriticConfig.hidden_sizes"),
        ({"network": {"activation": "tan"}}, "ActorCriticConfig.activation"),
        ({"trainer": {"total_steps": -1}}, "TrainerConfig.total_steps"),
        ({"trainer": {"num_seeds": 0}}, "TrainerConfig.num_seeds"),
        ({"trainer": {"logger_config": {"wandb": "on"}}}, "LoggerConfig.wandb"),
        ({"trainer": {"logger_config": {"colour": 1}}}, "LoggerConfig has no field 'colour'"),
        ({"seed": -1}, "RunConfig.seed"),
        ({"seed": 2**32}, "RunConfig.seed"),
        ({"seed": 1.5}, "RunConfig.seed"),
        ({"sed": 1}, "RunConfig has no field 'sed'; did you mean 'seed'"),
    ],
)
def test_mistakes_are_named(change, message):
    with pytest.raises(ConfigError, match=message) as caught:
        run_config.from_dict(MINIMAL | change)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("values", [None, 3, [], {}, {"algorithm": "ppo"}, {"env": {"id": "x/y"}}])
def test_a_config_names_algorithm_and_environment(values):
    with pytest.raises(ConfigError, match="needs at least"):
        run_config.from_dict(values)


def test_settings_of_another_algorithm_are_refused():
    with pytest.raises(ConfigError, match="must be a PPOConfig, got A2CConfig"):
        RunConfig(algorithm="ppo", env=EnvConfig(id="x/y"), hyperparameters=A2CConfig())


def test_presets_of_an_unknown_algorithm():
    with pytest.raises(UnknownNameError, match="did you mean 'ppo'"):
        run_config.preset("pp0", "gymnax/CartPole-v1")


@pytest.mark.parametrize(
    "text", ["a: [", "a: !!python/object/apply:os.getcwd []", "\0", "a: 1\n---\nb: 2"]
)
def test_a_file_that_is_no_plain_yaml_is_refused(tmp_path, text):
    with pytest.raises(ConfigError, match=r"cannot read .*run\.yaml"):
        run_config.load(write(tmp_path, text))


def test_numbers_are_those_of_yaml_1_2():
    """1:30 is 90 in YAML 1.1, of base 60; a slip in a range would be a number, too."""
    text = "[1:30, 1e-4:1e-2, 2024-01-01, 3e-4, 12, -0.5, 1e5x]"
    read = ["1:30", "1e-4:1e-2", "2024-01-01", 3e-4, 12, -0.5, "1e5x"]
    assert parse_yaml(text) == read == parse_yaml(dump_yaml(read))


def test_a_missing_file_is_named_once(tmp_path):
    path = tmp_path / "absent.yaml"
    with pytest.raises(ConfigError) as caught:
        run_config.load(path)
    said = f"cannot read {path}: No such file or directory; pass a YAML file"
    assert str(caught.value) == said


@pytest.mark.parametrize("name", ["absent.yaml", "."])
def test_a_file_that_cannot_be_read(tmp_path, name):
    with pytest.raises(ConfigError, match="cannot read"):
        run_config.load(tmp_path / name)


def test_every_field_of_every_config_is_documented():
    """Each docstring is the help of a flag."""
    import ast
    import inspect

    from rlkit.agents import configs as agents
    from rlkit.algorithms import configs as algorithms
    from rlkit.training import config as training

    for module in (agents, algorithms, training, run_config):
        for node in ast.parse(inspect.getsource(module)).body:
            kind = getattr(module, getattr(node, "name", ""), None)
            if (
                isinstance(node, ast.ClassDef)
                and dataclasses.is_dataclass(kind)
                and node.name.endswith("Config")
            ):
                for field, following in zip(node.body, [*node.body[1:], None], strict=True):
                    documented = isinstance(following, ast.Expr) and isinstance(
                        following.value, ast.Constant
                    )
                    assert documented or not isinstance(field, ast.AnnAssign), (
                        f"{node.name}: {ast.unparse(field)}"
                    )
