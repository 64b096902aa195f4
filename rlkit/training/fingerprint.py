"""What the numbers of a run depend on besides its settings: versions, hardware, threads."""

import functools
import importlib.metadata
import os
import platform

import jax

from rlkit import __version__
from rlkit.training.compile.parallel_seeds import cores
from rlkit.validation import PlainData

PACKAGES = (
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "distrax",
    "gymnax",
    "gymnasium",
    "orbax-checkpoint",
    "numpy",
)


def versions() -> dict[str, str]:
    """Versions of Python, rlkit and the packages that affect the numbers."""
    ours = {"python": platform.python_version(), "rlkit": __version__}
    return ours | {name: _version(name) for name in PACKAGES}


def fingerprint() -> PlainData:
    """What must agree for a resumed run to be bit-identical."""
    device = jax.devices()[0]
    return {
        "backend": device.platform,
        "device_kind": device.device_kind,
        "device_count": jax.device_count(),
        "nproc": os.environ.get("NPROC"),
        "cores": cores(),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "jax": _version("jax"),
        "jaxlib": _version("jaxlib"),
    }


def fingerprint_differences(before: PlainData) -> list[str]:
    """What differs here from another fingerprint, as "name: x there, y here"."""
    now = fingerprint()
    return [
        f"{name}: {before[name]!r} there, {now[name]!r} here"
        for name in now
        if name in before and before[name] != now[name]
    ]


@functools.cache  # what is imported does not change
def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
