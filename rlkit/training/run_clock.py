"""`RunClock`: how long a call of `Trainer.run` takes, and how fast it trains."""

import time

from rlkit.training.compile.aot_compile import Compiler


class RunClock:
    """Times a call of `run`; compiling does not count as training."""

    def __init__(self, compiler: Compiler):
        self._compiler = compiler
        self._started: float | None = None  # None: not running
        self._training_started = 0.0
        self._call_seconds = self._training_seconds = 0.0  # of the last finished call
        self._lap_started = 0.0
        self.lap_seconds: float | None = None
        """Seconds of the last lap; None: there was none."""
        self._row_started, self._row_steps = 0.0, 0  # of what the next logged row is about
        self.env_steps = 0
        """Environment steps of one seed in the laps of this call."""
        self._warm_up_steps = 0

    def start(self) -> None:
        """Starts timing a call of `run`."""
        self._started, self._training_started = time.perf_counter(), self._training_time()
        self.env_steps = self._warm_up_steps = 0

    def stop(self) -> None:
        """Stops timing the call."""
        self._call_seconds, self._training_seconds = self.call_seconds, self.training_seconds
        self._started = None

    @property
    def seconds(self) -> float:
        """Seconds since `start`, 0.0 after `stop`."""
        return 0.0 if self._started is None else time.perf_counter() - self._started

    @property
    def call_seconds(self) -> float:
        """Seconds of this call, or of the last one."""
        return self._call_seconds if self._started is None else self.seconds

    @property
    def training_seconds(self) -> float:
        """Seconds of this call, or of the last one, excluding compilation."""
        if self._started is None:
            return self._training_seconds
        return self._training_time() - self._training_started

    @property
    def steps_per_second(self) -> float:
        """Environment steps of one seed per second of this call, warm-up included."""
        return (self._warm_up_steps + self.env_steps) / max(self.training_seconds, 1e-9)

    def count_warm_up(self, env_steps: int) -> None:
        """Counts environment steps of one seed before the laps, if a call is timed."""
        if self._started is not None:
            self._warm_up_steps += env_steps

    def start_laps(self) -> None:
        """Starts the first lap."""
        self._lap_started = self._row_started = self._training_time()
        self._row_steps = 0

    def lap(self, env_steps: int, *, is_logged: bool = True) -> float:
        """Ends a lap of `env_steps` environment steps; returns steps per second.

        The speed is that of all laps since the last logged lap.
        """
        now = self._training_time()
        self.lap_seconds, self._lap_started = now - self._lap_started, now
        self.env_steps += env_steps
        self._row_steps += env_steps
        speed = self._row_steps / max(now - self._row_started, 1e-9)
        if is_logged:
            self._row_started, self._row_steps = now, 0
        return speed

    def _training_time(self) -> float:
        return time.perf_counter() - self._compiler.seconds
