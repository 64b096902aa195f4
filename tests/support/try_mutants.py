"""Applies each of `MUTANTS` to a copy of the repository and runs its tests there: `make mutants`,
`make mutants ARGS="--only GAE"`.

Exits with 1 if the tests did not notice a mutant, or if one could not be tried. A mutant that calls
what does not exist counts as not tried, since any test would notice it.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "runs", "results", "__pycache__", ".pytest_cache", ".ruff_cache"
)
PASSED, FAILED = 0, 1  # of pytest
LONGEST = 600  # seconds for the tests of one mutant, or of one file without a mutant
RAISED = re.compile(r"^\S+:\d+: (\w+)$", re.MULTILINE)  # where pytest's report of an error ends
# Errors of a mutant that is no valid code.
BROKEN = {
    "AttributeError",
    "ImportError",
    "ModuleNotFoundError",
    "NameError",
    "SyntaxError",
    "TypeError",
    "UnboundLocalError",
}


def run_tests(copy: Path, tests: tuple[str, ...]) -> tuple[int, str]:
    """The exit status of pytest in the copy, and what it said.

    Of a file, the tests of the default suite run; if all are named, they run whatever their tier.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
    if all("::" in test for test in tests):
        command += ["-m", "full or not full"]
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [*command, *tests],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def verdict(copy: Path, mutant: Mutant) -> str:
    """ "caught", or what is wrong."""
    file = copy / mutant.file
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    if text.count(mutant.old) != 1:
        return f"ANCHOR NOT FOUND: {mutant.file} has it {text.count(mutant.old)} times, not once"
    file.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        status, said = run_tests(copy, mutant.tests)
    except subprocess.TimeoutExpired:
        return "caught (the tests hang)"
    finally:
        file.write_text(text, encoding="utf-8")
    return judge(mutant, status, said)


def judge(mutant: Mutant, status: int, said: str) -> str:
    """The verdict on a mutant whose tests ended like this."""
    if status == PASSED:
        return f"SURVIVED: {' '.join(mutant.tests)} passed"
    if status != FAILED:
        return f"NOT TRIED: pytest ended with {status}:\n{_end(said)}"
    raised = RAISED.findall(said)
    if not raised or BROKEN.intersection(raised):
        return f"NOT TRIED: the tests failed with {' after '.join(raised)}:\n{_end(said)}"
    return f"caught ({raised[-1]})"


def check_unchanged(copy: Path, mutants: list[Mutant]) -> None:
    """Exits unless the tests of all mutants pass without one, each file in its own time."""
    files: dict[str, list[str]] = {}
    for test in dict.fromkeys(test for mutant in mutants for test in mutant.tests):
        files.setdefault(test.partition("::")[0], []).append(test)
    for file, tests in files.items():
        try:
            status, said = run_tests(copy, tuple(tests))
        except subprocess.TimeoutExpired:
            sys.exit(f"without a mutant {file} takes more than {LONGEST} s")
        if status != PASSED:
            sys.exit(f"without a mutant {file} does not pass:\n{_end(said)}")


def _end(said: str) -> str:
    return said[-2000:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="mutants with this in their name or file")
    parser.add_argument("--skip-baseline", action="store_true", help="the tests pass, I know")
    arguments = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if arguments.only in f"{mutant.name} {mutant.file}"]
    if not chosen:
        sys.exit(f"no mutant has {arguments.only!r} in its name or file")
    with tempfile.TemporaryDirectory(prefix="rlkit-mutants-") as folder:
        copy = Path(folder) / "rlkit"
        shutil.copytree(ROOT, copy, symlinks=True, ignore=LEFT_OUT)
        if not arguments.skip_baseline:
            check_unchanged(copy, chosen)
        verdicts = []
        for mutant in chosen:
            start = time.monotonic()
            verdicts.append(verdict(copy, mutant))
            seconds = time.monotonic() - start
            print(f"{mutant.name}: {verdicts[-1]} ({seconds:.0f} s)", flush=True)
    caught = sum(one.startswith("caught") for one in verdicts)
    print(f"{caught} of {len(chosen)} mutants caught")
    return int(caught < len(chosen))


if __name__ == "__main__":
    sys.exit(main())
