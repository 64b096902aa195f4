"""What happens when environments raise, die, hang or return garbage, in this process and in
workers.
"""

import contextlib
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import types

import cloudpickle
import gymnasium
import jax
import numpy as np
import psutil
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from tiers import in_full

from rlkit.envs import GymnasiumAdapter
from rlkit.errors import ConfigError, EnvContractError, EnvFailedError
from tests.envs.host_envs import Clock, Faulty, LateShape, NestedEcho, Slow

pytestmark = pytest.mark.process
STEP = np.array([0, 0, 1])  # the third environment misbehaves
SAFE = np.zeros(3, np.int64)


def watchdogs():
    return {
        thread
        for thread in threading.enumerate()
        if thread.name == "rlkit-watchdog" and thread.is_alive()
    }


@pytest.fixture(autouse=True)
def others(monkeypatch):
    """The watchdogs of other files' environments, which may live on in this process."""
    monkeypatch.setattr(sys.modules[__name__], "OTHERS", watchdogs())


OTHERS = set()


def assert_nothing_left(adapter):
    assert multiprocessing.active_children() == []
    assert adapter._run is None
    assert not watchdogs() - OTHERS


def faulty(fault, vectorization, where="step", **kwargs):
    parent = os.getpid() if vectorization == "async" else 0
    return GymnasiumAdapter(
        Faulty, 3, vectorization=vectorization, fault=fault, where=where, parent=parent, **kwargs
    )


