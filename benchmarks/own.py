"""rlkit's side of a task, for the benchmarks that measure rlkit alone in their own process: what its drivers train with."""

import sys
from typing import Any

from records import HERE
from tasks import OffPolicyTask, Task

sys.path.insert(0, str(HERE / "drivers"))


def parts_of(task: Task) -> tuple[Any, Any, Any]:
    """Environment, agent and algorithm."""
    if isinstance(task, OffPolicyTask):
        import rlkit_off_policy as driver
    else:
        import rlkit_ppo as driver
    return driver.parts(task)
