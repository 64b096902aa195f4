"""Runs a driver that trains seed after seed, and gives what it prints of each with its commit."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from records import HERE, revision


class Driver:
    """A process on one core: a driver of `drivers/`, with the modules of a folder beside it."""

    def __init__(self, name: str, folder: str, arguments: list[str], python: str = sys.executable):
        self._command = [python, str(HERE / "drivers" / f"{name}.py"), *arguments]
        self._paths = os.pathsep.join(map(str, (HERE, HERE / folder, HERE.parent)))
        self.code = 0
        """How the process ended."""

    def rows(self, kind: str) -> Iterator[dict[str, Any]]:
        """Each line `kind {…}` that it prints, as it comes, with commit, date and versions."""
        environment = os.environ | {
            "JAX_PLATFORMS": "cpu",
            "NPROC": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": self._paths,
            "PYTHONWARNINGS": "ignore",
        }
        told: dict[str, Any] = {
            "revision": revision(),
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
        }
        with subprocess.Popen(
            self._command, env=environment, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                word, _, value = line.partition(" ")
                if word == "VERSIONS":
                    told["versions"] = json.loads(value)
                elif word == kind:
                    yield json.loads(value) | told
        self.code = process.returncode