def run_script(text):
    """Runs a user's script in its own process."""
    command = [sys.executable, "-c", textwrap.dedent(text)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


# --- equality ---


@pytest.mark.parametrize("env", ["CartPole-v1", NestedEcho], ids=["CartPole", "nested Dict"])
def test_processes_do_exactly_what_this_process_does(env):
    results = []
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 2, (300, 3, *(() if isinstance(env, str) else (2,))))
    for vectorization in ("sync", "async"):
        adapter = GymnasiumAdapter(env, 3, vectorization=vectorization)
        state, obs = adapter.reset(jax.random.key(0))
        steps = [obs]
        for action in actions:
            state, step = adapter.step(None, state, action)
            steps += [
                step.obs,
                step.next_obs,
                step.reward,
                step.terminated,
                step.truncated,
                step.info,
            ]
        steps.append(adapter.reset(jax.random.key(0))[1])
        adapter.close()
        results.append(steps)
    assert sum(int(done.sum()) for done in results[0][4::6]) > 20
    one, other = map(jax.tree.leaves, results)
    assert jax.tree.structure(results[0]) == jax.tree.structure(results[1])
    for a, b in zip(one, other, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    assert multiprocessing.active_children() == []


def test_spawned_processes_infos_pictures_and_a_second_life():
    adapter = GymnasiumAdapter(
        Clock, 2, vectorization="async", context="spawn", length=2, render_mode="rgb_array"
    )
    for _ in range(2):
        state, obs = adapter.reset(jax.random.key(0))
        assert (obs == 0).all() and len(multiprocessing.active_children()) == 2
        state, step = adapter.step(None, state, np.zeros(2, np.int32))
        assert (adapter.render() == 1).all() and adapter.render().shape == (2, 4, 5, 3)
        adapter.step_async(np.zeros(2, np.int32))
        step = adapter.step_wait()
        assert (
            (step.next_obs == [2, 20]).all()
            and (step.obs == 0).all()
            and (step.info["parts"] == [2, 3]).all()
        )
        adapter.close()
        assert_nothing_left(adapter)


def test_environments_that_this_process_alone_knows():
    """Ids registered here and functions that workers cannot import are sent by value; locks cannot
    be.
    """
    gymnasium.register("Only-Here-v0", lambda **kwargs: Clock(**kwargs), max_episode_steps=4)
    try:
        adapter = GymnasiumAdapter("Only-Here-v0", 1, vectorization="async", length=9)
        state, _ = adapter.reset(jax.random.key(0))
        truncated = [
            bool(adapter.step(None, state, np.zeros(1, np.int32))[1].truncated[0]) for _ in range(4)
        ]
        assert truncated == [False, False, False, True] and adapter.max_episode_steps == 4
        adapter.close()
    finally:
        gymnasium.registry.pop("Only-Here-v0")
    lock = threading.Lock()
    with pytest.raises(ConfigError, match=r"cannot be sent to worker processes \(TypeError.*lock"):
        GymnasiumAdapter(lambda: Clock(3 if lock else 4), 1, vectorization="async")


def test_classes_of_modules_that_workers_cannot_import(capfd):
    """Importable classes are sent by name, as in pickle; cloudpickle can send them by value."""
    module = types.ModuleType("nowhere_to_be_found")
    source = "import gymnasium\nfrom tests.envs.host_envs import Clock\nclass Mine(Clock): pass\n"
    exec(source, module.__dict__)
    sys.modules[module.__name__] = module
    try:
        adapter = GymnasiumAdapter(module.Mine, 1, vectorization="async", context="spawn")
        with pytest.raises(
            EnvFailedError, match=r"ended with exit code 1 before it was ready; see its own error"
        ):
            adapter.reset(jax.random.key(0))
        assert_nothing_left(adapter)
        assert "No module named 'nowhere_to_be_found'" in capfd.readouterr().err
        cloudpickle.register_pickle_by_value(module)
        adapter.reset(jax.random.key(0))
        adapter.close()
        cloudpickle.unregister_pickle_by_value(module)
    finally:
        del sys.modules[module.__name__]


class Sleeper:
    """A recipe that hangs while a worker unpickles it."""

    def __call__(self):
        return Clock()

    def __reduce__(self):
        return time.sleep, (100,)


def test_workers_that_do_not_start(monkeypatch):
    monkeypatch.setattr("rlkit.envs.host.gymnasium_vector.START_SECONDS", 1.0)
    adapter = GymnasiumAdapter(Sleeper(), 2, vectorization="async", step_timeout=0.5)
    with pytest.raises(
        EnvFailedError,
        match="worker processes did not start within 1 s; pass a longer step_timeout",
    ):
        adapter.reset(jax.random.key(0))
    assert_nothing_left(adapter)


def test_workers_import_no_jax():
    code = "import sys, rlkit.envs.host.gymnasium_worker; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


# --- faults ---


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_an_environment_that_raises(vectorization, capfd):
    adapter = faulty("raise", vectorization)
    state, _ = adapter.reset(jax.random.key(0))
    state, _ = adapter.step(None, state, SAFE)
    with pytest.raises(EnvFailedError) as caught:
        adapter.step(None, state, STEP)
    first, _, rest = str(caught.value).partition("\n")
    assert re.match(
        r"environment 2 raised ZeroDivisionError: the joint is broken in step 2 \(action"
        r" (np.int64\()?1\)?\); ",
        first,
    )
    assert "host_envs.py" in rest and "_misbehave" in rest
    assert_nothing_left(adapter)
    assert capfd.readouterr().err == ""  # Gymnasium would print the traceback as well
    with pytest.raises(EnvContractError, match="call reset first"):
        adapter.step(None, state, SAFE)
    state, _ = adapter.reset(jax.random.key(0))  # and it may be reset
    adapter.step(None, state, SAFE)
    adapter.close()
    assert_nothing_left(adapter)


@pytest.mark.parametrize(
    ("where", "fault", "message"),
    [
        (
            "construction",
            "raise",
            "environment 0 raised ZeroDivisionError: the joint is broken in construction",
        ),
        (
            "reset",
            "raise",
            "environment [012] raised ZeroDivisionError: the joint is broken in reset",
        ),
        (
            "reset",
            "exit",
            "environment [012]: its worker process ended with exit code 3 during reset",
        ),
        in_full(("reset", "hang", r"environments 0, 1, 2 did not answer within 2 s \(reset\)")),
        ("step", "unpicklable", "environment 2 raised Unpicklable: .*lambda.* in step 1"),
        (
            "step",
            "exit",
            (
                "environment 2: its worker process ended with exit code 3 during step; look for a"
                " crash"
            ),
        ),
        (
            "step",
            "kill",
            (
                r"environment 2: its worker process was killed by SIGKILL \(exit code -9\).*out of"
                r" memory"
            ),
        ),
        ("step", "hang", r"environment 2 did not answer within 2 s \(step\); see the stack"),
        (
            "step",
            "shape",
            "an environment returned a value that does not fit|observation has shape",
        ),
        ("step", "nan observation", r"environment 2 returned an observation\[1\] of nan"),
        ("step", "infinite reward", "environment 2 returned the reward inf"),
        ("step", "no reward", "environment 2 raised EnvContractError: the reward is None"),
        ("step", "four values", "environment 2 raised EnvContractError: step must return five"),
    ],
)
def test_faults_in_processes(where, fault, message, capfd):
    hangs = fault == "hang"  # spawned processes write to the stderr of now, which capfd reads
    context, limit = ("spawn", 2.0) if hangs else ("forkserver", 30.0)
    adapter = faulty(fault, "async", where, step_timeout=limit, context=context)
    begun = None
    with pytest.raises(
        EnvFailedError, match=message.replace("environment 0 raised", "environment [012] raised")
    ):
        state, _ = adapter.reset(jax.random.key(0))
        begun = time.monotonic()
        adapter.step(None, state, STEP)
    if begun is not None:
        assert time.monotonic() - begun < (3.5 if hangs else 1.5)
    assert_nothing_left(adapter)
    assert (
        "_misbehave" in capfd.readouterr().err
    ) == hangs  # the stack where it hangs, else nothing


@pytest.mark.fast
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("unpicklable", "environment 2 raised Unpicklable"),
        ("nan observation", r"environment 2 returned an observation\[1\] of nan"),
        ("infinite reward", "environment 2 returned the reward inf"),
        ("no reward", "environment 2 raised EnvContractError: the reward is None"),
        ("shape", r"environment 2 raised EnvContractError: observation has shape \(3,\)"),
        ("four values", "environment 2 raised EnvContractError: step must return five values"),
    ],
)
def test_faults_in_this_process(fault, message):
    adapter = faulty(fault, "sync")
    state, _ = adapter.reset(jax.random.key(0))
    with pytest.raises(EnvFailedError, match=message):
        adapter.step(None, state, STEP)
    assert_nothing_left(adapter)


