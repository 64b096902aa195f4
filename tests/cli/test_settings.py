"""The settings of `rlkit train`: a preset or file, overridden by flags, shown by `--dry-run`."""

import os
import sys
from importlib import resources

import pytest
import yaml
from endless_env import SOURCE as ENDLESS

from rlkit.cli import train
from rlkit.cli.main import main
from rlkit.envs import registry
from rlkit.envs.suites.table import ADAPTED
from rlkit.training import run_config
from rlkit.training.config import TrainerConfig

pytestmark = pytest.mark.fast

ACROBOT = ["train", "ppo", "gymnax/Acrobot-v1"]


@pytest.fixture
def settings(capsys, tmp_path, monkeypatch):
    """The settings that the arguments lead to, whether or not their parts fit and they name a run
    to restore.
    """
    monkeypatch.chdir(tmp_path)
    for check in ("check_parts", "check_run_dir"):
        monkeypatch.setattr(train, check, lambda config: None)

    def resolve(*arguments):
        assert main([*arguments, "--dry-run"]) == 0
        assert not (tmp_path / "runs").exists()
        return run_config.from_dict(yaml.safe_load(capsys.readouterr().out))

    return resolve


@pytest.mark.parametrize("name", run_config.preset_names())
def test_without_flags_it_is_the_preset(name, settings):
    algorithm, env_id = name.split("/", 1)
    suite = ADAPTED.get(env_id.partition("/")[0])
    if suite is not None:
        pytest.importorskip(suite.package)
    assert settings("train", algorithm, env_id) == run_config.preset(algorithm, env_id)


def test_flags_override_the_preset_and_nothing_else(settings):
    plain = run_config.to_dict(run_config.preset("ppo", "gymnax/Acrobot-v1"))
    changed = run_config.to_dict(
        settings(
            *ACROBOT,
            "--learning-rate",
            "3e-4",
            "--hidden-sizes",
            "32",
            "16",
            "--num-seeds",
            "4",
            "--wandb",
            "offline",
        )
    )
    plain["hyperparameters"]["learning_rate"] = 3e-4
    plain["network"]["hidden_sizes"] = [32, 16]
    plain["trainer"]["num_seeds"] = 4
    plain["trainer"]["logger_config"]["wandb"] = "offline"
    assert changed == plain


@pytest.mark.parametrize(
    ("arguments", "path", "value"),
    [
        (["--num-envs", "8"], "env.num_envs", 8),
        (["--num_envs=8"], "env.num_envs", 8),
        (["--seed", "7"], "seed", 7),
        (
            ["--env-arguments", '{"params": {"max_steps_in_episode": 9}}'],
            "env.arguments.params.max_steps_in_episode",
            9,
        ),
        (["--gamma", "1"], "hyperparameters.gamma", 1.0),
        (["--max-grad-norm", "None"], "hyperparameters.max_grad_norm", None),
        (["--no-normalize-observations"], "hyperparameters.normalize_observations", False),
        (["--share-torso", "True"], "network.share_torso", True),
        (["--total-steps", "1000000"], "trainer.total_steps", 1_000_000),
        (["--restore-checkpoint", "0"], "trainer.restore_checkpoint", 0),
        (["--restore-checkpoint", "best"], "trainer.restore_checkpoint", "best"),
        (["--deterministic"], "trainer.deterministic", True),
        (["--no-debug"], "trainer.debug", False),
        (["--run-dir", "runs/x"], "trainer.run_dir", "runs/x"),
        (["--wandb", "--wandb-tags", "a", "b"], "trainer.logger_config.wandb_tags", ["a", "b"]),
        (["--wandb", "--wandb-runs", "per_seed"], "trainer.logger_config.wandb_runs", "per_seed"),
        (["--wandb", "--wandb-artifacts"], "trainer.logger_config.wandb_artifacts", True),
        (["--tensorboard"], "trainer.logger_config.tensorboard", True),
        (["--csv"], "trainer.logger_config.csv", True),
        (["--max-to-keep", "5"], "trainer.checkpointer_config.max_to_keep", 5),
    ],
)
def test_flags_of_every_kind(arguments, path, value, settings):
    found = run_config.to_dict(settings(*ACROBOT, *arguments))
    for name in path.split("."):
        found = found[name]
    assert found == value


def test_a_file_takes_the_place_of_the_preset(settings, tmp_path):
    text = "algorithm: a2c\nenv: {id: gymnax/Catch-bsuite}\nhyperparameters: {gamma: 0.5}\nseed: 3"
    text += "\ntrainer: {total_steps: 9999}"
    (tmp_path / "mine.yaml").write_text(text)
    mine = run_config.load("mine.yaml")
    assert settings("train", "--config", "mine.yaml") == mine
    assert settings("train", "a2c", "gymnax/Catch-bsuite", "--config=mine.yaml") == mine
    changed = settings("train", "--config", "mine.yaml", "--gamma", "0.9")
    assert (changed.hyperparameters.gamma, changed.seed) == (0.9, 3)
    assert (
        settings("train", "a2c", "gymnax/CartPole-v1", "--config", "mine.yaml").env.id
        == "gymnax/CartPole-v1"
    )


