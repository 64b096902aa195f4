"""`follows`: whether an object follows a protocol, also from Python 3.12."""

from typing import Any

import pytest

import rlkit
from rlkit.envs.base import EnvAdapter, JaxEnv
from rlkit.envs.host.base import HostAdapter
from rlkit.envs.jittable.wrappers import TimeLimit
from rlkit.envs.probes.value_probes import TimeLimitProbe
from rlkit.protocols import follows

pytestmark = pytest.mark.fast


class PassesOn:
    """A wrapper of the usual kind: it has what it wraps has."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)


def test_wrappers_follow_what_they_wrap_follows():
    batch = rlkit.make_env("gymnax/CartPole-v1", 2)
    for adapter in (batch, PassesOn(batch)):
        assert follows(adapter, EnvAdapter)
        assert not follows(adapter, HostAdapter)  # it has no `remake`
    assert not follows(PassesOn(object()), JaxEnv)


def test_a_method_that_is_none_is_absent():
    class Refuses(TimeLimitProbe):
        step: Any = None

    class HasNoLimit(TimeLimitProbe):
        max_episode_steps: Any = None  # no method: there is no limit

    assert follows(HasNoLimit(), JaxEnv)
    assert not follows(Refuses(), JaxEnv)


def test_a_wrapper_of_a_single_environment_can_be_wrapped_again():
    wrapped: Any = PassesOn(TimeLimitProbe())
    assert TimeLimit(wrapped, 3).max_episode_steps == 3
