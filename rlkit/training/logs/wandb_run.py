"""`WandbRun`: one run at Weights & Biases, and which rows it has."""

import collections
import json
import os
import secrets
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlkit.training.config import LoggerConfig
from rlkit.training.logs.records import Record
from rlkit.training.logs.wandb_labels import choose_labels
from rlkit.validation import PlainData

Position = tuple[int, int]  # env_steps, number of rows of that kind and seed at these env_steps

_LONGEST_BACKLOG = 2000  # rows buffered while W&B fails
# W&B's own process buffers rows (0.31: for 15 s) before writing or uploading them, and loses them
# if the run is killed.
_SETTLED_AFTER = 60.0  # seconds
# How long W&B may hold the training up, in seconds: when a run opens (its own default is 90), and
# at the end, where it would otherwise wait for a lost network for ever.
_OPENS_WITHIN, _FINISHES_WITHIN = 15.0, 300.0


class WandbRun:
    """A run that is opened by the first `send`, so that `restore` can provide its id.

    `seed` is the index of the only seed that it shows (None: it shows all), `group` the group that
    it is in unless config or environment name one. Methods raise whatever W&B raises.

    Resuming loses no rows: those that W&B rejected, or accepted less than a minute ago, are part of
    the state and are sent again. Older rows are not repeated: a file in `directory` stores how far
    they reach. After a closed run no row appears twice; after a killed one, rows of the last minute
    may (with `directory` None, also those logged after the last checkpoint).
    """

    def __init__(
        self,
        config: LoggerConfig,
        directory: Path | None,
        *,
        seed: int | None = None,
        group: str | None = None,
    ):
        self._config, self._directory = config, directory
        self._seed, self._group = seed, group
        suffix = "" if seed is None else f"-seed_{seed}"
        self._file = directory and directory / f"wandb_run{suffix}.json"
        self._id = secrets.token_hex(4)
        self._labels: PlainData = {}  # of the run that it continues: project, name, notes, ...
        self._run: Any = None
        self._seen: dict[str, Position] = {}  # rows of this run, in order
        # Rows that are safe at W&B, from this run and the one it continues.
        self._settled: dict[str, Position] = {}
        self._backlog: collections.deque[tuple[str, Position, Record]] = collections.deque(
            maxlen=_LONGEST_BACKLOG
        )
        self._unsettled: collections.deque[tuple[float, str, Position, Record]] = (
            collections.deque()
        )

    @property
    def is_open(self) -> bool:
        """Whether W&B has opened it."""
        return self._run is not None

    @property
    def has_backlog(self) -> bool:
        """Whether there are rows to send."""
        return bool(self._backlog)

    def add(self, record: Record) -> None:
        """Queues a record, unless W&B has it already."""
        stream = record.kind if record.seed is None else f"{record.kind}/{record.seed}"
        env_steps, rows = self._seen.get(stream, (-1, 0))
        position = (record.env_steps, 1) if record.env_steps > env_steps else (env_steps, rows + 1)
        self._seen[stream] = position
        if position > self._settled.get(stream, (-1, 0)):
            self._backlog.append((stream, position, record))

    def send(self, settings: PlainData) -> None:
        """Sends what is queued, and opens the run for it with these settings."""
        if self._run is None:
            self._run = self._open(settings)
        while self._backlog:
            stream, position, record = self._backlog[0]
            self._run.log(_row(record))
            self._unsettled.append((time.monotonic(), stream, position, record))
            self._backlog.popleft()
        self._settle(after=_SETTLED_AFTER)

    def add_picture(self, name: str, path: Path) -> None:
        """Adds a picture to the open run, at the environment steps of its newest row."""
        import wandb

        self._add(name, wandb.Image(str(path)))

    def add_video(self, path: Path) -> None:
        """Adds a video to the open run, at the environment steps of its newest row."""
        import wandb

        self._add("video", wandb.Video(str(path)))

    def _add(self, name: str, media: Any) -> None:
        env_steps = max(position[0] for position in self._seen.values())
        self._run.log({"env_steps": env_steps, name: media})

    def add_policy(self, export: Callable[[Path], PlainData]) -> None:
        """Adds an artifact of what `export` writes to a directory, with what it returns."""
        import wandb

        with tempfile.TemporaryDirectory() as directory:
            metadata = export(Path(directory))
            artifact = wandb.Artifact(f"policy-{self._id}", type="model", metadata=metadata)
            artifact.add_dir(directory)  # copies the files
        self._run.log_artifact(artifact)

    def finish(self) -> None:
        """Closes the open run; returns once W&B has all rows."""
        run, self._run = self._run, None
        run.finish()
        self._settle(after=0.0)

    def state(self) -> PlainData:
        """Plain data for `restore`."""
        rows = [*(row[1:] for row in self._unsettled), *self._backlog]
        return {
            "id": self._id,
            "labels": self._labels,
            "seen": {stream: list(position) for stream, position in self._seen.items()},
            "rows": [
                [stream, list(position), record.to_json()] for stream, position, record in rows
            ],
        }

    def stored(self) -> PlainData:
        """What an earlier part of the run stored in its file; {} if there is none."""
        if self._file is None or not self._file.exists():
            return {}
        stored = json.loads(self._file.read_text())
        return {
            "id": stored["id"],
            "labels": stored.get("labels", {}),
            "settled": _positions(stored["settled"]),
        }

    def restore(self, state: PlainData, stored: PlainData) -> None:
        """Continues the run of a `state`; `stored` may know more of it."""
        self._id = state.get("id") or stored.get("id") or self._id
        is_known = stored.get("id") == self._id
        self._labels = state.get("labels") or (stored["labels"] if is_known else {})
        self._seen = _positions(state.get("seen", {}))
        self._settled = stored["settled"] if is_known else {}
        for stream, position, row in state.get("rows", []):
            if tuple(position) > self._settled.get(stream, (-1, 0)):
                self._backlog.append((stream, (position[0], position[1]), Record.from_json(row)))

    def _settle(self, *, after: float) -> None:
        changed, limit = False, time.monotonic() - after
        while self._unsettled and self._unsettled[0][0] <= limit:
            _, stream, position, _ = self._unsettled.popleft()
            self._settled[stream] = position
            changed = True
        if self._file is not None and (changed or not self._settled):
            fresh = self._file.with_suffix(".json.new")
            stored = {"id": self._id, "labels": self._labels, "settled": self._settled}
            fresh.write_text(json.dumps(stored))
            fresh.replace(self._file)

    def _open(self, settings: PlainData) -> Any:
        import wandb

        if self._directory is not None:
            self._directory.mkdir(parents=True, exist_ok=True)
        self._labels = choose_labels(
            self._config, self._directory, self._labels, seed=self._seed, group=self._group
        )
        run = wandb.init(
            id=self._id,
            resume="allow",
            reinit="create_new",
            mode=self._config.wandb,
            # W&B itself reads the variable once per process, perhaps before it was set.
            dir=os.environ.get("WANDB_DIR") or self._directory,
            **self._labels,
            config=settings,
            allow_val_change=True,
            save_code=False,
            # W&B's console would replace stdout and disturb the progress bar.
            settings=wandb.Settings(console="off", **_limits()),
        )
        self._id = run.id  # in a sweep, its agent chose another
        run.define_metric("env_steps")
        for names in ("train/*", "eval/*", "user/*", "learning_curve", "video"):
            run.define_metric(names, step_metric="env_steps")
        run.define_metric("eval/avg_return", step_metric="env_steps", summary="max,last")
        return run


def _limits() -> dict[str, Any]:
    """How long W&B may take, by the names of its settings; its environment variables win."""
    limits = {"init_timeout": _OPENS_WITHIN, "finish_timeout": _FINISHES_WITHIN}
    return {k: x for k, x in limits.items() if f"WANDB_{k.upper()}" not in os.environ}


def _positions(stored: PlainData) -> dict[str, Position]:
    return {stream: (position[0], position[1]) for stream, position in stored.items()}


def _row(record: Record) -> PlainData:
    suffix = "" if record.seed is None else f"/seed_{record.seed}"
    row: PlainData = {
        "env_steps": record.env_steps,
        "updates": record.updates,
        "wall_seconds": record.wall_seconds,
    }
    row |= {f"{name}{suffix}": float(value) for name, value in record.metrics.items()}
    return row if record.text is None else row | {record.kind: record.text}