def test_a_file_says_how_to_train_but_not_where(settings, tmp_path):
    places = (
        "run_dir: runs/old, restore_checkpoint: latest, logger_config: {jsonl: runs/old/rows.jsonl}"
    )
    text = (
        f"trainer: {{{places}, checkpointer_config: {{directory: ./runs/old/states}}, total_steps:"
        " 99}"
    )
    (tmp_path / "mine.yaml").write_text(f"algorithm: ppo\nenv: {{id: gymnax/Catch-bsuite}}\n{text}")
    found = settings("train", "--config", "mine.yaml").trainer
    assert found == TrainerConfig(total_steps=99)
    assert (
        settings("train", "--config", "mine.yaml", "--run-dir", "runs/new").trainer.run_dir
        == "runs/new"
    )


def test_a_file_of_a_run_from_a_key_needs_a_seed(settings, tmp_path, capsys):
    (tmp_path / "mine.yaml").write_text(
        "algorithm: ppo\nenv: {id: gymnax/Catch-bsuite}\nseed: null\ntrainer: {total_steps: 9999}"
    )
    assert main(["train", "--config", "mine.yaml", "--dry-run"]) == 2
    assert "choose a seed with --seed N" in capsys.readouterr().err
    assert settings("train", "--config", "mine.yaml", "--seed", "3").seed == 3


def test_what_a_dry_run_prints_is_a_file_to_train_from(settings, tmp_path):
    chosen = settings(
        *ACROBOT, "--seed", "5", "--env-arguments", '{"params": {"max_steps_in_episode": 9}}'
    )
    run_config.save(chosen, tmp_path / "mine.yaml")
    assert settings("train", "--config", "mine.yaml") == chosen


