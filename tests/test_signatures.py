"""Functions that cannot be called as rlkit will, told before any is called."""

import pytest

from rlkit.errors import ConfigError
from rlkit.signatures import require_takes, require_takes_named, signature_of


def test_what_is_written_in_c_may_be_called():
    assert signature_of(dict.update) is None
    require_takes(dict.update, ("a", "b", "c"), "update", "drop c")
    require_takes_named(dict.update, {"a": 1}, "update")


def test_by_position_and_by_name():
    def play(env, *, speed=1):
        del env, speed

    require_takes(play, ("any",), "play", "write def play(env)")
    require_takes_named(play, {"env": 1, "speed": 2}, "play")
    with pytest.raises(ConfigError, match=r"^play cannot be called \(too many .*\); write def"):
        require_takes(play, ("env", "speed"), "play", "write def play(env)")
    with pytest.raises(ConfigError, match=r"^play: .*'sped'; it takes env, speed$"):
        require_takes_named(play, {"env": 1, "sped": 2}, "play")
    with pytest.raises(ConfigError, match=r"; it takes speed$"):
        require_takes_named(play, {"sped": 2}, "play", own="env")
    with pytest.raises(ConfigError, match=r"; it takes no arguments$"):
        require_takes_named(lambda: None, {"speed": 2}, "play")
