"""Helpers shared by the environment tests."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest


@dataclasses.dataclass
class Counted:
    """A jitted function that counts its traces."""

    function: Callable[..., Any]
    traces: int = 0

    def __post_init__(self):
        import jax

        def run(*args):
            self.traces += 1
            return self.function(*args)

        # These programs run a few steps: compiling them without optimisation halves the time of the
        # whole folder.
        self.jitted = jax.jit(run, compiler_options={"xla_backend_optimization_level": 0})

    def __call__(self, *args):
        return self.jitted(*args)


@pytest.fixture(scope="session")
def counted():
    """`counted(function)`: jitted, with `traces`."""
    return Counted
