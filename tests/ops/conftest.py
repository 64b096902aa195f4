"""The maths is tested under strict settings, which flax and gymnax do not support."""

import jax
import pytest


@pytest.fixture(autouse=True)
def no_rank_promotion():
    with jax.numpy_rank_promotion("raise"):
        yield