@pytest.mark.parametrize("deterministic", [True, False])
def test_deterministic_pins_the_threads_before_jax_starts(deterministic, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    pinned, started = [], []
    monkeypatch.setattr(train, "pin_threads", lambda: pinned.append(not started))
    monkeypatch.setattr(
        train, "train_to_end", lambda make, **arguments: started.append(arguments) or 0
    )
    assert main([*ACROBOT, *(["--deterministic"] if deterministic else [])]) == 0
    assert pinned == [True] * deterministic
    assert len(started) == 1


def test_every_run_has_a_directory_of_its_own(monkeypatch):
    started = []
    monkeypatch.setattr(
        train, "train_to_end", lambda make, **arguments: started.append(arguments["run_dir"]) or 0
    )
    for _ in range(10):
        assert main([*ACROBOT, "--seed", "3"]) == 0
    assert len(set(started)) == 10
    assert all(
        os.path.dirname(name) == "runs" and os.path.basename(name).startswith("ppo-Acrobot-v1-s3-2")
        for name in started
    )


def shown(capsys, *arguments):
    """The rows of a dry run that have a comment, without the one at the top."""
    assert main([*arguments, "--dry-run"]) == 0
    first, *rows = capsys.readouterr().out.splitlines()
    assert first == "# Settings without a comment have their default values."
    return [row.strip() for row in rows if "#" in row]


def test_a_dry_run_says_where_each_setting_comes_from(capsys, tmp_path):
    flags = ["--num_envs=8", "--no-debug", "--hidden-sizes", "8", "8", "--seed", "3"]
    assert shown(capsys, "train", "ppo", "gymnax/CartPole-v1", *flags) == [
        "num_envs: 8  # flag",
        "hidden_sizes:  # flag",
        "total_steps: 500000  # preset gymnax/CartPole-v1",
        "debug: false  # flag",
        "seed: 3  # flag",
    ]
    length = ["--total-steps", "1e4"]
    assert shown(capsys, "train", "ppo", "probe/Counter", *length) == ["total_steps: 10000  # flag"]
    (tmp_path / "mine.yaml").write_text(
        "hyperparameters: {gamma: 0.9}\ntrainer: {num_seeds: 2, total_steps: 9999}\n"
    )
    rows = shown(
        capsys, "train", "ppo", "probe/Counter", "--config", f"{tmp_path}/mine.yaml", "--gamma=0.5"
    )
    assert rows == [
        "gamma: 0.5  # flag",
        "total_steps: 9999  # mine.yaml",
        "num_seeds: 2  # mine.yaml",
    ]


def test_arguments_of_environments_have_an_origin_too(capsys):
    given = '{"params": {"max_steps_in_episode": 200}}'
    command = ["train", "ppo", "gymnax/Acrobot-v1", "--env-arguments", given]
    assert "arguments:  # flag" in shown(capsys, *command)


def test_the_preset_of_another_environment(settings):
    ours = settings("train", "dqn", "gymnax/Acrobot-v1", "--preset", "gymnax/CartPole-v1")
    theirs = run_config.preset("dqn", "gymnax/CartPole-v1")
    assert ours.env.id == "gymnax/Acrobot-v1"
    assert ours.hyperparameters == theirs.hyperparameters and ours.trainer == theirs.trainer
    assert ours == run_config.preset("dqn", "gymnax/Acrobot-v1", of="gymnax/CartPole-v1")


def test_a_preset_is_a_file_to_train_from(settings):
    presets = resources.files("rlkit.presets")
    with resources.as_file(presets / "dqn" / "gymnax--CartPole-v1.yaml") as file:
        found = settings("train", "dqn", "gymnax/CartPole-v1", "--config", str(file))
    assert found == run_config.preset("dqn", "gymnax/CartPole-v1")


@pytest.fixture
def endless(tmp_path, monkeypatch):
    """A current directory with the class of an environment without a time limit."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(registry, "_registered", {})
    (tmp_path / "endless.py").write_text(ENDLESS)
    yield
    sys.modules.pop("endless", None)


@pytest.mark.parametrize(
    "more",
    [
        ["--max-evaluation-steps", "9"],
        ["--env-arguments", '{"max_episode_steps": 9}'],
        ["--enable-evaluation", "False"],
    ],
)
def test_a_dry_run_takes_each_cure_for_a_missing_time_limit(more, endless, capsys):
    names = ["ppo", "endless:Endless", "--total-steps", "2e4"]
    assert main(["train", *names, *more, "--dry-run"]) == 0
    assert "id: endless:Endless" in capsys.readouterr().out


COUNTER = ["ppo", "probe/Counter", "--total-steps", "2e4"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["ppo", "endless:Endless", "--total-steps", "2e4"],
            "the evaluation environment has no time limit, so an episode may never end; set max_ev",
        ),
        (
            ["dqn", "gymnax/Pendulum-v1", "--total-steps", "2e4"],
            "a Q-network needs Discrete actions, got Box",
        ),
        (["sac", "gymnax/CartPole-v1", "--total-steps", "2e4"], "Discrete(2)"),
        (["ppo", "probe/Counter"], "the length of training is not set; add for example --total-st"),
        (["dqn", "gymnax/Acrobot-v1", "--total-steps", "1e4"], "does not exceed the 10000 random"),
        (
            [*COUNTER, "--num-envs", "6", "--devices", "4"],
            "num_envs=6 cannot be divided among 4 devices; use 1 or 2 or 3 devices, or num_envs=4",
        ),
        (
            [*COUNTER, "--num-seeds", "3", "--devices", "2", "--shard", "seeds"],
            "3 seeds cannot be divided among 2 devices; use 1 device, 4 seeds, or shard='data'",
        ),
        (
            [*COUNTER, "--num-seeds", "2", "--num-envs", "3", "--devices", "4", "--shard", "both"],
            "num_envs=3 cannot be divided among 2 devices",
        ),
        ([*COUNTER, "--restore-checkpoint", "2"], "does not contain a run; set --run-dir to a run"),
        ([*COUNTER, "--config", "empty.yaml"], "empty.yaml is empty; write `name: value` lines"),
        ([*COUNTER, "--config", "number.yaml"], "number.yaml holds no settings, but 42; write"),
        ([*COUNTER, "--config", "misspelt.yaml"], "misspelt.yaml: TrainerConfig has no field 'tot"),
        (
            ["ppo", "gymnax/Acrobot-v1", "--preset", "mine.yaml"],
            "--preset takes the environment of a preset, got the file mine.yaml; use --config mine",
        ),
        (
            ["ppo", "gymnax/Acrobot-v1", "--preset", "gymnax/CartPol-v1"],
            "ppo has no preset 'gymnax/CartPol-v1'; did you mean 'gymnax/CartPole-v1'",
        ),
        (
            ["ppo", "gymnax/Acrobot-v1", "--preset", "gymnax/CartPole-v1", "--config", "a.yaml"],
            "--config and --preset both choose the settings; leave one of them out",
        ),
        (
            ["ppo", "gymnax/Acrobot-v1", "--config", "text.yaml"],
            "RunConfig.env needs a mapping of field names to values, got 'gymnax/Acrobot-v1'",
        ),
        (
            ["--config", "part.yaml"],
            "part.yaml names no algorithm and environment; name them: `rlkit train ALGORITHM ENV",
        ),
    ],
)
def test_a_dry_run_refuses_what_would_not_train(arguments, said, endless, tmp_path, capsys):
    (tmp_path / "part.yaml").write_text("trainer: {total_steps: 5}\n")
    (tmp_path / "empty.yaml").write_text("")
    (tmp_path / "number.yaml").write_text("42")
    (tmp_path / "misspelt.yaml").write_text("trainer: {total_step: 5}\n")
    (tmp_path / "text.yaml").write_text("env: gymnax/Acrobot-v1\n")
    assert main(["train", *arguments, "--dry-run"]) == 2
    out, err = capsys.readouterr()
    assert said in err and err.count("\n") == 1 and out == ""
