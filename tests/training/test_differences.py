"""A run continues, and is evaluated, with the settings that its checkpoints were trained with."""

import dataclasses
import re
import shutil
from functools import partial

import pytest
import yaml
from tiny_runs import edit_records, edit_settings, settings_of

from rlkit.cli.main import main
from rlkit.errors import CheckpointError, RunDirectoryError
from rlkit.training import restoring
from rlkit.training.files.checkpointer import Checkpointer, CheckpointerConfig
from rlkit.training.files.run_description import differences
from rlkit.training.fingerprint import fingerprint_differences
from rlkit.training.from_config import build, reopen
from rlkit.training.logs.records import read_records
from rlkit.training.policy import load_policy

CHANGED = "settings differ from those that checkpoint 2 was trained with"
GAMMA = r"hyperparameters.gamma: 0.99 there, 0.5 here"


def other_gamma(settings):
    settings["hyperparameters"]["gamma"] = 0.5


def other_sizes(settings):
    settings["network"]["hidden_sizes"] = [16]


def other_activation(settings):
    settings["network"]["activation"] = "relu"


def test_an_edited_setting_is_refused_by_name(tiny_run, hashes, capsys):
    edit_settings(tiny_run, other_gamma)
    before = hashes(tiny_run)
    with pytest.raises(CheckpointError, match=rf"{CHANGED} \({GAMMA}\); undo the change"):
        reopen(tiny_run, total_steps=100)
    with pytest.raises(CheckpointError, match=GAMMA):
        reopen(tiny_run, into=tiny_run.parent / "branch", which=1)
    with pytest.raises(CheckpointError, match=GAMMA):
        load_policy(tiny_run)
    assert hashes(tiny_run) == before and not (tiny_run.parent / "branch").exists()
    assert main(["evaluate", str(tiny_run)]) == 2
    assert "--accept-differences" in capsys.readouterr().err


def test_a_network_of_the_same_shapes_is_another_one_too(tiny_run):
    edit_settings(tiny_run, other_activation)
    with pytest.raises(CheckpointError, match=r"network\.activation: None there, 'relu' here"):
        load_policy(tiny_run)
    assert load_policy(tiny_run, accept_differences=True).checkpoint_step == 2


def test_other_shapes_are_refused_by_the_setting_too(tiny_run):
    edit_settings(tiny_run, other_sizes)
    name = rf"{CHANGED} \(network.hidden_sizes: \[8\] there, \[16\] here\)"
    for attempt in (load_policy, partial(reopen, total_steps=100)):
        with pytest.raises(CheckpointError, match=name):
            attempt(tiny_run)


@pytest.mark.full
def test_a_checkpoint_of_another_seed_is_another_runs(tiny_run):
    other = tiny_run.with_name("other")
    with build(dataclasses.replace(settings_of(other), seed=1)) as trainer:
        trainer.run(1)
    shutil.rmtree(tiny_run / "checkpoints" / "2")
    shutil.copytree(other / "checkpoints" / "2", tiny_run / "checkpoints" / "2")
    with pytest.raises(CheckpointError, match=rf"{CHANGED} \(seed: 1 there, 0 here\)"):
        load_policy(tiny_run, "latest")
    with pytest.raises(RunDirectoryError, match="started from another key or seed"):
        reopen(tiny_run)


@pytest.mark.full
def test_a_branch_follows_the_same_rules(tiny_run, monkeypatch):
    monkeypatch.setenv("NPROC", "1")
    branch = tiny_run.parent / "branch"
    edit_settings(tiny_run, lambda settings: settings["trainer"].update(deterministic=True))
    record_as(tiny_run, deterministic=True)
    edit_records(tiny_run, lambda body: body["metadata"]["fingerprint"].update(jax="0.1"))
    with pytest.raises(CheckpointError, match=r"this run is deterministic.*jax: '0.1' there"):
        reopen(tiny_run, into=branch, total_steps=64)
    assert not branch.exists()
    edit_settings(tiny_run, other_gamma)
    with reopen(tiny_run, into=branch, total_steps=64, accept_differences=True) as trainer:
        trainer.run()
    texts = [record.text or "" for record in read_records(branch / "metrics.jsonl")]
    assert any(re.search(rf"continued with other settings \({GAMMA}\)", text) for text in texts)


