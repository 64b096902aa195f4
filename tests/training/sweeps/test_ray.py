"""`--launcher ray` on real clusters of this machine: nodes die, processes die, users stop it.

Those that need Ray are run by `make test-ray`, in an environment that has it.
"""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from sessions import RLKIT, session
from sweep_files import results_of
from tiny_command import TINY

from rlkit.errors import ConfigError, RlkitError, RunDirectoryError
from rlkit.training.directories import is_address
from rlkit.training.sweeps.launchers import ray_cluster
from rlkit.training.sweeps.launchers.log_reader import LogReader
from rlkit.training.sweeps.launchers.ray import RayLauncher
from rlkit.training.sweeps.launchers.ray_cluster import (
    command_task,
    connected,
    ray_module,
    require_room,
    require_shared,
)
from rlkit.training.sweeps.stores.directory_store import DirectoryStore
from rlkit.training.sweeps.stores.store import open_store

COMMAND = [*RLKIT, "sweep", "ppo", "gymnax/CartPole-v1", *TINY, "--evaluation-episodes", "2"]
ASKED = ["--grid", "learning_rate=1e-3,3e-3,1e-2,2e-2", "--group-size", "2", "--num-checkpoints"]
LENGTH = ["30", "--total-steps", "19200"]
RAY = ["--launcher", "ray", "--num-cpus", "1"]


needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: make test-ray"
)


def on_a_cluster(test):
    """Ray's workers are nice: where others compute as well, these tests take minutes."""
    for mark in (pytest.mark.full, pytest.mark.process, pytest.mark.timeout(900), needs_ray):
        test = mark(test)
    return test


def node(cpus, gpus=0):
    return {"Resources": {"CPU": float(cpus), "GPU": float(gpus)}}


@pytest.mark.fast
def test_without_ray_its_name_says_what_to_install(sweeps, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'rlkit-jax\[ray\]'"):
        sweeps.run(sweeps.config(), launcher=RayLauncher())


@pytest.mark.fast
def test_settings_of_the_launcher_are_checked():
    for wrong in ({"tries": 0}, {"num_cpus": 0}, {"num_gpus": -1}, {"num_gpus": 0.5}):
        with pytest.raises(ConfigError, match=f"{next(iter(wrong))} must be a positive integer"):
            RayLauncher(**wrong)
    RayLauncher(num_gpus=0)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("launcher", "nodes", "devices", "wanted"),
    [
        (RayLauncher(), [node(8), node(4), node(0)], 1, (4, 0)),  # whole nodes
        (RayLauncher(num_cpus=2), [node(8)], 4, (2, 0)),
        (RayLauncher(), [node(64), node(64, 8)], 1, (1, 1)),
        (RayLauncher(), [node(64, 8)], 4, (1, 4)),
        (RayLauncher(num_gpus=0), [node(64, 8), node(32)], 1, (32, 0)),
    ],
)
def test_a_group_takes_a_node_or_its_gpus(launcher, nodes, devices, wanted):
    assert launcher._sizes(nodes, devices) == wanted
    require_room(nodes, *wanted)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("nodes", "size", "said"),
    [
        ([node(4), node(2)], (8, 0), "has as many: the largest has 4 and 0; use --num-cpus 4"),
        ([node(64), node(8, 2)], (16, 1), "largest has 8 and 2; use --num-cpus 8 --num-gpus 1"),
        ([node(64)], (1, 1), "largest has 64 and 0; use --num-cpus 64 --num-gpus 0"),
    ],
)
def test_a_group_that_no_node_can_take_is_an_error(nodes, size, said):
    with pytest.raises(ConfigError, match=said):
        require_room(nodes, *size)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("ray://head:10001", "of Ray's client, .* start rlkit on a machine of the cluster"),
        ("localhost:9", "there is no Ray cluster at localhost:9 .* `ray start --head`"),
    ],
)
def test_addresses_without_a_cluster_are_told_at_once(address, said):
    with pytest.raises(ConfigError, match=said):
        ray_cluster._require_reachable(address)


@pytest.mark.fast
def test_whole_lines_of_a_log_are_read_as_they_come(tmp_path):
    path, store = tmp_path / "log", open_store(tmp_path)
    assert LogReader(store, "log").read() == []
    path.write_text("rlkit: error: of an earlier process\n")
    reader = LogReader(store, "log")
    assert reader.problem("it died") == "it died"
    with path.open("a") as file:
        for text, wanted in [("one\n\ntw", ["one"]), ("o\n", ["two"]), ("", [])]:
            file.write(text)
            file.flush()
            assert reader.read() == wanted
        assert reader.problem("it died") == "it died: two"
        file.write("rlkit: error: the disk is full; empty it\nthree\n")
    assert reader.read()[-1] == "three"
    assert reader.problem("it died") == "the disk is full; empty it"


