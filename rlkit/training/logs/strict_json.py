"""JSON as its standard knows it, which has no NaN and no infinities."""

import json
import math
from typing import Any


def to_strict_json(value: Any, *, indent: int | None = None) -> str:
    """Plain data as JSON: NaN is null, infinities are "Infinity" and "-Infinity"."""
    return json.dumps(_without_nan(value), allow_nan=False, indent=indent)


def number_from_json(value: float | str | None) -> float:
    """A number that `to_strict_json` wrote."""
    return math.nan if value is None else float(value)


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(each) for each in value]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
