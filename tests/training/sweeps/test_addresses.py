"""Sweeps at addresses: file://, memory://, and a store whose requests fail. S3 is tried by hand."""

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from sessions import RLKIT, session
from sweep_files import files_of, results_of, stops_at
from tiny_command import TINY
from unreliable_store import UnreliableFileSystem, register

from rlkit.errors import CheckpointError, ConfigError, DiskError, RunDirectoryError
from rlkit.training.files.run_directory import RunDirectory
from rlkit.training.logs.loaded_run import load_run
from rlkit.training.run_config import read_settings
from rlkit.training.sweeps.config import dump
from rlkit.training.sweeps.directory import locked_sweep
from rlkit.training.sweeps.group_process import plan_batch, train_group
from rlkit.training.sweeps.launchers import command
from rlkit.training.sweeps.launchers.log_reader import LogReader
from rlkit.training.sweeps.launchers.slurm import SlurmLauncher
from rlkit.training.sweeps.space import Range
from rlkit.training.sweeps.stores import address_store, owner, snapshot
from rlkit.training.sweeps.stores.store import open_store
from rlkit.training.sweeps.sweep import run_sweep

RATES = {"learning_rate": (1e-3, 3e-3, 1e-2, 2e-2)}


@pytest.fixture(autouse=True)
def at_once(monkeypatch, tmp_path):
    """Nobody waits, and scratch directories are the test's own."""
    monkeypatch.setattr(address_store, "FIRST_WAIT", 0.0)
    monkeypatch.setattr(owner, "SETTLE", 0.0)
    monkeypatch.setattr(owner, "POLL", 0.01)
    (tmp_path / "scratch").mkdir()
    move_to(monkeypatch, tmp_path / "scratch")


def move_to(monkeypatch, path):
    """Another machine, as far as scratch directories can tell."""
    path.mkdir(exist_ok=True)
    monkeypatch.setattr("tempfile.tempdir", str(path))


@pytest.fixture
def unreliable():
    register()
    yield
    UnreliableFileSystem.store.clear()
    UnreliableFileSystem.pseudo_dirs[:] = [""]
    UnreliableFileSystem.requests.clear()
    UnreliableFileSystem.is_away = False


@pytest.fixture(params=["file", "memory"])
def address(request, tmp_path):
    return f"{request.param}://{tmp_path}/bucket/sweep"


def copied(sweep, path):
    """The sweep, copied from its address to a directory."""
    assert address_store.AddressStore(sweep.directory).copy_to(path)
    return dataclasses.replace(sweep, directory=path)


def leftovers(tmp_path):
    return [path for path in (tmp_path / "scratch").rglob("*") if path.is_file()]


@pytest.mark.fast
def test_files_of_an_address(address):
    store = open_store(address + "/")
    assert store.place == address and store.name == "sweep"
    assert store.names() == [] and store.read("a") is None and not store.has("a")
    assert store.read_from("a", 0) == b""
    store.write("a", "old")
    store.write("a", "hello")
    store.write("together/b", "1")
    store.write("together/c/d", "")
    assert store.names() == ["a", "together"] and store.names("together") == ["b", "c"]
    assert store.has("a") and store.read("a") == "hello" and store.read("together/c/d") == ""
    assert store.read_from("a", 2) == b"llo" and store.read_from("a", 5) == b""
    with store.writing("picture.png") as path:
        path.write_bytes(b"\x89PNG")
    assert store.read_from("picture.png", 0) == b"\x89PNG"
    store.remove("together")
    store.remove("a")
    store.remove("nothing")
    assert store.names() == ["picture.png"]


@pytest.mark.fast
@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("gs://bucket/mine", "gs:// needs a package of its own; install it: pip install gcsfs"),
        ("nope://bucket/mine", "Protocol not known: nope; use an address such as s3://"),
        ("memory://", "memory:// names no folder; add a name"),
        ("s3://bucket", "s3://bucket names no folder; use one such as s3://bucket/my-sweep"),
        ("file://bucket/mine", "names no folder; use one such as .* or file:///disk/my-sweep"),
        ("zip://x/y", "is no address of an object store"),
        ("://x/y", "is no address of an object store"),
        ("sftp://host/mine", "is no address of an object store; use one such as s3://"),
        ("simplecache::s3://bucket/mine", "is no address of an object store"),
    ],
)
def test_addresses_that_cannot_be_used_are_told_at_once(place, said):
    with pytest.raises(ConfigError) as error:
        open_store(place)
    assert re.search(said, str(error.value))


