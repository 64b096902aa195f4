"""The axis of seeds on the host: S seeds of N environments are S·N environments in one adapter."""

import jax
import numpy as np
from jax import Array

from rlkit.types import PyTree


def split_seeds(tree: PyTree, num_seeds: int) -> PyTree:
    """Leaves [S·N, ...] as [S, N, ...]; unchanged for a single seed."""
    if num_seeds == 1:
        return tree
    return jax.tree.map(lambda x: np.asarray(x).reshape(num_seeds, -1, *np.shape(x)[1:]), tree)


def merge_seeds(tree: PyTree, num_seeds: int) -> PyTree:
    """Leaves [S, N, ...] as NumPy arrays [S·N, ...]; waits until they are computed."""
    if num_seeds == 1:
        return np.asarray(tree) if isinstance(tree, jax.Array) else jax.tree.map(np.asarray, tree)
    return jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[2:]), tree)


def join_envs(trees: list[PyTree], num_seeds: int, *, axis: int = 0) -> PyTree:
    """Joins the trees of env groups; leaves become NumPy arrays.

    `axis` is the environment axis of a single seed; with several, it follows the seed axis.
    """
    axis = axis if num_seeds == 1 else axis + 1

    def join(*leaves: np.ndarray) -> np.ndarray:
        arrays = [np.asarray(x) for x in leaves]
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis)

    return jax.tree.map(join, *trees)


def split_envs(tree: PyTree, num_groups: int, num_seeds: int) -> list[PyTree]:
    """The reverse for leaves [(S,) N, ...]: one tree per group."""
    if num_groups == 1:
        return [tree]
    axis = 0 if num_seeds == 1 else 1
    parts: list[list[Array]] = [jax.numpy.split(x, num_groups, axis) for x in jax.tree.leaves(tree)]
    structure = jax.tree.structure(tree)
    return [
        jax.tree.unflatten(structure, [part[index] for part in parts])
        for index in range(num_groups)
    ]