@needs_ray
@pytest.mark.process
@pytest.mark.filterwarnings("ignore:os.fork")  # by Ray, in a process whose JAX has devices
def test_commands_are_tasks_of_nodes_that_share_a_disk(tmp_path, monkeypatch):
    ray = ray_module()
    with connected(ray, None):
        with connected(ray, "localhost:9"):  # a process that is connected stays so
            nodes = ray_cluster.alive_nodes(ray)
        require_shared(ray, nodes, open_store(tmp_path))
        assert list((tmp_path / "together").iterdir()) == []
        run = command_task(ray).options(num_cpus=0)
        where, variables = str(tmp_path), {"RLKIT_CPU_TUNING": "off"}
        asked = [["--version"], ["tarin"]]
        codes = ray.get([run.remote(words, where, where, "log", variables) for words in asked])
        said = (tmp_path / "log").read_text()
        assert codes == [0, 2] and "rlkit 0." in said and "unknown command 'tarin'" in said
        monkeypatch.setattr(ray_cluster, "__version__", "0.0.1")
        with pytest.raises(RlkitError, match=r"has 0\..*, and this process rlkit 0\.0\.1"):
            require_shared(ray, nodes, open_store(tmp_path))
        monkeypatch.undo()
        monkeypatch.setattr(DirectoryStore, "write", lambda store, name, text: None)
        with pytest.raises(RunDirectoryError, match=r"\) does not see .*; choose a --run-dir that"):
            require_shared(ray, nodes, open_store(tmp_path))
    assert not ray.is_initialized()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The results of the sweep that the tests disturb, trained in one process with one thread."""
    root = tmp_path_factory.mktemp("whole")
    command = [*COMMAND, *ASKED, *LENGTH, "--run-dir", "whole"]
    with session(command, cwd=root, log=root / "log", NPROC=1) as one:
        assert one.wait(400).code == 0, one.log.read_text()
    return results_of(root / "whole")


def wait_for(is_there, seconds=300.0):
    deadline = time.monotonic() + seconds
    while not is_there():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def has_checkpoint(sweep, group):
    together = directory_of(sweep) / "together"
    if is_address(sweep):
        return any(together.glob(f"rung-0-group-{group}-at-*.tar"))
    directory = together / f"rung-0-group-{group}" / "checkpoints"
    return directory.is_dir() and any(name.isdecimal() for name in os.listdir(directory))


def directory_of(sweep):
    return Path(str(sweep).removeprefix("file://"))


def group_processes(sweep):
    """The processes that train groups of a sweep, by the group's number."""
    found = {}
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        if "sweep-group" in words and str(sweep) in words and "--plan" not in words:
            found[int(words[words.index(str(sweep)) + 1])] = process
    return found


def begun(sweep):
    """Those that are trained, and have something to go on from."""
    found = group_processes(sweep).items()
    return {group: process for group, process in found if has_checkpoint(sweep, group)}


def begun_on(sweep, node):
    """Those of them on a node of a cluster."""
    (raylet,) = node.all_processes["raylet"]
    ours = psutil.Process(raylet.process.pid)
    return {group: x for group, x in begun(sweep).items() if ours in x.parents()}


def rows_of(sweep):
    """The results so far."""
    return [json.loads(row) for row in (sweep / "results.jsonl").read_text().splitlines()]


def run_on(command, tmp_path, name, **variables):
    """A command whose errors are in a file, and whose output in another, NAME.out."""
    shell = ["bash", "-c", f'exec "$@" >{tmp_path / name}.out', "bash", *map(str, command)]
    return session(shell, cwd=tmp_path, log=tmp_path / name, **variables)


@on_a_cluster
@pytest.mark.parametrize("start", ["", "file://"], ids=["directory", "address"])
def test_the_groups_of_a_node_that_dies_go_on_elsewhere(tmp_path, whole, start):
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        other = cluster.add_node(num_cpus=1)
        sweep = f"{start}{tmp_path}/sweep"
        command = [*COMMAND, *ASKED, *LENGTH, *RAY, "--address", cluster.address]
        with run_on([*command, "--run-dir", sweep], tmp_path, "log") as driver:
            wait_for(lambda: begun_on(sweep, other))
            trained = begun_on(sweep, other)
            cluster.remove_node(other, allow_graceful=False)
            ended = driver.wait(400)
        said = (tmp_path / "log.out").read_text()
        assert ended.code == 0, ended.err + said
        assert said.count("its process or node died") == 1
        assert said.count("placed again, from its checkpoint") == 1
        for group in (0, 2):  # neither began again
            assert sum(f"group {group:03d}:      0 steps" in x for x in said.splitlines()) == 1
        assert "Ray: 2 nodes; each group takes 1 CPUs and 0 GPUs" in said
    finally:
        cluster.shutdown()
    assert results_of(directory_of(sweep)) == whole
    assert not any(process.is_running() for process in trained.values())