def test_accepted_differences_are_told_and_become_the_record(tiny_run):
    edit_settings(tiny_run, other_gamma)
    with reopen(tiny_run, total_steps=64, accept_differences=True) as trainer:
        trainer.run()
    texts = [record.text or "" for record in read_records(tiny_run / "metrics.jsonl")]
    assert any(f"continued with other settings ({GAMMA})" in text for text in texts)
    with reopen(tiny_run, total_steps=96) as trainer:  # the new record agrees with the file
        assert trainer.module.algorithm.spec[1].gamma == 0.5
    assert load_policy(tiny_run).checkpoint_step == 4


@pytest.mark.full
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


def test_how_long_it_trains_and_where_it_writes_may_differ(tiny_run):
    def change(settings):
        settings["trainer"] |= {"max_queued": 1, "log_every": 2, "debug": True}

    edit_settings(tiny_run, change)
    reopen(tiny_run, total_steps=100).close()


@pytest.mark.fast
def test_settings_of_another_version_are_no_differences():
    before = {"gamma": 0.9, "old": 1, "env": {"arguments": {"size": 3}}}
    assert differences(before, {"gamma": 0.9, "new": 2, "env": before["env"]}) == []
    more = {"arguments": {"size": 3, "color": "red"}}
    assert differences(before, {"gamma": 0.9, "env": more}) == [
        "env.arguments: {'size': 3} there, {'size': 3, 'color': 'red'} here"
    ]


@pytest.mark.parametrize("deterministic", [False, True])
def test_another_machine_is_told_or_refused(tiny_run, monkeypatch, deterministic):
    monkeypatch.setenv("NPROC", "1")
    here = {"jaxlib": "0.10.2 there, 0.11.0 here"}
    monkeypatch.setattr(
        restoring,
        "fingerprint_differences",
        lambda before: [f"{name}: {x}" for name, x in here.items()],
    )
    if deterministic:
        edit_settings(tiny_run, lambda settings: settings["trainer"].update(deterministic=True))
        with pytest.raises(CheckpointError, match="deterministic: False there, True here"):
            reopen(tiny_run, total_steps=48)
        record_as(tiny_run, deterministic=True)
        with pytest.raises(CheckpointError, match=r"this run is deterministic.*jaxlib: 0.10.2"):
            reopen(tiny_run, total_steps=48)
    with reopen(tiny_run, total_steps=48, accept_differences=deterministic) as trainer:
        trainer.run()
    texts = [record.text or "" for record in read_records(tiny_run / "metrics.jsonl")]
    assert any("machine or version (jaxlib: 0.10.2 there, 0.11.0 here)" in text for text in texts)


def record_as(run, **settings):
    """Rewrites the records of all checkpoints, as if it had been trained with other settings."""
    edit_records(run, lambda body: body["metadata"]["description"]["trainer"].update(settings))


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
def test_the_parts_of_a_checkpoint_belong_together(tiny_run, part):
    """A record or signature of another step is intact, but not this one's."""
    steps = tiny_run / "checkpoints"
    shutil.copyfile(steps / "1" / part / "metadata", steps / "2" / part / "metadata")
    reason = "that of another step" if part == "record" else "belongs to other arrays"
    with (
        Checkpointer(CheckpointerConfig(directory=str(steps)), read_only=True) as checkpointer,
        pytest.raises(CheckpointError, match=f"step 2 .* is damaged .*{reason}"),
    ):
        checkpointer.restore(2, lambda metadata: {})
    with pytest.warns(RuntimeWarning, match=reason):
        assert load_policy(tiny_run, "latest").checkpoint_step == 1


def test_early_checkpoints_without_the_tie_are_read(tiny_run):
    edit_records(tiny_run, lambda body: body.pop("signature_crc32"))
    assert load_policy(tiny_run, "latest").checkpoint_step == 2


@pytest.mark.fast
def test_a_part_that_became_something_else_is_a_difference():
    before = {"env": {"id": "probe/Counter", "arguments": {}}, "agent": "actor_critic"}
    now = {"env": ["other", {}], "agent": "actor_critic", "custom": ["algorithm"]}
    assert [found.partition(":")[0] for found in differences(before, now)] == ["env"]
    assert [found.partition(":")[0] for found in differences(now, before)] == ["env"]