@pytest.mark.fast
def test_shapes_that_change_later():
    """Only the first step of an environment is fully checked; later ones must fit the batch."""
    adapter = faulty("shape", "sync")
    state, _ = adapter.reset(jax.random.key(0))
    adapter.step(None, state, SAFE)
    with pytest.raises(
        EnvFailedError, match="an environment returned a value that does not fit its spaces"
    ):
        adapter.step(None, state, STEP)


@pytest.mark.fast
@pytest.mark.parametrize("vectorization", ["sync", "async"])
@pytest.mark.parametrize("reward", [None, np.ones(1), "1"], ids=repr)
def test_rewards_that_are_no_numbers_later(reward, vectorization):
    """Each is named with its environment and step, not as NaN or as a value outside its space."""

    class Late(Clock):
        def step(self, action):
            obs, number, *rest = super().step(action)
            return obs, reward if self.buffer[0] == 2 else number, *rest

    adapter = GymnasiumAdapter(Late, 2, vectorization=vectorization, length=5)
    state, _ = adapter.reset(jax.random.key(0))
    adapter.step(None, state, np.zeros(2, np.int32))
    with pytest.raises(EnvFailedError, match=r"environment [01] raised .*reward is .* in step 2"):
        adapter.step(None, state, np.zeros(2, np.int32))
    assert_nothing_left(adapter)


@pytest.mark.fast
@pytest.mark.parametrize(
    "wrap", [lambda env: env, lambda env: TimeLimit(env, 3)], ids=["bare", "wrapped"]
)
def test_a_function_that_returns_one_object_again_and_again(wrap):
    """Its copies would step one episode together; also those of two adapters."""
    single = Clock(length=4)
    adapter = GymnasiumAdapter(lambda: wrap(single), 2)
    told = r"environment 1 .*one Clock for two environments.*in each call"
    with pytest.raises(EnvFailedError, match=told):
        adapter.reset(jax.random.key(0))
    training, evaluation = (GymnasiumAdapter(lambda: wrap(single), 1) for _ in range(2))
    for _ in range(2):  # one after the other is no fault
        training.reset(jax.random.key(0))
        training.close()
    evaluation.reset(jax.random.key(0))
    with pytest.raises(EnvFailedError, match="one Clock for two environments"):
        training.reset(jax.random.key(0))
    evaluation.close()


def test_a_worker_killed_between_steps_and_one_while_another_is_slow():
    adapter = faulty("slow", "async")
    state, _ = adapter.reset(jax.random.key(0))
    os.kill(multiprocessing.active_children()[1].pid, signal.SIGKILL)
    time.sleep(0.1)
    with pytest.raises(EnvFailedError, match="its worker process was killed by SIGKILL"):
        adapter.step(None, state, SAFE)
    assert_nothing_left(adapter)
    state, _ = adapter.reset(jax.random.key(0))
    adapter.step(None, state, STEP)  # slow is no fault
    adapter.close()
    adapter = faulty("pause", "async")
    adapter.reset(jax.random.key(0))
    adapter.step_async(np.array([1, 1, 1]))
    begun = time.monotonic()
    os.kill(adapter._run._vector.processes[2].pid, signal.SIGKILL)
    with pytest.raises(
        EnvFailedError, match="environment 2: its worker process was killed by SIGKILL"
    ):
        adapter.step_wait()
    assert time.monotonic() - begun < 1.5  # the others pause for 2.5 s
    assert_nothing_left(adapter)


