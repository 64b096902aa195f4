"""These tests are of the tricks themselves, so that they are on whatever the suite runs with."""

import pytest


@pytest.fixture(autouse=True)
def _tuned(tuned: None) -> None:
    pass
