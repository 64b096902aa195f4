"""Optimisers of every kind, and what they are tested with."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

PARAMS = {"a": jnp.array([1.0, -2.0]), "b": jnp.array([[3.0]])}
GRADIENTS = {"a": jnp.array([0.5, -0.1]), "b": jnp.array([[2.0]])}
# Their states hold counters, typed keys, arrays of every shape, nothing, what is not changed, and
# what a `cond` chooses.
OPTIMIZERS = {
    "adam": optax.adam(0.1),
    "adamw": optax.adamw(optax.cosine_decay_schedule(0.1, 10)),
    "sgd": optax.sgd(0.1),
    "chain": optax.chain(
        optax.clip_by_global_norm(1.0), optax.add_noise(0.1, 0.5, 0), optax.lion(0.01)
    ),
    "injected": optax.inject_hyperparams(optax.rmsprop)(learning_rate=0.01),
    "multi_steps": optax.MultiSteps(optax.adam(0.1), every_k_schedule=2),
    "if_finite": optax.apply_if_finite(optax.adafactor(0.1), 3),
}


def raw(x):
    return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x


def assert_equal(found, wanted, rounding=0.0):
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(raw(a), raw(b), rtol=rounding), found, wanted
    )
