"""Observations that no encoding of their space has room for."""

import numpy as np
import pytest
from gymnasium import spaces

from rlkit.envs.observations import check_bounds, is_far_outside
from rlkit.errors import EnvContractError

pytestmark = pytest.mark.fast
HALF_OPEN = spaces.Box(np.array([0.0, -np.inf]), np.array([2.0, np.inf]), dtype=np.float64)


@pytest.mark.parametrize(
    ("space", "array", "wanted"),
    [
        (spaces.Box(-1, 1, (2,)), np.array([21.0, -21.0]), [False, False]),
        (spaces.Box(-1, 1, (2,)), np.array([21.1, -21.1]), [True, True]),
        (spaces.Box(-1, 1, (2,)), np.array([np.nan, np.inf]), [False, False]),
        (HALF_OPEN, np.array([-20.5, -1e30]), [True, False]),
        (spaces.Box(0, 9, (2,), np.int64), np.array([9, 10]), [False, True]),
        (spaces.Discrete(3, start=1), np.array([0, 1, 3, 4]), [True, False, False, True]),
        (spaces.MultiDiscrete([2, 5]), np.array([[1, 4], [2, 5]]), [[False] * 2, [True] * 2]),
        (spaces.MultiBinary(2), np.array([1, 2]), [False, True]),
    ],
)
def test_far_is_ten_widths_from_a_box_of_floats_and_one_from_all_others(space, array, wanted):
    np.testing.assert_array_equal(is_far_outside(space, array), wanted)


def test_the_first_of_a_batch_that_is_wrong_is_shown():
    batch = np.zeros((2, 3, 2))
    batch[1, 1] = [0.5, 99.0]
    with pytest.raises(EnvContractError, match=r"obs \[ 0.5 99. \] is far outside its space Box"):
        check_bounds(spaces.Box(-1, 1, (2,)), batch, "obs")
