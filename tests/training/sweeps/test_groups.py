"""Groups of a sweep that processes of their own train, as launchers start them."""

import pytest
from sweep_files import files_of, stops_at

from rlkit.errors import RunDirectoryError
from rlkit.training.files import run_directory
from rlkit.training.sweeps import group_process, running, shapes
from rlkit.training.sweeps.directory import SweepFiles, locked_sweep, sweep_in
from rlkit.training.sweeps.group_process import plan_batch, train_group
from rlkit.training.sweeps.plan import plan_of
from rlkit.training.sweeps.space import Range
from rlkit.training.sweeps.standing import Standing
from rlkit.training.sweeps.stores import directory_store
from rlkit.training.sweeps.stores.store import open_store

RATES = {"learning_rate": (1e-3, 3e-3, 1e-2, 2e-2)}
PAIRS = {"group_size": 2}


def begun(sweeps, config, name="groups"):
    """The directory of a sweep that is planned, and not trained."""
    with locked_sweep(sweeps.root / name, config) as files:
        plan_batch(files.place)
        return files


def trained(sweeps, files, *trials, watch=lambda trainer: None):
    """What became of the groups of these trials, one after the other."""
    return [
        train_group(files.place, trial, watch=watch, say=sweeps.said.append) for trial in trials
    ]


def firsts(files, trial=0):
    return [group.first for group in plan_of(files, trial).groups]


@pytest.mark.full
def test_groups_of_processes_of_their_own_are_those_of_a_sweep(sweeps):
    """Whichever comes first; the sweep itself trains none of them again."""
    config = sweeps.config(grid=RATES, num_checkpoints=1, sweep=PAIRS)
    files = begun(sweeps, config)
    assert firsts(files) == [0, 2]
    assert trained(sweeps, files, 3, 0) == [True, True]  # 3 is in the group of 2
    watched = []
    sweep = sweeps.run(None, files.store.name, watch=watched.append)
    assert watched == [] and sweep.is_finished
    assert not (files.place / "together").exists()
    assert "2 programs of 2 trials" in sweeps.said[-1]
    whole = sweeps.run(config, "whole")
    assert files_of(sweep) == files_of(whole)
    assert sweep.table() == whole.table()


def test_a_group_that_is_done_is_done(sweeps, monkeypatch):
    files = begun(sweeps, sweeps.config(grid=RATES, num_checkpoints=1, sweep=PAIRS))
    trained(sweeps, files, 0)
    monkeypatch.setattr(running, "train_jointly", lambda *_, **__: pytest.fail("trained again"))
    assert trained(sweeps, files, 1) == [True]
    assert sweeps.said[-1] == "the group of trial 000 is done"
    assert not (files.place / "results.jsonl").exists()  # which the sweep itself writes
    assert [trial for _, trial in sweep_in(files.place).results()] == [0, 1]


@pytest.mark.full
@pytest.mark.parametrize("deterministic", [False, True])
def test_a_group_that_was_stopped_goes_on(deterministic, sweeps, monkeypatch):
    monkeypatch.setenv("NPROC", "1")
    config = sweeps.config(
        grid=RATES,
        num_checkpoints=3,
        max_queued=1,
        sweep=PAIRS,
        deterministic=deterministic,
    )
    files = begun(sweeps, config)
    first, *others = firsts(files)
    assert len(others) == (3 if deterministic else 1)
    assert trained(sweeps, files, first, watch=stops_at(1)) == [False]
    assert Standing(files, plan_of(files, 0)).rung == 0
    assert all(trained(sweeps, files, *others, first))
    whole = sweeps.run(config, "whole")
    assert files_of(sweeps.run(None, files.store.name)) == files_of(whole)


@pytest.mark.full
def test_groups_wait_for_each_other_at_a_rung(sweeps):
    config = sweeps.config(grid=RATES, num_checkpoints=4, sweep=PAIRS | {"halving": 2})
    files = begun(sweeps, config)
    assert trained(sweeps, files, 0, 0) == [True, True]  # rung 0; then it waits
    assert {rung for rung, _ in files.results()} == {0}
    trained(sweeps, files, 2)
    rounds = 0
    while Standing(files, plan_of(files, 0)).rung is not None:
        trained(sweeps, files, 0, 2)
        rounds += 1
    assert rounds == 2
    sweep, whole = sweeps.run(None, files.store.name), sweeps.run(config, "whole")
    assert [result.rung for result in sweep.results] == [2, 1, 0, 0]
    assert files_of(sweep) == files_of(whole)


@pytest.mark.full
def test_the_next_batch_of_optuna_is_planned_when_the_last_one_is_trained(sweeps):
    space = {"learning_rate": Range(low=1e-4, high=1e-1, log=True)}
    asked = {"random": space, "trials": 4, "search": "optuna", "batch": 2}
    config = sweeps.config(grid={}, num_checkpoints=1, sweep=asked)
    files = begun(sweeps, config)
    plan_batch(files.place)
    with pytest.raises(RunDirectoryError, match=r"no trial 2 is planned in .* `rlkit resume"):
        trained(sweeps, files, 2)
    trained(sweeps, files, 0)
    plan_batch(files.place)
    trained(sweeps, files, 2)
    sweep, whole = sweeps.run(None, files.store.name), sweeps.run(config, "whole")
    assert files_of(sweep) == files_of(whole)


def test_the_plan_is_that_of_the_machine_that_made_it(sweeps, monkeypatch):
    """Another one may have less memory: its groups would be others."""
    files = begun(sweeps, sweeps.config(grid=RATES))
    monkeypatch.setattr(shapes, "_num_groups", lambda configs, traced, most: len(configs))
    plan_batch(files.place)
    assert firsts(files) == [0]


def test_a_group_belongs_to_one_process(sweeps, monkeypatch):
    monkeypatch.setattr(group_process, "PATIENCE", 0.0)
    files = begun(sweeps, sweeps.config(grid=RATES))
    with files.locked_group(0, print), pytest.raises(RunDirectoryError) as error:
        trained(sweeps, files, 1)
    said = f"the group of trial 0 in {files.place} is in use by this process"
    assert str(error.value).startswith(said)


@pytest.mark.fast
def test_a_process_waits_for_the_end_of_the_one_before(sweeps, monkeypatch, tmp_path):
    """Whose machine died, for instance: the lock is free a little later."""
    files, waits = SweepFiles(open_store(tmp_path), sweeps.config()), []
    with files.locked_group(0, print):
        held = run_directory.take_lock
        answers = [RunDirectoryError("in use"), RunDirectoryError("in use"), None]

        def taken(path, what):
            if (error := answers.pop(0)) is not None:
                raise error
            return held(tmp_path / "another.lock")

        monkeypatch.setattr(directory_store, "take_lock", taken)
        monkeypatch.setattr(directory_store.time, "sleep", waits.append)
        with files.locked_group(0, print, patience=60.0):
            assert answers == [] and waits == [directory_store.POLL] * 2
