"""What rlkit's presets reach, beside published returns: several seeds of each.

    python benchmarks/learning                               # what is missing; about two days
    python benchmarks/learning CartPole dqn/                 # presets with this in their names
    python benchmarks/learning ppo/gymnax/CartPole-v1 --again    # after a change of rlkit
    python benchmarks/learning --report                      # table and picture only

Two presets train at a time (`--jobs`), on a core each. Every seed is recorded when it is done, with
its commit, in results/learning/, so the command may be stopped at any time and goes on where it
stopped: a seed that is training is resumed from its last checkpoint, in runs/learning/. A preset's
rows count until its file changes. The exit code is 1 if a preset of those named
misses its bar.
"""

import argparse
import concurrent.futures
import importlib.util
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[n]) for n in (1, 2)]

import preset_records  # noqa: E402
import preset_report  # noqa: E402
from goals import GOALS  # noqa: E402

from records import HERE  # noqa: E402
from rlkit.envs.suites.table import ADAPTED  # noqa: E402
from seed_drivers import Driver  # noqa: E402


def main() -> int:
    """Trains what is missing, and writes table and picture."""
    arguments = _arguments()
    names = [name for name in GOALS if any(part in name for part in arguments.presets or [""])]
    failed = []
    if not arguments.report:
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            found = pool.map(lambda name: _train(name, arguments.again), names)
            failed = [failure for failure in found if failure]
    preset_report.write()
    failed += [missed for name in names if (missed := preset_report.below(name))]
    for failure in failed:
        print(failure, file=sys.stderr)
    return bool(failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What the presets reach, several seeds of each.")
    parser.add_argument(
        "presets",
        nargs="*",
        metavar="PART",
        help="parts of presets' names, such as dqn/ or CartPole",
    )
    parser.add_argument("--again", action="store_true", help="train again what is recorded")
    parser.add_argument("--jobs", type=int, default=2, help="presets at a time, a core each")
    parser.add_argument("--report", action="store_true", help="train nothing")
    arguments = parser.parse_args()
    for part in arguments.presets:
        if not any(part in name for name in GOALS):
            parser.error(f"no preset has {part!r} in its name; `rlkit list presets` shows them all")
    return arguments


def _train(name: str, again: bool) -> str:
    """Trains a preset on its missing seeds, on one core. Returns what went wrong, or ""."""
    seeds = list(range(GOALS[name].seeds)) if again else preset_records.missing(name)
    if not seeds:
        return ""
    python = _python(name)
    if not Path(python).exists():
        cure = "`make .venv-suites/.installed` installs all of them"
        return f"{name} needs a suite that is not installed; {cure}"
    driver = Driver("preset_rlkit", "learning", [name, *map(str, seeds)], python)
    for row in driver.rows("ROW"):
        print(preset_report.told(name, row), flush=True)
        preset_records.add(name, row)
    return f"{name} ended with code {driver.code}" if driver.code else ""


def _python(name: str) -> str:
    """The interpreter that has the preset's suite: this one, or that of `make suites`."""
    suite = ADAPTED.get(name.split("/")[1])
    if suite is None or importlib.util.find_spec(suite.package) is not None:
        return sys.executable
    return str(HERE.parent / ".venv-suites" / "bin" / "python")


if __name__ == "__main__":
    sys.exit(main())
