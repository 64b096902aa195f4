"""What a sweep varies: lists of values and ranges, as text, as plain data, and drawn. No JAX."""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import yaml

from rlkit.errors import ConfigError, require, shown
from rlkit.training.plain_yaml import parse_yaml
from rlkit.validation import PlainData, is_array
from rlkit.whole_numbers import require_no_groups

DIGITS = 4  # significant digits of a drawn number: enough to search, short enough to read
LIST_FORM = "NAME=VALUE,VALUE (learning_rate=1e-4,3e-4)"
RANGE_FORM = "NAME=LOW..HIGH (gamma=0.95..0.999), or NAME=LOW..HIGH:log"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Range:
    """Numbers between two limits, both included; whole ones if both limits are whole.

    In a `SweepConfig`, whole limits draw fractions too if the setting may have them:
    `gae_lambda=0..1`.
    """

    low: float
    high: float
    log: bool = False
    """Draw the logarithm uniformly, not the number itself."""

    def __post_init__(self) -> None:
        for limit in (self.low, self.high):
            is_number = isinstance(limit, int | float) and not isinstance(limit, bool)
            fix = "use for example Range(low=0.9, high=0.999)"
            is_small = not isinstance(limit, int) or abs(limit) < 2**63
            require(is_small, f"a range has whole limits below 2**63, got {shown(limit)}", fix)
            require(
                is_number and math.isfinite(limit),
                f"a range needs numbers as limits, got {shown(limit)}",
                fix,
            )
        require(
            self.low < self.high,
            f"the range {self} is empty",
            f"write the smaller number first: {self.high:g}..{self.low:g}",
        )
        require(
            math.isfinite(self.high - self.low),
            f"the range {self} is wider than any number",
            "choose limits that are nearer to each other",
        )
        require(
            not self.log or self.low > 0,
            f"the range {self} has no logarithms",
            "start above 0, or leave out :log",
        )

    def __str__(self) -> str:
        return f"{self.low:g}..{self.high:g}{':log' if self.log else ''}"

    @property
    def is_whole(self) -> bool:
        """Whether only whole numbers are drawn."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def draw(self, dice: np.random.Generator) -> float | int:
        """A number from the range, see `rounded`."""
        if self.is_whole and not self.log:
            return int(dice.integers(int(self.low), int(self.high), endpoint=True))
        low, high = (math.log(x) if self.log else x for x in (self.low, self.high))
        drawn = dice.uniform(low, high)
        number = self.rounded(math.exp(drawn) if self.log else drawn)
        return round(number) if self.is_whole else number

    def rounded(self, number: float) -> float:
        """The number within the limits, with four significant digits, more in a narrow range."""
        narrowness = max(abs(self.low), abs(self.high)) / (self.high - self.low)
        digits = DIGITS + max(math.floor(math.log10(narrowness)) - 1, 0)
        return min(max(float(f"{number:.{digits}g}"), self.low), self.high)


Values = tuple[Any, ...]


def parse_grid(texts: Sequence[str]) -> dict[str, Values]:
    """`["gamma=0.9,0.99"]` as lists of values by name. Raises `ConfigError` for anything else."""
    return {name: _values(name, text) for name, text in _named(texts, LIST_FORM).items()}


def parse_random(texts: Sequence[str]) -> dict[str, Range | Values]:
    """`["gamma=0.9..0.99", "optimizer=adam,lion"]` as ranges or lists of values by name.

    Raises `ConfigError` for anything else.
    """
    named = _named(texts, RANGE_FORM)
    found = {
        name: _range(name, text) if ".." in text else _values(name, text)
        for name, text in named.items()
    }
    for name, values in found.items():
        require(
            isinstance(values, Range) or len(values) > 1,
            f"{name}={named[name]} is one value, of which there is nothing to draw",
            f"write {name}=LOW..HIGH, or several values: {name}=VALUE,VALUE",
        )
    return found


def draw_trials(
    grid: Mapping[str, Sequence[Any]],
    random: Mapping[str, Range | Sequence[Any]],
    trials: int | None,
    seed: int,
) -> list[PlainData]:
    """The settings of each trial, by name.

    Every combination of the grid comes in turn, with new draws of the `random` settings each time,
    until there are `trials` (None: each combination once). Draws depend on `seed` alone.

    Raises `ConfigError` if the number of trials is missing, or smaller than the grid.
    """
    require(
        bool(grid or random),
        "the sweep varies nothing",
        "add --grid NAME=VALUE,VALUE or --random NAME=LOW..HIGH --trials N",
    )
    combinations = list(itertools.product(*grid.values()))
    require(
        trials is not None or not random,
        f"{', '.join(random)} is drawn at random, so the number of trials must be given",
        f"add --trials {4 * len(combinations)}",
    )
    count = len(combinations) if trials is None else trials
    require(
        count >= len(combinations),
        f"{count} trials are fewer than the {len(combinations)} combinations of the grid",
        f"use --trials {len(combinations)} or more, or a smaller grid",
    )
    require(
        count == len(combinations) or bool(random),
        f"{count} trials are more than the {len(combinations)} combinations of the grid",
        "leave out --trials, or add --random settings; --num-seeds repeats trials",
    )
    dice = np.random.default_rng(seed)
    found = []
    for index in range(count):
        chosen = dict(zip(grid, combinations[index % len(combinations)], strict=True))
        drawn = {
            name: space.draw(dice)
            if isinstance(space, Range)
            else space[int(dice.integers(len(space)))]
            for name, space in random.items()
        }
        found.append(chosen | drawn)
    return found


def to_plain(space: Mapping[str, Range | Sequence[Any]]) -> PlainData:
    """Lists and ranges as plain data, as a sweep's YAML file has them."""
    return {
        name: dataclasses.asdict(part) if isinstance(part, Range) else part
        for name, part in space.items()
    }


