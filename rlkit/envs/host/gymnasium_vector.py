"""Gymnasium's vector environments with failure handling: faults are named, no wait is endless."""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import queue
import select
import signal
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from multiprocessing.process import BaseProcess
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from rlkit.envs.host.gymnasium_worker import EnvRaised, GuardFactory
from rlkit.envs.host.watchdog import EnvHangs, Pulse, Watchdog, hangs
from rlkit.errors import ConfigError, EnvFailedError

EXIT_NO_GUARD = 71  # exit code of a worker whose start runs the user's training script again
JOIN_SECONDS = 2.0
START_SECONDS = (
    60.0  # minimum for processes to start, since they import the user's script and JAX with it
)
ADD_MAIN_GUARD = (
    "put your script's code under `if __name__ == '__main__':` (worker processes import the script"
    " and must not start the training again), or use vectorization='sync'"
)

# Observations are buffers that the next step overwrites.
StepResult = tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]


class InProcessEnvs:
    """A `SyncVectorEnv`: environments in this process, stepped one by one, with a watchdog."""

    def __init__(self, factories: Sequence[GuardFactory], pulse: Pulse, step_timeout: float | None):
        self._vector = SyncVectorEnv(factories, copy=False, autoreset_mode=AutoresetMode.SAME_STEP)
        self._pulse = pulse
        self._timeout = step_timeout
        self._watchdog = Watchdog(pulse, step_timeout)
        self._action: Any = None

    def reset(self, seeds: list[int | None]) -> Any:
        """Resets all environments and returns their first observations."""
        with self._watched("reset"):
            return self._vector.reset(seed=seeds)[0]

    def step_async(self, action: Any) -> None:
        """Stores the action for `step_wait`."""
        self._action = action

    def step_wait(self) -> StepResult:
        """Steps all environments."""
        pulse = self._pulse
        pulse.thread, pulse.phase = threading.get_ident(), "step"
        try:
            return self._vector.step(self._action)
        except EnvHangs:
            raise hangs([pulse.index], "step", self._timeout) from None
        except EnvRaised as error:
            raise env_error(error) from error.__cause__
        except Exception as error:
            raise batch_error(error) from error
        finally:
            pulse.phase = ""

    def render(self) -> Sequence[Any]:
        """An image of each environment."""
        with self._watched("render"):
            return self._vector.render() or ()

    def save(self) -> Sequence[np.ndarray | str]:
        """The state of each environment as bytes, or why it cannot be saved."""
        with self._watched("get_state"):
            return self._vector.call("save")

    def load(self, states: Sequence[np.ndarray]) -> Sequence[str]:
        """Puts the environments where they were saved; returns why one cannot be, or ""."""
        with self._watched("set_state"):
            return self._vector.call("load", states)

    def stop(self, *, graceful: bool) -> None:
        """Closes the environments. Errors become warnings, or are ignored if not `graceful`."""
        with self._watched("close"), warnings.catch_warnings():
            if not graceful:
                warnings.simplefilter("ignore")
            for index, env in enumerate(self._vector.envs):
                close(env, index)
        self._vector.closed = True
        self._watchdog.stop()

    @contextlib.contextmanager
    def _watched(self, phase: str) -> Iterator[None]:
        try:
            with self._watchdog.watching(phase):
                yield
        except EnvRaised as error:
            raise env_error(error) from error.__cause__


