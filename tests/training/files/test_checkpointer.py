"""Real Orbax on a real disk: what is saved comes back bit for bit, and what was damaged
is noticed.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import warnings
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiers import in_full

from rlkit.errors import CheckpointError, RunDirectoryError
from rlkit.training.config import CheckpointerConfig
from rlkit.training.files import checkpointer as module
from rlkit.training.files.checkpoint_leaves import tree_digest
from rlkit.training.files.checkpointer import Checkpointer

# Where one leaf cannot be read, Orbax abandons the reads of the others, which then complain about
# its closed event loop.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@flax.struct.dataclass
class Stats:
    mean: jax.Array
    count: jax.Array


class Pair(NamedTuple):
    first: Any
    second: Any


def learner(seed: int = 0) -> dict[str, Any]:
    params = {
        "dense.kernel": jnp.full((3, 4), seed + 0.1),
        "dense": {"kernel": jnp.zeros((3, 4)), "bias": jnp.ones(4)},
    }
    return {
        "params": params,
        "optimizer": optax.adam(1e-3).init(params),
        "stats": Stats(mean=jnp.arange(4.0) + seed, count=jnp.asarray(7, jnp.int32)),
        "pair": Pair(jnp.asarray([True, False]), None),
        "keys": jax.random.split(jax.random.key(seed), 4),
        "rbg": jax.random.key(seed, impl="rbg"),
        "half": jnp.asarray([1.5, jnp.nan, -jnp.inf], jnp.bfloat16),
        "bytes": jnp.arange(-3, 3, dtype=jnp.int8),
        "empty": jnp.zeros((0, 5), jnp.uint8),
        "nothing": {},
    }


def tree(value: float) -> dict[str, Any]:
    """Large enough to have a data file of its own, and not compressible."""
    noise = np.random.default_rng(int(value)).integers(0, 256, 20_000).astype(np.uint8)
    return {"w": jnp.asarray(noise), "x": jnp.asarray(float(value))}


def checkpoints(path: pathlib.Path, **settings: Any) -> Checkpointer:
    return Checkpointer(CheckpointerConfig(directory=str(path), **settings))


def abstract(target: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), target)


def assert_same(left: Any, right: Any) -> None:
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert tree_digest(a) == tree_digest(b)


@pytest.fixture
def three_steps(tmp_path: pathlib.Path) -> pathlib.Path:
    with checkpoints(tmp_path / "c", max_to_keep=3) as saver:
        for step in (1, 2, 3):
            saver.save(
                step, {"learner": tree(step)}, score=float(step), metadata={"env_steps": step}
            )
    return tmp_path / "c"


@pytest.mark.parametrize(
    "make_target", [lambda value: value, abstract], ids=["concrete", "abstract"]
)
def test_every_kind_of_leaf_comes_back_bit_for_bit(tmp_path, make_target):
    state = learner(3)
    with checkpoints(tmp_path) as saver:
        saver.save(
            0,
            {"learner": state},
            score=1.5,
            metadata={"env_steps": 2**40, "name": "é", "list": (1, 2)},
        )
        restored = saver.restore("latest", {"learner": make_target(state)})
    assert_same(restored.items["learner"], state)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(restored.items))
    assert restored.step == 0 and restored.score == 1.5 and restored.skipped == ()
    assert restored.metadata == {"env_steps": 2**40, "name": "é", "list": [1, 2]}
    assert restored.items["learner"]["keys"].dtype == state["keys"].dtype


def test_scalars_and_64_bit_arrays_keep_their_bits(tmp_path):
    state = {
        "i": 2**40,
        "f": 0.1,
        "b": True,
        "n": np.int64(-5),
        "h": np.float32(1.5),
        "wide": np.arange(3, dtype=np.uint64),
    }
    with checkpoints(tmp_path) as saver:
        saver.save(1, {"local": state})
        back = saver.restore(1, {"local": state}).items["local"]
    assert {name: np.asarray(leaf).item() for name, leaf in back.items() if name != "wide"} == {
        name: np.asarray(leaf).item() for name, leaf in state.items() if name != "wide"
    }
    assert back["wide"].dtype == np.uint64 and back["i"].dtype == np.int64


def test_weak_types_become_strong_and_shardings_are_kept(tmp_path):
    placed = jax.device_put(jnp.ones(2), jax.devices()[-1])
    state = {"weak": jnp.asarray(1.0), "placed": placed, "loose": jnp.ones(2)}
    assert state["weak"].weak_type
    with checkpoints(tmp_path) as saver:
        saver.save(1, {"a": state})
        back = saver.restore(1, {"a": state}).items["a"]
    assert not back["weak"].weak_type
    assert (
        back["placed"].devices() == placed.devices()
        and back["placed"].committed
        and not back["loose"].committed
    )


def test_the_caller_may_donate_and_overwrite_after_saving(tmp_path):
    device, host = jnp.arange(500_000.0), np.arange(500_000.0, dtype=np.float32)
    target = {"device": device, "host": host.copy()}
    digest = tree_digest(target)
    update = jax.jit(lambda x: x * -1.0, donate_argnums=0)
    with checkpoints(tmp_path) as saver:
        saver.save(1, {"a": {"device": device, "host": host}})
        update(device).block_until_ready()
        host[:] = 0.0
        assert tree_digest(saver.restore(1, {"a": abstract(target)}).items["a"]) == digest


def test_items_are_read_one_by_one_and_empty_items_survive(tmp_path):
    with checkpoints(tmp_path) as saver:
        saver.save(1, {"learner": tree(1), "local": {}, "none": {"z": jnp.zeros((0,))}})
        saver.wait()
        shutil.rmtree(tmp_path / "1" / "learner")
        assert saver.restore(1, {"local": {}}).items == {"local": {}}
        assert saver.restore(1, {"none": {"z": jnp.ones((0,))}}).items["none"]["z"].shape == (0,)
        with pytest.raises(CheckpointError, match="no item 'policy'; it has learner, local, none"):
            saver.restore(1, {"policy": tree(1)})


def test_latest_and_best_stay_also_after_reopening(tmp_path):
    scores = [1.0, 5.0, float("nan"), None, 5.0, float("inf"), 2.0]
    for step, score in enumerate(scores):
        with checkpoints(tmp_path, max_to_keep=2) as saver:
            saver.save(step, {"a": {"x": jnp.asarray(step)}}, score=score)
            best = [0, 1, 1, 1, 4, 4, 4][step]  # of equals the newest
            assert saver.all_steps() == sorted({step, max(step - 1, 0), best})
            assert (saver.latest_step(), saver.best_step()) == (step, best)
    with checkpoints(tmp_path) as saver:
        best = saver.restore("best", {"a": {"x": jnp.asarray(0)}})
        assert (best.step, best.score, int(best.items["a"]["x"])) == (4, 5.0, 4)
        saver.save(10, {"a": {"x": jnp.asarray(10)}}, score=7.0)
        assert saver.all_steps() == [6, 10] and saver.best_step() == 10


def test_without_keep_best_only_the_newest_stay(tmp_path):
    with checkpoints(tmp_path, max_to_keep=1, keep_best=False) as saver:
        for step, score in enumerate([9.0, 1.0, None]):
            saver.save(step, {"a": {"x": jnp.asarray(step)}}, score=score)
        assert saver.all_steps() == [2] and saver.best_step() is None
        with pytest.raises(CheckpointError, match="finite score"):
            saver.restore("best", {"a": {"x": jnp.asarray(0)}})


def data_files(step: pathlib.Path) -> list[pathlib.Path]:
    return [
        path
        for path in step.rglob("*")
        if path.is_file() and path.stat().st_size and path.name != "commit_success.txt"
    ]


def flip(path: pathlib.Path, place: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(place * (len(content) - 1))] ^= 0x10
    path.write_bytes(content)


def restore_quietly(saver: Checkpointer, which: Any = "latest") -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return saver.restore(which, {"learner": tree(0)})


@pytest.mark.parametrize("place", [0.01, 0.5, 0.99])
def test_no_flipped_bit_goes_unnoticed(three_steps, place):
    pristine = three_steps.with_name("pristine")
    shutil.copytree(three_steps, pristine)
    names = [path.relative_to(pristine / "3") for path in data_files(pristine / "3")]
    fell_back = 0
    with checkpoints(three_steps, max_to_keep=3) as saver:
        for name in names:
            shutil.rmtree(three_steps / "3")
            shutil.copytree(pristine / "3", three_steps / "3")
            flip(three_steps / "3" / name, place)
            restored = restore_quietly(saver)
            assert_same(restored.items["learner"], tree(restored.step))
            assert (
                restored.metadata == {"env_steps": restored.step}
                and restored.score == restored.step
            )
            assert [step for step, _ in restored.skipped] == [3] * (restored.step == 2)
            fell_back += restored.step == 2
    # Two JSON items and at least the data; Orbax does not read every file back.
    assert fell_back >= 3


def largest(step: pathlib.Path) -> pathlib.Path:
    return max(data_files(step / "learner"), key=lambda path: path.stat().st_size)


def test_a_flipped_bit_in_the_data_names_the_leaf(three_steps):
    flip(largest(three_steps / "3"), 0.5)
    with checkpoints(three_steps, max_to_keep=3) as saver:
        with pytest.warns(RuntimeWarning, match="step 3 is damaged"):
            restored = saver.restore("latest", {"learner": tree(0)})
        assert (
            restored.step == 2
            and restored.skipped[0][0] == 3
            and "learner" in restored.skipped[0][1]
        )
        for which in (3, "best"):
            with pytest.raises(
                CheckpointError, match=r"step 3 of .* is damaged .*other steps: 1, 2"
            ):
                saver.restore(which, {"learner": tree(0)})


FAULTS = {
    "truncated data": lambda step: os.truncate(largest(step), 100),
    "deleted data": lambda step: largest(step).unlink(),
    "no item": lambda step: shutil.rmtree(step / "learner"),
    "no manifest": lambda step: (step / "learner" / "manifest.ocdbt").unlink(),
    "truncated _METADATA": lambda step: os.truncate(step / "learner" / "_METADATA", 20),
    "no signature": lambda step: shutil.rmtree(step / "signature"),
    "empty record": lambda step: os.truncate(step / "record" / "metadata", 0),
    "empty step": lambda step: (shutil.rmtree(step), step.mkdir()),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_latest_falls_back_to_an_intact_step(three_steps, fault):
    FAULTS[fault](three_steps / "3")
    with checkpoints(three_steps, max_to_keep=3) as saver:
        restored = restore_quietly(saver)
        assert restored.step == 2 and [step for step, _ in restored.skipped] == [3]
        assert_same(restored.items["learner"], tree(2))
        with pytest.raises(CheckpointError, match="step 3 of"):
            saver.restore(3, {"learner": tree(0)})
        FAULTS[fault](three_steps / "2")
        FAULTS[fault](three_steps / "1")
        with pytest.raises(CheckpointError, match="no intact checkpoint"):
            restore_quietly(saver)


_READS_A_DAMAGED_STEP = """
import sys, time
import numpy as np
from rlkit.errors import CheckpointError
from rlkit.training.config import CheckpointerConfig
from rlkit.training.files.checkpointer import Checkpointer

