"""rlkit's exceptions, and their messages with a fix."""

import pytest

from rlkit import errors
from rlkit.errors import ConfigError, RlkitError, SpaceError, did_you_mean, require

pytestmark = pytest.mark.fast


def test_every_error_belongs_to_the_family():
    own = [x for x in vars(errors).values() if isinstance(x, type) and issubclass(x, Exception)]
    assert len(own) >= 8
    assert all(issubclass(error, RlkitError) for error in own)
    assert issubclass(ConfigError, ValueError)  # so that callers may catch what Python would raise


def test_require():
    require(True, "never", "shown")
    with pytest.raises(ConfigError, match=r"^num_envs is 0; pass 8$"):
        require(False, "num_envs is 0", "pass 8")
    with pytest.raises(SpaceError):
        require(False, "a", "b", SpaceError)


@pytest.mark.parametrize(
    ("name", "known", "wanted"),
    [
        ("learning_rat", ["gamma", "learning_rate"], "did you mean 'learning_rate'?"),
        (
            "cartpole-v1",
            ["gymnax/CartPole-v1", "gymnax/Pendulum-v1"],
            "did you mean 'gymnax/CartPole-v1'?",
        ),
        ("gymnasium/CartPole-v1", ["gymnax/CartPole-v1"], "did you mean 'gymnax/CartPole-v1'?"),
        ("xyzzy", ["b", "a"], "choose one of a, b"),
        ("xyzzy", [], "none is registered"),
        (5, ["a"], "choose one of a"),
    ],
)
def test_did_you_mean(name, known, wanted):
    assert did_you_mean(name, known) == wanted
