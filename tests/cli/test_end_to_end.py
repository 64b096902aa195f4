"""The commands as a user types them, with tiny runs: train, resume, evaluate, plot, signals.

What needs a process of its own (signals, pinned threads) has one; the rest shares this one, which
has imported JAX.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from tiny_command import TINY

from rlkit.cli.main import main

pytestmark = pytest.mark.process

TRAIN = ["train", "ppo", "gymnax/CartPole-v1", *TINY, "--evaluation-episodes", "2", "--no-debug"]
ITERATIONS = 10  # some seconds: long enough to be stopped in the middle
PNG = b"\x89PNG"


def start(*arguments, cwd):
    command = [sys.executable, "-m", "rlkit.cli.main", *map(str, arguments)]
    environment = {name: value for name, value in os.environ.items() if name != "NPROC"}
    return subprocess.Popen(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def rlkit(*arguments, cwd, code=0):
    process = start(*arguments, cwd=cwd)
    try:
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == code, err[-3000:]
    return out, err


def rows(run_dir):
    try:
        lines = (Path(run_dir) / "metrics.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A directory with a finished run `run` of two seeds, and the output of the command."""
    directory = tmp_path_factory.mktemp("trained")
    length = ["--total-steps", "128", "--num-checkpoints", "2", "--num-seeds", "2"]
    out, _ = rlkit(*TRAIN, *length, "--run-dir", "run", "--deterministic", cwd=directory)
    return directory, out


def test_train_leaves_a_complete_run_directory(trained):
    directory, _ = trained
    found = {path.name for path in (directory / "run").iterdir()}
    assert found >= {
        "config.yaml",
        "metrics.jsonl",
        "checkpoints",
        "learning_curve.png",
        "summary.json",
    }
    assert (directory / "run" / "learning_curve.png").read_bytes().startswith(PNG)
    summary = json.loads((directory / "run" / "summary.json").read_text())
    assert (summary["env_steps"], summary["num_seeds"]) == (128, 2)
    settings = yaml.safe_load((directory / "run" / "config.yaml").read_text())
    assert settings["network"]["hidden_sizes"] == [8]
    assert settings["trainer"]["deterministic"] is True


def test_train_ends_with_scores_and_what_to_do_next(trained):
    _, out = trained
    assert [line.split()[0] for line in out.splitlines() if " ± " in line][1:] == ["0", "1", "all"]
    assert "\nmean ± standard deviation over 2 episodes; all: over seeds\n" in out
    for said in (
        "2 x 128 steps in",
        "per second over all seeds",
        "run/learning_curve.png",
        "rlkit evaluate run",
        "rlkit resume run",
    ):
        assert said in out


def test_a_run_is_not_overwritten(trained, monkeypatch, capsys):
    directory, _ = trained
    monkeypatch.chdir(directory)
    before = (directory / "run" / "metrics.jsonl").read_bytes()
    assert main([*TRAIN, "--total-steps", "64", "--run-dir", "run"]) == 2
    err = capsys.readouterr().err
    assert "already holds a run" in err
    assert err.count("\n") == 1
    assert (directory / "run" / "metrics.jsonl").read_bytes() == before


