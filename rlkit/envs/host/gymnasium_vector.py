"""Gymnasium's two vector environments as rlkit runs them: faults are found, named and cleared away,
and no wait is endless.
"""

import contextlib
import faulthandler
import multiprocessing
import multiprocessing.connection
import os
import queue
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from rlkit.envs.host.gymnasium_worker import EnvRaised, GuardFactory, Pulse
from rlkit.errors import ConfigError, EnvFailedError

EXIT_HANGS = 70  # of this process, when an environment in it hangs
EXIT_NO_GUARD = 71  # of a worker whose start runs the user's training script again
JOIN_SECONDS = 2.0
START_SECONDS = (
    60.0  # for processes to start, at least, because they import the user's script, and JAX with it
)
ADD_GUARD = (
    "put what your script does under `if __name__ == '__main__':` (worker processes import the"
    " script, and must not start the training again), or use vectorization='sync'"
)

Stepped = tuple[
    Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]
]  # observations are buffers that the next step overwrites


class InProcess:
    """A `SyncVectorEnv`: environments in this process, one after the other, under a watchdog."""

    def __init__(self, factories: Sequence[GuardFactory], pulse: Pulse, step_timeout: float | None):
        self._vector = SyncVectorEnv(factories, copy=False, autoreset_mode=AutoresetMode.SAME_STEP)
        self._pulse = pulse
        self._watchdog = Watchdog(pulse, step_timeout)
        self._action: Any = None

    def reset(self, seeds: list[Any]) -> Any:
        """First observations of new episodes."""
        with self._called("reset"):
            return self._vector.reset(seed=seeds)[0]

    def step_async(self, action: np.ndarray) -> None:
        """Remembers the action."""
        self._action = action

    def step_wait(self) -> Stepped:
        """Steps."""
        pulse = self._pulse
        pulse.phase = "step"
        try:
            return self._vector.step(self._action)
        except EnvRaised as error:
            raise raised(error) from error.__cause__
        except Exception as error:
            raise unfit(error) from error
        finally:
            pulse.phase = ""

    def render(self) -> Sequence[Any]:
        """A picture of each environment."""
        with self._called("render"):
            return self._vector.render() or ()

    def stop(self, *, graceful: bool) -> None:
        """Closes the environments; errors in that are warnings, and of no interest after a failure
        (not `graceful`).
        """
        with self._called("close"), warnings.catch_warnings():
            if not graceful:
                warnings.simplefilter("ignore")
            for index, env in enumerate(self._vector.envs):
                close(env, index)
        self._vector.closed = True
        self._watchdog.stop()

    @contextlib.contextmanager
    def _called(self, phase: str) -> Iterator[None]:
        self._pulse.phase = phase
        try:
            yield
        except EnvRaised as error:
            raise raised(error) from error.__cause__
        finally:
            self._pulse.phase = ""


