"""Running mean and variance of pytrees, and normalization with them."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

PyTree = Any

# Batches that the statistics remember. float32 counts by ones only up to 2**24: the count would
# stand still while m2 grows, and the variance with it.
MOST_BATCHES = 2.0**20


class RunningStats(struct.PyTreeNode, kw_only=True):
    """Mean and variance of all values so far; `mean` and `m2` have the shape of one example.

    `m2` is the sum of squared deviations from the mean, so `variance = m2 / count` (Welford; Chan
    et al. 1979).
    """

    count: Array  # [] float32
    mean: PyTree
    m2: PyTree

    @property
    def variance(self) -> PyTree:
        """Population variance; 1 while empty."""
        return jax.tree.map(
            lambda m2: jnp.where(self.count > 0, m2 / jnp.maximum(self.count, 1.0), 1.0), self.m2
        )


def init_stats(example: PyTree) -> RunningStats:
    """Empty statistics for examples shaped like `example` (arrays or `jax.ShapeDtypeStruct`)."""
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), example)
    return RunningStats(count=jnp.float32(0.0), mean=zeros, m2=jax.tree.map(jnp.copy, zeros))


def fold(stats: RunningStats, batch: PyTree, axis_name: str | None = None) -> RunningStats:
    """Adds a batch to the statistics; every axis that `stats.mean` lacks is a batch axis.

    With `axis_name`, the batches of all devices are added at once, and every device gets the same
    result. Adding two batches in turn equals adding their concatenation, up to rounding. From
    2**20 batches of this size on, the oldest are slowly forgotten.
    """
    example, leaf = jax.tree.leaves(stats.mean)[0], jax.tree.leaves(batch)[0]
    batch_shape = leaf.shape[: leaf.ndim - example.ndim]
    axes = tuple(range(len(batch_shape)))
    added = jnp.float32(1.0)
    for size in batch_shape:
        added = added * size
    mean = jax.tree.map(lambda x: x.astype(jnp.float32).mean(axes), batch)
    if axis_name is not None:
        mean = jax.lax.pmean(mean, axis_name)
        added = jax.lax.psum(added, axis_name)
    m2 = jax.tree.map(
        lambda x, m: jnp.square(x.astype(jnp.float32) - jnp.broadcast_to(m, x.shape)).sum(axes),
        batch,
        mean,
    )
    if axis_name is not None:
        m2 = jax.lax.psum(m2, axis_name)

    kept = jnp.minimum(stats.count, (MOST_BATCHES - 1.0) * added)
    share = jnp.where(stats.count > kept, kept / jnp.maximum(stats.count, 1.0), 1.0)
    count = kept + added
    delta = jax.tree.map(jnp.subtract, mean, stats.mean)
    return RunningStats(
        count=count,
        mean=jax.tree.map(lambda old, d: old + d * (added / count), stats.mean, delta),
        m2=jax.tree.map(
            lambda old, new, d: old * share + new + jnp.square(d) * (kept * added / count),
            stats.m2,
            m2,
            delta,
        ),
    )


def normalize(
    stats: RunningStats | None, values: PyTree, clip: float = 10.0, epsilon: float = 1e-8
) -> PyTree:
    """`(values - mean) / sqrt(variance + epsilon)`, clipped to ±clip; unchanged if `stats` is None.

    Integer leaves (categories, images) are always left unchanged: networks encode them.
    """
    if stats is None:
        return values

    def one(value: Array, mean: Array, variance: Array) -> Array:
        if not jnp.issubdtype(value.dtype, jnp.floating):
            return value
        mean, scale = (
            jnp.broadcast_to(x, value.shape) for x in (mean, jax.lax.rsqrt(variance + epsilon))
        )
        return jnp.clip((value.astype(jnp.float32) - mean) * scale, -clip, clip)

    return jax.tree.map(one, values, stats.mean, stats.variance)
