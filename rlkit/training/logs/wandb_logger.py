"""Copies records to Weights & Biases; failures there never affect the training."""

import dataclasses
import functools
import logging
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

from rlkit.training.config import LoggerConfig
from rlkit.training.logs.logger import Outcome
from rlkit.training.logs.records import Record
from rlkit.training.logs.redaction import redact
from rlkit.training.logs.wandb_run import WandbRun
from rlkit.validation import PlainData

# Not `warnings.warn`: under `-W error`, a failing logger would end the training.
_warn = logging.getLogger("rlkit").warning
_NOT_OPENED = "Weights & Biases could not be reached: this run, or some seeds of it, is not there"
_CURE = (
    "use --wandb offline, run `wandb login`, or set WANDB_INIT_TIMEOUT to more seconds if the"
    " network is slow"
)


class WandbLogger:
    """Copies records to one W&B run, or to one for each seed; failures never stop the training.

    The first failure causes a warning, and so does the end of a run that had any; `failures` counts
    exceptions. See `WandbRun` for what a resumed run sends again.

    One run names the metrics of single seeds `<metric>/seed_<n>`. Runs of single seeds leave the
    suffix out; what is the same for all seeds (texts, speed, what `eval_fn` returns) goes to each.

    What the config leaves open comes from W&B's environment variables. A resumed run stays in the
    project of its first part and keeps its name, group, tags and notes, whatever these variables
    are by then.
    """

    def __init__(self, config: LoggerConfig, directory: str | os.PathLike[str] | None):
        self.failures = 0
        self._config = config
        self._directory = None if directory is None else Path(directory)
        self._settings: PlainData = {}
        self._restored: PlainData | None = None
        self._runs: dict[int | None, WandbRun] = {}  # by index of their seed; None: of all seeds
        self._of_seeds: set[str] = set()  # metrics that single seeds have
        self._gave_up = False  # on opening runs

    def start(self, run_info: PlainData, /) -> None:
        self._settings = redact(run_info)

    def log(self, record: Record, /) -> None:
        for run, row in self._rows(record):
            run.add(row)
        self.flush()

    def state(self) -> PlainData:
        return {_name(seed): run.state() for seed, run in self._made_runs().items()}

    def restore(self, state: PlainData, /) -> None:
        self._restored = state
        self._restore_runs(state)

    def flush(self) -> None:
        for seed, run in self._made_runs().items():
            if run.has_backlog and (run.is_open or not self._gave_up):
                self._attempt(functools.partial(self._send, seed, run))

    def log_video(self, path: Path, seed: int, /) -> None:
        """Adds the video to the run of that seed, or of all seeds, if it is open."""
        run = self._runs.get(None) or self._runs.get(seed)
        if run is not None and run.is_open:
            self._attempt(functools.partial(run.add_video, path))

    def publish(self, outcome: Outcome, /) -> None:
        """Adds the learning curve to each run, and the policies of all seeds to the first."""
        for number, run in enumerate(run for run in self._runs.values() if run.is_open):
            if outcome.curve is not None:
                self._attempt(functools.partial(run.add_picture, "learning_curve", outcome.curve))
            if outcome.export_policy is not None and self._config.wandb_artifacts and number == 0:
                self._attempt(functools.partial(run.add_policy, outcome.export_policy))

    def close(self) -> None:
        self.flush()
        for run in self._runs.values():
            if run.is_open:
                self._attempt(run.finish)
        if self._gave_up:
            _warn("%s; all rows are in the JSONL file; %s", _NOT_OPENED, _CURE)
        elif self.failures:
            times = "once" if self.failures == 1 else f"{self.failures} times"
            _warn("Weights & Biases failed %s in this run: rows may be missing there", times)

    def _made_runs(self) -> dict[int | None, WandbRun]:
        """The runs, made when they are first needed: `start` says how many seeds there are."""
        if not self._runs:
            num_seeds = int(self._settings.get("trainer.num_seeds", 1))
            of_each = self._config.wandb_runs == "per_seed" and num_seeds > 1
            make = functools.partial(WandbRun, self._config, self._directory)
            if of_each:
                group = self._directory and self._directory.resolve().name
                group = group or f"rlkit-{secrets.token_hex(4)}"
                self._runs = {seed: make(seed=seed, group=group) for seed in range(num_seeds)}
            else:
                self._runs = {None: make()}
            if self._restored is not None:
                self._restore_runs(self._restored)
        return self._runs

    def _restore_runs(self, state: PlainData) -> None:
        for seed, run in self._runs.items():
            stored: PlainData = {}
            self._attempt(lambda run=run, stored=stored: stored.update(run.stored()))
            run.restore(state.get(_name(seed), {}), stored)

    def _rows(self, record: Record) -> Iterator[tuple[WandbRun, Record]]:
        """The rows that a record is, each with its run."""
        runs = self._made_runs()
        if None in runs:
            yield runs[None], record
        elif record.seed is not None:
            self._of_seeds |= record.metrics.keys()
            yield runs[record.seed], dataclasses.replace(record, seed=None)
        else:  # a text, or a mean, which follows the records of single seeds
            metrics = {name: x for name, x in record.metrics.items() if name not in self._of_seeds}
            if metrics or record.text is not None:
                for run in runs.values():
                    yield run, dataclasses.replace(record, metrics=metrics)

    def _send(self, seed: int | None, run: WandbRun) -> None:
        try:
            run.send(self._settings_of(seed))
        except Exception:
            if not run.is_open:
                self._gave_up = True  # each further attempt could block on the network again
            raise

    def _settings_of(self, seed: int | None) -> PlainData:
        if seed is None:
            return self._settings
        first = self._settings.get("seed")  # None: the run was started from a key
        own = {"seed": None if first is None else first + seed, "seed_index": seed}
        return self._settings | own

    def _attempt(self, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:  # whatever happens, the records are safe in the JSONL file
            self.failures += 1
            if self.failures == 1:
                fix = (
                    "the JSONL file contains all rows"
                    if any(run.is_open for run in self._runs.values())
                    else _CURE
                )
                _warn(
                    "Weights & Biases failed (%s: %s); training and local files continue; %s",
                    type(error).__name__,
                    " ".join(str(error).split()),  # W&B's own take several lines
                    fix,
                )


def _name(seed: int | None) -> str:
    """The name of a run in the logger's state."""
    return "all" if seed is None else f"seed_{seed}"