class WorkerEnvs:
    """An `AsyncVectorEnv`: one process per environment.

    Gymnasium waits forever for a dead worker, in `step` and in `close`. Here every wait watches all
    pipes at once, so that a death is noticed while others are still busy, and stopping never
    depends on an answer.
    """

    def __init__(self, factories: Sequence[GuardFactory], context: str, step_timeout: float | None):
        self._timeout = step_timeout
        self._poll = select.poll()
        self._vector = _start(factories, context, step_timeout)
        self._index = {pipe.fileno(): index for index, pipe in enumerate(self._vector.parent_pipes)}

    def reset(self, seeds: list[int | None]) -> Any:
        """Resets all environments and returns their first observations."""
        with self._convert_errors("reset"):
            self._vector.reset_async(seed=seeds)
        self._await("reset")
        with self._convert_errors("reset"):
            return self._vector.reset_wait()[0]

    def step_async(self, action: Any) -> None:
        """Sends each worker its action."""
        with self._convert_errors("step"):
            self._vector.step_async(action)

    def step_wait(self) -> StepResult:
        """Waits for all workers and returns their results."""
        self._await("step")
        with self._convert_errors("step"):
            return self._vector.step_wait()

    def save(self) -> Sequence[np.ndarray | str]:
        """The state of each environment as bytes, or why it cannot be saved."""
        return self._call("get_state", "save")

    def load(self, states: Sequence[np.ndarray]) -> Sequence[str]:
        """Puts the environments where they were saved; returns why one cannot be, or ""."""
        return self._call("set_state", "load", states)

    def render(self) -> Sequence[Any]:
        """An image of each environment."""
        return self._call("render", "render")

    def stop(self, *, graceful: bool) -> None:
        """Ends all workers."""
        _stop(self._vector, graceful=graceful)

    def _call(self, phase: str, method: str, *arguments: Any) -> Sequence[Any]:
        """What a method of each guard returns; all get the same arguments."""
        with self._convert_errors(phase):
            self._vector.call_async(method, *arguments)
        self._await(phase)
        with self._convert_errors(phase):
            return self._vector.call_wait()

    def _await(self, phase: str) -> None:
        """Waits for all workers to answer; raises `EnvFailedError` if one died or time runs out."""
        poll, waiting, seconds = self._poll, dict(self._index), 0.0
        for fd in waiting:
            poll.register(fd, select.POLLIN)
        while waiting:
            before = time.monotonic()
            for fd, event in poll.poll(
                1000.0 if self._timeout is None else 1000.0 * min(1.0, self._timeout - seconds)
            ):
                if event & (select.POLLHUP | select.POLLERR):
                    raise self._worker_died(waiting[fd], phase)
                poll.unregister(fd)
                del waiting[fd]
            # No more than that, or a process that was suspended would time out.
            seconds += min(time.monotonic() - before, 2.0)
            if waiting and self._timeout is not None and seconds >= self._timeout:
                raise self._timed_out(sorted(waiting.values()), phase)

    @contextlib.contextmanager
    def _convert_errors(self, phase: str) -> Iterator[None]:
        """Converts Gymnasium's exceptions to rlkit's, without printing the workers' tracebacks."""
        level, gymnasium.logger.min_level = gymnasium.logger.min_level, gymnasium.logger.ERROR + 1
        try:
            yield
        except EnvRaised as error:
            raise env_error(error) from None
        except (EOFError, OSError):
            codes = _exit_codes(self._vector.processes)
            raise self._worker_died(_first_ended(codes), phase) from None
        except Exception as error:
            raise batch_error(error) from error
        finally:
            gymnasium.logger.min_level = level

    def _worker_died(self, index: int, phase: str) -> EnvFailedError:
        """Why the pipe of worker `index` closed: its environment raised, or the process died."""
        process = self._vector.processes[index]
        process.join(1.0)
        try:
            _, _, error, text = self._vector.error_queue.get(timeout=0.2)
        except (queue.Empty, EOFError, OSError):
            code = process.exitcode
            return EnvFailedError(
                f"environment {index}: its worker process {_describe_exit(code)} during {phase};"
                f" {_exit_advice(code)}"
            )
        return env_error(error) if isinstance(error, EnvRaised) else batch_error(error, text)

    def _timed_out(self, indices: list[int], phase: str) -> EnvFailedError:
        for index in indices[
            :1
        ]:  # one is enough: it prints its stack, which shows where it hangs, to stderr
            with contextlib.suppress(OSError, AttributeError):
                os.kill(self._vector.processes[index].pid or 0, signal.SIGUSR1)
                time.sleep(0.2)
        return hangs(indices, phase, self._timeout)


