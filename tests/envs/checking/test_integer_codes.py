"""Integers that look like codes: which Boxes are warned of, and which are left alone."""

import numpy as np
import pytest
from gymnasium import spaces

from rlkit.envs import check_env
from rlkit.envs.checking.integer_codes import code_findings
from rlkit.envs.probes.value_probes import ActionChoice

BYTES = spaces.Box(0, 255, (7, 7, 3), np.uint8)
GRID = spaces.Box(0, 10, (5, 5), np.uint8)


def texts(space, low, high):
    return [str(finding) for finding in code_findings("obs", space, low, high)]


@pytest.mark.fast
@pytest.mark.parametrize("space", [GRID, spaces.Box(0, 3, (25,), np.int32)])
def test_small_equal_ranges_look_like_codes(space):
    (text,) = texts(space, 0, 3)
    assert text.startswith(
        f"warning: obs holds integers from 0 to {space.high.max()}; if these are"
    )
    assert "spaces.MultiDiscrete(" in text and "embedding_threshold" in text


@pytest.mark.fast
def test_bytes_that_hardly_differ_from_0_are_codes_or_badly_scaled():
    (text,) = texts(BYTES, 0, 10)
    assert "never exceeds 10, but its space allows 255; declare the highest value" in text
    (dark,) = texts(BYTES, 0, 31)
    assert "MultiDiscrete" in dark
    assert texts(BYTES, 0, 32) == texts(BYTES, 0, 255) == texts(BYTES, 0, 0) == []


@pytest.mark.fast
@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 1, (9, 9), np.uint8),  # a board of yes and no
        spaces.Box(-1, 1, (9, 9), np.int8),  # of mine and yours
        spaces.Box(0, np.array([8, 11]), dtype=np.int32),  # counts, each with a range of its own
        spaces.Box(0, 9, (1,), np.int32),
        spaces.Box(0, 32, (4,), np.int32),
        spaces.Box(0.0, 10.0, (5, 5)),
        spaces.MultiDiscrete([11, 11]),
        spaces.Discrete(11),
    ],
)
def test_what_is_no_code_is_left_alone(space):
    assert texts(space, 0, 3) == []


class OfGrid(ActionChoice):
    observation_space = GRID

    def reset(self, key):
        return np.float32(0), np.zeros((5, 5), np.uint8)

    def step(self, key, state, action):
        _, _, *rest = super().step(key, state, action)
        return state, np.zeros((5, 5), np.uint8), *rest


def test_check_env_tells_of_a_jittable_one():
    report = check_env(OfGrid(), num_steps=20)
    assert any("observation holds integers from 0 to 10" in each.what for each in report.warnings)