wanted = {f"w{n}": np.zeros(300, np.float32) for n in range(200)}
with Checkpointer(CheckpointerConfig(directory=sys.argv[1])) as saver:
    for _ in range(5):
        try:
            saver.restore(1, {"learner": wanted})
        except CheckpointError as error:
            print(error)
    time.sleep(0.5)  # for threads that come late
"""


@pytest.mark.full
@pytest.mark.process
def test_what_a_damaged_step_still_reads_prints_nothing(tmp_path):
    """TensorStore's threads go on reading after the first array that fails."""
    noise = np.random.default_rng(0)
    with checkpoints(tmp_path / "c") as saver:
        arrays = {f"w{n}": noise.random(300).astype(np.float32) for n in range(200)}
        saver.save(1, {"learner": arrays})
    largest(tmp_path / "c" / "1").unlink()
    command = [sys.executable, "-c", _READS_A_DAMAGED_STEP, str(tmp_path / "c")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert len(done.stdout.splitlines()) == 5 and done.stderr == ""


def test_best_says_which_records_it_could_not_read(three_steps):
    os.truncate(three_steps / "3" / "record" / "metadata", 5)
    with checkpoints(three_steps, max_to_keep=3) as saver:
        assert saver.best_step() == 2
        with pytest.warns(RuntimeWarning, match="step 3 is damaged"):
            assert saver.restore("best", {"learner": tree(0)}).skipped[0][0] == 3
        with pytest.raises(CheckpointError, match=r"step 3 of .* is damaged"):
            saver.metadata(3)
        assert saver.metadata(1) == {"env_steps": 1}


def test_a_damaged_step_set_aside_can_be_saved_again(three_steps):
    FAULTS["empty step"](three_steps / "3")
    with checkpoints(three_steps, max_to_keep=3) as saver:
        with pytest.raises(
            CheckpointError, match=r"step 3 of .* exists and is never overwritten; .* move"
        ):
            saver.save(3, {"learner": tree(3)})
        assert saver.set_aside(3) == three_steps / "damaged-3"
        saver.save(3, {"learner": tree(3)}, score=3.0)
        assert saver.set_aside(3) == three_steps / "damaged-3-1"
        saver.save(3, {"learner": tree(3)}, score=3.0)
        assert saver.restore("latest", {"learner": tree(0)}).step == 3


def test_a_mismatch_lists_the_leaves_and_never_falls_back(tmp_path):
    found = {
        "shape": jnp.zeros((2, 3)),
        "dtype": jnp.zeros(2),
        "more": jnp.zeros(1),
        "key": jax.random.key(0),
        "same": jnp.ones(1),
    }
    wanted = {
        "shape": jnp.zeros((3, 2)),
        "dtype": jnp.zeros(2, jnp.bfloat16),
        "less": jnp.zeros(1),
        "same": jnp.ones(1),
    }
    wanted["key"] = jax.random.key_data(found["key"])
    with checkpoints(tmp_path) as saver:
        saver.save(0, {"learner": found})
        saver.save(1, {"learner": found}, score=0.0)
        for which in ("latest", "best", 0):
            with pytest.raises(CheckpointError) as caught:
                saver.restore(which, {"learner": wanted})
            text = str(caught.value)
            assert "['shape']: wanted float32[3, 2], found float32[2, 3]" in text
            assert "['dtype']: wanted bfloat16[2], found float32[2]" in text
            assert (
                "['less']: wanted float32[1], found nothing" in text
                and "['more']: wanted nothing" in text
            )
            assert "['key']: wanted uint32[2], found key<threefry2x32>[]" in text
            assert "same" not in text and "\n" not in text
        with pytest.raises(CheckpointError, match="and 7 more"):
            saver.restore(0, {"learner": {str(i): jnp.ones(1) for i in range(7)}})


def test_missing_and_existing_steps(tmp_path):
    with checkpoints(tmp_path) as saver:
        assert saver.latest_step() is None and saver.best_step() is None
        with pytest.raises(CheckpointError, match="holds no checkpoints"):
            saver.restore("latest", {"a": {}})
        saver.save(0, {"a": {"x": jnp.ones(1)}})
        saver.save(5, {"a": {"x": jnp.ones(1)}})
        with pytest.raises(CheckpointError, match="no step 3; its steps are: 0, 5"):
            saver.restore(3, {"a": {"x": jnp.ones(1)}})
        with pytest.raises(CheckpointError, match=r"step 3 of .* is not newer than the newest, 5"):
            saver.save(3, {"a": {"x": jnp.ones(1)}})
        with pytest.raises(CheckpointError, match="never overwritten"):
            saver.save(5, {"a": {"x": jnp.zeros(1)}})
        assert float(saver.restore("latest", {"a": {"x": jnp.ones(1)}}).items["a"]["x"][0]) == 1.0
        with pytest.raises(CheckpointError, match="cannot restore 'newest'"):
            saver.restore("newest", {"a": {}})  # type: ignore[arg-type]


@pytest.mark.parametrize("item", ["text", object(), np.asarray(["a"]), 2**70])
def test_only_numbers_are_saved(tmp_path, item):
    with checkpoints(tmp_path) as saver:
        with pytest.raises(CheckpointError, match=r"\['bad'\].*numbers only"):
            saver.save(0, {"a": {"bad": item}})
        with pytest.raises(CheckpointError, match="plain JSON"):
            saver.save(0, {"a": {}}, metadata={"x": object()})
        with pytest.raises(CheckpointError, match="cannot be called"):
            saver.save(0, {"../a": {}})
        assert saver.all_steps() == []


def test_reading_only_leaves_the_directory_as_it_is(three_steps, tmp_path):
    (three_steps / "9.orbax-checkpoint-tmp").mkdir()
    before = sorted(str(path) for path in three_steps.rglob("*"))
    config = CheckpointerConfig(directory=str(three_steps), max_to_keep=1)
    with Checkpointer(config, read_only=True) as reader:
        assert reader.restore("best", {"learner": tree(0)}).step == 3
        with pytest.raises(CheckpointError, match="reading only"):
            reader.save(4, {"learner": tree(4)})
        with pytest.raises(CheckpointError, match="reading only"):
            reader.set_aside(3)
    assert sorted(str(path) for path in three_steps.rglob("*")) == before
    with pytest.raises(CheckpointError, match="does not exist; name the"):
        Checkpointer(CheckpointerConfig(directory=str(tmp_path / "nope")), read_only=True)
    assert not (tmp_path / "nope").exists()
    with pytest.raises(CheckpointError, match="holds no checkpoints; name the"):
        Checkpointer(CheckpointerConfig(directory=str(tmp_path)), read_only=True)


@pytest.mark.fast
def test_directories_that_cannot_work(tmp_path, monkeypatch):
    with pytest.raises(CheckpointError, match="directory is not set"):
        Checkpointer(CheckpointerConfig())
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot create"):
        checkpoints(tmp_path / "file")
    monkeypatch.chdir(tmp_path)
    with checkpoints(pathlib.Path("relative")) as saver:
        assert saver.directory == tmp_path / "relative"
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(CheckpointError, match="not writable"):
        checkpoints(tmp_path / "locked")


def test_a_full_disk_is_foreseen(tmp_path, monkeypatch):
    with checkpoints(tmp_path) as saver:
        free = shutil.disk_usage(tmp_path)._replace(free=30_000)
        monkeypatch.setattr(module.shutil, "disk_usage", lambda _: free)
        with pytest.raises(
            CheckpointError, match=r"MB free, a checkpoint needs 0 MB; free disk space"
        ):
            saver.save(1, {"a": tree(1)})
        assert saver.all_steps() == []


def test_a_failed_write_is_reported_and_later_ones_work(tmp_path, monkeypatch):
    with checkpoints(tmp_path, max_to_keep=3) as saver:
        saver.save(1, {"a": tree(1)}, score=1.0)
        saver.wait()
        with monkeypatch.context() as patch:
            full = OSError(28, "No space left on device")
            patch.setattr(
                type(saver._manager), "_finalize_checkpoint", lambda *_: (_ for _ in ()).throw(full)
            )
            saver.save(2, {"a": tree(2)}, score=2.0)
            with pytest.raises(
                CheckpointError,
                match=r"step 2 was not saved to .*No space left.*; free disk space there",
            ):
                saver.wait()
        saver.wait()
        saver.save(3, {"a": tree(3)}, score=0.0)
        assert saver.latest_step() == 3
        assert_same(saver.restore(1, {"a": tree(0)}).items["a"], tree(1))


def test_a_write_that_hangs_times_out(tmp_path, monkeypatch):
    saver = checkpoints(tmp_path, save_timeout=0.2)
    saver.save(1, {"a": tree(1)})
    with monkeypatch.context() as patch:
        patch.setattr(type(saver._manager), "is_saving_in_progress", lambda _: True)
        with pytest.raises(CheckpointError, match=r"longer than 0\.2 s"):
            saver.wait()
    saver.close()
    saver.close()


def test_closing_flushes(tmp_path):
    saver = checkpoints(tmp_path)
    saver.save(4, {"a": {"x": jnp.arange(1_000_000.0)}})
    saver.close()
    with Checkpointer(CheckpointerConfig(directory=str(tmp_path)), read_only=True) as reader:
        assert reader.restore(4, {"a": {"x": jnp.arange(1_000_000.0)}}).step == 4
    with pytest.raises(CheckpointError, match="closed"):
        saver.save(5, {"a": {}})


KILLED = """
import sys, numpy as np
from rlkit.training.files.checkpointer import Checkpointer
from rlkit.training.config import CheckpointerConfig
saver = Checkpointer(CheckpointerConfig(directory=sys.argv[1], max_to_keep=2))
for step in range((saver.latest_step() or 0) + 1, 100_000):
    noise = np.random.default_rng(step).integers(0, 256, 2_000_000).astype(np.uint8)
    saver.save(step, {"a": {"x": noise}}, score=float(-step), metadata={"step": step})
    print(step, flush=True)
"""


@pytest.mark.full
@pytest.mark.process
def test_sigkill_leaves_only_intact_steps(tmp_path):
    target = {"a": {"x": jax.ShapeDtypeStruct((2_000_000,), np.uint8)}}
    for delay in (0.0, 0.02, 0.05):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        try:
            for _ in range(3):
                assert process.stdout.readline()
            time.sleep(delay)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=20)
            process.stdout.close()
        with Checkpointer(CheckpointerConfig(directory=str(tmp_path)), read_only=True) as reader:
            for step in reader.all_steps():
                noise = np.random.default_rng(step).integers(0, 256, 2_000_000).astype(np.uint8)
                restored = reader.restore(step, target)
                assert tree_digest(restored.items["a"]["x"]) == tree_digest(
                    noise
                ) and restored.metadata == {"step": step}


