"""Whether two trees of arrays are the same."""

import jax
import jax.numpy as jnp
import numpy as np

from rlkit.types import PyTree


def assert_same(first: PyTree, second: PyTree, what: str, **tolerance: float) -> None:
    """Raises `AssertionError`, which begins with `what`, unless all leaves are equal.

    Equal in structure, dtype and every bit (NaN equals NaN); with `rtol` and `atol`, floats may
    differ by as much.
    """
    structures = jax.tree.structure(first), jax.tree.structure(second)
    if structures[0] != structures[1]:
        raise AssertionError(f"{what}: {structures[0]} is not {structures[1]}")
    for (path, x), y in zip(jax.tree.leaves_with_path(first), jax.tree.leaves(second), strict=True):
        x, y = _array(x), _array(y)
        where = f"{what}{jax.tree_util.keystr(path)}"
        if x.dtype != y.dtype or x.shape != y.shape:
            raise AssertionError(f"{where}: {x.dtype}{[*x.shape]} is not {y.dtype}{[*y.shape]}")
        is_float = jnp.issubdtype(x.dtype, jnp.inexact)
        if tolerance and is_float:
            equal = np.isclose(x, y, equal_nan=True, **tolerance)
        else:
            equal = (x == y) | ((x != x) & (y != y))
        if not np.all(equal):
            index = tuple(map(int, np.argwhere(~np.asarray(equal))[0]))
            raise AssertionError(f"{where}{[*index] or ''}: {x[index]} is not {y[index]}")


def _array(leaf: object) -> np.ndarray:
    """A leaf on the host; keys become their data."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)