@pytest.mark.fast
@pytest.mark.parametrize("read", [load_run, read_settings])
def test_runs_at_addresses_are_copied_first(read):
    with pytest.raises(RunDirectoryError) as error:
        read("s3://bucket/my-sweep/trials/003/")
    assert str(error.value).endswith(
        "copy it first: rlkit copy s3://bucket/my-sweep/trials/003 runs/003"
    )


@pytest.mark.fast
def test_runs_are_not_written_to_addresses(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunDirectoryError, match="gs://bucket/mine is an address, but runs are"):
        RunDirectory("gs://bucket/mine")
    assert not (tmp_path / "gs:").exists()


@pytest.mark.fast
def test_what_ends_with_this_process_is_for_the_local_launcher(sweeps):
    with pytest.raises(ConfigError, match="no other process sees memory://box/mine; choose a"):
        run_sweep(sweeps.config(), "memory://box/mine", launcher=SlurmLauncher())


@pytest.mark.fast
@pytest.mark.usefixtures("unreliable")
def test_requests_that_fail_are_tried_again():
    store = address_store.AddressStore("unreliable://box/mine")
    for number in range(20):
        store.write(f"folder/{number}", str(number))
    assert [store.read(f"folder/{number}") for number in range(20)] == [*map(str, range(20))]
    assert len(store.names("folder")) == len(store.files_in("folder")) == 20
    UnreliableFileSystem.is_away = True
    with pytest.raises(DiskError, match=r"cannot write unreliable://box/mine/a: the network is"):
        store.write("a", "b")


class TestOwners:
    """Object stores have no locks."""

    def about(self, **more):
        return owner._this_process() | {"token": "x", "beats": 1} | more

    def begin(self, address, patience=0.0):
        store = open_store(address)
        with store.hold("part", "the part", patience):
            return json.loads(store.read("part.owner"))["pid"] == os.getpid()

    @pytest.mark.fast
    def test_a_part_is_one_process_s(self, address):
        store = open_store(address)
        with (
            store.hold("part", "the part"),
            pytest.raises(RunDirectoryError, match="the part is in use by this process"),
        ):
            self.begin(address)
        assert store.names() == [] and self.begin(address)

    @pytest.mark.fast
    def test_one_that_died_on_this_machine_is_followed_at_once(self, address):
        dead = subprocess.Popen(["true"])
        dead.wait()
        for more in ({"pid": dead.pid}, {"started": "1"}):  # the number is used again
            open_store(address).write("part.owner", json.dumps(self.about(**more)))
            assert self.begin(address)

    @pytest.mark.fast
    def test_one_elsewhere_is_dead_once_it_is_silent(self, address, monkeypatch):
        monkeypatch.setattr(owner, "SILENCE", 0.3)
        store, ended = open_store(address), threading.Event()
        elsewhere = self.about(machine="another", host="far", pid=7)

        def beat():
            for number in range(10**6):
                store.write("part.owner", json.dumps(elsewhere | {"beats": number}))
                if ended.wait(0.05):
                    return

        thread = threading.Thread(target=beat)
        thread.start()
        while not store.has("part.owner"):
            time.sleep(0.01)
        try:
            said = r"the part is in use by another process \(pid 7 on far\)"
            with pytest.raises(RunDirectoryError, match=said):
                self.begin(address)
        finally:
            ended.set()
            thread.join()
        before = time.monotonic()
        assert self.begin(address)
        assert time.monotonic() - before >= 0.3

    @pytest.mark.fast
    def test_a_name_that_this_process_could_not_remove_stops_nobody(self, address):
        open_store(address).write("part.owner", json.dumps(self.about()))
        assert self.begin(address)

    @pytest.mark.fast
    def test_one_that_was_taken_over_learns_it(self, address):
        store = open_store(address)
        with store.hold("part", "the part") as hold:
            hold.require_ours()
            store.write("part.owner", json.dumps(self.about(host="far", pid=7)))
            with pytest.raises(RunDirectoryError, match="the part was taken over by another"):
                hold.require_ours()
        assert store.has("part.owner")  # it is the other's

    @pytest.mark.fast
    def test_of_two_that_begin_at_once_one_has_it(self, address, monkeypatch):
        """The other one sees whose name stands there, and waits for it."""
        store, writes = open_store(address), []
        beat = owner.Owner._beat

        def late(self):
            beat(self)
            if not writes:  # another one has looked before, and writes now
                writes.append(1)
                store.write("part.owner", json.dumps(theirs))

        theirs = self.about(token="y", pid=os.getppid(), started=owner._started(os.getppid()))
        monkeypatch.setattr(owner.Owner, "_beat", late)
        with pytest.raises(RunDirectoryError, match="in use by another process"):
            self.begin(address)
        assert json.loads(store.read("part.owner"))["token"] == "y"