@on_a_cluster
def test_a_group_that_dies_again_and_again_is_given_up_and_the_others_go_on(tmp_path, whole):
    sweep = tmp_path / "sweep"
    command = [*COMMAND, *ASKED, *LENGTH, *RAY, "--tries", "2", "--run-dir", sweep]
    with run_on(command, tmp_path, "log") as driver:
        killed = set()

        def again():
            process = begun(sweep).get(2)
            return process is not None and process.pid not in killed

        for _ in range(2):
            wait_for(again)
            process = begun(sweep)[2]
            killed.add(process.pid)
            process.kill()
        ended = driver.wait(400)
    said = (tmp_path / "log.out").read_text()
    assert ended.code == 2 and ended.orphans == []
    assert ended.err.count("rlkit: error:") == 1
    problem = "group 002: its process ended with signal 9, after 2 tries"
    assert f"error: 1 of 2 groups were not trained: {problem}" in ended.err
    assert f"go on with `rlkit resume {sweep}`" in ended.err
    assert "group 002: given up" in said
    assert [row["trial"] for row in rows_of(sweep)] == [0, 1]
    with run_on([*RLKIT, "resume", sweep, *RAY], tmp_path, "log2") as rest:
        assert rest.wait(400).code == 0, (tmp_path / "log2").read_text()
    assert results_of(sweep) == whole


@on_a_cluster
@pytest.mark.parametrize("while_", ["planning", "training"])
def test_what_a_user_stops_is_saved(while_, tmp_path, whole):
    sweep = tmp_path / "sweep"
    plans = sweep / "together" / "plan.log"
    command = [*COMMAND, *ASKED, *LENGTH, *RAY, "--run-dir", sweep]
    with run_on(command, tmp_path, "log") as driver:
        wait_for(plans.exists if while_ == "planning" else lambda: begun(sweep))
        os.killpg(driver.process.pid, signal.SIGINT)  # as a terminal does
        ended = driver.wait(400)
    said = (tmp_path / "log.out").read_text()
    assert (ended.code, ended.orphans) == (130, [])
    assert "SIGINT: finishing the outer iterations of all groups and saving" in ended.err
    assert "stopped by SIGINT; everything is saved" in ended.err
    assert f"continue     rlkit resume {sweep}" in said
    assert group_processes(sweep) == {} and not (sweep / "best.yaml").exists()
    with session([*RLKIT, "resume", sweep], cwd=tmp_path, log=tmp_path / "log2", NPROC=1) as rest:
        assert rest.wait(400).code == 0, rest.log.read_text()
    assert results_of(sweep) == whole


@on_a_cluster
def test_a_class_of_the_user_is_imported_where_they_started(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import gymnasium\ndef make():\n    return gymnasium.make('CartPole-v1')\n"
    )
    asked = ["--grid", "gamma=0.9,0.99", "--total-steps", "64", "--num-checkpoints", "1", *RAY]
    command = [*RLKIT, "sweep", "ppo", "mine:make", *TINY, "--evaluation-episodes", "2", *asked]
    with run_on([*command, "--run-dir", "sweep"], tmp_path, "log") as driver:
        ended = driver.wait(400)
    assert ended.code == 0, ended.err
    assert [row["trial"] for row in rows_of(tmp_path / "sweep")] == [0, 1]


DRIVER = """
import jax, rlkit
from rlkit.errors import ConfigError
from jax._src import xla_bridge
from rlkit.training.sweeps.config import load
try:
    rlkit.run_sweep(load({config!r}), {sweep!r}, launcher=rlkit.RayLauncher(num_cpus=1))
except ConfigError as error:
    print(error)
print(sorted(xla_bridge._backends))
"""


@on_a_cluster
def test_a_node_plans_and_the_driver_touches_no_device(sweeps, tmp_path):
    """A trial that cannot be trained is told as it is without a launcher."""
    from rlkit.training.sweeps.config import dump

    config = sweeps.config(grid={"hidden_sizes": ((8,), (4,))}, sweep={"halving": 3})
    (tmp_path / "config.yaml").write_text(dump(config))
    with pytest.raises(ConfigError) as error:
        sweeps.run(config, "local")
    program = DRIVER.format(config=f"{tmp_path}/config.yaml", sweep=f"{tmp_path}/sweep")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True
    )
    said = [line for line in done.stdout.splitlines() if not line.startswith("Ray: ")]
    assert said == [str(error.value), "[]"]


@on_a_cluster
@pytest.mark.filterwarnings("ignore:os.fork")  # by Ray, in a process whose JAX has devices
@pytest.mark.parametrize(
    "asked",
    [
        {"halving": 2, "group_size": 2},
        {"search": "optuna", "trials": 4, "batch": 2, "group_size": 1},
    ],
    ids=["halving", "optuna"],
)
def test_groups_wait_where_trials_are_compared(asked, sweeps):
    config = sweeps.config(grid={"learning_rate": (1e-3, 3e-3, 1e-2, 2e-2)}, sweep=asked)
    sweep = sweeps.run(config, "ray", launcher=RayLauncher(num_cpus=1))
    whole = sweeps.run(config, "whole")
    assert sweep.is_finished and sweep.num_rungs == whole.num_rungs
    places = [[(result.trial, result.rung) for result in x.results] for x in (sweep, whole)]
    assert places[0] == places[1]
    for mine, theirs in zip(sweep.results, whole.results, strict=True):
        assert mine.scores == pytest.approx(theirs.scores) and mine.settings == theirs.settings