def from_plain(space: object, *, where: str) -> dict[str, Range | Values]:
    """The opposite of `to_plain`. Raises `ConfigError` for anything else."""
    fix = "use `gamma: [0.9, 0.99]`, or `gamma: {low: 0.9, high: 0.99}`"
    if not isinstance(space, dict):
        raise ConfigError(f"{where} must map names to values, got {shown(space)}; {fix}")
    found: dict[str, Range | Values] = {}
    for name, part in space.items():
        if isinstance(part, dict):
            known = {"low", "high"} <= part.keys() <= {"low", "high", "log"}
            require(known, f"{where}.{name} is no range: {shown(part)}", fix)
            found[name] = Range(**part)
        else:
            part = part.tolist() if is_array(part) else part
            is_list = isinstance(part, list | tuple) and len(part) > 0
            require(is_list, f"{where}.{name} must be a list, got {shown(part)}", fix)
            found[name] = tuple(_hashable(value) for value in part)
    return found


def _named(texts: Sequence[str], form: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        name = name.strip().lstrip("-").replace("-", "_")
        require(
            bool(name and equals and rest.strip()),
            f"cannot read {text!r}",
            f"write {form}",
        )
        require(name not in found, f"{name} is given twice", "join its values with commas")
        found[name] = rest.strip()
    return found


def _values(name: str, text: str) -> Values:
    require(
        ".." not in text,
        f"{name}={text} is a range, which a grid has no values for",
        f"list values, or use --random {name}={text}",
    )
    try:
        parsed = parse_yaml(f"[{text}]")
    except yaml.YAMLError:
        raise ConfigError(
            f"cannot read the values of {name}: {text!r}; write {LIST_FORM}"
        ) from None
    require_no_groups(name, text)
    values = tuple(_hashable(value) for value in parsed)
    twice = [value for value in values if values.count(value) > 1]
    told = twice[0] if twice else None
    require(not twice, f"{name} has the value {told!r} twice", "leave one of them out")
    return values


def _hashable(value: Any) -> Any:
    """Plain data: numbers of NumPy become Python's, lists become tuples."""
    value = value.tolist() if is_array(value) else value
    return tuple(_hashable(each) for each in value) if isinstance(value, list | tuple) else value


def _range(name: str, text: str) -> Range:
    limits, colon, scale = text.partition(":")
    require(
        not colon or scale == "log",
        f"{name}={text} ends with {scale!r}",
        f"write {RANGE_FORM}",
    )
    try:
        numbers = [parse_yaml(part) for part in limits.split("..")]
    except yaml.YAMLError:
        numbers = []
    require(len(numbers) == 2, f"{name}={text} is no range", f"write {RANGE_FORM}")
    return Range(low=numbers[0], high=numbers[1], log=bool(colon))
