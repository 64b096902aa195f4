"""Set-up of all tests: two CPU devices, and a compilation cache that outlives the run. All of it
before JAX is imported.
"""

import collections
import gc
import multiprocessing
import os
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from quick_compiling import quick_flags
from shell_signals import hear_signals


def _private_cache_dir() -> str:
    """A directory of this user's own (mode 0700), the same in every run; a new one if somebody else
    holds that name.
    """
    path = Path(tempfile.gettempdir()) / f"rlkit-tests-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    info = path.lstat()
    ours = (
        stat.S_ISDIR(info.st_mode)
        and info.st_uid == os.getuid()
        and stat.S_IMODE(info.st_mode) == 0o700
    )
    return str(path) if ours else tempfile.mkdtemp(prefix="rlkit-tests-")


def _xla_flags() -> str:
    """The given flags, and those that compile quickly unless the run is to compile as users do.
    Workers inherit them.
    """
    given = os.environ.get("XLA_FLAGS", "").split()
    wanted = ["--xla_force_host_platform_device_count=2"]
    quick = os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1") == "1"
    if quick and "PYTEST_XDIST_WORKER" not in os.environ:
        wanted += quick_flags()
    return " ".join(dict.fromkeys(given + wanted))


os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = _xla_flags()
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", _private_cache_dir())
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.05")

hear_signals()  # some tests send them

# What JAX and its programs leave are millions of objects that stay; to look at them again and again
# takes a tenth of the time.
gc.set_threshold(20_000, 10, 10)


def _seconds(item: pytest.Item) -> float:
    """Roughly what a test of this tier takes."""
    if item.get_closest_marker("fast"):
        return 0.02
    return 5.0 if item.get_closest_marker("process") else 1.0


@pytest.hookimpl(trylast=True)  # what -m and -k leave out does not count
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, so that no process is left with one when the others are done."""
    seconds: collections.Counter[Path] = collections.Counter()
    for item in items:
        seconds[item.path] += _seconds(item)
    items.sort(key=lambda item: -seconds[item.path])  # stable: a file's tests stay together


class ToldAtOnce:
    """Tells failures as they happen: what CI cuts off at its limit never comes to the summary."""

    def __init__(self, terminal: pytest.TerminalReporter):
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._terminal.write_line(f"\nFAILED {report.nodeid}\n{report.longreprtext[-3000:]}")


@pytest.hookimpl(tryfirst=True)  # before fixtures are set up
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what is left at `TESTS_END`, in seconds since 1970: CI has a limit, slow machines too
    many tests for it.
    """
    if time.time() > float(os.environ.get("TESTS_END", "inf")):
        pytest.skip("no time is left; `make test-matrix` runs them all")


def pytest_sessionstart(session: pytest.Session) -> None:
    plugins = session.config.pluginmanager
    terminal = plugins.get_plugin("terminalreporter")  # not in the workers
    if os.environ.get("CI") and terminal is not None:
        plugins.register(ToldAtOnce(terminal))


MOST_MAPPINGS = 25_000  # Linux allows a process 65,530, and XLA crashes or hangs without one more


@pytest.fixture(scope="module", autouse=True)
def programs_are_dropped() -> Iterator[None]:
    """Between two files, where the process holds many: each compiled program is three mappings."""
    yield
    mappings = Path("/proc/self/maps")  # only on Linux
    if "jax" not in sys.modules or not mappings.exists():
        return
    with mappings.open() as lines:
        if sum(1 for _ in lines) < MOST_MAPPINGS:
            return
    import jax

    jax.clear_caches()
    gc.collect()


@pytest.fixture(scope="module", autouse=True)
def no_worker_is_left() -> Iterator[None]:
    """A file closes its environments: others count their own worker processes."""
    yield
    left = multiprocessing.active_children()
    for process in left:
        process.kill()  # or the next file would be blamed
        process.join()
    assert left == []


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU tuning is on, whatever the suite runs with: for tests of the tricks themselves."""
    monkeypatch.setenv("RLKIT_CPU_TUNING", "on")


@pytest.fixture
def key():
    """A fresh typed key; split it, do not use it twice."""
    import jax

    return jax.random.key(0)
