"""How processes agree, fail and lose each other: their objects in threads, over a table of texts in
place of JAX's service.
"""

import atexit
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest

from rlkit.errors import ConfigError, ProcessError, RunDirectoryError
from rlkit.training.processes import watch
from rlkit.training.processes.group import ALONE, Processes, current
from rlkit.training.processes.watch import Watch

pytestmark = pytest.mark.fast


class Table:
    """A `Channel` for threads; nobody hears those in `silent`."""

    def __init__(self):
        self.values, self.silent = {}, set()

    def put(self, key, value):
        if key.rpartition("/")[2] not in self.silent:
            self.values[key] = value

    def get(self, key):
        if key not in self.values:
            time.sleep(0.001)
        return self.values.get(key)

    def all(self, folder):
        found = list(self.values.items())
        return {k.rpartition("/")[2]: v for k, v in found if k.startswith(f"{folder}/")}

    def delete(self, key):
        self.values.pop(key, None)


@pytest.fixture
def exits(monkeypatch):
    """The exit codes of watches that would have ended this process."""
    codes: list[int] = []
    monkeypatch.setattr(
        Watch, "_exit", lambda self, code: (codes.append(code), self._stopped.set())
    )
    monkeypatch.setattr(watch, "_explain_aborts", lambda watch: None)
    monkeypatch.setattr(atexit, "register", lambda function: None)
    return codes


@pytest.fixture
def table(exits):
    return Table()


@pytest.fixture
def make(table):
    made = []

    def of(count, *, timeout=5.0, patience=5.0):
        known = {"count": count, "timeout": timeout, "patience": patience}
        made.extend(Processes(table, index=index, **known) for index in range(count))
        return made[-count:]

    yield of
    for each in made:
        if each._watch is not None:
            each._watch._stopped.set()


def each(processes, function):
    """What `function(processes)` returns or raises in each."""

    def call(one):
        try:
            return function(one)
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(processes)) as pool:
        return list(pool.map(call, processes))


def test_all_hear_what_each_says_again_and_again(make, table):
    processes = make(3)
    for number in range(5):
        said = each(processes, lambda one, number=number: one.agree([one.index, number]))
        assert said == [[[0, number], [1, number], [2, number]]] * 3
    assert not [key for key in table.values if key.startswith(("all/0", "all/1", "all/2"))]


def test_the_main_one_decides(make):
    processes = make(2)
    assert each(processes, lambda one: one.on_main(lambda: {"step": one.index + 7})) == [
        {"step": 7},
        {"step": 7},
    ]


def test_an_error_of_the_main_one_is_that_of_all(make):
    def taken():
        raise RunDirectoryError("runs/a already holds a run")

    errors = each(make(2), lambda one: one.on_main(taken))
    assert [type(error) for error in errors] == [RunDirectoryError] * 2
    assert {str(error) for error in errors} == {"runs/a already holds a run"}


def test_other_settings_are_named(make):
    errors = each(make(2), lambda one: one.require_same({"gamma": 0.9 + one.index}))
    assert all("process 1 has gamma=1.9, process 0 0.9; start all" in str(e) for e in errors)


def test_a_failure_is_heard_where_all_agree_next(make):
    def turn(one):
        if one.index == 1:
            return one.fail(OSError("no more paper"))
        try:
            one.agree("fine")
        except ProcessError as error:
            return one.fail(error), str(error)

    found = each(make(3), turn)
    expected = True, "process 1 failed: OSError: no more paper"
    assert found == [expected, True, expected]


def test_after_a_failure_all_can_go_on(make):
    processes = make(2)
    each(processes, lambda one: one.fail(ValueError("of all")))
    each(processes, lambda one: one.settle())
    assert each(processes, lambda one: one.agree(one.index)) == [[0, 1], [0, 1]]
    assert all(one._watch.failed is None or one.lost is None for one in processes)


def test_patience_ends(make):
    errors = each(make(2, patience=0.2), lambda one: one.index == 1 or one.agree(0))
    assert "process 1 has not come as far as process 0 for 0.2 s" in str(errors[0])


def test_one_that_is_silent_is_lost(make, table):
    main, _ = make(2, timeout=0.3)
    main.tell_how_to_go_on(lambda: "; resume")
    table.silent.add("1")
    (error,) = each([main], lambda one: one.agree(0))
    assert isinstance(error, ProcessError)
    assert str(error) == (
        "process 1 gave no sign of life for 0.3 s: it died, hangs or cannot be reached; resume"
    )
    assert str(main.explain(jax.errors.JaxRuntimeError("Gloo: closed"))) == str(error)
    assert isinstance(main.explain(ConfigError("own")), ConfigError)


def test_the_watch_ends_what_waits_for_ever(make, table, exits, monkeypatch, capfd):
    monkeypatch.setattr(watch, "LOST", 0.1)
    make(2, timeout=0.3)
    table.silent.add("1")
    deadline = time.monotonic() + 20
    while not exits and time.monotonic() < deadline:
        time.sleep(0.01)
    assert exits[0] == 1
    assert "rlkit: error: process 1 gave no sign of life for 0.3 s" in capfd.readouterr().err


def test_one_that_has_ended_is_not_waited_for(make, exits, monkeypatch):
    monkeypatch.setattr(watch, "GRACE", 0.1)
    main, other = make(2)
    main._watch.is_known = True  # it ends the run
    leaving = threading.Thread(target=other.leave, args=("no more paper", 2))
    leaving.start()
    (error,) = each([main], lambda one: one.agree(0))
    assert str(error) == "process 1 failed: no more paper"
    leaving.join(5.0)
    assert exits == [2]  # since the main one did not leave


def test_all_leave_together(make, exits):
    processes = make(2)
    leaving = threading.Thread(target=processes[0].leave)
    leaving.start()
    leaving.join(0.2)
    assert leaving.is_alive()
    processes[1].leave()
    leaving.join(5.0)
    assert not leaving.is_alive() and exits == []


def test_bytes_of_processes_are_told_apart(make):
    one, other = make(2)
    sizes = np.array([2, 3, 1], np.uint64).view(np.uint8)
    collected = np.concatenate([sizes, np.array([1, 2, 3, 4], np.uint8)])
    assert one.own_share(collected).tolist() == [1, 2, 3]
    assert other.own_share(collected).tolist() == [4]


def test_one_process_agrees_with_itself():
    state = {"x": jax.numpy.ones(2)}
    assert current() is ALONE and ALONE.is_main and ALONE.lost is None
    assert ALONE.agree(3) == [3] and ALONE.on_main(lambda: 3) == 3
    assert ALONE.gathered(state) is state and ALONE.from_main(state, state) is state
    assert ALONE.fail(ValueError()) and ALONE.explain(error := ValueError()) is error
    ALONE.leave("nobody hears it")
