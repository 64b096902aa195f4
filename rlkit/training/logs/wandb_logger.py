"""Copies records to Weights & Biases; failures there never affect the training."""

import collections
import json
import logging
import os
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlkit.training.config import LoggerConfig
from rlkit.training.logs.records import Record
from rlkit.validation import PlainData

Position = tuple[int, int]  # env_steps, number of rows of that kind and seed at these env_steps

# Not `warnings.warn`: under `-W error`, a failing logger would end the training.
_warn = logging.getLogger("rlkit").warning
_SECRET = re.compile(r"token|secret|password|api_?key", re.IGNORECASE)
_LONGEST_BACKLOG = 2000  # rows buffered while W&B fails
# W&B's own process buffers rows (0.31: for 15 s) before writing or uploading them, and loses them
# if the run is killed.
_SETTLED_AFTER = 60.0  # seconds


class WandbLogger:
    """Copies records to Weights & Biases, where failures never stop the training.

    The first failure causes a warning, and so does the end of a run that had any.

    The run is opened at the first `log`, so that `restore` can provide its id. Resuming loses no
    rows: those that W&B rejected, or accepted less than a minute ago, are part of the state and are
    sent again. Older rows are not repeated: `<directory>/wandb_run.json` stores how far they reach.
    After a closed run no row appears twice; after a killed one, rows of the last minute may (with
    `directory` None, also those logged after the last checkpoint). Metrics of single seeds are
    named `<metric>/seed_<n>`; `failures` counts exceptions.

    What the config leaves open comes from W&B's environment variables. A resumed run stays in the
    project of its first part and keeps its name, group, tags and notes, whatever these variables
    are by then.
    """

    def __init__(self, config: LoggerConfig, directory: str | os.PathLike[str] | None):
        self.failures = 0
        self._config = config
        self._directory = None if directory is None else Path(directory)
        self._id = secrets.token_hex(4)
        self._hparams: PlainData = {}
        self._labels: PlainData = {}  # of the run that it continues: project, name, notes, ...
        self._run: Any = None
        self._gave_up = False
        self._seen: dict[str, Position] = {}  # rows of this run, in order
        self._settled: dict[
            str, Position
        ] = {}  # rows that are safe at W&B, from this run and the one it continues
        self._backlog: collections.deque[tuple[str, Position, Record]] = collections.deque(
            maxlen=_LONGEST_BACKLOG
        )
        self._unsettled: collections.deque[tuple[float, str, Position, Record]] = (
            collections.deque()
        )

    def start(self, run_info: PlainData, /) -> None:
        self._hparams = redact(run_info)

    def log(self, record: Record, /) -> None:
        stream = record.kind if record.seed is None else f"{record.kind}/{record.seed}"
        env_steps, rows = self._seen.get(stream, (-1, 0))
        position = (record.env_steps, 1) if record.env_steps > env_steps else (env_steps, rows + 1)
        self._seen[stream] = position
        if position > self._settled.get(stream, (-1, 0)):
            self._backlog.append((stream, position, record))
            self.flush()

    def state(self) -> PlainData:
        rows = [*(row[1:] for row in self._unsettled), *self._backlog]
        return {
            "id": self._id,
            "labels": self._labels,
            "seen": {stream: list(position) for stream, position in self._seen.items()},
            "rows": [
                [stream, list(position), record.to_json()] for stream, position, record in rows
            ],
        }

    def restore(self, state: PlainData, /) -> None:
        known: PlainData = {}
        self._attempt(lambda: known.update(self._read_settled()))
        self._id = state.get("id") or known.get("id") or self._id
        is_known = known.get("id") == self._id
        self._labels = state.get("labels") or (known.get("labels", {}) if is_known else {})
        self._seen = _positions(state.get("seen", {}))
        self._settled = known["settled"] if is_known else {}
        for stream, position, row in state.get("rows", []):
            if tuple(position) > self._settled.get(stream, (-1, 0)):
                self._backlog.append((stream, (position[0], position[1]), Record.from_json(row)))

    def flush(self) -> None:
        if self._backlog and not self._gave_up:
            self._attempt(self._send)

    def close(self) -> None:
        self.flush()
        if self._run is not None:
            self._attempt(self._finish)
        self._run, self._gave_up = None, True
        if self.failures:
            times = "once" if self.failures == 1 else f"{self.failures} times"
            _warn("Weights & Biases failed %s in this run: rows may be missing there", times)

    def _finish(self) -> None:
        self._run.finish()
        self._settle(after=0.0)

    def _send(self) -> None:
        if self._run is None:
            try:
                self._run = self._open()
            except Exception:
                self._gave_up = True  # each further attempt could block on the network again
                raise
        while self._backlog:
            stream, position, record = self._backlog[0]
            self._run.log(_wandb_row(record))
            self._unsettled.append((time.monotonic(), stream, position, record))
            self._backlog.popleft()
        self._settle(after=_SETTLED_AFTER)

    def _settle(self, *, after: float) -> None:
        changed, limit = False, time.monotonic() - after
        while self._unsettled and self._unsettled[0][0] <= limit:
            _, stream, position, _ = self._unsettled.popleft()
            self._settled[stream] = position
            changed = True
        if self._directory is not None and (changed or not self._settled):
            fresh = self._directory / "wandb_run.json.new"
            stored = {"id": self._id, "labels": self._labels, "settled": self._settled}
            fresh.write_text(json.dumps(stored))
            fresh.replace(self._directory / "wandb_run.json")

    def _open(self) -> Any:
        import wandb

        directory = self._directory
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
        self._labels = self._chosen_labels()
        run = wandb.init(
            id=self._id,
            resume="allow",
            reinit="create_new",
            mode=self._config.wandb,
            dir=None if "WANDB_DIR" in os.environ else directory,
            **self._labels,
            config=self._hparams,
            allow_val_change=True,
            save_code=False,
            settings=wandb.Settings(
                console="off"
            ),  # would replace stdout and disturb the progress bar
        )
        run.define_metric("env_steps")
        for names in ("train/*", "eval/*", "user/*"):
            run.define_metric(names, step_metric="env_steps")
        run.define_metric("eval/avg_return", step_metric="env_steps", summary="max,last")
        return run

    def _chosen_labels(self) -> PlainData:
        """Project, name and so on: of the config, else of the run that this one continues.

        Else of the environment, else a default; None leaves a label to W&B.
        """
        config, directory = self._config, self._directory
        given = {
            "project": config.wandb_project,
            "entity": config.wandb_entity,
            "name": config.wandb_name,
            "group": config.wandb_group,
            "tags": list(config.wandb_tags),
            "notes": config.wandb_notes,
        }
        tags = os.environ.get("WANDB_TAGS", "")
        otherwise = {
            "project": os.environ.get("WANDB_PROJECT", "rlkit"),
            "entity": os.environ.get("WANDB_ENTITY"),
            "name": os.environ.get("WANDB_NAME", directory.resolve().name if directory else None),
            "group": os.environ.get("WANDB_RUN_GROUP"),
            "tags": [tag.strip() for tag in tags.split(",") if tag.strip()],
            "notes": os.environ.get("WANDB_NOTES"),
        }
        return {
            label: value or self._labels.get(label) or otherwise[label] or None
            for label, value in given.items()
        }

    def _attempt(self, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:  # whatever happens, the records are safe in the JSONL file
            self.failures += 1
            if self.failures == 1:
                fix = (
                    "run `wandb login`, or use --wandb offline"
                    if self._run is None
                    else "the JSONL file contains all rows"
                )
                _warn(
                    "Weights & Biases failed (%s: %s); training and local files continue; %s",
                    type(error).__name__,
                    error,
                    fix,
                )

    def _read_settled(self) -> PlainData:
        path = self._directory and self._directory / "wandb_run.json"
        if path is None or not path.exists():
            return {}
        stored = json.loads(path.read_text())
        return {
            "id": stored["id"],
            "labels": stored.get("labels", {}),
            "settled": _positions(stored["settled"]),
        }


def redact(value: object) -> Any:
    """Plain data with the values of tokens, secrets, passwords and API keys masked."""
    if isinstance(value, dict):
        return {
            key: "<redacted>" if _SECRET.search(str(key)) else redact(item)
            for key, item in value.items()
        }
    return [redact(item) for item in value] if isinstance(value, list | tuple) else value


def _positions(stored: PlainData) -> dict[str, Position]:
    return {stream: (position[0], position[1]) for stream, position in stored.items()}


def _wandb_row(record: Record) -> PlainData:
    suffix = "" if record.seed is None else f"/seed_{record.seed}"
    row: PlainData = {
        "env_steps": record.env_steps,
        "updates": record.updates,
        "wall_seconds": record.wall_seconds,
    }
    row |= {f"{name}{suffix}": float(value) for name, value in record.metrics.items()}
    return row if record.text is None else row | {record.kind: record.text}
