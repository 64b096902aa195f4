"""JAX's persistent compilation cache, in a private directory because it holds native code."""

import logging
import os

from rlkit.training.directories import private_directory

_warn = logging.getLogger("rlkit").warning


def enable_compilation_cache(directory: str | None = None) -> str | None:
    """Keeps compiled programs for later processes; returns the directory, or None for no cache.

    If `directory` is None, uses the one JAX is already configured with
    (`JAX_COMPILATION_CACHE_DIR`), else `$XDG_CACHE_HOME/rlkit/jax` or `~/.cache/rlkit/jax`;
    `RLKIT_COMPILATION_CACHE=off` disables this default. A directory that another user owns or can
    write to is refused with a warning, and training continues without a cache.
    """
    import jax

    if directory is None:
        chosen = jax.config.values["jax_compilation_cache_dir"]
        if chosen or os.environ.get("RLKIT_COMPILATION_CACHE", "").lower() in (
            "off",
            "0",
            "false",
            "no",
        ):
            return chosen or None
        directory = _default_directory()
    problem = private_directory(directory)
    if problem is not None:
        _warn(
            "no compilation cache: %s; set JAX_COMPILATION_CACHE_DIR, or"
            " RLKIT_COMPILATION_CACHE=off",
            problem,
        )
        return None
    jax.config.update("jax_compilation_cache_dir", directory)
    return directory


def _default_directory() -> str:
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the XDG specification treats a relative path as unset
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "rlkit", "jax")
