"""Set-up of all tests: two CPU devices, and a compilation cache that outlives the run. All of it
before JAX is imported.
"""

import gc
import os
import stat
import tempfile
from pathlib import Path

import pytest


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


os.environ.setdefault("JAX_PLATFORMS", "cpu")
flags = [os.environ.get("XLA_FLAGS", ""), "--xla_force_host_platform_device_count=2"]
# Compiling dominates: without most of XLA's optimisations the suite takes a third less, and with
# its older way of generating fused loops, in one piece each, another quarter. `make learning` turns
# them on again.
if os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1") == "1":
    flags += ["--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"]
os.environ["XLA_FLAGS"] = " ".join(flags).strip()
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", _private_cache_dir())
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")

# What JAX and its programs leave are millions of objects that stay; to look at them again and again
# takes a tenth of the time.
gc.set_threshold(20_000, 10, 10)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu_items:
        return
    import jax

    if jax.default_backend() != "gpu":
        for item in gpu_items:
            item.add_marker(
                pytest.mark.skip(reason="JAX sees no GPU (JAX_PLATFORMS=cuda to look for one)")
            )


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU tuning is on, whatever the suite runs with: for tests of the tricks themselves."""
    monkeypatch.setenv("RLKIT_CPU_TUNING", "on")


@pytest.fixture
def key():
    """A fresh typed key; split it, do not use it twice."""
    import jax

    return jax.random.key(0)
