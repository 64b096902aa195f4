"""One writer per run directory, and nobody else's files in it."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

from rlkit.errors import RunDirectoryError
from rlkit.training.files.run_directory import RunDirectory


def existing_run(path: pathlib.Path) -> pathlib.Path:
    with RunDirectory(path) as run:
        run.write_text("config.yaml", "seed: 0\n")
    return path


@pytest.mark.fast
@pytest.mark.parametrize("made", [False, True], ids=["absent", "empty"])
def test_absent_and_empty_directories_become_runs(tmp_path, made):
    path = tmp_path / "runs" / "ppo-1"
    if made:
        path.mkdir(parents=True)
    with RunDirectory(path) as run:
        assert run.is_new and run.path == path
        assert (
            run.config_file == path / "config.yaml" and run.metrics_file == path / "metrics.jsonl"
        )
        assert (
            run.checkpoint_directory == path / "checkpoints"
            and run.curve_file == path / "learning_curve.png"
        )
        assert run.summary_file.parent == path
        assert not run.config_file.exists()


@pytest.mark.fast
def test_existing_runs_are_opened_only_when_asked(tmp_path):
    path = existing_run(tmp_path / "run")
    for _ in range(2):  # the refusal must let go of the lock
        with pytest.raises(RunDirectoryError, match="already holds a run; continue it"):
            RunDirectory(path)
    for must_exist in (True, False):
        with RunDirectory.open(path, must_exist=must_exist) as run:
            assert not run.is_new and run.config_file.read_text() == "seed: 0\n"


@pytest.mark.fast
def test_open_without_a_run(tmp_path):
    with pytest.raises(RunDirectoryError, match="holds no run"):
        RunDirectory.open(tmp_path / "absent", must_exist=True)
    assert not (tmp_path / "absent").exists()
    with RunDirectory.open(tmp_path / "absent", must_exist=False) as run:
        assert run.is_new


@pytest.mark.fast
def test_a_run_killed_before_its_config_is_started_again(tmp_path):
    RunDirectory(tmp_path / "run").close()
    (tmp_path / "run" / ".tmp-x-config.yaml").write_text("half")
    with RunDirectory(tmp_path / "run") as run:
        assert run.is_new


@pytest.mark.fast
def test_foreign_directories_are_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    for start in (RunDirectory, lambda path: RunDirectory.open(path, must_exist=False)):
        with pytest.raises(
            RunDirectoryError, match=r"not a run directory: .*thesis\.tex.*; choose a new or empty"
        ):
            start(tmp_path)
    assert os.listdir(tmp_path) == ["thesis.tex"]


@pytest.mark.fast
@pytest.mark.parametrize("name", ["-x", ".hidden", "a b", "a*", "é", "x" * 129, "nul\0"])
def test_names_that_are_refused(tmp_path, name):
    with pytest.raises(RunDirectoryError, match="name") as caught:
        RunDirectory(f"{tmp_path}/{name}")
    assert "\n" not in str(caught.value) and os.listdir(tmp_path) == []


@pytest.mark.fast
def test_places_that_are_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirectoryError, match="is a file; name a directory"):
        RunDirectory(tmp_path / "file")
    with pytest.raises(RunDirectoryError, match="cannot use"):
        RunDirectory(tmp_path / "file" / "run")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(RunDirectoryError, match="not writable"):
        RunDirectory(tmp_path / "run")


@pytest.mark.fast
def test_relative_paths_and_links_of_the_lock(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with RunDirectory("run") as run:
        assert run.path == tmp_path / "run"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".lock").symlink_to(tmp_path / "victim")
    with pytest.raises(RunDirectoryError, match="cannot use"):
        RunDirectory("other")
    assert not (tmp_path / "victim").exists()


@pytest.mark.fast
def test_texts_are_replaced_whole(tmp_path, monkeypatch):
    with RunDirectory(tmp_path / "run") as run:
        path = run.write_text("config.yaml", "first")
        run.write_text("config.yaml", "zweite é\n")
        assert path.read_text(encoding="utf-8") == "zweite é\n"

        def fail(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", fail)
            with pytest.raises(RunDirectoryError, match=r"cannot write .*No space left"):
                run.write_text("config.yaml", "third")
        assert path.read_text(encoding="utf-8") == "zweite é\n"
        assert sorted(os.listdir(run.path)) == [".lock", "config.yaml"]
        for name in ("../escape", ".lock", "", "a/b"):
            with pytest.raises(RunDirectoryError, match="not a file name"):
                run.write_text(name, "")
    with pytest.raises(RunDirectoryError, match="is closed"):
        run.write_text("config.yaml", "")
    run.close()


HOLDER = """
import sys, time
from rlkit.training.files.run_directory import RunDirectory
run = RunDirectory.open(sys.argv[1], must_exist=False)
print("held", flush=True)
time.sleep(60)
"""


@pytest.mark.process
def test_one_process_at_a_time(tmp_path):
    path = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(
            RunDirectoryError, match=rf"in use by another process \(pid {process.pid}\)"
        ):
            RunDirectory(path)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=20)
        process.stdout.close()
    with RunDirectory(path) as run, pytest.raises(RunDirectoryError, match=f"pid {os.getpid()}"):
        assert run.is_new
        RunDirectory(path)


@pytest.mark.fast
def test_a_directory_that_another_run_took_over_is_not_written(tmp_path):
    old = RunDirectory(tmp_path / "run")
    shutil.rmtree(old.path)
    with RunDirectory(old.path) as new:
        new.write_text("config.yaml", "new")
        with pytest.raises(RunDirectoryError, match="another run began there; start this one"):
            old.write_text("config.yaml", "old")
        assert new.config_file.read_text() == "new"
    old.close()
