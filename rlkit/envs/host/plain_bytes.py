"""Plain values as bytes: numbers, text, arrays, lists, tuples and dicts. Must not import JAX.

For states of environments in checkpoints. Reading runs no code and makes no other kinds of values.
The bytes are a length, JSON in which arrays are named by their place, and the arrays' own bytes.
"""

import json
import math
from typing import Any

import numpy as np

from rlkit.errors import EnvStateError

Plain = Any  # None, bool, int, float, str, an array or scalar of numbers, or list, tuple, dict

_HEADER = 8  # bytes: the length of the JSON, little-endian
_DTYPES = {
    np.dtype(name).name
    for name in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
}
_DEEPEST = 50  # levels of lists, tuples and dicts


def pack(value: Plain) -> np.ndarray:
    """`value` as bytes, [B] uint8. Raises `EnvStateError`, naming the part that is not plain."""
    arrays: list[bytes] = []
    text = json.dumps(_written(value, "state", arrays, 0)).encode()
    parts = [len(text).to_bytes(_HEADER, "little"), text, *arrays]
    return np.frombuffer(b"".join(parts), np.uint8)


def unpack(data: np.ndarray) -> Plain:
    """The value that was packed; bit for bit, and of the same types.

    Raises `EnvStateError` for anything else.
    """
    try:
        raw = np.asarray(data, np.uint8).tobytes()
        end = _HEADER + int.from_bytes(raw[:_HEADER], "little")
        if len(raw) < end:
            raise ValueError("it is cut off")
        return _read(json.loads(raw[_HEADER:end]), raw[end:])
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise EnvStateError(f"the saved state of an environment cannot be read: {error}") from None


def _written(value: Plain, where: str, arrays: list[bytes], depth: int) -> Any:
    """`value` as JSON data; the bytes of its arrays are added to `arrays`."""
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (np.ndarray, np.generic)):
        if value.dtype.name in _DTYPES:
            kind = "array" if isinstance(value, np.ndarray) else "scalar"
            start = sum(map(len, arrays))
            arrays.append(np.asarray(value, value.dtype.newbyteorder("=")).tobytes())
            return {kind: [value.dtype.name, list(value.shape), start]}
    elif depth < _DEEPEST and type(value) in (list, tuple):
        parts = [_written(x, f"{where}[{i}]", arrays, depth + 1) for i, x in enumerate(value)]
        return {type(value).__name__: parts}
    elif depth < _DEEPEST and type(value) is dict and all(type(name) is str for name in value):
        parts = {n: _written(x, f"{where}[{n!r}]", arrays, depth + 1) for n, x in value.items()}
        return {"dict": parts}
    raise EnvStateError(
        f"{where} is a {type(value).__name__}; use numbers, text, arrays of numbers, lists, tuples"
        " and dicts with text as keys"
    )


def _read(value: Any, arrays: bytes) -> Plain:
    if not isinstance(value, dict):
        if isinstance(value, list):
            raise ValueError("it has a list without a kind")
        return value
    ((kind, content),) = value.items()
    if kind in ("list", "tuple"):
        parts = [_read(x, arrays) for x in content]
        return parts if kind == "list" else tuple(parts)
    if kind == "dict":
        return {name: _read(x, arrays) for name, x in content.items()}
    if kind not in ("array", "scalar"):
        raise ValueError(f"it has a value of the unknown kind {kind!r}")
    name, shape, start = content
    array = _array(name, shape, start, arrays)
    return array if kind == "array" else array[()]


def _array(name: str, shape: list[int], start: int, arrays: bytes) -> np.ndarray:
    if name not in _DTYPES or any(type(n) is not int or n < 0 for n in (*shape, start)):
        raise ValueError(f"it has an array of {name!r} and shape {shape}")
    count, size = math.prod(shape), np.dtype(name).itemsize
    if start + count * size > len(arrays):
        raise ValueError(f"an array of shape {shape} is cut off")
    # A copy, because environments may write into their arrays.
    return np.frombuffer(arrays, name, count, start).reshape(shape).copy()
