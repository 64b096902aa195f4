"""JSON without NaN and infinities."""

import json
import math

import pytest

from rlkit.training.logs.strict_json import number_from_json, to_strict_json

pytestmark = pytest.mark.fast


def test_numbers_that_json_does_not_know_are_written_and_read_back():
    numbers = [1.5, math.nan, math.inf, -math.inf]
    text = to_strict_json({"a": {"b": numbers}, "c": (True, None, 2, "NaN")})

    def refuse(constant):
        raise AssertionError(constant)

    found = json.loads(text, parse_constant=refuse)
    assert found == {"a": {"b": [1.5, None, "Infinity", "-Infinity"]}, "c": [True, None, 2, "NaN"]}
    again = [number_from_json(value) for value in found["a"]["b"]]
    assert math.isnan(again.pop(1)) and again == [1.5, math.inf, -math.inf]