def test_evaluate(trained, monkeypatch, capsys):
    monkeypatch.chdir(trained[0])
    assert main(["evaluate", "run", "--episodes", "3", "--seed-index", "1"]) == 0
    out = capsys.readouterr().out
    assert ", seed index 1 (of 2 seeds)\nmean ± standard deviation over 3 episodes per kind" in out
    assert out.count("±") == 1 + 4
    assert main(["evaluate", "run", "--episodes", "3", "--checkpoint", "latest", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["env_steps"] == 128 and result["seed_index"] in (0, 1)
    assert len(result["return"]) == len(result["sampled_length"]) == 3
    assert result["return_mean"] == pytest.approx(sum(result["return"]) / 3)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--checkpoint", "77"], "77"), (["--seed-index", "2"], "the run has 2 seeds")],
)
def test_evaluate_what_is_not_there(arguments, said, trained, monkeypatch, capsys):
    monkeypatch.chdir(trained[0])
    assert main(["evaluate", "run", *arguments]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_video(trained, monkeypatch, capsys):
    directory, _ = trained
    monkeypatch.chdir(directory)
    short = ["video", "run", "--max-steps", "3", "--episodes", "1"]
    assert main([*short, "--output", "pole.gif", "--seed-index", "1"]) == 0
    assert capsys.readouterr().out == "pole.gif: 1 episode, return 3 (episodes end after 3 steps)\n"
    assert (directory / "pole.gif").read_bytes().startswith(b"GIF")
    assert main([*short, "--output", "pole.gif"]) == 2
    assert "pole.gif already exists; choose another name" in capsys.readouterr().err
    for name in ("checkpoint-2.mp4", "checkpoint-2-2.mp4"):
        assert main([*short, "--checkpoint", "latest", "--sampled"]) == 0
        path = Path("run/videos", name)
        assert (
            capsys.readouterr().out == f"{path}: 1 episode, return 3 (episodes end after 3 steps)\n"
        )
        assert path.read_bytes()[4:8] == b"ftyp"


def test_plot(trained, monkeypatch, capsys):
    directory, _ = trained
    monkeypatch.chdir(directory)
    assert main(["plot", "run", "run", "--output", "both.png", "--x", "wall_seconds"]) == 0
    assert capsys.readouterr().out == "both.png\n"
    assert (directory / "both.png").read_bytes().startswith(PNG)


def test_plot_a_schedule(trained, tmp_path, monkeypatch, capsys):
    """Of a run's directory, or of any settings: they are those of `--dry-run`."""
    monkeypatch.chdir(tmp_path)
    assert main(["plot", "--schedule", str(trained[0] / "run")]) == 0
    typed = ["--optimizer-betas", "0.9,0.95", "--learning-rate-milestones", "[0.2,0.9]"]
    steps = ["--learning-rate-schedule", "multistep", "--optimizer", "lion", "--dry-run"]
    assert main(["train", "ppo", "gymnax/CartPole-v1", *typed, *steps]) == 0
    (tmp_path / "mine.yaml").write_text(capsys.readouterr().out.removeprefix("schedule.png\n"))
    assert main(["plot", "--schedule", "mine.yaml"]) == 0
    assert capsys.readouterr().out == "schedule-2.png\n"
    for name in ("schedule.png", "schedule-2.png"):
        assert (tmp_path / name).read_bytes().startswith(PNG)


@pytest.mark.usefixtures("real_curves")
def test_plot_replaces_files_only_with_overwrite(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = str(trained[0] / "run")
    for name in ("learning_curve.png", "learning_curve-2.png", "learning_curve-3.png"):
        assert main(["plot", run]) == 0
        assert capsys.readouterr().out == f"{name}\n"
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    assert main(["plot", run, "--output", "notes.txt"]) == 2
    assert (
        "notes.txt already exists; add --overwrite, or choose another --output"
        in capsys.readouterr().err
    )
    assert notes.read_text() == "mine"
    (tmp_path / "learning_curve.png").write_text("old")
    assert main(["plot", run, "--output", "learning_curve.png", "--overwrite"]) == 0
    assert (tmp_path / "learning_curve.png").read_bytes().startswith(PNG)
    (tmp_path / "learning_curve.png").write_text("old")
    assert main(["plot", run, "--overwrite"]) == 0
    assert (tmp_path / "learning_curve.png").read_bytes().startswith(PNG)
    assert len(list(tmp_path.iterdir())) == 4


def logged(run_dir):
    """The rows of a run without what depends on the clock."""
    found = rows(run_dir)
    for row in found:
        del row["wall_seconds"]
        row["metrics"].pop("train/steps_per_second", None)
    return found


def digest(run_dir):
    return json.loads((run_dir / "summary.json").read_text())["params_sha256"]


@pytest.mark.full
def test_the_settings_of_a_run_repeat_it_bit_for_bit(trained):
    directory, _ = trained
    source, again = directory / "run", directory / "again"
    before = {path: path.stat().st_mtime_ns for path in source.rglob("*")}
    rlkit("train", "--config", "run/config.yaml", "--run-dir", "again", cwd=directory)
    assert digest(again) == digest(source)
    assert logged(again) == logged(source) and len(logged(again)) > 10
    assert {path: path.stat().st_mtime_ns for path in source.rglob("*")} == before


DQN = ["--num-envs", "2", "--prefill-steps", "64", "--batch-size", "16", "--hidden-sizes", "8"]


@pytest.mark.full
@pytest.mark.parametrize(
    "arguments",
    [
        ["dqn", "gymnax/CartPole-v1", *DQN, "--capacity", "1k"],
        ["dqn", "gymnasium/CartPole-v1", *DQN, "--warmup-steps", "32"],
        ["ppo", "gymnax/Acrobot-v1", *TINY, "--num-seeds", "2", "--learning-rate", "1e-3"],
    ],
    ids=" ".join,
)
def test_the_settings_of_other_runs_repeat_them_too(arguments, tmp_path):
    length = ["--total-steps", "192", "--num-checkpoints", "2", "--deterministic"]
    rlkit("train", *arguments, *length, "--run-dir", "run", cwd=tmp_path)
    rlkit("train", "--config", "run/config.yaml", "--run-dir", "again", cwd=tmp_path)
    assert digest(tmp_path / "again") == digest(tmp_path / "run")
    assert logged(tmp_path / "again") == logged(tmp_path / "run")


@pytest.mark.full
def test_a_deterministic_run_resumes_with_pinned_threads(trained):
    out, _ = rlkit("resume", "run", cwd=trained[0])
    assert "finished" in out


@pytest.mark.full
def test_a_stopped_run_resumes_as_if_it_had_not_been(tmp_path, monkeypatch):
    process = start(
        *TRAIN,
        "--total-steps",
        32 * ITERATIONS,
        "--num-checkpoints",
        ITERATIONS,
        "--run-dir",
        "run",
        cwd=tmp_path,
    )
    try:
        deadline = time.monotonic() + 90
        while not any(row["kind"] == "train" for row in rows(tmp_path / "run")):
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 143, err[-3000:]
    assert "stopped by SIGTERM" in err
    assert "continue     rlkit resume run\n" in out and "--total-steps" not in out
    assert "Traceback" not in err
    reached = [row["env_steps"] for row in rows(tmp_path / "run") if row["kind"] == "train"]
    assert len(reached) < ITERATIONS
    monkeypatch.chdir(tmp_path)
    assert main(["resume", "run"]) == 0
    steps = [row["env_steps"] for row in rows("run") if row["kind"] == "train"]
    assert steps == [32 * (iteration + 1) for iteration in range(ITERATIONS)]
    dropped = [
        json.loads(line) for line in Path("run/metrics.dropped.jsonl").read_text().splitlines()
    ]
    # Nothing trained
    assert [row["text"] for row in dropped] == [
        f"stopped after {reached[-1]:,} environment steps: SIGTERM"
    ]


@pytest.mark.full
def test_a_finished_run_can_be_extended(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*TRAIN, "--total-steps", "64", "--num-checkpoints", "2", "--run-dir", "run"]) == 0
    assert main(["resume", "run", "--total-steps", "32"]) == 2
    capsys.readouterr()
    assert main(["resume", "run"]) == 0
    assert "finished" in capsys.readouterr().out
    assert main(["resume", "run", "--total-steps", "128"]) == 0
    assert "128 steps in" in capsys.readouterr().out
    steps = [row["env_steps"] for row in rows("run") if row["kind"] == "train"]
    assert steps == [32, 64, 96, 128]


@pytest.mark.full
def test_a_finished_run_branches_off_only_to_train_on(tmp_path, monkeypatch, capsys):
    """The directory of a branch that would train nothing is not made."""
    monkeypatch.chdir(tmp_path)
    keep = ["--max-to-keep", "5", "--run-dir", "run"]
    assert main([*TRAIN, "--total-steps", "60", "--num-checkpoints", "2", *keep]) == 0
    capsys.readouterr()
    for nothing in ([], ["--total-steps", "64"], ["--checkpoint", "2"]):
        assert main(["resume", "run", "--into", "new", *nothing]) == 2
        said = capsys.readouterr().err
        assert "run is finished, and its" in said
        assert "add --total-steps N (more than 64), or choose an earlier --checkpoint" in said
        assert not (tmp_path / "new").exists()
    assert main(["resume", "run", "--into", "early", "--checkpoint", "1"]) == 0
    assert main(["resume", "run", "--into", "new", "--total-steps", "96"]) == 0
    assert [row["env_steps"] for row in rows("early") if row["kind"] == "train"] == [64]
    assert [row["env_steps"] for row in rows("new") if row["kind"] == "train"] == [96]


@pytest.mark.full
def test_a_run_goes_on_with_another_learning_rate(tmp_path, monkeypatch, capsys):
    """Which was edited in its config.yaml; steps and optimiser go on."""
    monkeypatch.chdir(tmp_path)
    assert main([*TRAIN, "--total-steps", "64", "--num-checkpoints", "2", "--run-dir", "run"]) == 0
    settings = yaml.safe_load(Path("run/config.yaml").read_text())
    settings["hyperparameters"]["learning_rate"] = 0.25
    Path("run/config.yaml").write_text(yaml.safe_dump(settings))
    longer = ["resume", "run", "--total-steps", "128"]
    assert main(longer) == 2
    assert (
        "accept it with accept_differences=True (--accept-differences)" in capsys.readouterr().err
    )
    assert main([*longer, "--accept-differences"]) == 0
    rates = [row["metrics"]["train/learning_rate"] for row in rows("run") if row["kind"] == "train"]
    assert [rate > 0.01 for rate in rates] == [False, False, True, True]


HOST = {"gymnasium": "gymnasium/CartPole-v1", "envpool": "envpool/CartPole-v1"}


@pytest.mark.full
@pytest.mark.parametrize("suite", ["gymnasium", "envpool"])
def test_environments_on_the_host(suite, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    length = ["--total-steps", "2048", "--num-checkpoints", "2", "--evaluation-episodes", "2"]
    assert main(["train", "ppo", HOST[suite], *TINY, *length, "--run-dir", "run"]) == 0
    assert "2,048 steps in" in capsys.readouterr().out
    assert yaml.safe_load(Path("run/config.yaml").read_text())["env"]["id"] == HOST[suite]
    assert [row["env_steps"] for row in rows("run") if row["kind"] == "train"] == [1024, 2048]
    assert main(["evaluate", "run", "--episodes", "3", "--json"]) == 0
    assert all(1 <= length <= 500 for length in json.loads(capsys.readouterr().out)["length"])
    assert main(["resume", "run", "--total-steps", "3072"]) == 0
    assert [row["env_steps"] for row in rows("run") if row["kind"] == "train"][:2] == [1024, 2048]
