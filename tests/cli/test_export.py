"""`rlkit export` as a user types it."""

import json
import subprocess
import sys

import pytest
from tiny_command import TINY

from rlkit.cli.main import main

TRAIN = ["train", "ppo", "gymnax/CartPole-v1", *TINY, "--normalize-observations"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two seeds."""
    directory = tmp_path_factory.mktemp("run") / "mine"
    length = ["--total-steps", "128", "--num-checkpoints", "2", "--num-seeds", "2", "--no-debug"]
    quick = ["--evaluation-episodes", "2", "--run-dir", str(directory)]
    assert main([*TRAIN, *length, *quick]) == 0
    return directory


def said(capsys, *arguments):
    assert main([str(each) for each in arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.full
def test_a_run_is_exported_into_its_directory(run, capsys):
    """Each time into another folder. The output says what is there, and that it acts the same."""
    lines = said(capsys, "export", run).splitlines()
    [folder] = (run / "exports").iterdir()
    step = int(folder.name.removeprefix("checkpoint-"))
    assert lines[0].startswith(f"{folder}: load_onnx.py, load_stablehlo.py, manifest.json, ")
    assert "256 random observations" in lines[1] and len(lines) == 5
    about = json.loads((folder / "manifest.json").read_text())
    assert about["run"]["algorithm"] == "ppo" and about["run"]["env"] == "gymnax/CartPole-v1"
    assert about["seed"] == about["run"]["seed_index"] and about["checkpoint"] == step
    assert f"{folder}-2" in said(capsys, "export", run, "--format", "stablehlo")


@pytest.mark.full
def test_the_seed_and_the_checkpoint_are_chosen(run, capsys, tmp_path):
    asked = ["--checkpoint", "latest", "--seed-index", "1", "--output", tmp_path / "here"]
    said(capsys, "export", run, *asked, "--format", "onnx")
    about = json.loads((tmp_path / "here" / "manifest.json").read_text())
    assert (about["checkpoint"], about["run"]["seed_index"], about["seed"]) == (2, 1, 1)
    assert about["files"] == {"onnx": "policy.onnx"} and about["stablehlo"] is None


@pytest.mark.process
def test_what_was_exported_plays_without_rlkit(run, capsys, tmp_path):
    """An episode in Gymnasium, by the loader alone."""
    said(capsys, "export", run, "--output", tmp_path / "policy", "--format", "onnx")
    program = """
import sys
sys.modules["rlkit"] = sys.modules["jax"] = None
import gymnasium
from load_onnx import Policy
policy, env = Policy(), gymnasium.make("CartPole-v1")
obs, _ = env.reset(seed=0)
done, steps = False, 0
while not done:
    action = policy(obs[None])[0]
    obs, _, terminated, truncated, _ = env.step(int(action))
    done, steps = terminated or truncated, steps + 1
print(steps)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path / "policy", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert 5 <= int(done.stdout) <= 500
