"""The examples in the docstrings of `rlkit.ops`."""

import doctest
import importlib
import pkgutil

import pytest

import rlkit.ops

MODULES = [module.name for module in pkgutil.iter_modules(rlkit.ops.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name):
    module = importlib.import_module(f"rlkit.ops.{name}")
    assert doctest.testmod(module, raise_on_error=False).failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder()
    examples = [
        case
        for name in MODULES
        for case in finder.find(importlib.import_module(f"rlkit.ops.{name}"))
        if case.examples
    ]
    assert len(examples) >= 3
