"""The random generators of the host that an environment could draw from: the two that all code
shares, and those of its own.

Compiled, a draw from one of them is a constant.
"""

import functools
import random
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import jax
import numpy as np

Generator = np.random.Generator | np.random.RandomState | random.Random
MAX_OBJECTS = 10_000  # looked at, of an environment that holds more
_OPAQUE = (ModuleType, type, str, bytes, int, float, np.ndarray, np.generic, jax.Array)


def generator_states(function: Callable[..., Any]) -> dict[str, object]:
    """The states of the shared generators, and of those that `function` can reach, by name.

    It reaches what its object holds, in attributes and containers, what it and the functions among
    these have captured, and the generators among the globals that they name.
    """
    shared = {"np.random": np.random.random.__self__, "random": random.random.__self__}  # pyright: ignore[reportFunctionMemberAccess]
    states = {name: _state(generator) for name, generator in shared.items()}
    owner = getattr(function, "__self__", None)
    waiting = [("self", owner), ("", getattr(function, "__func__", function))]
    seen = {id(generator): generator for generator in shared.values()}  # kept, so that ids last
    while waiting and len(seen) < MAX_OBJECTS:
        name, found = waiting.pop()
        if id(found) in seen or isinstance(found, _OPAQUE):
            continue
        seen[id(found)] = found
        if isinstance(found, Generator):
            states[name.lstrip(".")] = _state(found)
        else:
            waiting += [(name + step, inner) for step, inner in _held_by(found)]
    return states


def _held_by(holder: object) -> Iterator[tuple[str, object]]:
    """What an object holds, with what its name adds to the holder's."""
    if isinstance(holder, dict):
        yield from ((f"[{key!r}]", value) for key, value in holder.items())
    elif isinstance(holder, list | tuple | set | frozenset):
        yield from ((f"[{index}]", value) for index, value in enumerate(holder))
    elif isinstance(holder, functools.partial):
        yield from (("", inner) for inner in (holder.func, holder.args, holder.keywords))
    yield "", getattr(holder, "__self__", None)  # of a method, also of one of a generator
    yield "", getattr(holder, "__func__", None)
    yield from _captured_by(holder)
    attributes = getattr(holder, "__dict__", None)
    slots = (slot for base in type(holder).__mro__ for slot in base.__dict__.get("__slots__", ()))
    names = [*(attributes if isinstance(attributes, dict) else ()), *slots]
    yield from ((f".{name}", getattr(holder, name, None)) for name in names)


def _captured_by(function: object) -> Iterator[tuple[str, object]]:
    code = getattr(function, "__code__", None)
    if code is None:
        return
    cells = zip(code.co_freevars, getattr(function, "__closure__", None) or (), strict=False)
    for name, cell in cells:
        try:
            yield f".{name}", cell.cell_contents
        except ValueError:  # it is not filled yet
            continue
    named = getattr(function, "__globals__", {})
    held = ((name, named.get(name)) for name in code.co_names)
    yield from ((f".{name}", value) for name, value in held if isinstance(value, Generator))


def _state(generator: Generator) -> object:
    """Equal before and after if nothing was drawn; None if the operating system draws."""
    if isinstance(generator, random.SystemRandom):
        return None
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.Generator):
        return _plain(generator.bit_generator.state)
    return _plain(generator.get_state(legacy=False))


def _plain(state: object) -> object:
    if isinstance(state, dict):
        return {name: _plain(value) for name, value in state.items()}
    return state.tobytes() if isinstance(state, np.ndarray) else state