@pytest.mark.full
def test_closing_what_hangs_or_is_dead():
    adapter = faulty("hang", "async", "close")
    adapter.reset(jax.random.key(0))
    begun = time.monotonic()
    adapter.close()
    assert time.monotonic() - begun < 5.0
    assert_nothing_left(adapter)
    adapter = faulty("raise", "async")
    adapter.reset(jax.random.key(0))
    for process in multiprocessing.active_children():
        os.kill(process.pid, signal.SIGKILL)
    adapter.close()
    assert_nothing_left(adapter)


@pytest.mark.fast
def test_an_environment_that_raises_in_close_is_a_warning():
    with pytest.warns(
        UserWarning, match="environment 0 raised ZeroDivisionError: the joint is broken in close"
    ):
        adapter = faulty("raise", "sync", "close")
    adapter.reset(jax.random.key(0))
    with pytest.warns(
        UserWarning, match="raised ZeroDivisionError: the joint is broken in close"
    ) as caught:
        adapter.close()
    assert [str(warning.message).split()[1] for warning in caught] == ["0", "1", "2"]
    assert_nothing_left(adapter)


def test_an_adapter_that_is_forgotten_ends_its_workers():
    adapter = faulty("raise", "async")
    adapter.reset(jax.random.key(0))
    assert len(multiprocessing.active_children()) == 3
    del adapter
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("fault", ["hang", in_full("spin")])
def test_what_hangs_in_this_process_is_interrupted(fault, capfd):
    adapter = faulty(fault, "sync", step_timeout=1.0)
    state, _ = adapter.reset(jax.random.key(0))
    time.sleep(1.5)  # between steps nothing hangs
    with pytest.raises(EnvFailedError, match=r"environment 2 did not answer within 1 s \(step\)"):
        adapter.step(None, state, STEP)
    assert_nothing_left(adapter)
    assert "in _misbehave" in capfd.readouterr().err
    adapter = faulty("hang", "sync", step_timeout=1.0)
    state, _ = adapter.reset(jax.random.key(0))
    adapter.step(None, state, SAFE)
    adapter.close()


@pytest.mark.full
def test_what_hangs_in_another_thread_is_interrupted_in_python(capfd):
    adapter, errors = faulty("spin", "sync", step_timeout=1.0), []

    def step():
        try:
            state, _ = adapter.reset(jax.random.key(0))
            adapter.step(None, state, STEP)
        except EnvFailedError as error:
            errors.append(error)

    thread = threading.Thread(target=step)
    thread.start()
    thread.join(30.0)
    assert len(errors) == 1 and "environment 2 did not answer" in str(errors[0])
    assert "in _misbehave" in capfd.readouterr().err


@pytest.mark.parametrize("patience", [{"where": "construction"}, {"render_mode": "human"}])
def test_construction_and_windows_may_take_their_time(patience):
    adapter = GymnasiumAdapter(Slow, 1, step_timeout=0.1, **patience)
    adapter.reset(jax.random.key(0))
    adapter.close()


# --- whole processes ---

HANG = """
    import jax, numpy as np
    from rlkit.envs import GymnasiumAdapter
    from rlkit.envs.host import watchdog
    from tests.envs.host_envs import Faulty
    watchdog.GRACE = 0.5
    if {ends_process}:
        watchdog.end_hanging_process()
    adapter = GymnasiumAdapter(Faulty, 3, fault="{fault}", step_timeout=1.0)
    state, _ = adapter.reset(jax.random.key(0))
    print("stepping", flush=True)
    adapter.step(None, state, np.array([0, 1, 0]))
    print("stepped")
"""
GIVES_UP = (
    r"rlkit: environment 1 has not returned from step for [12]\S* s,"
    " and Python cannot interrupt it, so {end}"
)


@pytest.mark.full
def test_what_nothing_can_interrupt_ends_a_command():
    script = HANG.format(fault="hang where no signal helps", ends_process=True)
    result = run_script(script)
    assert result.returncode == 70 and result.stdout == "stepping\n"
    assert re.search(GIVES_UP.format(end="this process ends"), result.stderr)
    assert "step_timeout" in result.stderr and "in _misbehave" in result.stderr


