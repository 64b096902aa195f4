"""A run that was stopped, killed or extended ends as the one that was not; and nothing that exists
is overwritten.
"""

import dataclasses
import functools
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import algorithm_rows
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from stopping import StopAt
from tiers import by_default

import rlkit.training.restoring as restoring
from rlkit.agents.configs import ActorCriticConfig
from rlkit.algorithms.configs import PPOConfig
from rlkit.cli.main import main
from rlkit.errors import CheckpointError, ConfigError, RunDirectoryError
from rlkit.training import run_config
from rlkit.training.callbacks import Callback
from rlkit.training.config import CheckpointerConfig, LoggerConfig, TrainerConfig
from rlkit.training.files.checkpoint_leaves import tree_digest
from rlkit.training.files.run_directory import BRANCH_MARK, take_lock
from rlkit.training.from_config import build, reopen
from rlkit.training.logs.records import read_records
from rlkit.training.run_config import EnvConfig, RunConfig
from rlkit.training.trainer import Trainer
from rlkit.types import LearnerState, LocalState

# Runs each job of the JSON list in argv[1]; prints the outer iteration and the digest of every leaf
# at its end, or the error. Jobs that differ only in where they write and when they stop are
# compiled once.
WORKER = """
import json, sys, traceback
import jax
from rlkit.training import run_config
from rlkit.training.from_config import build
from rlkit.training.callbacks import Callback
from rlkit.training.files.checkpoint_leaves import tree_digest

class Stop(Callback):
    def on_iteration_end(self, trainer, iteration, metrics):
        if iteration == self.at:
            trainer.request_stop("asked to")

compiled = {}

def run(job):
    stop = Stop()
    stop.at = job["stop"]
    with build(run_config.from_dict(job["config"]), callbacks=[stop]) as trainer:
        run, evaluations = trainer._run, trainer._loop.evaluations
        own = run.program, evaluations.planned
        run.program, evaluations.planned = compiled.setdefault(job["program"], own)
        trainer.run(trainer.seed)
        leaves = jax.tree_util.tree_flatten_with_path(trainer.state)[0]
        digests = {jax.tree_util.keystr(path): tree_digest(leaf) for path, leaf in leaves}
        return trainer.outer_iteration, digests

for job in json.loads(sys.argv[1]):
    try:
        iteration, digests = run(job)
        print(json.dumps({"iteration": iteration, "digests": digests}), flush=True)
    except Exception:
        print(json.dumps({"error": traceback.format_exc()}), flush=True)
"""
# Every algorithm: with one seed; with two, the statistics of normalisation and prioritised replay.
# The ring goes round.
RESUMED = algorithm_rows.SMALL | {"num_epochs": 2, "capacity": 40, "n_step": 3}
WITH_TWO_SEEDS = RESUMED | algorithm_rows.NORMALIZED | {"priority_exponent": 0.6}
OUTER = 4
NAMES = [*algorithm_rows.NAMES, *algorithm_rows.VARIANTS]
CASES = [(name, num_seeds) for name in NAMES for num_seeds in (1, 2)]
DEFAULT_CASES = [("ppo", 1)]
# A process takes seconds to start, so a few cases share one; not all, for the time that a test may
# take is limited.
_OTHERS = [case for case in CASES if case not in DEFAULT_CASES]
GROUPS = [DEFAULT_CASES, *(_OTHERS[i : i + 3] for i in range(0, len(_OTHERS), 3))]


def job(name, run_dir, *, stop=None, restore=None, outer=OUTER):
    """`name`: algorithm-seeds."""
    algorithm, num_seeds = name.rsplit("-", 1)[0], int(name.rsplit("-", 1)[1])
    hyper = algorithm_rows.config_of(algorithm, WITH_TWO_SEEDS if num_seeds > 1 else RESUMED)
    trainer = {
        "num_checkpoints": outer,
        "epochs_per_checkpoint": 1,
        "num_seeds": num_seeds,
        "evaluation_episodes": 2,
    }
    trainer |= {
        "run_dir": str(run_dir),
        "restore_checkpoint": restore,
        "debug": False,
        "deterministic": True,
        "max_evaluation_steps": 16,
    }
    config = RunConfig(
        algorithm=algorithm_rows.registered(algorithm),
        hyperparameters=hyper,
        env=EnvConfig(
            id=algorithm_rows.long_episodes(algorithm)
            if algorithm in algorithm_rows.VARIANTS
            else algorithm_rows.training_env(algorithm),
            num_envs=2,
        ),
        network=algorithm_rows.network_of(algorithm),
        trainer=TrainerConfig(**trainer),
        seed=3,
    )
    return {"config": run_config.to_dict(config), "stop": stop, "program": f"{name}-{outer}"}


