"""A run as plain data: whatever its parts hold, YAML can write it."""

import enum

import numpy as np
import pytest
import yaml
from gymnasium import spaces

from rlkit.envs import registry
from rlkit.envs.probes.space_probes import Counter
from rlkit.training.files.run_description import describe, plain

pytestmark = pytest.mark.fast


class Mode(enum.Enum):
    DAY = 1


class Level(enum.IntEnum):
    HIGH = 3


class Season(enum.StrEnum):
    SUMMER = "summer"


class Metres(float):
    pass


class Place:
    def __init__(self):
        self.mode, self.level, self.season, self.size = Mode.DAY, Level.HIGH, Season.SUMMER, 2
        self.height, self.space, self.weights = Metres(1.5), spaces.Discrete(3), np.ones(2)
        self._hidden = 5


def test_every_value_becomes_what_yaml_can_write():
    found = plain({"env": Place(), "modes": (Mode.DAY, True, None)})
    assert found == {
        "env": {
            "type": "Place",
            "mode": "Mode.DAY",
            "level": "3",
            "season": "summer",
            "size": 2,
            "height": 1.5,
            "space": "Discrete(3)",
            "weights": [1.0, 1.0],
        },
        "modes": ["Mode.DAY", True, None],
    }
    assert yaml.safe_load(yaml.safe_dump(found)) == found


@pytest.mark.parametrize(
    ("argument", "custom"),
    [
        (3, []),
        ((1, 2), []),
        (np.ones(2), []),
        (Mode.DAY, ["env.arguments"]),
        (Place, ["env.arguments"]),
    ],
)
def test_arguments_that_no_file_holds_are_named(tiny, monkeypatch, argument, custom):
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    registry.register_env("mine/Counter-v0", lambda when=None: Counter())
    env = registry.make_env("mine/Counter-v0", 2, when=argument)
    found = describe(tiny.module(env=env), None, tiny.config(), 0)
    assert found.get("custom", []) == custom
    yaml.safe_dump(found)
