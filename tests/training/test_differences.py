"""A run continues, and is evaluated, with the settings that its checkpoints were trained with."""

import json
import shutil

import pytest
import yaml

from rlkit.cli.main import main
from rlkit.errors import CheckpointError
from rlkit.training import restoring
from rlkit.training.files.checkpointer import Checkpointer, CheckpointerConfig
from rlkit.training.files.run_description import differences
from rlkit.training.fingerprint import fingerprint_differences
from rlkit.training.from_config import build, reopen
from rlkit.training.logs.records import read_records
from rlkit.training.policy import load_policy
from rlkit.training.run_config import from_dict

CHANGED = "settings differ from those that checkpoint 2 was trained with"
GAMMA = r"hyperparameters.gamma: 0.99 there, 0.5 here"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run of two outer iterations, which tests copy."""
    run = tmp_path_factory.mktemp("trained") / "run"
    settings = {
        "algorithm": "ppo",
        "env": {"id": "probe/Counter", "num_envs": 2},
        "hyperparameters": {"num_steps": 8, "num_minibatches": 2, "num_epochs": 1},
        "network": {"hidden_sizes": [8]},
        "trainer": {
            "num_checkpoints": 2,
            "epochs_per_checkpoint": 1,
            "evaluation_episodes": 2,
            "run_dir": str(run),
            "debug": False,
            "logger_config": {"console": False},
        },
    }
    with build(from_dict(settings)) as trainer:
        trainer.run(0)
    return run


@pytest.fixture
def run(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    return tmp_path / "run"


def edit(run, change):
    settings = yaml.safe_load((run / "config.yaml").read_text())
    change(settings)
    (run / "config.yaml").write_text(yaml.safe_dump(settings))


def other_gamma(settings):
    settings["hyperparameters"]["gamma"] = 0.5


def other_activation(settings):
    settings["network"]["activation"] = "relu"


def test_an_edited_setting_is_refused_by_name(run, hashes, capsys):
    edit(run, other_gamma)
    before = hashes(run)
    with pytest.raises(CheckpointError, match=rf"{CHANGED} \({GAMMA}\); undo the change"):
        reopen(run, total_steps=100)
    with pytest.raises(CheckpointError, match=GAMMA):
        reopen(run, into=run.parent / "branch", which=1)
    with pytest.raises(CheckpointError, match=GAMMA):
        load_policy(run)
    assert hashes(run) == before and not (run.parent / "branch").exists()
    assert main(["evaluate", str(run)]) == 2
    assert "--accept-differences" in capsys.readouterr().err


def test_a_network_of_the_same_shapes_is_another_one_too(run):
    edit(run, other_activation)
    with pytest.raises(CheckpointError, match=r"network\.activation: 'tanh' there, 'relu' here"):
        load_policy(run)
    assert load_policy(run, accept_differences=True).checkpoint_step == 2


def test_accepted_differences_are_told_and_become_the_record(run):
    edit(run, other_gamma)
    with reopen(run, total_steps=64, accept_differences=True) as trainer:
        trainer.run()
    texts = [record.text or "" for record in read_records(run / "metrics.jsonl")]
    assert any(f"continued with other settings ({GAMMA})" in text for text in texts)
    with reopen(run, total_steps=96) as trainer:  # the new record agrees with the file
        assert trainer.module.algorithm.spec[1].gamma == 0.5
    assert load_policy(run).checkpoint_step == 4


def test_a_script_with_other_settings_may_continue_too(tiny, tmp_path):
    settings = {"run_dir": str(tmp_path / "run"), "restore_checkpoint": "auto"}
    with tiny.trainer(hyper={"gamma": 0.99}, **settings) as trainer:
        trainer.run(0)
    other = {"hyper": {"gamma": 0.5}, "num_checkpoints": 4, "share": False}
    with tiny.trainer(**other, **settings) as trainer, pytest.raises(Exception, match=GAMMA):
        trainer.run(0)
    with tiny.trainer(**other, **settings, accept_differences=True) as trainer:
        trainer.run(0)
    assert (
        yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["hyperparameters"]["gamma"]
        == 0.5
    )
    with tiny.trainer(**other, **settings) as trainer:
        trainer.init(0)


def test_how_long_it_trains_and_where_it_writes_may_differ(run):
    def change(settings):
        settings["trainer"] |= {"max_queued": 1, "log_every": 2, "debug": True}

    edit(run, change)
    reopen(run, total_steps=100).close()


@pytest.mark.fast
def test_settings_of_another_version_are_no_differences():
    before = {"gamma": 0.9, "old": 1, "env": {"arguments": {"size": 3}}}
    assert differences(before, {"gamma": 0.9, "new": 2, "env": before["env"]}) == []
    more = {"arguments": {"size": 3, "color": "red"}}
    assert differences(before, {"gamma": 0.9, "env": more}) == [
        "env.arguments: {'size': 3} there, {'size': 3, 'color': 'red'} here"
    ]


@pytest.mark.parametrize("deterministic", [False, True])
def test_another_machine_is_told_or_refused(run, monkeypatch, deterministic):
    monkeypatch.setenv("NPROC", "1")
    here = {"jaxlib": "0.10.2 there, 0.11.0 here"}
    monkeypatch.setattr(
        restoring,
        "fingerprint_differences",
        lambda before: [f"{name}: {x}" for name, x in here.items()],
    )
    if deterministic:
        edit(run, lambda settings: settings["trainer"].update(deterministic=True))
        with pytest.raises(CheckpointError, match="deterministic: False there, True here"):
            reopen(run, total_steps=48)
        record_as(run, deterministic=True)
        with pytest.raises(CheckpointError, match=r"this run is deterministic.*jaxlib: 0.10.2"):
            reopen(run, total_steps=48)
    with reopen(run, total_steps=48, accept_differences=deterministic) as trainer:
        trainer.run()
    texts = [record.text or "" for record in read_records(run / "metrics.jsonl")]
    assert any("machine or version (jaxlib: 0.10.2 there, 0.11.0 here)" in text for text in texts)


def record_as(run, **settings):
    """Rewrites the records of all checkpoints, as if it had been trained with other settings."""
    from rlkit.training.files.checkpointer import _sealed

    for path in (run / "checkpoints").glob("*/record/metadata"):
        body = json.loads(path.read_text())["body"]
        body["metadata"]["description"]["trainer"] |= settings
        path.write_text(json.dumps(_sealed(body)))


@pytest.mark.fast
def test_fingerprints_differ_by_name():
    from rlkit.training.fingerprint import fingerprint

    now = fingerprint()
    assert fingerprint_differences(now) == []
    assert fingerprint_differences(now | {"jax": "0.1"}) == [
        f"jax: '0.1' there, {now['jax']!r} here"
    ]
    assert fingerprint_differences({}) == []  # of a version that recorded none


@pytest.mark.parametrize("part", ["record", "signature"])
def test_the_parts_of_a_checkpoint_belong_together(run, part):
    """A record or signature of another step is intact, but not this one's."""
    steps = run / "checkpoints"
    shutil.copyfile(steps / "1" / part / "metadata", steps / "2" / part / "metadata")
    reason = "that of another step" if part == "record" else "belongs to other arrays"
    with (
        Checkpointer(CheckpointerConfig(directory=str(steps)), read_only=True) as checkpointer,
        pytest.raises(CheckpointError, match=f"step 2 .* is damaged .*{reason}"),
    ):
        checkpointer.restore(2, lambda metadata: {})
    with pytest.warns(RuntimeWarning, match=reason):
        assert load_policy(run, "latest").checkpoint_step == 1


def test_early_checkpoints_without_the_tie_are_read(run):
    from rlkit.training.files.checkpointer import _sealed

    for path in (run / "checkpoints").glob("*/record/metadata"):
        body = json.loads(path.read_text())["body"]
        del body["signature_crc32"]
        path.write_text(json.dumps(_sealed(body)))
    assert load_policy(run, "latest").checkpoint_step == 2


@pytest.mark.fast
def test_a_part_that_became_something_else_is_a_difference():
    before = {"env": {"id": "probe/Counter", "arguments": {}}, "agent": "actor_critic"}
    now = {"env": ["other", {}], "agent": "actor_critic", "custom": ["algorithm"]}
    assert [found.partition(":")[0] for found in differences(before, now)] == ["env"]
    assert [found.partition(":")[0] for found in differences(now, before)] == ["env"]
