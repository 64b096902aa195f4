"""Which environments on the host can be divided among processes."""

import jax
import numpy as np
import pytest

from rlkit.envs.host.gymnasium import GymnasiumAdapter
from rlkit.errors import ConfigError
from rlkit.training.programs.env_groups import remake

pytestmark = pytest.mark.fast


class NoShare:
    """An adapter of one's own as it was written for one process."""

    num_envs = 4

    def remake(self, num_envs):
        return NoShare()


def test_parts_begin_the_episodes_of_the_whole():
    env, key = GymnasiumAdapter("CartPole-v1", 6), jax.random.key(3)
    _, whole = env.reset(key)
    parts = [remake(env, 2, (index, 3)) for index in range(3)]
    joined = np.concatenate([part.reset(key)[1] for part in parts])
    np.testing.assert_array_equal(joined, whole)


def test_an_adapter_without_a_share_is_told():
    with pytest.raises(ConfigError, match="NoShare cannot be divided among 3 processes: it has no"):
        remake(NoShare(), 2, (0, 3))
    assert isinstance(remake(NoShare(), 2), NoShare)
