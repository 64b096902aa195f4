"""Calls of `run` that end early lose nothing: no row, no record of the history, no state."""

import contextlib
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import jax
import pytest
from tiers import in_full

from rlkit.cli.main import main
from rlkit.errors import CheckpointError, EnvFailedError, RlkitError, RunDirectoryError
from rlkit.training.callbacks import Callback
from rlkit.training.compile.aot_compile import Compiler
from rlkit.training.config import CheckpointerConfig
from rlkit.training.files import checkpointer, run_files
from rlkit.training.files.checkpointer import steps_in
from rlkit.training.interrupts import allowed_interrupts, deferred_interrupts
from rlkit.training.logs.append_only_file import AppendOnlyFile
from rlkit.training.logs.loaded_run import load_run
from rlkit.training.logs.metrics import exact_counts
from rlkit.training.logs.records import read_records


def rows_of(run):
    return [
        (r.kind, r.env_steps, r.updates)
        for r in read_records(run / "metrics.jsonl")
        if r.kind in ("train", "eval")
    ]


def is_interrupt(error):
    """Whether it is Ctrl-C, or what JAX makes of one that comes while it compares two pytrees."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


@contextlib.contextmanager
def ctrl_c_after(seconds):
    """Ctrl-C in the block after so many seconds, and again if it came to nothing.

    Python ignores one that arrives while it destroys an object. The next one comes so much later
    that it is no second Ctrl-C within what defers the first.
    """
    is_over = threading.Event()

    def send():
        while not is_over.wait(seconds):
            signal.pthread_kill(main, signal.SIGINT)
            if is_over.wait(10.0):
                return

    def end():
        is_over.set()
        thread.join()

    main, thread = threading.main_thread().ident, threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        try:
            end()
        except KeyboardInterrupt:  # before `set`, so that a later block would get more of them
            end()
            raise


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in a destructor
@pytest.mark.full  # test_ctrl_c_at_any_line_loses_no_row stands for it
@pytest.mark.parametrize("env", [None, "host"])
def test_interrupted_calls_lose_no_row(tiny, tmp_path, env):
    """Ctrl-C at any moment, again and again, as in a notebook."""
    from host_twins import HostCounter

    from rlkit.envs.host.gymnasium import GymnasiumAdapter

    run, interruptions = tmp_path / "run", 0
    made = GymnasiumAdapter(HostCounter, 2) if env else None
    settings = {"num_checkpoints": 40, "epochs_per_checkpoint": 1, "eval_every": 3}
    with tiny.trainer(env=made, run_dir=str(run), checkpoint_every=5, **settings) as trainer:
        key = 0
        while trainer.outer_iteration < 40:
            delay = 0.02 + 0.003 * interruptions if interruptions < 20 else 60.0
            try:
                with ctrl_c_after(delay):
                    trainer.run(key)
            except (KeyboardInterrupt, ValueError) as error:
                if not is_interrupt(error):
                    raise
                interruptions += 1
            key = None if trainer.state is not None else 0
        history = [row["env_steps"] for row in trainer.history.training]
    if made is not None:
        made.close()
    rows = rows_of(run)
    steps = [env_steps for kind, env_steps, _ in rows if kind == "train"]
    assert interruptions > 0 and len(steps) == 40 and steps == sorted(set(steps))
    assert history == steps
    evaluations = [env_steps for kind, env_steps, _ in rows if kind == "eval"]
    assert len(evaluations) == len(set(evaluations)) == 1 + 14


@pytest.mark.parametrize("call", ["train_step", "train_epoch"])
def test_what_was_trained_before_ctrl_c_is_counted(tiny, monkeypatch, call):
    with tiny.trainer() as trainer:
        trainer.init(0)
        program, name = trainer._run.program, "single" if call == "train_step" else "outer"
        step = getattr(program, name)

        def interrupted(state):
            signal.raise_signal(signal.SIGINT)
            return step(state)

        monkeypatch.setattr(program, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            getattr(trainer, call)()
        counters = trainer._run.parts.module.counters(trainer.state)
        assert exact_counts(jax.device_get(counters))[0] == trainer.env_steps > 0
        assert trainer.outer_iteration == (call == "train_epoch")


@contextlib.contextmanager
def ctrl_c_at_line(number):
    """Ctrl-C once so many lines of rlkit have run in the block."""
    import rlkit

    inside, count = str(Path(rlkit.__file__).parent), 0

    def in_function(frame, event, argument):
        nonlocal count
        count += event == "line"
        if count == number:
            sys.settrace(None)
            signal.raise_signal(signal.SIGINT)
        return in_function

    def trace(frame, event, argument):
        is_ours = frame.f_code.co_filename.startswith((inside, contextlib.__file__))
        return in_function if is_ours else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in a destructor
@pytest.mark.full
@pytest.mark.parametrize("env", [None, "host"])
def test_ctrl_c_at_any_line_loses_no_row(tiny, tmp_path, env):
    """As above, but at lines instead of times, so that short moments are hit as well."""
    from host_twins import HostCounter

    from rlkit.envs.host.gymnasium import GymnasiumAdapter

    dice, made = random.Random(2), GymnasiumAdapter(HostCounter, 2) if env else None
    settings = {"num_checkpoints": 8, "epochs_per_checkpoint": 1}
    for number in range(2):
        run, interruptions = tmp_path / f"run-{number}", 0
        with tiny.trainer(env=made, run_dir=str(run), checkpoint_every=5, **settings) as trainer:
            while trainer.outer_iteration < 8:
                lines = dice.randint(1, 2000) if interruptions < 60 else 10**9
                with contextlib.suppress(KeyboardInterrupt), ctrl_c_at_line(lines):
                    trainer.run(0 if trainer.state is None else None)
                interruptions += trainer.outer_iteration < 8
            history = [row["env_steps"] for row in trainer.history.training]
        rows = rows_of(run)
        steps = [env_steps for kind, env_steps, _ in rows if kind == "train"]
        assert interruptions > 2 and len(steps) == 8 and steps == sorted(set(steps)) == history
        evaluations = [env_steps for kind, env_steps, _ in rows if kind == "eval"]
        assert len(evaluations) == len(set(evaluations)) == 1 + 8
    if made is not None:
        made.close()


@pytest.mark.parametrize("env", [None, in_full("host")])
def test_ctrl_c_waits_for_an_evaluation(tiny, tmp_path, monkeypatch, env):
    """Otherwise the outer iteration before it, which is over, would have no row."""
    from host_twins import HostCounter

    from rlkit.envs.host.gymnasium import GymnasiumAdapter

    run, made = tmp_path / "run", GymnasiumAdapter(HostCounter, 2) if env else None
    with tiny.trainer(env=made, run_dir=str(run)) as trainer:
        planned, calls = trainer._loop.evaluations.planned, []

        def interrupted(state):
            calls.append(state)
            if len(calls) == 2:
                signal.raise_signal(signal.SIGINT)
            return planned(state)

        monkeypatch.setattr(trainer._loop.evaluations, "planned", interrupted)
        with pytest.raises(KeyboardInterrupt):
            trainer.run(0)
        monkeypatch.setattr(trainer._loop.evaluations, "planned", planned)
        trainer.run()
    if made is not None:
        made.close()
    kinds = [kind for kind, _, _ in rows_of(run)]
    assert (kinds.count("train"), kinds.count("eval")) == (3, 4)


@pytest.mark.parametrize("name", ["take_lock", "make_logger"])
def test_ctrl_c_waits_for_files_that_are_being_opened(tiny, tmp_path, monkeypatch, name):
    """Otherwise nobody could close them, and the next call would find them in use."""
    module = {"take_lock": checkpointer, "make_logger": run_files}[name]
    function = getattr(module, name)

    def interrupted(*arguments):
        opened = function(*arguments)
        signal.raise_signal(signal.SIGINT)
        return opened

    with tiny.trainer(run_dir=str(tmp_path / "run")) as trainer:
        monkeypatch.setattr(module, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            trainer.run(0)
        monkeypatch.setattr(module, name, function)
        trainer.run(None if trainer.state is not None else 0)
    assert len([kind for kind, _, _ in rows_of(tmp_path / "run") if kind == "train"]) == 3


def test_ctrl_c_waits_for_what_jax_imports_with_its_first_program(tiny, monkeypatch):
    """Cut short, that import fails in this process for ever: "Dialect namespace is registered"."""
    finished, keys = [], Compiler.keys

    def interrupted(self, key):
        signal.raise_signal(signal.SIGINT)
        finished.append(keys(self, key))
        return finished[-1]

    with tiny.trainer() as trainer:
        monkeypatch.setattr(Compiler, "keys", interrupted)
        with pytest.raises(KeyboardInterrupt):
            trainer.init(0)
        assert len(finished) == 1
        monkeypatch.setattr(Compiler, "keys", keys)
        trainer.init(0)


def test_an_error_saves_the_last_sound_state(tiny, tmp_path):
    from rlkit.training.callbacks import Callback

    class Failing(Callback):
        def on_iteration_end(self, trainer, outer_iteration, metrics):
            if outer_iteration == 7:
                raise ValueError("a mistake of the reader's own")

    run = tmp_path / "run"
    settings = {"num_checkpoints": 10, "epochs_per_checkpoint": 1, "checkpoint_every": 5}
    trainer = tiny.trainer(run_dir=str(run), callbacks=[Failing()], **settings)
    with trainer, pytest.raises(ValueError, match="mistake"):
        trainer.run(0)
    assert steps_in(run / "checkpoints")[-1] >= 7


@pytest.mark.fast
def test_interrupts_may_be_allowed_within():
    done = []
    with pytest.raises(KeyboardInterrupt), deferred_interrupts(), allowed_interrupts():
        signal.raise_signal(signal.SIGINT)
        done.append("never")
    with pytest.raises(KeyboardInterrupt), deferred_interrupts():
        signal.raise_signal(signal.SIGINT)
        done.append("deferred")
        with allowed_interrupts():
            done.append("never")
    with pytest.raises(KeyboardInterrupt), deferred_interrupts():
        with allowed_interrupts():
            done.append("allowed")
        signal.raise_signal(signal.SIGINT)
        done.append("deferred again")
    assert done == ["deferred", "allowed", "deferred again"]
    with pytest.raises(KeyboardInterrupt), allowed_interrupts():  # of its own it changes nothing
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.fast
def test_deferred_interrupts_come_at_the_end_of_the_block():
    done = []
    with pytest.raises(KeyboardInterrupt), deferred_interrupts():
        signal.raise_signal(signal.SIGINT)
        done.append("the rest of the block")
    assert done == ["the rest of the block"]
    with pytest.raises(KeyboardInterrupt), deferred_interrupts():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        done.append("never")
    assert len(done) == 1 and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_log_that_is_removed_is_written_again(tiny, tmp_path, caplog):

    run = tmp_path / "run"

    def remove(trainer, iteration, metrics):
        if iteration == 2:
            (run / "metrics.jsonl").unlink()

    with tiny.trainer(run_dir=str(run), callbacks=[OnIteration(remove)]) as trainer:
        trainer.run(0)
    assert [steps for kind, steps, _ in rows_of(run) if kind == "train"] == [32, 64, 96]
    assert "metrics.jsonl was removed while the run wrote to it" in caplog.text


def OnIteration(function):
    from rlkit.training.callbacks import Callback

    class Calls(Callback):
        def on_iteration_end(self, trainer, outer_iteration, metrics):
            function(trainer, outer_iteration, metrics)

    return Calls()


def test_a_run_directory_that_is_removed_is_named(tiny, tmp_path):
    run = tmp_path / "run"

    def remove(trainer, iteration, metrics):
        shutil.rmtree(run, ignore_errors=True)

    trainer = tiny.trainer(run_dir=str(run), callbacks=[OnIteration(remove)])
    with pytest.raises((RunDirectoryError, CheckpointError), match=str(run)), trainer:
        trainer.run(0)


@pytest.mark.full
def test_another_run_in_the_same_place_is_left_alone(tiny, tmp_path, hashes):
    """Somebody removes the directory and begins another run there while the first one trains."""
    run, found = tmp_path / "run", {}

    def replace(trainer, iteration, metrics):
        shutil.rmtree(run, ignore_errors=True)
        with tiny.trainer(run_dir=str(run)) as other:
            other.run(1)
        found.update(hashes(run))

    trainer = tiny.trainer(run_dir=str(run), callbacks=[OnIteration(replace)])
    with pytest.raises(RlkitError, match=r"another run began there|replaced by another"), trainer:
        trainer.run(0)
    assert hashes(run) == found and load_run(run).config["seed"] == 1


@pytest.mark.fast
def test_a_log_of_another_run_in_the_same_place_is_left_alone(tmp_path):
    """Somebody removed the directory and began another run there."""
    path = tmp_path / "run" / "metrics.jsonl"
    old = AppendOnlyFile(path, cure="look")
    old.append(b"old\n")
    shutil.rmtree(path.parent)
    new = AppendOnlyFile(path, cure="look")
    for _ in range(2):  # the second one may not know better either
        with pytest.raises(RunDirectoryError, match="is being written by another run"):
            old.append(b"more\n")
    new.append(b"new\n")
    assert path.read_bytes() == b"new\n"
    new.close()
    with pytest.raises(RunDirectoryError, match="was replaced by another file"):
        old.append(b"more\n")
    assert path.read_bytes() == b"new\n"
    path.unlink()
    old.append(b"more\n")
    assert path.read_bytes() == b"old\nmore\n"
    old.close()


def test_checkpoints_that_are_gone_are_missed(tiny, tmp_path, hashes):
    run = tmp_path / "run"
    settings = {"run_dir": str(run), "restore_checkpoint": "auto"}
    with tiny.trainer(**settings) as trainer:
        trainer.run(0)
    shutil.rmtree(run / "checkpoints")
    (run / "summary.json").unlink()  # as if it had been killed
    rows = (run / "metrics.jsonl").read_bytes()
    gone = "trained before, but its checkpoints are gone"
    with tiny.trainer(**settings) as trainer, pytest.raises(CheckpointError, match=gone):
        trainer.run(0)
    assert (run / "metrics.jsonl").read_bytes() == rows


def test_a_damaged_log_ends_no_run(tiny, tmp_path, caplog):
    run = tmp_path / "run"

    def damage(trainer, iteration, metrics):
        with open(run / "metrics.jsonl", "ab") as file:
            file.write(b"\0\0\0\n")

    with tiny.trainer(run_dir=str(run), callbacks=[OnIteration(damage)]) as trainer:
        trainer.run(0)
    assert json.loads((run / "summary.json").read_text())["outer_iterations"] == 3
    assert "learning_curve.png was not drawn" in caplog.text


def test_an_environment_that_exits_ends_the_run_with_an_error(tiny, tmp_path):
    from host_twins import HostCounter

    from rlkit.envs.host.gymnasium import GymnasiumAdapter

    class Exits(HostCounter):
        def step(self, action):
            raise SystemExit(0)

    env = GymnasiumAdapter(Exits, 2)
    with tiny.trainer(env=env) as trainer, pytest.raises(EnvFailedError, match="SystemExit: 0"):
        trainer.run(0)
    env.close()


@pytest.mark.parametrize("what", [in_full("the log"), "a checkpoint"])
def test_a_full_disk_is_no_bad_input(tmp_path, monkeypatch, capsys, what):
    command = ["train", "ppo", "probe/Counter", "--num-envs", "2", "--num-steps", "8"]
    command += ["--num-minibatches", "1", "--num-epochs", "1", "--hidden-sizes", "8", "--no-debug"]
    command += ["--total-steps", "64", "--num-checkpoints", "4", "--run-dir", str(tmp_path / "run")]
    if what == "the log":
        append = AppendOnlyFile.append

        def append_to_a_full_disk(file, data):
            with file._explained():
                if b'"train"' in data:
                    raise OSError(errno.ENOSPC, "No space left on device")
            append(file, data)

        monkeypatch.setattr(AppendOnlyFile, "append", append_to_a_full_disk)
    else:
        full = shutil.disk_usage(tmp_path)._replace(free=0)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    code, (_, said) = main(command), capsys.readouterr()
    wanted = "metrics.jsonl: No space left" if what == "the log" else "has 0 MB free"
    said = said[said.index("rlkit: error: ") :]
    assert said.count("\n") == 1 and wanted in said
    assert code == 1 and load_run(tmp_path / "run").status == "failed"


@pytest.mark.fast
def test_an_exit_with_words_is_no_success(monkeypatch, capsys):
    import rlkit.cli.main as command

    def leave(arguments):
        raise SystemExit("out of luck")

    monkeypatch.setattr(command, "_dispatch", leave)
    assert main([]) == 1 and "out of luck" in capsys.readouterr().err


# What a run directory says


KILLED = """
import os, signal, sys
sys.path.insert(0, {support!r})
from rlkit.training.from_config import build
from tiny_runs import settings_of
from rlkit.training.callbacks import Callback
from rlkit import load_run