def start(jobs):
    environment = os.environ | {"NPROC": "1"}
    command = [sys.executable, "-c", WORKER, json.dumps(jobs)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def work(jobs):
    process = start(jobs)
    out, err = process.communicate(timeout=280)
    assert process.returncode == 0, err[-3000:]
    return [json.loads(line) for line in out.splitlines() if line.startswith('{"')]


def digests(result):
    assert "error" not in result, result["error"]
    return result["digests"]


def rows(run_dir):
    """What was logged, without what names times and the parts of a run."""
    found = [
        record
        for record in read_records(run_dir / "metrics.jsonl")
        if record.kind in ("train", "eval")
    ]
    timeless = [
        {n: v for n, v in record.metrics.items() if n != "train/steps_per_second"}
        for record in found
    ]
    return [
        (record.kind, record.env_steps, record.updates, record.seed, metrics)
        for record, metrics in zip(found, timeless, strict=True)
    ]


def summary(run_dir):
    return json.loads((run_dir / "summary.json").read_text())


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """finished(case): where the runs of its group are, and the results of those not stopped,
    stopped and resumed, each by the job's name.

    One process makes the uninterrupted runs and those that are stopped, another one resumes these.
    """

    @functools.cache
    def finish_group(index):
        root = tmp_path_factory.mktemp("runs")
        names = [f"{algorithm}-{num_seeds}" for algorithm, num_seeds in GROUPS[index]]
        jobs = [job(name, root / f"{name}-whole") for name in names] + [
            job(name, root / name, stop=1) for name in names
        ]
        before = work(jobs)
        resumed = work([job(name, root / name, restore="auto") for name in names])
        parts = before[: len(names)], before[len(names) :], resumed
        return root, *(dict(zip(names, results, strict=True)) for results in parts)

    return lambda case: finish_group(next(i for i, group in enumerate(GROUPS) if case in group))


@pytest.mark.gpu
@pytest.mark.process
@pytest.mark.parametrize(("algorithm", "num_seeds"), by_default(DEFAULT_CASES, CASES))
def test_resumed_is_uninterrupted_in_every_leaf(finished, algorithm, num_seeds):
    root, *results = finished((algorithm, num_seeds))
    name = f"{algorithm}-{num_seeds}"
    whole, stopped, resumed = (result[name] for result in results)
    assert digests(stopped) and 0 < stopped["iteration"] < OUTER
    whole, resumed = digests(whole), digests(resumed)
    one, other = root / name, root / f"{name}-whole"
    assert len(whole) > 20
    assert {leaf for leaf in whole if whole[leaf] != resumed.get(leaf)} == set()
    assert rows(one) == rows(other)
    ours, theirs = summary(one), summary(other)
    for field in (
        "params_sha256",
        "env_steps",
        "eval_return_mean",
        "eval_return_std",
        "outer_iterations",
    ):
        assert ours[field] == theirs[field], field


@pytest.mark.full
@pytest.mark.process
def test_killed_at_random_moments(tmp_path):
    run, outer, dice = tmp_path / "run", 24, random.Random()
    checkpoints = run / "checkpoints"

    def newest():
        return max((int(p.name) for p in checkpoints.glob("*") if p.name.isdigit()), default=-1)

    for _ in range(3):
        before, process = newest(), start([job("a2c-1", run, restore="auto", outer=outer)])
        wanted = before + dice.randint(1, 4)
        while newest() < wanted and process.poll() is None:
            time.sleep(0.005)
        time.sleep(dice.random() * 0.1)
        process.send_signal(signal.SIGKILL)
        out, err = process.communicate()
        assert process.returncode == -signal.SIGKILL, (out, err[-2000:])
    resumed, whole = work(
        [
            job("a2c-1", run, restore="auto", outer=outer),
            job("a2c-1", tmp_path / "whole", outer=outer),
        ]
    )
    assert digests(resumed) == digests(whole)
    assert summary(run)["params_sha256"] == summary(tmp_path / "whole")["params_sha256"]
    assert rows(run) == rows(tmp_path / "whole")


# In this process, with shared compiled functions

SMALL = RunConfig(
    algorithm="ppo",
    hyperparameters=PPOConfig(num_steps=8, num_epochs=1, num_minibatches=2),
    env=EnvConfig(id="probe/Counter", num_envs=2),
    network=ActorCriticConfig(hidden_sizes=(8,)),
)


@pytest.fixture
def make(tiny, tmp_path):  # which outlives the trainers in it
    """`make(run_dir, **trainer settings)`: a trainer of `SMALL`, built from its config."""
    made = []

    def make(run_dir, *, callbacks=(), hyper=None, **settings):
        hyperparameters = dataclasses.replace(SMALL.hyperparameters, **(hyper or {}))
        config = tiny.config(run_dir=str(run_dir), **settings)
        trainer = build(
            dataclasses.replace(SMALL, trainer=config, hyperparameters=hyperparameters),
            callbacks=callbacks,
        )
        made.append(trainer)
        share(trainer)
        return trainer

    def share(trainer):
        tiny.share(trainer, ("build", trainer.config.num_seeds, trainer.plan.epochs_per_checkpoint))

    def again(run_dir, **settings):
        trainer = reopen(run_dir, **settings)
        made.append(trainer)
        share(trainer)
        return trainer

    make.again = again
    yield make
    for trainer in made:
        trainer.close()


class LastMetrics(Callback):
    """The training metrics of the last outer iteration: where episodes in flight show."""

    def on_iteration_end(self, trainer, iteration, metrics):
        self.metrics = {
            name: value for name, value in metrics.items() if name != "steps_per_second"
        }


FIELDS = [f"learner.{f.name}" for f in dataclasses.fields(LearnerState)] + [
    f"local.{f.name}" for f in dataclasses.fields(LocalState)
]


@pytest.fixture(scope="module")
def halfway(tiny, tmp_path_factory):
    """A checkpoint after two of three outer iterations, and the digest of the end."""
    folder = tmp_path_factory.mktemp("halfway")
    last = LastMetrics()
    trainer = tiny.trainer(hyper=algorithm_rows.NORMALIZED, checkpointer=folder, callbacks=[last])
    trainer.run(0)
    trainer.close()
    return folder, (tree_digest(trainer.state), last.metrics)


@pytest.mark.parametrize("field", [None, *FIELDS])
def test_every_field_of_the_state_is_needed(tiny, halfway, monkeypatch, field):
    folder, end = halfway
    original = restoring.from_items

    def altered(items, shape):
        state = original(items, shape)
        if field is None:
            return state
        part, name = field.split(".")
        half = getattr(state, part)
        other = (
            jax.random.key(0)
            if name == "key"
            else jax.tree.map(lambda x: x + jnp.ones((), x.dtype), getattr(half, name))
        )
        return state.replace(**{part: half.replace(**{name: other})})

    monkeypatch.setattr(restoring, "from_items", altered)
    last = LastMetrics()
    trainer = tiny.trainer(hyper=algorithm_rows.NORMALIZED, callbacks=[last])
    state = trainer.load_checkpoint(folder, 2)
    empty = field is not None and not jax.tree.leaves(
        getattr(getattr(state, field.split(".")[0]), field.split(".")[1])
    )
    trainer.run()
    assert trainer.outer_iteration == 3
    assert ((tree_digest(trainer.state), last.metrics) == end) == (field is None or empty)
    # on-policy, feed-forward and no sweep: nothing
    nothing = ("learner.target_params", "learner.hyperparameters", "local.carry", "local.memory")
    assert empty == (field in nothing)


@pytest.mark.filterwarnings("ignore:.*is damaged:RuntimeWarning")
def test_a_damaged_newest_checkpoint_is_set_aside(make, tmp_path):
    whole = make(tmp_path / "whole")
    whole.run(0)
    run = tmp_path / "run"
    stopped = make(run, callbacks=[StopAt(1)])
    stopped.run(0)
    stopped.close()
    newest = run / "checkpoints" / "2"
    data = max(
        (path for path in (newest / "learner").rglob("*") if path.is_file()),
        key=lambda path: path.stat().st_size,
    )
    data.write_bytes(b"\0" * data.stat().st_size)
    resumed = make.again(run)
    assert resumed.outer_iteration == 1 and (run / "checkpoints" / "damaged-2").is_dir()
    assert len(resumed.run()) == 2
    assert tree_digest(resumed.state) == tree_digest(whole.state)
    assert rows(run) == rows(tmp_path / "whole")


def test_extension_continues_with_outer_iterations_of_the_same_size(make, tmp_path):
    whole = make(tmp_path / "run", num_checkpoints=None, total_steps=96, epochs_per_checkpoint=2)
    whole.run(0)
    whole.close()
    # 96 steps were 3 outer iterations of 2 x 16.
    longer = make.again(tmp_path / "run", total_steps=160)
    assert (longer.plan.num_checkpoints, longer.plan.epochs_per_checkpoint) == (5, 2)
    assert float(longer.state.learner.total_steps) == 160
    compiled = longer.compiler.count
    assert (
        len(longer.run()) == 2
        and longer.env_steps == longer.state.learner.env_steps.to_int() == 160
    )
    # The functions that the shorter run compiled still fit.
    assert longer.compiler.count == compiled
    longer.close()
    assert (
        yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["trainer"]["total_steps"]
        == 160
    )
    again = make.again(tmp_path / "run")  # without total_steps: as it was extended
    assert again.plan == longer.plan and again.run() == []
    with pytest.raises(ConfigError, match="less than the 160"):
        reopen(tmp_path / "run", total_steps=96)


def test_extension_does_not_round_twice(make, tmp_path):
    run = tmp_path / "run"
    with make(run, num_checkpoints=None, total_steps=16 * 2, epochs_per_checkpoint=2) as trainer:
        trainer.run(0)
    longer = make.again(run, total_steps=16 * 43)  # alone: 15 x 3 iterations
    assert (longer.plan.num_checkpoints, longer.plan.epochs_per_checkpoint) == (22, 2)


def test_a_shorter_plan_is_refused(make, tmp_path):
    with make(tmp_path / "run") as trainer:
        trainer.run(0)
    shorter = make(tmp_path / "run", num_checkpoints=2, restore_checkpoint="auto")
    with pytest.raises(ConfigError, match="=2 is less than the 3 outer iterations of the"):
        shorter.run(0)


def test_a_finished_run_stays_as_it_is(make, tmp_path, hashes):
    with make(tmp_path / "run") as trainer:
        trainer.run(0)
    before = hashes(tmp_path / "run")
    finished = make.again(tmp_path / "run")
    assert (
        finished.run() == []
        and finished.summary()["eval_return_mean"] == summary(tmp_path / "run")["eval_return_mean"]
    )
    finished.close()
    after = hashes(tmp_path / "run")
    # Says so, in one row.
    assert {name for name in before if before[name] != after.get(name)} == {"metrics.jsonl"}
    assert "is finished" in read_records(tmp_path / "run" / "metrics.jsonl")[-1].text


@pytest.mark.full
def test_a_run_cut_before_its_first_checkpoint_starts_again(make, tmp_path, monkeypatch):
    run = tmp_path / "run"
    broken = make(run)
    # after the first evaluation was logged
    monkeypatch.setattr(broken._loop, "_save", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        broken.run(0)
    broken.close()
    assert len(rows(run)) == 1
    make.again(run).run()
    with make(tmp_path / "whole") as whole:
        whole.run(0)
    assert rows(run) == rows(tmp_path / "whole")


@pytest.mark.full
def test_a_run_cut_before_its_first_checkpoint_may_start_again_as_a_longer_one(
    make, tmp_path, monkeypatch
):
    run = tmp_path / "run"
    broken = make(run)
    monkeypatch.setattr(broken._loop, "_save", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        broken.run(0)
    broken.close()
    length = {"num_checkpoints": 5, "epochs_per_checkpoint": 2}
    longer = make(run, restore_checkpoint="auto", callbacks=[StopAt(1)], **length)
    longer.run(0)
    longer.close()
    again = make.again(run)
    assert again.plan == longer.plan
    assert again.plan.total_steps == 160 > broken.plan.total_steps


def test_a_run_cut_after_step_zero(make, tmp_path):
    class Crash(Callback):
        def on_iteration_end(self, trainer, iteration, metrics):
            raise ZeroDivisionError

    run = tmp_path / "run"
    broken = make(run, callbacks=[Crash()])
    with pytest.raises(ZeroDivisionError):
        broken.run(0)
    broken.close()
    resumed = make(run, restore_checkpoint=0)
    assert len(resumed.run(0)) == 3
    with make(tmp_path / "whole") as whole:
        whole.run(0)
    assert rows(run) == rows(tmp_path / "whole") and tree_digest(resumed.state) == tree_digest(
        whole.state
    )


@pytest.mark.parametrize(
    ("which", "error", "match"),
    [
        (7, CheckpointError, r"no step 7; its steps are: .*3"),
        (
            1,
            CheckpointError,
            r"step 1 is older than the latest, 3.*; continue in a new run, with reopen",
        ),
    ],
)
def test_steps_that_cannot_be_resumed(make, tmp_path, hashes, which, error, match):
    keep = {"checkpointer_config": CheckpointerConfig(max_to_keep=9)}
    with make(tmp_path / "run", **keep) as trainer:
        trainer.run(0)
    before = hashes(tmp_path / "run")
    other = make(tmp_path / "run", restore_checkpoint=which, **keep)
    with pytest.raises(error, match=match):
        other.run(0)
    other.close()
    assert hashes(tmp_path / "run") == before


@pytest.mark.full
def test_outer_iterations_are_counted_on_after_a_restore(make, tmp_path):
    """With "auto" they are those of the whole run, which a script that was killed then ends."""
    for restore, trained in ((None, 3), ("auto", 0), ("latest", 3), (6, 3)):
        with make(tmp_path / "run", restore_checkpoint=restore) as trainer:
            assert len(trainer.run(0)) == trained
    assert trainer.outer_iteration == 9
    with reopen(tmp_path / "run") as trainer:
        assert trainer.run() == [] and trainer.outer_iteration == 9
    settings = run_config.read_settings(tmp_path / "run")["trainer"]
    assert settings["total_steps"] == trainer.plan.total_steps == trainer.env_steps


def test_outer_iterations_after_a_restore_keep_their_size(make, tmp_path):
    """Without `epochs_per_checkpoint`, however many are asked for."""
    with make(tmp_path / "run", epochs_per_checkpoint=2) as trainer:
        trainer.run(0)
    more = {"num_checkpoints": 25, "epochs_per_checkpoint": None}
    with make(tmp_path / "run", restore_checkpoint="latest", **more) as trainer:
        trainer.init(0)
        assert trainer.plan.num_checkpoints == 28 and trainer.plan.epochs_per_checkpoint == 2


def test_a_step_named_to_reopen_is_the_latest(make, tmp_path):
    """And the run has no more outer iterations than before."""
    with make(tmp_path / "run", num_checkpoints=2) as trainer:
        trainer.run(0)
    with reopen(tmp_path / "run", which=2, debug=True) as again:
        assert again.config.debug and not trainer.config.debug
        assert again.run() == [] and again.outer_iteration == 2
    with pytest.raises(CheckpointError, match=r"1 is older than the latest, 2: .*into=new_dir"):
        reopen(tmp_path / "run", which=1)


def test_a_branch_that_was_cut_short_is_not_resumed(make, tmp_path, monkeypatch):
    """It would train from scratch. After an error nothing is left of it."""
    with make(tmp_path / "run") as trainer:
        trainer.run(0)

    def fail(*_, **__):
        raise OSError("disk full")

    kept = tmp_path / "kept"
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "save_checkpoint", fail)
        with pytest.raises(OSError, match="disk full"):
            reopen(tmp_path / "run", which=2, into=tmp_path / "branch")
        assert not (tmp_path / "branch").exists()
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)  # as if it was killed there
        with pytest.raises(OSError, match="disk full"):
            reopen(tmp_path / "run", which=2, into=kept)
    match = "kept is an unfinished branch: .*; remove it, and branch off again"
    with pytest.raises(RunDirectoryError, match=match):
        reopen(kept)
    with pytest.raises(RunDirectoryError, match=match):
        reopen(tmp_path / "run", which=2, into=kept)
    assert main(["resume", str(tmp_path / "run"), "--into", str(kept)]) == 2


def test_a_branch_has_logs_and_checkpoints_of_its_own(make, tmp_path):
    """Even if those of the old run are elsewhere."""
    elsewhere = {
        "logger_config": LoggerConfig(jsonl=str(tmp_path / "rows.jsonl")),
        "checkpointer_config": CheckpointerConfig(directory=str(tmp_path / "saved")),
    }
    with make(tmp_path / "run", **elsewhere) as trainer:
        trainer.run(0)
    rows = (tmp_path / "rows.jsonl").read_bytes()
    with reopen(tmp_path / "run", which=2, into=tmp_path / "branch") as branch:
        branch.run()
    assert (tmp_path / "rows.jsonl").read_bytes() == rows
    assert (tmp_path / "branch" / "metrics.jsonl").exists()
    assert (tmp_path / "branch" / "checkpoints").is_dir()


@pytest.mark.full
def test_a_branch_goes_on_from_any_checkpoint_in_one_call(make, tmp_path):
    """It leaves the old run alone, says where it is from, and resumes by itself, too."""
    keep = CheckpointerConfig(max_to_keep=5)
    with make(tmp_path / "run", checkpointer_config=keep) as trainer:
        trainer.run(0)
    before = sorted(path.name for path in (tmp_path / "run").rglob("*"))
    with reopen(tmp_path / "run", which=1, into=tmp_path / "branch") as branch:
        assert branch.outer_iteration == 1 and branch._open().checkpointer.all_steps() == [1]
    with reopen(tmp_path / "branch") as resumed:
        assert len(resumed.run()) == 2
        parent = resumed.summary()["parent"]
    assert parent == {"directory": str(tmp_path / "run" / "checkpoints"), "step": 1}
    assert tree_digest(resumed.state) == tree_digest(trainer.state)  # it trained the same again
    assert sorted(path.name for path in (tmp_path / "run").rglob("*")) == before
    for which in ("best", "latest"):
        with reopen(tmp_path / "run", which=which, into=tmp_path / which) as branch:
            branch.run()
            assert branch.outer_iteration == 3
    with pytest.raises(RunDirectoryError, match="already holds a run"):
        reopen(tmp_path / "run", which=1, into=tmp_path / "branch")
    with pytest.raises(CheckpointError, match="has no step 7; its steps are: 0, 1, 2, 3"):
        reopen(tmp_path / "run", which=7, into=tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_the_best_checkpoint_is_resumed_only_if_nothing_follows(make, tmp_path):
    with make(tmp_path / "run") as trainer:
        trainer.run(0)
        best, latest = (
            trainer._open().checkpointer.best_step(),
            trainer._open().checkpointer.latest_step(),
        )
    other = make(tmp_path / "run", restore_checkpoint="best")
    if best == latest:
        assert len(other.run(0)) == 3
    else:
        with pytest.raises(CheckpointError, match="older than the latest"):
            other.run(0)
    with make(tmp_path / "branch") as branch:  # a new run directory may go on from it
        branch.load_checkpoint(tmp_path / "run", "best")
        assert len(branch.run()) == 3 - best


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"hyper": {"gamma": 0.5}}, r"hyperparameters\.gamma: 0\.99 there, 0\.5 here"),
        ({"num_seeds": 2}, r"trainer\.num_seeds: 1 there, 2 here"),
        ({"evaluation_episodes": 5}, r"trainer\.evaluation_episodes"),
    ],
    ids=["gamma", "num_seeds", "episodes"],
)
def test_other_settings_are_refused(make, tmp_path, hashes, settings, match):
    with make(tmp_path / "run") as trainer:
        trainer.run(0)
    before = hashes(tmp_path / "run")
    for restore in ("auto", "latest", 0):
        with pytest.raises(RunDirectoryError, match=match):
            make(tmp_path / "run", restore_checkpoint=restore, **settings)
    with pytest.raises(RunDirectoryError, match="already holds a run; continue it"):
        make(tmp_path / "run")
    assert hashes(tmp_path / "run") == before


