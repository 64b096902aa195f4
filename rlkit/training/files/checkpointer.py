"""Checkpoints on disk: written in the background by Orbax, verified when read, never unpickled.

`stored_step` has the layout of one step. The class here owns the directory: which steps are in it,
which are kept, and what may be written there.
"""

import contextlib
import dataclasses
import functools
import os
import pathlib
import re
import shutil
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy, LatestN
from orbax.checkpoint.options import MultiprocessingOptions

from rlkit.errors import CheckpointError, DiskError, RunDirectoryError, require
from rlkit.training.config import CheckpointerConfig
from rlkit.training.directories import absolute_path, make_directory
from rlkit.training.files.best_checkpoint import KeepBest, Scores, best_of
from rlkit.training.files.checkpoint_leaves import fetch
from rlkit.training.files.run_directory import require_still_locked, take_lock
from rlkit.training.files.stored_step import (
    RECORD,
    SIGNATURE,
    DamagedStepError,
    Restored,
    StoredStep,
    Target,
    contents,
    first_line,
)
from rlkit.training.logs.loaded_run import LOCK
from rlkit.types import PyTree
from rlkit.validation import PlainData

Which = int | Literal["latest", "best"]
_require = functools.partial(require, error=CheckpointError)
_DELETED = "deleted"  # directory that the keep policy moves steps to
_TEMPORARY = ".orbax-checkpoint-tmp"  # in names of steps that a killed process was writing
_DISK_FULL = ("RESOURCE_EXHAUSTED", "No space left", "Disk quota", "File too large")


def steps_in(directory: str | os.PathLike[str]) -> list[int]:
    """The steps saved in a directory in ascending order, including damaged ones."""
    entries = (entry for entry in os.scandir(directory) if entry.is_dir(follow_symlinks=False))
    names = (entry.name for entry in entries)
    return sorted(int(name) for name in names if re.fullmatch(r"0|[1-9][0-9]*", name))


def holds_checkpoints(directory: str | os.PathLike[str]) -> bool:
    """Whether there is such a directory with a checkpoint in it; opens nothing."""
    return os.path.isdir(directory) and bool(steps_in(directory))