# Step 3 is the best and the newest, so 1 and 2 are deleted as soon as it stands. Dies at file
# argv[2] of theirs.
KILLED_DELETING = """
import os, signal, sys
import numpy as np
from rlkit.training.files.checkpointer import Checkpointer
from rlkit.training.config import CheckpointerConfig
unlink, left = os.unlink, [int(sys.argv[2])]
def unlink_or_die(*args, **kwargs):
    left[0] -= os.path.isdir(sys.argv[1] + "/3")
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    unlink(*args, **kwargs)
saver = Checkpointer(CheckpointerConfig(directory=sys.argv[1], max_to_keep=1))
for step, score in ((1, 5.0), (2, 1.0)):
    saver.save(step, {"a": {"x": np.arange(9) + step}}, score=score)
saver.wait()
os.unlink = os.remove = unlink_or_die
saver.save(3, {"a": {"x": np.arange(9) + 3}}, score=9.0)
saver.wait()
"""


@pytest.mark.process
@pytest.mark.parametrize("at", [in_full(2), 5])
def test_a_kill_while_a_step_is_deleted_leaves_no_half_step(tmp_path, at):
    """What is being deleted is no step any more; the next writer frees its space, a reader does
    not.
    """
    command = [sys.executable, "-c", KILLED_DELETING, str(tmp_path), str(at)]
    killed = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    target = {"a": {"x": np.arange(9)}}
    before, whole = sorted(tmp_path.rglob("*")), len(data_files(tmp_path / "3"))
    assert whole < len(data_files(tmp_path)) - 1 < 3 * whole  # the lock is a file too
    with Checkpointer(CheckpointerConfig(directory=str(tmp_path)), read_only=True) as reader:
        assert (reader.all_steps(), reader.latest_step(), reader.best_step()) == ([3], 3, 3)
        for which in (3, "latest", "best"):
            restored = reader.restore(which, target)
            assert restored.step == 3 and restored.skipped == ()
            np.testing.assert_array_equal(restored.items["a"]["x"], np.arange(9) + 3)
    assert sorted(tmp_path.rglob("*")) == before
    with checkpoints(tmp_path, max_to_keep=1) as saver:
        saver.save(4, target, score=0.0)
        saver.wait()
        names = {path.name for path in tmp_path.iterdir()}
        assert names - {".lock"} == {"3", "4"}  # the best, the newest, and nothing half deleted
        saver.save(5, target, score=0.0)
        assert saver.all_steps() == [3, 5]
        assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "3", "5"]


