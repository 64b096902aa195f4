"""The maths is tested under strict settings; elsewhere flax and gymnax break under them (facts from their installed versions)."""

import jax
import pytest


@pytest.fixture(autouse=True)
def no_rank_promotion():
    with jax.numpy_rank_promotion("raise"):
        yield