@pytest.mark.full
def test_what_nothing_can_interrupt_leaves_a_process_of_yours_alone():
    script = HANG.format(fault="pause where no signal helps", ends_process=False)
    result = run_script(script)
    assert result.returncode == 0 and result.stdout == "stepping\nstepped\n"
    assert re.search(GIVES_UP.format(end="only ending this process would help"), result.stderr)


PAUSE = """
    import sys, jax, numpy as np
    from rlkit.envs import GymnasiumAdapter
    from tests.envs.host_envs import Faulty
    for timeout in (None, 1.0):
        adapter = GymnasiumAdapter(Faulty, 3, fault="pause", step_timeout=timeout)
        state, _ = adapter.reset(jax.random.key(0))
        if timeout is not None:
            sys.settrace(lambda *a: (lambda *b: None))
        adapter.step(None, state, np.array([0, 1, 0]))
        print("stepped")
"""


@pytest.mark.full
def test_the_watchdog_lets_alone_who_wants_no_limit_and_who_debugs():
    result = run_script(PAUSE)
    assert (result.returncode, result.stdout, result.stderr) == (0, "stepped\nstepped\n", "")


GUARDLESS = """
import jax
import numpy as np
from rlkit.envs import GymnasiumAdapter

adapter = GymnasiumAdapter("CartPole-v1", 2, vectorization="async", context="{context}")
adapter.reset(jax.random.key(0))
"""