def close(env: gymnasium.Env, index: int) -> None:
    """Closes an environment; exceptions become warnings, since nothing is lost."""
    try:
        env.close()
    except Exception as error:
        warnings.warn(
            f"environment {index} raised {type(error).__name__}: {error} in close", stacklevel=2
        )


def env_error(error: EnvRaised) -> EnvFailedError:
    """The user's error for an environment that raised."""
    failure = error.failure
    return EnvFailedError(
        f"{failure}; fix the environment (check_env reports common mistakes)\n\n{failure.traceback}"
    )


def batch_error(error: Exception, text: str = "") -> EnvFailedError:
    """The user's error for a return value that Gymnasium could not batch."""
    return EnvFailedError(
        f"an environment returned a value that does not fit its spaces: {error}; find it with"
        f" check_env\n{text}".rstrip()
    )


def _start(
    factories: Sequence[GuardFactory], context: str, timeout: float | None
) -> AsyncVectorEnv:
    """Worker processes that wait for a command; the first reset builds their environments."""
    _refuse_without_guard()
    if (
        context == "forkserver"
    ):  # the fork server imports this once for all workers; no effect if it already runs
        multiprocessing.get_context(context).set_forkserver_preload([GuardFactory.__module__])
    # Created without __init__ first: if that failed, the workers would be unreachable.
    vector = AsyncVectorEnv.__new__(AsyncVectorEnv)
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
                f"this script starts worker processes whenever it is imported; {ADD_MAIN_GUARD}"
            ) from None
        if isinstance(error, (EOFError, OSError)):
            dead = _first_ended(codes)
            what = _describe_exit(codes[dead]) if codes else "did not start"
            raise EnvFailedError(
                f"environment {dead}: its worker process {what} before it was ready; see its own"
                " error on stderr above. If it cannot import the environment's module, install"
                f" that; if it ran your script again, {ADD_MAIN_GUARD}"
            ) from error
        raise
    finally:
        timer.cancel()
    return vector


def _refuse_without_guard() -> None:
    """Stops a worker that, while starting, imports the user's script and gets here again."""
    process = multiprocessing.current_process()
    if getattr(process, "_inheriting", False):
        if process.name.startswith("Worker<"):
            # One worker of many; the parent process reports the reason once.
            os._exit(EXIT_NO_GUARD)
        raise ConfigError(
            f"this script starts worker processes whenever it is imported; {ADD_MAIN_GUARD}"
        )


def _give_up(vector: AsyncVectorEnv, late: threading.Event) -> None:
    late.set()
    for process in getattr(vector, "processes", ()):
        process.kill()


def _stop(vector: AsyncVectorEnv, *, graceful: bool) -> None:
    """Ends all workers in any state: asks them (if `graceful`), terminates, then kills them."""
    # Gymnasium's own close, also called by the garbage collector, would wait for answers
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


def _join(processes: Sequence[BaseProcess]) -> None:
    """Waits until all processes are gone, at most `JOIN_SECONDS`."""
    deadline = time.monotonic() + JOIN_SECONDS
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))


def _exit_codes(processes: Sequence[BaseProcess]) -> list[int | None]:
    """The exit code of each process, `None` if it runs; waits up to a second for one to end."""
    processes = [process for process in processes if process.pid is not None]
    going = multiprocessing.connection.wait(
        [process.sentinel for process in processes], timeout=1.0
    )
    for process in processes:
        if process.sentinel in going:  # its pipe closes shortly before the exit code is available
            process.join(1.0)
    return [process.exitcode for process in processes]


def _first_ended(codes: Sequence[int | None]) -> int:
    """The index of the first process that ended, or 0."""
    return next((index for index, code in enumerate(codes) if code is not None), 0)


def _describe_exit(code: int | None) -> str:
    if code is None:
        return "hung up"
    if code < 0:
        return f"was killed by {signal.Signals(-code).name} (exit code {code})"
    return f"ended with exit code {code}"


def _exit_advice(code: int | None) -> str:
    if code == -signal.SIGKILL:
        return "the machine may be out of memory: use fewer environments"
    return (
        "look for a crash on stderr; vectorization='sync' runs the environments in this process,"
        " where a debugger can reach them"
    )