def test_another_number_of_seeds_does_not_load(tiny, make, tmp_path):
    with make(tmp_path / "run") as trainer:
        trainer.run(0)
    two = tiny.trainer(num_seeds=2)
    said = r"is of a run with 1 seed, this one has 2; use num_seeds=1 \(--num-seeds 1\), or start"
    with pytest.raises(CheckpointError, match=said):
        two.load_checkpoint(tmp_path / "run")


@pytest.mark.fast
def test_nothing_to_resume(tmp_path):
    with pytest.raises(
        RunDirectoryError, match="does not contain a run; pass the run_dir of a training run"
    ):
        reopen(tmp_path)
    assert list(pathlib.Path(tmp_path).iterdir()) == []


@pytest.mark.full
def test_a_branch_that_was_killed_before_it_began_may_be_tried_again(make, tmp_path):
    """Nothing was in its directory but the mark, and the mark does not outlive the branch."""
    with make(tmp_path / "run") as trainer:
        trainer.run(0)
    branch = tmp_path / "branch"
    branch.mkdir()
    (branch / ".tmp-branch").touch()
    (branch / ".lock").touch()
    with reopen(tmp_path / "run", which=2, into=branch) as trainer:
        trainer.run()
    assert not (branch / ".tmp-branch").exists()
    with reopen(branch) as trainer:
        assert trainer.run() == []


