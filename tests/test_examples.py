"""Every example runs, on a tiny budget, and says what it promises."""

import os
import re
from pathlib import Path

import pytest
from script_process import ScriptProcess

EXAMPLES = Path(__file__).parents[1] / "examples"

# For each example: arguments that make it short, and what it must print.
CASES = {
    "train_cartpole.py": (
        ["--total-steps", "4096", "--run-dir", "runs/mine"],
        [
            r"return after each outer iteration:( \d+){4}\n",
            r"four more episodes lasted( \d+){4} steps",
            r"push (left|right)",
        ],
    ),
    "own_environment.py": (
        ["--total-steps", "4096"],
        [
            r"Corridor: no problems found",
            r"return -\d+\.\d\d from 64 random starts",
            r"best possible is -5\.50 on average over all",
        ],
    ),
    "own_gymnasium_environment.py": (
        ["--total-steps", "4096"],
        [r"Harbour: no problems found", r"return -\d+\.\d\d, \d+\.\d\d from the buoy", r"0"],
    ),
    "own_loss_and_torso.py": (
        ["--total-steps", "2048"],
        [r"return \d+\n", r"our own metrics: kl \d\.\d+, value_loss \d"],
    ),
    "sweep_learning_rates.py": (
        ["--total-steps", "1024"],
        [
            r"learning rate +return",
            *(
                rf"\n +{rate} +\d+\.\d( +\d+){{3}}"
                for rate in ("0.0001", "0.0003", "0.001", "0.01")
            ),
        ],
    ),
    "evolution_strategy.py": (
        ["--generations", "6"],
        [r"weights:( -?\d+\.\d\d){4}", r"return after each generation:( \d+){6}"],
    ),
}


@pytest.fixture(scope="module")
def scripts():
    with ScriptProcess() as process:
        yield process


@pytest.mark.full  # README.md, much like them, runs by default
@pytest.mark.process
@pytest.mark.parametrize("example", CASES)
def test_example_runs(example, scripts, tmp_path):
    arguments, promised = CASES[example]
    done = scripts.run(EXAMPLES / example, *arguments, directory=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    for pattern in promised:
        assert re.search(pattern, done.stdout), f"{pattern!r} not in:\n{done.stdout[-2000:]}"
    if example == "train_cartpole.py":
        assert {"config.yaml", "summary.json", "learning_curve.png"} <= set(
            os.listdir(tmp_path / "runs/mine")
        )
    if example == "evolution_strategy.py":
        returns = [
            float(number) for number in re.search(r"generation:(.*)", done.stdout)[1].split()
        ]
        assert returns[-1] > 300, "a linear policy learns CartPole within six generations"


@pytest.mark.fast
def test_every_example_is_tested():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(CASES)
