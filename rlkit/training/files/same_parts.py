"""`same`: whether two parts of a run, built apart, would do the same."""

import dataclasses
import functools
import types
from typing import Any

import jax
import numpy as np
from gymnasium import spaces
from jax import dtypes

ATOMS = (str, bytes, int, float, complex, bool, type(None), spaces.Space, type)


def same(one: object, other: object) -> bool:
    """Whether two objects have equal types and fields, all the way down.

    Functions are the same if their code is, and what they close over; classes that a function
    defines, if their bases and members are. Objects without fields that
    compare by identity are taken for the same; fields that a dataclass does not compare are not.
    """
    return _same(one, other, set())


def _same(one: Any, other: Any, seen: set[tuple[int, int]]) -> bool:
    if one is other or (id(one), id(other)) in seen:
        return True
    if type(one) is not type(other):
        return False
    seen.add((id(one), id(other)))  # two that hold themselves are compared once
    if isinstance(one, type) and "<locals>" in one.__qualname__:
        pairs = zip(_class_parts(one), _class_parts(other), strict=True)
        return all(_same(*pair, seen) for pair in pairs)
    if isinstance(one, ATOMS):
        return bool(one == other) or (one != one and other != other)
    if isinstance(one, np.ndarray | np.generic | jax.Array):
        return _same_arrays(one, other)
    first, second = _inside(one), _inside(other)
    return len(first) == len(second) and all(
        _same(*pair, seen) for pair in zip(first, second, strict=True)
    )


def _same_arrays(one: Any, other: Any) -> bool:
    if isinstance(one, jax.Array) and jax.numpy.issubdtype(one.dtype, dtypes.prng_key):
        one, other = jax.random.key_data(one), jax.random.key_data(other)
    return one.dtype == other.dtype and np.array_equal(one, other)


def _inside(value: Any) -> list[Any]:
    """What an object is made of."""
    if isinstance(value, types.FunctionType):
        cells = [_content(cell) for cell in value.__closure__ or ()]
        return [value.__code__.co_qualname, value.__defaults__, value.__kwdefaults__, *cells]
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, dict):
        return [*value, *value.values()]
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    fields = getattr(value, "__dict__", {})
    if dataclasses.is_dataclass(value):
        left_out = {field.name for field in dataclasses.fields(value) if not field.compare}
        fields = {name: field for name, field in fields.items() if name not in left_out}
    return [(name, fields[name]) for name in sorted(fields) if not name.startswith("_")]


def _class_parts(one: type) -> list[Any]:
    """The name of a class, its bases and its members, without those that Python adds."""
    left_out = {"__dict__", "__weakref__"}
    members = {name: member for name, member in vars(one).items() if name not in left_out}
    return [one.__module__, one.__qualname__, one.__bases__, members]


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing yet
        return None
