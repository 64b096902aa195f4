"""`EventFile`: a file that TensorBoard reads.

tensorboardX, which has no torch, makes its messages and checksums. It does not write the file: its
`SummaryWriter` hands events to a thread, and `flush` does not wait for that thread.
"""

import importlib
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlkit.errors import ConfigError
from rlkit.training.logs.append_only_file import AppendOnlyFile
from rlkit.validation import PlainData

CURE = "start a new run without --tensorboard"


def require_tensorboardx() -> None:
    """Raises `ConfigError` if tensorboardX cannot be imported."""
    try:
        import tensorboardX  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"tensorboard=True needs tensorboardX ({error}); pip install tensorboardX"
        ) from None


class EventFile:
    """Appends the events of a run, or of one seed of it, to a new file at `path`.

    A TensorBoard that has read other files of the run forgets what they had from `first_step` on.
    """

    def __init__(self, path: Path, *, first_step: int):
        self._file = AppendOnlyFile(path, cure=CURE)
        self._append(file_version="brain.Event:2")
        log = _messages("event").SessionLog
        self._append(step=first_step, session_log=log(status=log.START))

    def add_points(self, metrics: Mapping[str, float], step: int) -> None:
        """Adds a point to the curve of each metric."""
        # tensorboardX's `scalar` would warn of each NaN, and change names with blanks.
        summary = _messages("summary").Summary
        points = [
            summary.Value(tag=name, simple_value=float(value)) for name, value in metrics.items()
        ]
        self._append(step=step, summary=summary(value=points))

    def add_text(self, name: str, value: str, step: int) -> None:
        """Adds a text. TensorBoard shows one for each name and step."""
        from tensorboardX.summary import text

        self._append(step=step, summary=text(name, value))

    def add_hparams(self, values: PlainData, *, metric: str) -> None:
        """Adds settings for the HParams tab, which shows them beside the curve `metric`.

        Lists become text; settings that are None are left out.
        """
        from tensorboardX.summary import hparams

        plain = {
            name: str(value) if isinstance(value, list | tuple | dict) else value
            for name, value in values.items()
        }
        experiment, session, _ = hparams(plain, {metric: 0.0})
        self._append(summary=experiment)
        self._append(summary=session)

    def flush(self) -> None:
        """Returns once everything is on the disk."""
        self._file.flush()

    def close(self) -> None:
        """Flushes and closes it."""
        self._file.close()

    def _append(self, **fields: Any) -> None:
        """Appends an event as TensorFlow stores records: length, checksum, data, checksum."""
        from tensorboardX.record_writer import masked_crc32c

        data = _messages("event").Event(wall_time=time.time(), **fields).SerializeToString()
        length = struct.pack("<Q", len(data))
        row = struct.pack("<8sI", length, masked_crc32c(length))
        self._file.append(row + data + struct.pack("<I", masked_crc32c(data)))


def _messages(name: str) -> Any:
    """The messages that event files hold. They are generated, so type checkers do not know them."""
    return importlib.import_module(f"tensorboardX.proto.{name}_pb2")