@pytest.mark.full
@pytest.mark.parametrize("context", ["forkserver", "spawn"])
def test_a_script_without_a_main_guard_gets_one_error(context, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(GUARDLESS.format(context=context))
    result = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 1
    assert (
        result.stderr.count("__name__ == '__main__'") == 1 and result.stderr.count("Traceback") == 1
    )
    assert (
        "ConfigError: this script starts worker processes whenever it is imported; put"
        in result.stderr
    )


PARENT = """
    import os, sys, time, jax, numpy as np
    from rlkit.envs import GymnasiumAdapter
    from tests.envs.host_envs import Faulty
    adapter = GymnasiumAdapter(
        Faulty, 3, vectorization="async", context={context!r},
        fault="hang", parent=os.getpid(), pid_file={pid_file!r},
    )
    state, _ = adapter.reset(jax.random.key(0))
    print("ready", flush=True)
    adapter.step(None, state, np.array([0, 0, 1]))
"""


@pytest.mark.parametrize(
    ("context", "sent"),
    [("forkserver", signal.SIGKILL), in_full(("spawn", signal.SIGTERM))],
)
def test_workers_do_not_outlive_their_parent(context, sent, tmp_path):
    """One worker hangs in a step, and two wait for a command."""
    pid_file = tmp_path / "pids"
    script = textwrap.dedent(PARENT.format(context=context, pid_file=str(pid_file)))
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert parent.stdout is not None and parent.stdout.readline() == "ready\n"
        pids = [int(line) for line in pid_file.read_text().split()]
        assert len(pids) == 3 and all(psutil.pid_exists(pid) for pid in pids)
        time.sleep(0.2)
        parent.send_signal(sent)
        parent.wait(10)
        deadline = time.monotonic() + 5.0
        while any(map(_runs, pids)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(map(_runs, pids))
    finally:
        parent.kill()
        parent.communicate()


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_ctrl_c_reaches_this_process_alone():
    """A terminal sends SIGINT to all processes of a job; workers must survive it so that the
    Trainer can save.
    """
    adapter = faulty("slow", "async")
    state, _ = adapter.reset(jax.random.key(0))
    for process in multiprocessing.active_children():
        os.kill(process.pid, signal.SIGINT)
    adapter.step(None, state, STEP)
    adapter.close()
    assert_nothing_left(adapter)


@pytest.mark.process
def test_observations_of_a_wrong_shape_are_refused_in_every_step():
    """Gymnasium's shared memory would silently broadcast them."""
    for vectorization in ("sync", "async"):
        adapter = GymnasiumAdapter(LateShape, 2, vectorization=vectorization)
        state, _ = adapter.reset(jax.random.key(0))
        for _ in range(2):
            state, _ = adapter.step(None, state, np.zeros(2, np.int32))
        with pytest.raises(EnvFailedError, match="shape"):
            adapter.step(None, state, np.zeros(2, np.int32))
        assert_nothing_left(adapter)


class Shows(gymnasium.Env):
    """Observes what it is given; the last of it ends the episode."""

    action_space = spaces.Discrete(2)

    def __init__(self, space, *shown):
        self.observation_space, self.shown = space, shown

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return self.shown[0], {}

    def step(self, action):
        self.time += 1
        is_last = self.time == len(self.shown) - 1
        return self.shown[self.time], 0.0, False, is_last, {}


@pytest.mark.fast
@pytest.mark.parametrize("non_finite", ["raise", "reset"])
@pytest.mark.parametrize(
    ("space", "last", "message"),
    [
        (spaces.Box(-9.0, 9.0, (2,)), -7.0, r"observation has shape \(\), .* has \(2,\); correct"),
        (spaces.Box(-9.0, 9.0, (2,)), None, r"observation has shape \(\), .* has \(2,\); correct"),
        (
            spaces.Box(0, 255, (2,), np.uint8),
            np.array([3.7, 300.2]),
            "observation has dtype float64, .* has uint8; correct",
        ),
        (spaces.Dict({"a": spaces.Discrete(2)}), {}, "observation has no key 'a', .*all keys"),
    ],
    ids=["a number", "None", "floats", "no key"],
)
def test_the_last_observation_of_an_episode_is_checked(space, last, message, non_finite):
    right = space.sample()
    adapter = GymnasiumAdapter(
        lambda: Shows(space, right, right, right, last), 2, non_finite=non_finite
    )
    state, _ = adapter.reset(jax.random.key(0))
    for _ in range(2):
        state, _ = adapter.step(None, state, np.zeros(2, np.int32))
    with pytest.raises(EnvFailedError, match=f"EnvContractError: {message}"):
        adapter.step(None, state, np.zeros(2, np.int32))


LARGE = 2**33 + 5
WIDE = spaces.Box(0, 2**62, (3,), np.int64)


@pytest.mark.fast
@pytest.mark.parametrize("when", ["first", "next", "last"])
@pytest.mark.parametrize(
    ("space", "obs", "message"),
    [
        (WIDE, np.full(3, LARGE), "contains 8589934597, .* into int32, which JAX uses"),
        (
            spaces.Dict({"a": spaces.Tuple([spaces.Discrete(2), WIDE])}),
            {"a": (1, np.full(3, LARGE))},
            r"observation\['a'\]\[1\] contains 8589934597, .* int32",
        ),
        (
            spaces.Box(0, 2**63, (3,), np.uint64),
            np.full(3, LARGE, np.uint64),
            "contains 8589934597, .* fit into uint32",
        ),
        (spaces.Discrete(2**40), np.int64(LARGE), "contains 8589934597, .* int32"),
        (
            spaces.Box(-(2**40), 0, (3,), np.int64),
            np.full(3, -LARGE),
            "contains -8589934597, .* int32",
        ),
    ],
    ids=["int64", "nested", "uint64", "Discrete", "negative"],
)
def test_integers_that_jax_has_no_room_for(space, obs, message, when):
    """Cast, they would be other numbers: 5 instead of 2**33 + 5."""
    small = jax.tree.map(lambda x: np.zeros_like(x), obs)
    shown = {"first": [obs], "next": [small, obs, small], "last": [small, small, obs]}[when]
    adapter = GymnasiumAdapter(lambda: Shows(space, *shown), 1)
    with pytest.raises(EnvContractError, match=f"{message}.*; return it as float32, scaled"):
        adapter.reset(jax.random.key(0))
        for _ in range(2):
            adapter.step_async(np.zeros(1, np.int32))
            adapter.step_wait()


class OldReset(gymnasium.Env):
    """`reset` returns the observation alone, which has two numbers, as Gym's did."""

    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32)

    def step(self, action):
        raise NotImplementedError


def test_a_reset_without_information_is_named():
    with (
        contextlib.closing(GymnasiumAdapter(OldReset, 1)) as env,
        pytest.raises(EnvFailedError, match=r"an observation and a dict, got .*`return obs, {}`"),
    ):
        env.reset(jax.random.key(0))


def test_the_last_step_of_an_episode_without_information_is_named():
    class Silent(Clock):
        def step(self, action):
            return *super().step(action)[:4], None

    adapter, actions = GymnasiumAdapter(Silent, 1, length=2), np.zeros(1, np.int32)
    state, _ = adapter.reset(jax.random.key(0))
    state, _ = adapter.step(None, state, actions)
    with pytest.raises(EnvFailedError, match=r"step returned None as its info; return a dict"):
        adapter.step(None, state, actions)
