"""rlkit's side of a task, for the benchmarks that measure rlkit alone in their own process: what its drivers train with."""

import sys
from typing import Any

from records import HERE
from tasks import Task

sys.path.insert(0, str(HERE / "drivers"))


def parts_of(task: Task) -> tuple[Any, Any, Any]:
    """Environment, agent and algorithm."""
    from rlkit_parts import parts

    return parts(task)
