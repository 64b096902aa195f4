"""What `start_processes` and its flags refuse before anything starts."""

import jax
import pytest

import rlkit
from rlkit.cli.process_flags import ProcessFlags, join_processes
from rlkit.errors import ConfigError

pytestmark = pytest.mark.fast
ALL = {"coordinator": "10.0.0.1:1234", "num_processes": 2, "process_id": 0}
ERRORS = {
    "some are missing": ({"coordinator": "10.0.0.1:1234"}, "only some of coordinator, num_proc"),
    "no port": (ALL | {"coordinator": "10.0.0.1"}, "an address and a port, got '10.0.0.1'"),
    "no processes": (ALL | {"num_processes": 0}, "num_processes must be positive, got 0"),
    "too large": (ALL | {"process_id": 2}, "process_id must be from 0 to 1, got 2"),
    "negative": (ALL | {"process_id": -1}, "process_id must be from 0 to 1, got -1"),
    "port 0": (ALL | {"coordinator": "10.0.0.1:0"}, "an address and a port, got '10.0.0.1:0'"),
    "port 99999": (ALL | {"coordinator": "10.0.0.1:99999"}, "an address and a port, got"),
    "no time": (ALL | {"timeout": 0.1}, "timeout must be from 1 to 2,592,000 seconds, got 0.1"),
    "no end": (ALL | {"start_timeout": float("inf")}, "start_timeout must be from 1 .* got inf"),
    "no number": (ALL | {"patience": float("nan")}, "patience must be from 1 .* got nan"),
}


@pytest.mark.parametrize(("given", "message"), ERRORS.values(), ids=ERRORS)
def test_arguments_that_cannot_be(given, message):
    with pytest.raises(ConfigError, match=message):
        rlkit.start_processes(**given)


def test_too_late():
    jax.devices()
    with pytest.raises(ConfigError, match="too late: JAX has looked for its devices already; call"):
        rlkit.start_processes(**ALL)


def test_flags():
    assert join_processes(ProcessFlags())
    with pytest.raises(ConfigError, match="may be silent, but there are none; leave it out"):
        join_processes(ProcessFlags(process_timeout=5.0))
    with pytest.raises(ConfigError, match="leave out --distributed"):
        join_processes(ProcessFlags(distributed="auto", process_id=0))
    with pytest.raises(ConfigError, match="--coordinator HOST:PORT --num-processes P"):
        join_processes(ProcessFlags(process_id=0))