class Checkpointer:
    """Saves and restores pytrees in `config.directory`, keeping the newest steps and the best.

    For one process, which locks the directory to write there. Methods that ask for steps first wait
    for a pending write, so they never name a step that may still fail. Every failure is a
    `CheckpointError`. With `read_only`, nothing is created or deleted, and the directory must hold
    a checkpoint. Call `close` at the end (or use `with`): a write that nobody waits for is lost
    when the interpreter exits.
    """

    def __init__(self, config: CheckpointerConfig, *, read_only: bool = False):
        if config.directory is None:
            raise CheckpointError(
                "CheckpointerConfig.directory is not set; name the directory of the checkpoints"
            )
        self.directory = absolute_path(config.directory)
        self._config = config
        self._read_only = read_only
        self._pending: int | None = None
        self._manager: ocp.CheckpointManager | None = None  # from the first `save` on
        self._lock: int | None = None  # what may write has one
        self._reader = ocp.Checkpointer(
            ocp.StandardCheckpointHandler(multiprocessing_options=_this_process()),
            multiprocessing_options=_this_process(),
        )
        if read_only:
            cure = "name the `checkpoints` directory of a run that has saved at least once"
            _require(self.directory.is_dir(), f"{self.directory} does not exist", cure)
            _require(bool(self.all_steps()), f"{self.directory} holds no checkpoints", cure)
            return
        try:
            make_directory(self.directory)
        except OSError as error:
            raise CheckpointError(
                f"cannot create {self.directory}: {error.strerror}; choose another directory"
            ) from None
        _require(
            os.access(self.directory, os.W_OK),
            f"{self.directory} is not writable",
            "choose another",
        )
        self._require_ours()
        try:
            self._lock = take_lock(self.directory / LOCK)
        except (OSError, RunDirectoryError) as error:
            raise CheckpointError(f"cannot save checkpoints: {error}") from None
        records = self._records()[0]
        self._scores = {step: self._ranked(record) for step, record in records.items()}

    @property
    def keep_best(self) -> bool:
        """The config's `keep_best`."""
        return self._config.keep_best

    @property
    def save_replay(self) -> bool | None:
        """The config's `save_replay`, which callers of `save` follow."""
        return self._config.save_replay

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Writing

    def save(
        self,
        step: int,
        items: Mapping[str, PyTree],
        *,
        score: float | None = None,
        seed_scores: Sequence[float] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Copies `items` to the host and writes them in the background.

        The caller may donate or change `items` afterwards. Waits for the previous write, and raises
        if it failed. Higher scores are better; None and non-finite ones are never best.
        `seed_scores` are those of single seeds; saved only with `keep_seed_bests`. `metadata` is
        plain JSON data. Raises if the step exists or is older than the newest: nothing is
        overwritten.
        """
        if self._lock is None:
            raise CheckpointError(
                f"{self.directory} is closed or open for reading only; open it for writing"
            )
        _require(self.directory.is_dir(), f"{self.directory} was removed", "start a new run")
        require_still_locked(self._lock, self.directory)
        step = int(step)
        steps = self.all_steps()
        where = f"step {step} of {self.directory}"
        cure = f"resume from it, move {self.directory / str(step)} away or choose another directory"
        _require(step not in steps, f"{where} exists and is never overwritten", cure)
        newest = f"{where} is not newer than the newest, {max(steps, default=-1)}"
        _require(
            step > max(steps, default=-1),
            newest,
            "move newer steps away or choose another directory",
        )
        for name in items:
            usable = re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) and name not in (
                SIGNATURE,
                RECORD,
            )
            _require(bool(usable), f"an item cannot be called {name!r}", "choose a plain word")
        score = None if score is None else float(score)
        own = None
        if seed_scores is not None and self._config.keep_seed_bests:
            own = [float(x) for x in seed_scores]
        record = {
            "step": step,
            "score": score,
            "seed_scores": own,
            "metadata": dict(metadata or {}),
        }
        fetched = fetch(items)
        self._require_space(sum(leaf.nbytes for _, leaves in fetched.values() for leaf in leaves))
        written = contents(record, fetched)
        self._scores[step] = self._ranked(record)
        if self._manager is None:
            self._manager = self._open_manager()
        try:
            saved = self._manager.save(step, args=ocp.args.Composite(**written), force=True)
        except Exception as error:
            self._reopen()
            raise self._write_error(step, error) from error
        _require(saved, f"Orbax declined to save {where}", "move newer steps away")
        self._pending = step

    def wait(self) -> None:
        """Waits until everything saved is on disk, at most `config.save_timeout` seconds."""
        step, manager = self._pending, self._manager
        if step is None or manager is None:
            return
        deadline = time.monotonic() + self._config.save_timeout
        while manager.is_saving_in_progress():
            if time.monotonic() > deadline:
                problem = (
                    f"writing step {step} to {self.directory} takes longer than"
                    f" {self._config.save_timeout:g} s"
                )
                raise CheckpointError(
                    f"{problem}; check the disk or raise CheckpointerConfig.save_timeout"
                )
            time.sleep(0.002)
        self._pending = None
        try:
            manager.wait_until_finished()
        except Exception as error:
            self._reopen()
            raise self._write_error(step, error) from error
        self._remove_deleted()
        self._stored(step).keep_others_out()

    def set_aside(self, step: int) -> pathlib.Path:
        """Renames a damaged `step`, so a resumed run can save it again; returns the new path."""
        _require(
            not self._read_only, f"{self.directory} is open for reading only", "open it for writing"
        )
        self._require_step(step)
        target = next(
            path
            for n in range(10**6)
            if not (path := self.directory / f"damaged-{step}{f'-{n}' if n else ''}").exists()
        )
        (self.directory / str(step)).rename(target)
        self._scores.pop(step, None)
        if self._manager is not None:
            self._reopen()
        return target

    def close(self) -> None:
        """Finishes a pending write and releases all threads; raises if the write failed.

        May be called twice.
        """
        try:
            self.wait()
        finally:
            manager, self._manager = self._manager, None
            if (
                manager is not None and self._pending is None
            ):  # after a timeout Orbax would wait without a limit
                manager.close()
            self._reader.close()
            lock, self._lock = self._lock, None
            if lock is not None:
                os.close(lock)

    # Reading

    def restore(self, which: Which, target: Target) -> Restored:
        """Reads the items named in `target`, and no others.

        The leaves of `target` are arrays or `jax.ShapeDtypeStruct`s. If steps hold different items,
        `target` is a function from the metadata of a step to such a mapping.

        Leaves come back bit for bit, as JAX arrays of the saved dtype (64-bit ones as NumPy arrays
        while x64 is off), placed by the sharding of their target if it has one. "latest" skips
        damaged steps with a warning; "best" and a number raise instead. A leaf that differs from
        its target in path, dtype or shape raises: nothing is ever cast.
        """
        steps = self.all_steps()
        _require(bool(steps), f"{self.directory} holds no checkpoints", "train and save first")
        skipped: list[tuple[int, str]] = []
        if which == "latest":
            for step in reversed(steps):
                try:
                    return dataclasses.replace(
                        self._stored(step).read(self._reader, target), skipped=tuple(skipped)
                    )
                except DamagedStepError as error:
                    skipped.append((step, str(error)))
                    message = (
                        f"{self.directory}: step {step} is damaged ({error}); trying the next"
                        " older one"
                    )
                    warnings.warn(message, RuntimeWarning, stacklevel=2)
            reasons = "; ".join(f"step {step}: {reason}" for step, reason in skipped)
            raise CheckpointError(
                f"{self.directory} holds no intact checkpoint ({reasons}); start a new run"
            )
        step = which
        if isinstance(step, str):
            _require(step == "best", f"cannot restore {step!r}", 'use "latest", "best" or a step')
            records, broken = self._records()
            for damaged, reason in broken:
                skipped.append((damaged, reason))
                warnings.warn(
                    f"{self.directory}: step {damaged} is damaged ({reason})",
                    RuntimeWarning,
                    stacklevel=2,
                )
            step = best_of({step: record["score"] for step, record in records.items()})
            if step is None:
                raise CheckpointError(
                    f"no step of {self.directory} has a finite score, of {steps}; restore the"
                    " latest"
                )
        step = int(step)
        self._require_step(step)
        try:
            return dataclasses.replace(
                self._stored(step).read(self._reader, target), skipped=tuple(skipped)
            )
        except DamagedStepError as error:
            others = ", ".join(str(other) for other in steps if other != step) or "none"
            raise CheckpointError(
                f"step {step} of {self.directory} is damaged ({error}); other steps: {others}"
            ) from error

    def all_steps(self) -> list[int]:
        """The steps on disk in ascending order, including damaged ones."""
        self.wait()
        return steps_in(self.directory)

    def latest_step(self) -> int | None:
        """The newest step, or None if there is none."""
        return max(self.all_steps(), default=None)

    def best_step(self, seed: int | None = None) -> int | None:
        """The step with the highest finite score, the newest of equals, or None.

        With `seed`, by the score of that seed. Skips unreadable records.
        """
        records = self._records()[0].items()
        if seed is None:
            return best_of({step: record["score"] for step, record in records})
        known = {step: record.get("seed_scores") or [] for step, record in records}
        return best_of({step: own[seed] for step, own in known.items() if seed < len(own)})

    def seed_peak(self, seed: int) -> float | None:
        """The highest finite score of a seed in any step; None if there is none."""
        step = self.best_step(seed)
        return None if step is None else self._records()[0][step]["seed_scores"][seed]

    def metadata(self, step: int) -> PlainData:
        """The metadata that was saved with `step`."""
        self._require_step(step)
        try:
            return self._stored(step).record()["metadata"]
        except DamagedStepError as error:
            raise CheckpointError(
                f"step {step} of {self.directory} is damaged ({error}); use another step"
            ) from error

    def export(
        self, step: int, items: Sequence[str], directory: pathlib.Path, *, metadata: PlainData
    ) -> None:
        """Copies some items of `step`, with its score and new metadata, to another `directory`.

        A checkpointer of that directory can restore them.
        """
        self._require_step(step)
        self._stored(step).copy(items, directory, metadata=metadata)

    # Parts

    def _stored(self, step: int) -> StoredStep:
        return StoredStep(self.directory, step)

    def _ranked(self, record: PlainData) -> Scores:
        """The scores by which the step of a record is kept."""
        own = record.get("seed_scores") if self._config.keep_seed_bests else None
        return record["score"], *(own or ())

    def _require_ours(self) -> None:
        """Raises `CheckpointError` for a directory of something else: saving also deletes there."""
        names = sorted(os.listdir(self.directory))
        is_ours = any(
            (self.directory / name / RECORD).is_dir() for name in names if name.isdecimal()
        )
        own = (LOCK, ".tmp-", "damaged-")  # what a start that came to nothing leaves
        foreign = [name for name in names if not name.startswith(own) and _TEMPORARY not in name]
        _require(
            is_ours or not foreign,
            f"{self.directory} holds other files ({', '.join(foreign[:3])}) and no checkpoints",
            "choose a new or empty directory",
        )

    def _open_manager(self) -> ocp.CheckpointManager:
        # Orbax's own BestN and best_step read a metrics file while opening, and fail there if it is
        # damaged: hence our policy.
        best = [KeepBest(self._scores)] if self._config.keep_best else []
        policy = AnyPreservationPolicy([LatestN(self._config.max_to_keep), *best])
        options = ocp.CheckpointManagerOptions(
            preservation_policy=policy,
            cleanup_tmp_directories=True,
            lightweight_initialize=True,
            # by one rename: a kill during removal would leave half a step, which we would list
            todelete_subdir=_DELETED,
            create=False,  # it exists
            multiprocessing_options=_this_process(),
        )
        self._remove_deleted()
        return ocp.CheckpointManager(self.directory, options=options)

    def _remove_deleted(self) -> None:
        # Failed removals are retried after the next save; `save` reports a full disk.
        shutil.rmtree(self.directory / _DELETED, ignore_errors=True)

    def _reopen(self) -> None:
        """Replaces a manager whose save failed, with its stale steps and half-written directory."""
        manager, self._manager = self._manager, None
        for _ in range(2):  # the first call may raise the save's error again
            with contextlib.suppress(Exception):
                if manager is not None:
                    manager.close()
        self._manager = self._open_manager()

    def _write_error(self, step: int, error: Exception) -> DiskError:
        free = shutil.disk_usage(self.directory).free / 1e6
        full = next((mark for mark in _DISK_FULL if mark in str(error)), None)
        cure = (
            f"free disk space there ({free:.0f} MB left)"
            if full
            else "older steps are intact, see the error above"
        )
        reason = full or first_line(error)
        return DiskError(f"step {step} was not saved to {self.directory}: {reason}; {cure}")

    def _require_space(self, need: int) -> None:
        free = shutil.disk_usage(self.directory).free
        problem = (
            f"{self.directory} has {free / 1e6:.0f} MB free, a checkpoint needs"
            f" {1.5 * need / 1e6:.0f} MB"
        )
        cure = "free disk space or choose another directory"
        require(free >= 1.5 * need, problem, cure, DiskError)

    def _require_step(self, step: int) -> None:
        steps = self.all_steps()
        has = ", ".join(map(str, steps)) or "none"
        _require(step in steps, f"{self.directory} has no step {step}", f"its steps are: {has}")

    def _records(self) -> tuple[dict[int, PlainData], list[tuple[int, str]]]:
        """The readable records by step, and (step, reason) of unreadable ones, newest first."""
        records, broken = {}, []
        for step in reversed(self.all_steps()):
            try:
                records[step] = self._stored(step).record()
            except DamagedStepError as error:
                broken.append((step, str(error)))
        return records, broken


def _this_process() -> MultiprocessingOptions:
    """Orbax neither waits for other processes of the run nor leaves work to them."""
    index = jax.process_index()
    return MultiprocessingOptions(
        primary_host=index, active_processes={index}, barrier_sync_key_prefix=f"process_{index}"
    )
