"""One process that runs scripts one after the other, each as `python script` would, so that JAX is
imported once for all of them.
"""

import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

# Short runs: compiling takes longer than training.
ENVIRONMENT = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}


class ScriptProcess:
    """`with ScriptProcess() as scripts: scripts.run(...)`; started by the first run, and again
    after one that ended it.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def run(self, script: Path, *arguments: str, directory: Path) -> subprocess.CompletedProcess:
        """The exit status, output and errors of a script; warnings of users' code are errors."""
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            job = [str(script), list(arguments), str(directory), str(out), str(err)]
            code = self._ask(json.dumps(job))
            texts = (x.read_text() if x.exists() else "" for x in (out, err))
            return subprocess.CompletedProcess(job[:2], code, *texts)

    def _ask(self, job: str) -> int:
        if self._process is None:
            command = [sys.executable, "-W", "error::UserWarning", __file__]
            self._process = subprocess.Popen(
                command, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(job + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        return int(answer) if answer else self._end()

    def _end(self) -> int:
        process, self._process = self._process, None
        assert process is not None
        process.communicate()
        return process.returncode

    def __enter__(self) -> "ScriptProcess":
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._process is not None:
            self._process.kill()
            self._end()


def _exit_code(script: str, arguments: list[str]) -> int:
    sys.argv, sys.path[0] = [script, *arguments], str(Path(script).parent)
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _serve() -> None:
    """Reads jobs from standard input, and answers each with its exit status on what was standard
    output. Programs that a script starts write to the files too.
    """
    answers: Any = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        script, arguments, directory, out, err = json.loads(line)
        os.chdir(directory)
        for number, path in ((1, out), (2, err)):
            with open(path, "wb") as file:
                os.dup2(file.fileno(), number)
        code = _exit_code(script, arguments)
        sys.stdout.flush()
        sys.stderr.flush()
        print(code, file=answers, flush=True)


if __name__ == "__main__":
    _serve()