def test_a_branch_beside_files_of_others_touches_nothing(make, tmp_path):
    with make(tmp_path / "run") as trainer:
        trainer.run(0)
    (tmp_path / "file").touch()
    with pytest.raises(RunDirectoryError, match="file is a file"):
        reopen(tmp_path / "run", into=tmp_path / "file")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    with pytest.raises(RunDirectoryError, match="it holds other files"):
        reopen(tmp_path / "run", into=tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


@pytest.mark.full
def test_a_branch_from_step_0_begins_with_an_evaluation(make, tmp_path):
    """Resumed or not; the parent's does not count."""
    keep = CheckpointerConfig(max_to_keep=9)
    with make(tmp_path / "run", checkpointer_config=keep) as trainer:
        trainer.run(0)
    rows = []
    for name, is_resumed in (("whole", False), ("parts", True)):
        branch = reopen(tmp_path / "run", which=0, into=tmp_path / name)
        if is_resumed:
            branch.close()
            branch = reopen(tmp_path / name)
        with branch:
            branch.run()
        records = read_records(tmp_path / name / "metrics.jsonl")
        rows.append([(row.kind, row.env_steps) for row in records if row.kind in ("eval", "train")])
    assert rows[0] == rows[1] and rows[0][0] == ("eval", 0)


def test_a_run_that_cannot_be_reopened_is_not_locked(make, tmp_path):
    with make(tmp_path / "run") as trainer:
        trainer.run(0)
    for record in (tmp_path / "run" / "checkpoints").glob("*/record/metadata"):
        record.write_text("damaged")
    for _ in range(2):
        with (
            pytest.raises(CheckpointError, match="holds no intact checkpoint"),
            pytest.warns(RuntimeWarning),
        ):
            reopen(tmp_path / "run")


def test_a_branch_skips_a_damaged_newest_checkpoint(make, tmp_path):
    """As resuming does, with a warning."""
    with make(tmp_path / "run") as trainer:
        trainer.run(0)
    (tmp_path / "run" / "checkpoints" / "3" / "record" / "metadata").write_text("damaged")
    with (
        pytest.warns(RuntimeWarning, match="step 3 is damaged"),
        reopen(tmp_path / "run", into=tmp_path / "branch") as branch,
    ):
        assert branch.outer_iteration == 2
    with reopen(tmp_path / "run", which=np.int64(2), into=tmp_path / "other") as other:
        assert other.outer_iteration == 2


@pytest.mark.full
def test_two_branches_into_one_directory(tiny_run, tmp_path):
    """The second waits for nothing, and takes no mark away that protects the first."""
    branch = tmp_path / "branch"
    branch.mkdir()
    lock = take_lock(branch / BRANCH_MARK)  # the first is at work
    try:
        with pytest.raises(RunDirectoryError, match=r"in use by this process .*choose another"):
            reopen(tiny_run, which=1, into=branch)
        assert [path.name for path in branch.iterdir()] == [BRANCH_MARK]
    finally:
        os.close(lock)
    with reopen(tiny_run, which=1, into=branch, total_steps=64) as trainer:  # one that was cut
        assert trainer.env_steps == 16
    assert not (branch / BRANCH_MARK).exists()
