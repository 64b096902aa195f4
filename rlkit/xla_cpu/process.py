"""Settings of the whole process. Importing this changes none and imports no JAX."""

import dataclasses
import gc
import logging
from typing import Literal

from rlkit.tuning_switch import has_backend
from rlkit.xla_cpu.switch import is_wanted

# With Python's own, (700, 10, 10), the collector would scan five times the half million objects
# that are created at the start and stay.
GC_THRESHOLDS = (20_000, 10, 10)

State = Literal["on", "off", "too late", "not in this JAX"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """The state of the process. "too late": JAX made its CPU backend with the other setting."""

    threefry: State  # "on": programs that are lowered from now on use rlkit's hash
    inline_dispatch: State  # "on": programs run in the thread that calls them


def enable() -> Report:
    """Tunes the whole process for training on a CPU, as far as `RLKIT_CPU_TUNING` allows.

    For programs that you compile yourself, such as a jitted `fit`, and for acting on host
    environments without a Trainer. Call it first, before JAX computes anything: the report says
    what came too late. Another call has no effect. No result of `jax.random` changes.

    A Trainer does not need it: it tunes its own programs, and calls `compute_inline` on host
    environments.
    """
    return Report(threefry=_draw_by_our_hash(), inline_dispatch=compute_inline())


def disable() -> Report:
    """Undoes `enable` as far as JAX allows; compiled programs stay as they are.

    How programs are dispatched cannot change once JAX has made its CPU backend.
    """
    return Report(threefry=_draw_by_hash_of_jax(), inline_dispatch=_compute_in_other_threads())


def compute_inline() -> State:
    """Lets JAX compute on the CPU in the calling thread.

    By default, JAX hands all but the smallest programs to another thread. If a small network acts
    in each step, waking that thread takes several times as long as the network
    (benchmarks/notes.md). The Trainer's own overlap uses a thread of its own.
    """
    import jax

    if not jax.config.read("jax_cpu_enable_async_dispatch"):
        return "on"
    if not is_wanted("inline-dispatch"):
        return "off"
    if has_backend():
        return "too late"
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    return "on"


def start_run(*, on_host: bool) -> None:
    """Process settings of a new Trainer: `compute_inline` on host environments.

    If that comes too late, acting is slower, and a log record of level INFO says so.
    """
    if on_host and compute_inline() == "too late":
        logging.getLogger("rlkit").info(
            "JAX has computed before the Trainer was made, so acting on the host is slower; call"
            " rlkit.xla_cpu.enable() at the start of the script"
        )


def raise_gc_thresholds() -> None:
    """Makes Python's garbage collector run less often, for a process that is rlkit's own."""
    if is_wanted("garbage-collector"):
        gc.set_threshold(*GC_THRESHOLDS)


def _draw_by_our_hash() -> State:
    from rlkit.xla_cpu import threefry

    if not is_wanted("threefry"):
        return "off"
    return "on" if threefry.register() else "not in this JAX"


def _draw_by_hash_of_jax() -> State:
    from rlkit.xla_cpu import threefry

    return "off" if threefry.unregister() else "not in this JAX"


def _compute_in_other_threads() -> State:
    import jax

    if jax.config.read("jax_cpu_enable_async_dispatch"):
        return "off"
    if has_backend():
        return "too late"
    jax.config.update("jax_cpu_enable_async_dispatch", True)
    return "off"
