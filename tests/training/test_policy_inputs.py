"""Observations that a policy is given: in the structure and dtypes of the space, or refused."""

import collections

import numpy as np
import pytest
from gymnasium import spaces

from rlkit.errors import ConfigError
from rlkit.training.policy_inputs import batch_of

pytestmark = pytest.mark.fast

SPACE = spaces.Dict(
    {
        "a": spaces.Box(-1.0, 1.0, (2,), np.float64),
        "b": spaces.Box(-1.0, 1.0, (2,)),
        "image": spaces.Box(0, 255, (2, 2, 1), np.uint8),
        "code": spaces.Discrete(3),
    }
)
PAIR = spaces.Tuple((spaces.Box(-1.0, 1.0, (2,)), spaces.MultiBinary(1)))


def observations(**parts):
    own = {
        "a": np.zeros((3, 2)),
        "b": np.ones((3, 2), np.float32),
        "image": np.full((3, 2, 2, 1), 7, np.uint8),
        "code": np.array([1, 2, 0]),
    }
    return own | parts


def test_structure_and_dtypes_are_those_of_the_space():
    shuffled = collections.OrderedDict(reversed(observations().items()))
    for obs in (
        observations(),
        shuffled,
        observations(b=np.ones((3, 2), int), image=np.full((3, 2, 2, 1), 7.0), code=[1, 2, 0]),
    ):
        found, size = batch_of(SPACE, obs)
        assert size == 3 and list(found) == list(SPACE.spaces) and type(found) is dict
        dtypes = {name: part.dtype.name for name, part in found.items()}
        assert dtypes == {"a": "float32", "b": "float32", "image": "uint8", "code": "int32"}
        for name, part in observations().items():
            np.testing.assert_array_equal(found[name], part)
    found, size = batch_of(PAIR, [np.zeros((1, 2)), [[True]]])
    assert type(found) is tuple and size == 1 and found[1].dtype == np.int8


MISTAKES = {
    "no dict": ((1, 2), r"has the parts \['a', 'b', 'code', 'image'\] here, got tuple"),
    "another name": (observations(c=1), r"got \['a', 'b', 'image', 'code', 'c'\]; pass what"),
    "a dict as an array": (observations(a={}), r"observation\['a'\] is an array of numbers .* {}"),
    "text": (observations(a="up"), r"\['a'\] is an array of numbers here, got 'up'"),
    "complex": (observations(a=np.zeros((3, 2), complex)), "is an array of numbers here"),
    "ragged": (observations(a=[[1.0, 2.0], [3.0]]), r"numbers here, got \[\[1.0, 2.0\], \[3.0\]\]"),
    "a single one": (observations(a=np.zeros(2)), r"\(B, 2\), got shape \(2,\) as .*obs\[None\]"),
    "rows": (observations(a=np.zeros((2, 2))), "parts of the observations have 2, 3 rows; give"),
    "none": (
        {k: np.asarray(v)[:0] for k, v in observations().items()},
        "a batch of 0 observations",
    ),
    "scaled": (observations(image=np.full((3, 2, 2, 1), 0.5)), "is of uint8 .* cannot hold 0.5; p"),
    "too large": (observations(code=[2**40, 0, 1]), "of int32 here and cannot hold 1099511627776"),
    "no code": (observations(code=[np.nan, 0, 1]), "of int32 here and cannot hold nan"),
    "infinite": (observations(b=np.full((3, 2), 1e300)), r"\['b'\] holds NaN or infinity, for"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_does_not_fit_is_refused(mistake):
    obs, problem = MISTAKES[mistake]
    with pytest.raises(ConfigError, match=problem):
        batch_of(SPACE, obs)


def test_tuples_have_their_length():
    with pytest.raises(ConfigError, match="has 2 parts here, got 1; pass what the environment"):
        batch_of(PAIR, (np.zeros((1, 2)),))
    with pytest.raises(ConfigError, match="has 2 parts here, got dict"):
        batch_of(PAIR, {})