class Kill(Callback):
    def on_iteration_end(self, trainer, outer_iteration, metrics):
        assert load_run(sys.argv[1]).status == "running"
        os.kill(os.getpid(), signal.SIGKILL)

with build(settings_of(sys.argv[1]), callbacks=[Kill()]) as trainer:
    trainer.run(0)
"""


@pytest.mark.full
@pytest.mark.process
def test_a_run_that_was_killed_says_so(tmp_path):
    program = KILLED.format(support=str(Path(__file__).parents[1] / "support"))
    command = [sys.executable, "-c", program, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert load_run(tmp_path / "run").status == "killed"


def test_a_run_says_how_it_ended(tiny, tmp_path):
    def stop(trainer, iteration, metrics):
        trainer.request_stop("enough")

    def fail(trainer, iteration, metrics):
        raise ValueError("a mistake")

    def interrupt(trainer, iteration, metrics):
        signal.raise_signal(signal.SIGINT)

    nothing = lambda *arguments: None  # noqa: E731
    ends = {
        "finished": (nothing, None),
        "stopped": (stop, "enough"),
        "failed": (fail, "ValueError: a mistake"),
        "interrupted": (interrupt, "interrupted"),
    }
    for name, (function, reason) in ends.items():
        with tiny.trainer(
            run_dir=str(tmp_path / name), callbacks=[OnIteration(function)]
        ) as trainer:
            trainer.init(0)
            assert load_run(tmp_path / name).status == "unknown"
            with contextlib.suppress(ValueError, KeyboardInterrupt):
                trainer.run()
        found = load_run(tmp_path / name)
        status = "stopped" if name == "interrupted" else name
        assert (found.status, found.status_reason) == (status, reason)


def test_ctrl_c_while_a_run_starts_is_told(tiny, tmp_path):
    """In the random steps before training, for instance."""

    class Interrupts(Callback):
        def on_warm_up(self, trainer, done, total):
            signal.raise_signal(signal.SIGINT)

    run = {"run_dir": str(tmp_path / "run"), "callbacks": [Interrupts()]}
    with tiny.trainer("dqn", **run) as trainer:
        with pytest.raises(KeyboardInterrupt):
            trainer.run(0)
        seconds = trainer.wall_seconds
        assert trainer.wall_seconds == seconds  # the clock stands still
    found = load_run(tmp_path / "run")
    assert (found.status, found.status_reason) == ("stopped", "interrupted")


def test_what_is_half_written_is_taken_back(tmp_path, monkeypatch):
    """A full disk takes a part of a row; the next row must not go on from there."""
    file, write = AppendOnlyFile(tmp_path / "log", cure=""), os.write
    file.append(b"first\n")
    left = [3]

    def writes(descriptor, data):
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[: left.pop()])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", writes)
        with pytest.raises(RunDirectoryError, match="free disk space"):
            file.append(b"second\n")
    file.append(b"third\n")
    assert file.read() == b"first\nthird\n"
    file.close()


def test_a_state_that_is_older_than_the_checkpoints_is_not_trained_on(tiny, tmp_path):
    run_dir, keep = tmp_path / "run", CheckpointerConfig(max_to_keep=9)
    with tiny.trainer(run_dir=str(run_dir), checkpointer_config=keep) as trainer:
        trainer.run(0)
        last, rows = trainer.outer_iteration, rows_of(run_dir)
        trainer.load_checkpoint(run_dir, 1)
        trainer.evaluate()
        with pytest.raises(RunDirectoryError, match=rf"of step 1, .* up to step {last}, .*into="):
            trainer.run()
    assert rows_of(run_dir) == rows and load_run(run_dir).status == "finished"