@pytest.mark.fast
def test_digest_sees_every_difference():
    base = {"a": jnp.zeros(2), "b": jax.random.key(0)}
    different = [
        {"a": jnp.zeros(2), "b": jax.random.key(1)},
        {"a": jnp.asarray([0.0, -0.0]), "b": jax.random.key(0)},
        {"a": jnp.zeros((1, 2)), "b": jax.random.key(0)},
        {"a": jnp.zeros(2, jnp.int32), "b": jax.random.key(0)},
        {"c": jnp.zeros(2), "b": jax.random.key(0)},
        {"a": jnp.zeros(2), "b": jax.random.key_data(jax.random.key(0))},
    ]
    digests = {tree_digest(tree) for tree in [base, *different]}
    assert len(digests) == 7 and all(len(digest) == 64 for digest in digests)
    assert tree_digest({"b": jax.random.key(0), "a": np.zeros(2, np.float32)}) == tree_digest(base)


def test_a_directory_that_another_run_took_over_is_not_written(tmp_path):
    with Checkpointer(CheckpointerConfig(directory=str(tmp_path / "checkpoints"))) as old:
        shutil.rmtree(old.directory)
        with Checkpointer(CheckpointerConfig(directory=str(old.directory))) as new:
            new.save(1, {"x": np.zeros(2)})
            with pytest.raises(RunDirectoryError, match="another run began there"):
                old.save(2, {"x": np.ones(2)})
            assert new.all_steps() == [1]