class Workers:
    """An `AsyncVectorEnv`: one process for each environment.

    Gymnasium waits for ever for a worker that died, in `step` as in `close`. Here every wait looks
    at all pipes at once, so a death is seen whoever else is still at work, and stopping relies on
    no answer.
    """

    def __init__(self, factories: Sequence[GuardFactory], context: str, step_timeout: float | None):
        self._timeout = step_timeout
        self._poll = select.poll()
        self._vector = _start(factories, context, step_timeout)
        self._index = {pipe.fileno(): index for index, pipe in enumerate(self._vector.parent_pipes)}

    def reset(self, seeds: list[Any]) -> Any:
        """First observations of new episodes."""
        with self._talk("reset"):
            self._vector.reset_async(seed=seeds)
        self._await("reset")
        with self._talk("reset"):
            return self._vector.reset_wait()[0]

    def step_async(self, action: np.ndarray) -> None:
        """Sends every worker its action."""
        with self._talk("step"):
            self._vector.step_async(action)

    def step_wait(self) -> Stepped:
        """Waits for all workers."""
        self._await("step")
        with self._talk("step"):
            return self._vector.step_wait()

    def render(self) -> Sequence[Any]:
        """A picture of each environment."""
        with self._talk("render"):
            self._vector.call_async("render")
        self._await("render")
        with self._talk("render"):
            return self._vector.call_wait()

    def stop(self, *, graceful: bool) -> None:
        """Ends all workers."""
        _stop(self._vector, graceful=graceful)

    def _await(self, phase: str) -> None:
        """Returns once every worker has answered; raises `EnvFailedError` when one is gone or the
        time is up.
        """
        poll, waiting, seconds = self._poll, dict(self._index), 0.0
        for fd in waiting:
            poll.register(fd, select.POLLIN)
        while waiting:
            before = time.monotonic()
            for fd, event in poll.poll(
                1000.0 if self._timeout is None else 1000.0 * min(1.0, self._timeout - seconds)
            ):
                if event & (select.POLLHUP | select.POLLERR):
                    raise self._gone(waiting[fd], phase)
                poll.unregister(fd)
                del waiting[fd]
            seconds += min(
                time.monotonic() - before, 2.0
            )  # no more, or a process that was suspended would find its time up
            if waiting and self._timeout is not None and seconds >= self._timeout:
                raise self._late(sorted(waiting.values()), phase)

    @contextlib.contextmanager
    def _talk(self, phase: str) -> Iterator[None]:
        """Turns what Gymnasium raises into our errors, and keeps it from printing the tracebacks of
        workers itself.
        """
        level, gymnasium.logger.min_level = gymnasium.logger.min_level, gymnasium.logger.ERROR + 1
        try:
            yield
        except EnvRaised as error:
            raise raised(error) from None
        except (EOFError, OSError):
            codes = _exit_codes(self._vector.processes)
            raise self._gone(_first(codes), phase) from None
        except Exception as error:
            raise unfit(error) from error
        finally:
            gymnasium.logger.min_level = level

    def _gone(self, index: int, phase: str) -> EnvFailedError:
        """Why the worker of environment `index` hung up: its environment raised, or the process
        died.
        """
        process = self._vector.processes[index]
        process.join(1.0)
        try:
            _, _, error, text = self._vector.error_queue.get(timeout=0.2)
        except (queue.Empty, EOFError, OSError):
            code = process.exitcode
            return EnvFailedError(
                f"environment {index}: its worker process {_death(code)} during {phase};"
                f" {_death_cure(code)}"
            )
        return raised(error) if isinstance(error, EnvRaised) else unfit(error, text)

    def _late(self, indices: list[int], phase: str) -> EnvFailedError:
        for index in indices[
            :1
        ]:  # one is enough to see where they hang; it prints its stacks to stderr
            with contextlib.suppress(OSError, AttributeError):
                os.kill(self._vector.processes[index].pid or 0, signal.SIGUSR1)
                time.sleep(0.2)
        plural = "s" if len(indices) > 1 else ""
        return EnvFailedError(
            f"environment{plural} {', '.join(map(str, indices))} did not answer within"
            f" {self._timeout:g} s ({phase}); look at the stack printed above for where it hangs,"
            " or pass a longer step_timeout (None: no limit)"
        )


class Watchdog:
    """A thread that ends this process when an environment in it does not return, because nothing
    can interrupt one that hangs.

    It sleeps, and looks whether `pulse` moved: the hot path pays for no clock. It cannot act while
    the environment holds Python's global lock, and does not while a debugger is at work.
    """

    def __init__(self, pulse: Pulse, timeout: float | None):
        self._stopped = threading.Event()
        arguments = (pulse, timeout, self._stopped)
        self._thread = threading.Thread(
            target=self._watch, args=arguments, name="rlkit-watchdog", daemon=True
        )
        if timeout is not None:
            self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(1.0)

    @staticmethod
    def _watch(pulse: Pulse, timeout: float, stopped: threading.Event) -> None:
        tick = min(1.0, timeout / 4)
        seen, still, before = (-1, ""), 0.0, time.monotonic()
        while not stopped.wait(tick):
            now = (pulse.beats, pulse.phase)
            # A tick that took far longer than asked for means that the whole process was suspended.
            still = (
                still + min(time.monotonic() - before, 2 * tick)
                if now == seen and pulse.phase
                else 0.0
            )
            seen, before = now, time.monotonic()
            if still >= timeout and not _debugged():
                _end(
                    f"environment {pulse.index} has not returned from {pulse.phase} for"
                    f" {still:.3g} s"
                )


def close(env: Any, index: int) -> None:
    """Closes an environment; what it raises is a warning, since nothing is lost."""
    try:
        env.close()
    except Exception as error:
        warnings.warn(
            f"environment {index} raised {type(error).__name__}: {error} in close", stacklevel=2
        )


def raised(error: EnvRaised) -> EnvFailedError:
    """The error for a user about an environment that raised."""
    failure = error.failure
    return EnvFailedError(
        f"{failure}; correct the environment (check_env looks for common"
        f" mistakes)\n\n{failure.traceback}"
    )


def unfit(error: Exception, text: str = "") -> EnvFailedError:
    """The error for a user about what an environment returned and Gymnasium could not put into a
    batch.
    """
    return EnvFailedError(
        f"an environment returned what does not fit its spaces: {error}; find it with"
        f" check_env\n{text}".rstrip()
    )


def _end(what: str) -> None:
    faulthandler.dump_traceback(file=2, all_threads=True)
    line = (
        f"rlkit: {what}, so this process ends; its stacks are above (step_timeout sets the limit,"
        " step_timeout=None: none)\n"
    )
    os.write(2, line.encode())
    os._exit(EXIT_HANGS)


def _debugged() -> bool:
    """Whether a debugger follows any thread: it sets a trace function on the frames that it looks
    at.
    """
    monitoring = getattr(sys, "monitoring", None)  # Python >= 3.12
    if monitoring is not None and monitoring.get_tool(monitoring.DEBUGGER_ID) is not None:
        return True
    for frame in sys._current_frames().values():
        while frame is not None:
            if frame.f_trace is not None:
                return True
            frame = frame.f_back
    return False


