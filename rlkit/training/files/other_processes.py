"""What stands for logs and checkpoints in the processes that write none."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from rlkit.training.config import CheckpointerConfig
from rlkit.types import PyTree


class UnwrittenCheckpoints:
    """The checkpoints of process 0, as the others know them: their settings."""

    def __init__(self, config: CheckpointerConfig):
        self.keep_best, self.save_replay = config.keep_best, config.save_replay

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def save(self, step: int, items: Mapping[str, PyTree], **record: Any) -> None:
        """Process 0 saves."""

    def wait(self) -> None:
        """Nothing is being written."""

    def all_steps(self) -> Sequence[int]:
        """None: process 0 knows them."""
        return []

    def set_aside(self, step: int) -> None:
        """Process 0 does."""

    def close(self) -> None:
        """Nothing is open."""