@pytest.mark.fast
def test_a_run_directory_is_packed_while_it_grows(tmp_path):
    run = tmp_path / "run"
    for name in ("checkpoints/1/state/x", "checkpoints/3/state/x", "metrics.jsonl", ".lock"):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text(name)
    for name in ("checkpoints/4.orbax-checkpoint-tmp/x", ".tmp-x", "checkpoints/deleted/1/x"):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text(name)
    (run / "link").symlink_to("/etc/passwd")
    (tmp_path / "folder").mkdir()
    step, tar = snapshot.pack(run, tmp_path / "folder")
    assert step == 3
    snapshot.unpack(tar, tmp_path / "new")
    found = ["checkpoints/1/state/x", "checkpoints/3/state/x", "metrics.jsonl"]
    assert snapshot.files_of(tmp_path / "new") == found
    assert (tmp_path / "new" / "metrics.jsonl").read_text() == "metrics.jsonl"


@pytest.mark.fast
def test_a_tar_of_others_is_not_unpacked(tmp_path):
    import tarfile

    (tmp_path / "x").write_text("x")
    with tarfile.open(tmp_path / "tar", "w") as tar:
        tar.add(tmp_path / "x", arcname="../out")
    with pytest.raises(CheckpointError, match=r"holds \.\./out, which rlkit does not write"):
        snapshot.unpack(tmp_path / "tar", tmp_path / "new" / "run")
    assert not (tmp_path / "new" / "out").exists()
    for text in ("no tar", (tmp_path / "tar").read_text(errors="ignore")[:700]):
        (tmp_path / "damaged").write_text(text)
        with pytest.raises(CheckpointError, match="damaged"):
            snapshot.unpack(tmp_path / "damaged", tmp_path / "other")


@pytest.mark.fast
def test_copies_stay_where_they_belong_and_are_whole(address, tmp_path):
    store = address_store.AddressStore(address)
    store.write("sweep/sweep", "its own name twice")
    assert store.names() == ["sweep"] and store.names("sweep") == ["sweep"]
    for strange in ("../x", "a//x", "/x", "a/../../x"):
        with pytest.raises(RunDirectoryError, match="which rlkit does not write"):
            store.get_all("", tmp_path / "copy", ["sweep/sweep", strange])
    with pytest.raises(RunDirectoryError, match="gone was removed while it was copied"):
        store.get_all("", tmp_path / "copy", ["gone", "sweep/sweep"])


@pytest.mark.fast
def test_a_sweep_that_begins_while_another_one_waits_stays_as_it_is(sweeps, monkeypatch):
    """The store's answers before it has the sweep are old."""
    hold = address_store.AddressStore.hold
    theirs, ours = (sweeps.config(grid={"gamma": (0.9, last)}) for last in (0.95, 0.99))

    def late(store, *arguments):
        store.write("sweep.yaml", dump(theirs))
        return hold(store, *arguments)

    monkeypatch.setattr(address_store.AddressStore, "hold", late)
    with pytest.raises(RunDirectoryError, match="holds a sweep with other settings"):
        run_sweep(ours, "memory://box/late")
    assert open_store("memory://box/late").read("sweep.yaml") == dump(theirs)