def _start(
    factories: Sequence[GuardFactory], context: str, timeout: float | None
) -> AsyncVectorEnv:
    """Workers that run and wait for a command; the environments in them are built at the first
    reset.
    """
    _refuse_without_guard()
    if (
        context == "forkserver"
    ):  # the server that workers are forked from imports this once for all; no effect if it runs
        multiprocessing.get_context(context).set_forkserver_preload([GuardFactory.__module__])
    vector = AsyncVectorEnv.__new__(
        AsyncVectorEnv
    )  # first without __init__, whose failure would leave no way to the workers
    late = threading.Event()
    seconds = max(timeout or 0.0, START_SECONDS)
    timer = threading.Timer(seconds, _give_up, args=(vector, late))
    timer.daemon = True
    if timeout is not None:
        timer.start()
    try:
        vector.__init__(
            factories, copy=False, context=context, autoreset_mode=AutoresetMode.SAME_STEP
        )
    except BaseException as error:
        codes = _exit_codes(getattr(vector, "processes", ()))
        _stop(vector, graceful=False)
        if late.is_set():
            raise EnvFailedError(
                f"worker processes did not start within {seconds:g} s; pass a longer step_timeout"
            ) from error
        if EXIT_NO_GUARD in codes:
            raise ConfigError(
                f"this script starts worker processes each time it is imported; {ADD_GUARD}"
            ) from None
        if isinstance(error, (EOFError, OSError)):
            dead = _first(codes)
            what = _death(codes[dead]) if codes else "did not start"
            raise EnvFailedError(
                f"environment {dead}: its worker process {what} before it was ready; its own error"
                " is on stderr above. If it cannot import the environment's module, install that;"
                f" if it ran your script again, {ADD_GUARD}"
            ) from error
        raise
    finally:
        timer.cancel()
    return vector


def _refuse_without_guard() -> None:
    """Stops a worker that, while it starts, imports the user's script and so comes here again."""
    process = multiprocessing.current_process()
    if getattr(process, "_inheriting", False):
        if process.name.startswith("Worker<"):
            os._exit(
                EXIT_NO_GUARD
            )  # one of many; the parent, which has the user's attention, tells the reason once
        raise ConfigError(
            f"this script starts worker processes each time it is imported; {ADD_GUARD}"
        )


def _give_up(vector: AsyncVectorEnv, late: threading.Event) -> None:
    late.set()
    for process in getattr(vector, "processes", ()):
        process.kill()


def _stop(vector: AsyncVectorEnv, *, graceful: bool) -> None:
    """Ends all workers, whatever state they are in: asks them to (`graceful`), terminates, and
    kills those that stay.
    """
    # Gymnasium's own close, also called when it is garbage collected, would wait for answers
    vector.closed = True
    processes, pipes = getattr(vector, "processes", []), getattr(vector, "parent_pipes", [])
    processes = [process for process in processes if process.pid is not None]
    if graceful:
        for pipe in pipes:
            with contextlib.suppress(OSError, AttributeError):
                pipe.send(("close", None))
        _join(processes)
    for end in ("terminate", "kill"):
        for process in processes:
            if process.is_alive():
                getattr(process, end)()
        _join(processes)
    for pipe in pipes:
        if pipe is not None:
            pipe.close()
    if hasattr(vector, "error_queue"):
        vector.error_queue.close()
        vector.error_queue.cancel_join_thread()
    vector.processes, vector.parent_pipes = [], []


def _join(processes: Sequence[Any]) -> None:
    """Waits until all are gone, `JOIN_SECONDS` at most."""
    deadline = time.monotonic() + JOIN_SECONDS
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))


def _exit_codes(processes: Sequence[Any]) -> list[int | None]:
    """The exit code of each process, `None` of one that runs; waits a second for one to be gone."""
    processes = [process for process in processes if process.pid is not None]
    going = multiprocessing.connection.wait(
        [process.sentinel for process in processes], timeout=1.0
    )
    for process in processes:
        if process.sentinel in going:  # closed a moment before the code can be had
            process.join(1.0)
    return [process.exitcode for process in processes]


def _first(codes: Sequence[int | None]) -> int:
    """The index of the first process that is gone, or of the first one."""
    return next((index for index, code in enumerate(codes) if code is not None), 0)


def _death(code: int | None) -> str:
    if code is None:
        return "hung up"
    if code < 0:
        return f"was killed by {signal.Signals(-code).name} (exit code {code})"
    return f"ended with exit code {code}"


def _death_cure(code: int | None) -> str:
    if code == -signal.SIGKILL:
        return "the machine may be out of memory: use fewer environments"
    return (
        "look for a crash on stderr; vectorization='sync' runs the environments where a debugger"
        " can see them"
    )
