"""What may happen to the files of a checkpoint."""

import dataclasses
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

RECORD, SIGNATURE = "record/metadata", "signature/metadata"


@dataclasses.dataclass(frozen=True)
class Place:
    """Where damage is done."""

    step: Path  # the newest checkpoint
    older: Path  # the one before it
    other: Path  # the newest one of the same run with another seed
    dice: random.Random

    def file(self) -> Path:
        """Any file of the newest checkpoint that is not empty."""
        paths = (path for path in self.step.rglob("*") if path.is_file() and path.stat().st_size)
        return self.dice.choice(sorted(paths))


Damage = Callable[[Place], object]


def damages(is_sample: bool) -> Iterator[tuple[str, Damage]]:
    """Each with its name: random ones, many times, and every one of the structural ones."""
    for name, damage in RANDOM.items():
        for _ in range(6 if is_sample else 24):
            yield name, damage
    for name, damage in STRUCTURAL.items():
        yield name, damage


def _flip(place: Place) -> None:
    path = place.file()
    content = bytearray(path.read_bytes())
    content[place.dice.randrange(len(content))] ^= 1 << place.dice.randrange(8)
    path.write_bytes(content)


def _flip_data(place: Place) -> None:
    """In one of the files that hold the arrays."""
    path = place.dice.choice(sorted(path for path in place.step.glob("*/**/d/*")))
    content = bytearray(path.read_bytes())
    content[place.dice.randrange(len(content))] ^= 1 << place.dice.randrange(8)
    path.write_bytes(content)


def _truncate(place: Place) -> None:
    path = place.file()
    path.write_bytes(path.read_bytes()[: place.dice.randrange(path.stat().st_size)])


def _zero(place: Place) -> None:
    path = place.file()
    path.write_bytes(bytes(path.stat().st_size))


def _empty(place: Place) -> None:
    shutil.rmtree(place.step)
    place.step.mkdir()


def _empty_newer(place: Place) -> None:
    _next(place).mkdir()


def _newer_that_is_older(place: Place) -> None:
    shutil.copytree(place.older, _next(place))


def _newest_as_newer(place: Place) -> None:
    shutil.copytree(place.step, _next(place))


def _next(place: Place) -> Path:
    return place.step.with_name(str(int(place.step.name) + 1))


def _unfinished_newer(place: Place) -> None:
    shutil.copytree(place.older, place.step.with_name(f"{_next(place).name}.orbax-checkpoint-tmp"))


def _file_as_newer(place: Place) -> None:
    _next(place).touch()


def _swap_items(place: Place) -> None:
    (place.step / "learner").rename(place.step / "kept")
    (place.step / "local").rename(place.step / "learner")
    (place.step / "kept").rename(place.step / "local")


def _nested(place: Place) -> None:
    (place.step / RECORD).write_text("[" * 20_000)


def _remove(name: str) -> Damage:
    return lambda place: shutil.rmtree(place.step / name)


def _older(name: str) -> Damage:
    """A part of the older step in the place of the newest one's."""
    return lambda place: _replace(place.older / name, place.step / name)


def _other(name: str) -> Damage:
    """A part of the other run's step in the place of the newest one's."""
    return lambda place: _replace(place.other / name, place.step / name)


def _replace(source: Path, target: Path) -> None:
    shutil.rmtree(target)
    shutil.copytree(source, target)


def _edit(path: str, change: Callable[[Any], object]) -> Damage:
    """Edits a JSON file, as by hand: its checksum stays."""

    def damage(place: Place) -> None:
        sealed = json.loads((place.step / path).read_text())
        change(sealed)
        (place.step / path).write_text(json.dumps(sealed))

    return damage


def _metadata(**changes: object) -> Damage:
    return _edit(RECORD, lambda sealed: sealed["body"]["metadata"].update(changes))


RANDOM: dict[str, Damage] = {
    "a flipped bit": _flip,
    "a flipped bit in an array": _flip_data,
    "a truncated file": _truncate,
    "a file of zeros": _zero,
    "a deleted file": lambda place: place.file().unlink(),
}
STRUCTURAL: dict[str, Damage] = {
    "an empty step": _empty,
    "an empty newer step": _empty_newer,
    "the older step as a newer one": _newer_that_is_older,
    "the newest step again as a newer one": _newest_as_newer,
    "an unfinished newer step": _unfinished_newer,
    "a file in the place of a newer step": _file_as_newer,
    "no learner": _remove("learner"),
    "no local state": _remove("local"),
    "no policy": _remove("policy"),
    "no signature": _remove("signature"),
    "no record": _remove("record"),
    "the older step in its place": _older("."),
    "the older step's learner": _older("learner"),
    "the older step's local state": _older("local"),
    "the older step's policy": _older("policy"),
    "the older step's signature": _older("signature"),
    "the older step's record": _older("record"),
    "another run's step in its place": _other("."),
    "another run's learner": _other("learner"),
    "another run's local state": _other("local"),
    "another run's policy": _other("policy"),
    "another run's signature": _other("signature"),
    "another run's record": _other("record"),
    "learner and local state swapped": _swap_items,
    "brackets for a record": _nested,
    "an edited score": _edit(RECORD, lambda sealed: sealed["body"].update(score=1e9)),
    "an edited step": _edit(RECORD, lambda sealed: sealed["body"].update(step=1)),
    "edited environment steps": _metadata(env_steps=1),
    "edited keys": _metadata(keys=[1, 1]),
    "an edited fingerprint": _metadata(fingerprint={}),
    "a removed plan": _edit(RECORD, lambda sealed: sealed["body"]["metadata"].pop("plan")),
    "a record that is a list": _edit(RECORD, lambda sealed: sealed.update(body=[])),
    "a record without checksum": _edit(RECORD, lambda sealed: sealed.pop("crc32")),
    "an edited signature": _edit(
        SIGNATURE, lambda sealed: sealed["body"]["learner"][0].update(crc32=0)
    ),
    "a removed leaf": _edit(SIGNATURE, lambda sealed: sealed["body"]["learner"].pop()),
}
