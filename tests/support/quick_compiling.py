"""Compiling quickly: most tests, and the processes that they start."""

import functools
import os
import subprocess
import sys

# Compiling dominates: without most of XLA's optimisations the suite takes a third less, and with
# its older way of generating fused loops, in one piece each, another quarter. jaxlib 0.11 dropped
# the first of these flags.
_FLAGS = ("--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1")


@functools.cache
def quick_flags() -> tuple[str, ...]:
    """Those of `_FLAGS` that the installed jaxlib knows. It ends the process at a flag that it does
    not know, so a process of its own is asked (0.4 s).
    """
    program = "from jaxlib import xla_client; xla_client.CompileOptions()"
    environment = os.environ | {"XLA_FLAGS": " ".join(_FLAGS)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    return tuple(flag for flag in _FLAGS if done.returncode == 0 or flag not in done.stderr)


def quick_environment() -> dict[str, str]:
    """The variables of a process of its own that compiles quickly."""
    return {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "XLA_FLAGS": " ".join(quick_flags())}
