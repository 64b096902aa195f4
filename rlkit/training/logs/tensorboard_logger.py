"""`TensorboardLogger`: the records of a run as files that TensorBoard reads."""

import os
import textwrap
from pathlib import Path

from rlkit.training.logs.append_only_file import AppendOnlyFile
from rlkit.training.logs.event_file import CURE, EventFile, require_tensorboardx
from rlkit.training.logs.records import Record
from rlkit.training.logs.redaction import redact
from rlkit.validation import PlainData

# TensorBoard takes any name with "tfevents", and reads the files of a folder in their order.
PREFIX, SUFFIX = "events.out.tfevents.", ".rlkit"
COMPARED = "eval/avg_return"  # what the HParams tab shows beside the settings


class TensorboardLogger:
    """Writes records to event files in `directory`, with environment steps on the x-axis.

    With several seeds, each is a run of its own in `seed_<n>/`, and the mean is in `directory`.
    Texts are named after their kind; the second one of a kind at the same step is `<kind>_2`.

    A resumed run cuts what followed its checkpoint from the files, and continues in new ones.
    Raises `ConfigError` without tensorboardX, and `RunDirectoryError` if a file cannot be written.
    """

    def __init__(self, directory: str | os.PathLike[str]):
        require_tensorboardx()
        self.directory = Path(directory)
        self._hparams: PlainData = {}
        self._files: dict[str, EventFile] = {}  # that this part of the run writes, by folder
        self._texts: dict[str, list[int]] = {}  # by kind: last step, and how many at that step
        self._last_step = -1
        self._first_step = 0  # after those that an earlier part of the run logged

    def start(self, run_info: PlainData, /) -> None:
        self._hparams = redact(run_info)

    def log(self, record: Record, /) -> None:
        step = int(record.env_steps)
        file = self._file_in("" if record.seed is None else f"seed_{record.seed}")
        if record.metrics:
            file.add_points(record.metrics, step)
        if record.text is not None:
            is_code = record.kind == "error"  # tracebacks, in a tab that shows Markdown
            text = textwrap.indent(record.text, "    ") if is_code else record.text
            file.add_text(self._text_name(record.kind, step), text, step)
        self._last_step = max(self._last_step, step)

    def state(self) -> PlainData:
        self.flush()
        sizes = {self._name(path): path.stat().st_size for path in self._paths()}
        return {"sizes": sizes, "texts": dict(self._texts), "last_step": self._last_step}

    def restore(self, state: PlainData, /) -> None:
        self.close()
        self._files = {}
        sizes = state.get("sizes", {})
        for path in self._paths():
            if self._name(path) in sizes:
                file = AppendOnlyFile(path, cure=CURE)
                file.cut(sizes[self._name(path)])
                file.close()
            else:
                path.unlink()
        self._texts = dict(state.get("texts", {}))
        self._last_step = state.get("last_step", -1)
        self._first_step = self._last_step + 1

    def flush(self) -> None:
        for file in self._files.values():
            file.flush()

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _file_in(self, folder: str) -> EventFile:
        if folder not in self._files:
            where = self.directory / folder
            numbers = [_number(path) for path in self._paths() if path.parent == where]
            number = max(numbers, default=-1) + 1
            path = where / f"{PREFIX}{number:05d}{SUFFIX}"
            self._files[folder] = EventFile(path, first_step=self._first_step)
            if number == 0 and not folder:
                self._files[folder].add_hparams(self._hparams, metric=COMPARED)
        return self._files[folder]

    def _paths(self) -> list[Path]:
        """The files of this and of earlier parts of the run."""
        return sorted(self.directory.rglob(f"{PREFIX}*{SUFFIX}"))

    def _name(self, path: Path) -> str:
        return path.relative_to(self.directory).as_posix()

    def _text_name(self, kind: str, step: int) -> str:
        last, count = self._texts.get(kind, (-1, 0))
        count = count + 1 if step == last else 1
        self._texts[kind] = [step, count]
        return kind if count == 1 else f"{kind}_{count}"


def _number(path: Path) -> int:
    """Which part of the run wrote the file, from 0."""
    return int(path.name.removeprefix(PREFIX).removesuffix(SUFFIX))