@pytest.mark.fast
def test_what_a_command_says_is_copied_while_it_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "POLL", 0.05)
    monkeypatch.setattr(command, "EVERY", 0.0)
    address, program = f"file://{tmp_path}/sweep", tmp_path / "python"
    program.write_text(
        "#!/bin/sh\necho began\nwhile [ ! -e go ]; do sleep 0.05; done\necho $WORD\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    store = open_store(address)
    store.write("log", "before\n")
    reader, codes = LogReader(store, "log"), []

    def run():
        codes.append(command.run_command([], str(tmp_path), address, "log", {"WORD": "ended"}))

    thread = threading.Thread(target=run)
    thread.start()
    while not (lines := reader.read()):
        time.sleep(0.02)
    (tmp_path / "go").touch()
    thread.join()
    assert (lines, reader.read(), codes) == (["began"], ["ended"], [0])
    assert store.read("log") == "before\nbegan\nended\n"


@pytest.mark.full
def test_a_sweep_at_an_address_is_that_of_a_directory(sweeps, tmp_path, unreliable):
    """Stopped, and continued on another machine, while many requests fail."""
    config = sweeps.config(grid={"gamma": (0.9, 0.99)}, num_checkpoints=2, max_queued=1)
    address, said = "unreliable://box/sweep", []
    part = run_sweep(config, address, watch=stops_at(1), say=said.append)
    assert not part.is_finished and leftovers(tmp_path) == []
    store = open_store(address)
    assert "rung-0-group-0-at-1.tar" in store.names("together")
    sweep = run_sweep(None, address, say=said.append)
    assert sweep.is_finished and leftovers(tmp_path) == []
    whole = sweeps.run(config, "whole")
    names = ["best.yaml", "results.csv", "results.jsonl", "results.png", "sweep.yaml", "trials"]
    assert sorted({file.partition("/")[0] for file in store.files_in("")}) == names
    assert files_of(copied(sweep, tmp_path / "copy")) == files_of(whole)
    assert sweep.trial_directory(1) == f"{address}/trials/001"
    assert run_sweep(None, address).results == sweep.results  # trains nothing


ASKED = {
    "halving": {"sweep": {"halving": 2, "group_size": 2}, "num_checkpoints": 4},
    "seeds": {"num_seeds": 2, "num_checkpoints": 3},
    "one by one": {"deterministic": True, "num_checkpoints": 3, "sweep": {"halving": 2}},
    "host": {"env": "gymnasium/CartPole-v1", "num_checkpoints": 2},
    "optuna": {
        "grid": {},
        "num_checkpoints": 2,
        "sweep": {
            "random": {"learning_rate": Range(low=1e-4, high=1e-1, log=True)},
            "trials": 4,
            "search": "optuna",
            "batch": 2,
        },
    },
    "population": {
        "grid": {},
        "num_checkpoints": 4,
        "sweep": {
            "random": {"learning_rate": Range(low=1e-4, high=1e-1, log=True)},
            "trials": 4,
            "exploit_every": 2,
        },
    },
}


@pytest.mark.full
@pytest.mark.parametrize("kind", ASKED)
def test_every_kind_of_sweep_that_is_stopped_and_goes_on_elsewhere(
    kind, sweeps, tmp_path, monkeypatch
):
    monkeypatch.setenv("NPROC", "1")
    config = sweeps.config(**{"grid": RATES, "max_queued": 1} | ASKED[kind])
    address = f"file://{tmp_path}/bucket/sweep"
    assert not run_sweep(config, address, watch=stops_at(1), say=print).is_finished
    move_to(monkeypatch, tmp_path / "elsewhere")
    sweep = run_sweep(None, address, say=print)
    whole = sweeps.run(config, "whole")
    assert sweep.is_finished and sweep.table() == whole.table()
    copy = copied(sweep, tmp_path / "copy")
    if kind == "host":  # environments begin new episodes
        assert len(list((copy.directory / "trials").iterdir())) == 4
        return
    assert files_of(copy) == files_of(whole)
    if kind == "population":
        rows = [(x.directory / "population.jsonl").read_text() for x in (copy, whole)]
        assert rows[0] == rows[1]


@pytest.mark.full
@pytest.mark.usefixtures("unreliable")
def test_what_cannot_be_copied_stays_on_this_machine(sweeps, tmp_path):
    """The same command finds it there."""
    config = sweeps.config(grid={"gamma": (0.9, 0.99)}, num_checkpoints=3, max_queued=1)
    address, said = "unreliable://box/sweep", []

    def goes_away(trainer):
        stops_at(2)(trainer)
        UnreliableFileSystem.is_away = True

    with pytest.raises(DiskError, match="where the same command finds it on this machine"):
        run_sweep(config, address, watch=goes_away, say=said.append)
    UnreliableFileSystem.is_away = False
    assert list(tmp_path.glob("scratch/**/checkpoints/2"))
    before = len(said)
    sweep = run_sweep(config, address, say=said.append)
    steps = [text.split()[0] for text in said[before:] if " steps | " in text]
    assert steps == ["48"]  # what was trained is not trained again
    assert leftovers(tmp_path) == []
    whole = sweeps.run(config, "whole")
    assert files_of(copied(sweep, tmp_path / "copy")) == files_of(whole)


@pytest.mark.full
def test_a_copy_of_what_is_in_training_goes_on(sweeps, tmp_path):
    config = sweeps.config(grid={"gamma": (0.9, 0.99)}, num_checkpoints=3, max_queued=1)
    address, copy, said = "memory://box/unfinished", tmp_path / "copy", []
    assert not run_sweep(config, address, watch=stops_at(2)).is_finished
    address_store.AddressStore(address).copy_to(copy)
    assert not list(copy.rglob("*.tar"))
    sweep = run_sweep(None, copy, say=said.append)
    assert [text.split()[0] for text in said if " steps | " in text] == ["48"]
    assert files_of(sweep) == files_of(sweeps.run(config, "whole"))


def test_a_group_that_was_taken_over_ends(sweeps):
    address = "memory://box/taken"
    config = sweeps.config(grid={"gamma": (0.9, 0.99)}, num_checkpoints=2)
    with locked_sweep(address, config):
        plan_batch(address)
    store = open_store(address)

    def taken(trainer):
        about = owner._this_process() | {"token": "y", "pid": 7, "host": "far", "beats": 1}
        store.write("together/group-0.owner", json.dumps(about))

    with pytest.raises(RunDirectoryError, match=r"the group of trial 0 in .* was taken over"):
        train_group(address, 0, watch=taken, say=lambda text: None)
    assert "group-0.jsonl" not in store.names("together")


COMMAND = [*RLKIT, "sweep", "ppo", "gymnax/CartPole-v1", *TINY, "--evaluation-episodes", "2"]
GRID = ["--grid", "learning_rate=1e-3,3e-3,1e-2,2e-2", "--group-size", "2"]


@pytest.mark.full
@pytest.mark.process
@pytest.mark.timeout(900)
def test_a_sweep_that_is_killed_goes_on_on_another_machine(tmp_path):
    """Killed where the first tar is there, and continued with another scratch directory."""
    length = ["--num-checkpoints", "30", "--total-steps", "19200"]
    bucket, there = tmp_path / "bucket" / "sweep", [*COMMAND, *GRID, *length]
    address = f"file://{bucket}"
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with session(
        [*there, "--run-dir", address],
        cwd=tmp_path,
        log=tmp_path / "log",
        NPROC=1,
        TMPDIR=tmp_path / "one",
    ) as first:
        deadline = time.monotonic() + 300
        while not list(bucket.glob("together/rung-0-group-2-at-*.tar")):
            assert time.monotonic() < deadline, first.log.read_text()
            time.sleep(0.05)
        first.process.kill()
        first.wait(60)
    assert any((tmp_path / "one").rglob("checkpoints"))
    shutil.rmtree(tmp_path / "one")
    command = [*RLKIT, "resume", address]
    with session(
        command, cwd=tmp_path, log=tmp_path / "log2", NPROC=1, TMPDIR=tmp_path / "two"
    ) as rest:
        assert rest.wait(400).code == 0, rest.log.read_text()
    with session([*there, "--run-dir", "whole"], cwd=tmp_path, log=tmp_path / "w", NPROC=1) as one:
        assert one.wait(400).code == 0, one.log.read_text()
    copy = [*RLKIT, "copy", address, "copy"]
    subprocess.run(copy, cwd=tmp_path, check=True, capture_output=True)
    assert results_of(tmp_path / "copy") == results_of(tmp_path / "whole")
    assert not any(path.is_file() for path in (tmp_path / "two").rglob("*"))


@pytest.mark.process
def test_nothing_imports_fsspec_without_an_address(tmp_path):
    program = (
        "import sys, rlkit, rlkit.cli.sweep, rlkit.cli.resume\n"
        "from rlkit.training.sweeps.directory import holds_sweep\n"
        f"assert not holds_sweep({str(tmp_path)!r})\n"
        "assert 'fsspec' not in sys.modules and 'jax' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert list(Path(tmp_path).iterdir()) == [tmp_path / "scratch"]
