"""The maths is tested under strict settings; flax and gymnax break under them, so elsewhere they
are off.
"""

import jax
import pytest


@pytest.fixture(autouse=True)
def no_rank_promotion():
    with jax.numpy_rank_promotion("raise"):
        yield
