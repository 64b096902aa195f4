"""The command `rlkit`, which sends itself a signal at the beginning of a phase.

python tests/faults/signal_at.py SIGTERM saves train ppo gymnax/CartPole-v1 ...
"""

import importlib
import os
import signal
import sys
import threading
from typing import Any

# Where each phase begins: module, attribute, the number of the call, and seconds to wait in it.
PHASES: dict[str, tuple[str, str, int, float]] = {
    "starts": ("rlkit.training.from_config", "build", 1, 0.0),
    "compiles": ("rlkit.training.compile.aot_compile", "Compiled.compile", 2, 0.05),
    "trains": ("rlkit.training.run", "Run.outer_iteration", 3, 0.0),
    "evaluates": ("rlkit.training.programs.evaluation", "Evaluation.__call__", 3, 0.0),
    "saves": ("rlkit.training.files.checkpointer", "Checkpointer.save", 3, 0.0),
    "ends": ("rlkit.training.files.run_files", "RunFiles.write_summary", 1, 0.0),
}


def arm(phase: str, number: int) -> None:
    """Replaces the function that a phase begins with by one that sends the signal, once."""
    module, path, at, seconds = PHASES[phase]
    owner: Any = importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    original, calls = getattr(owner, name), 0

    def function(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at and seconds:
            threading.Timer(seconds, os.kill, [os.getpid(), number]).start()
        elif calls == at:
            os.kill(os.getpid(), number)
        return original(*arguments, **named)

    setattr(owner, name, function)


if __name__ == "__main__":
    from rlkit.cli.main import main

    arm(sys.argv[2], signal.Signals[sys.argv[1]])
    sys.exit(main(sys.argv[3:]))
