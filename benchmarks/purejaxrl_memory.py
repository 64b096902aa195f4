"""The network of PureJaxRL's ppo_rnn.py as an agent of rlkit, for a row beside its own curves."""

import dataclasses

import jax
from flax import nnx

from rlkit.agents.actor_critic import SharedActorCritic
from rlkit.agents.cells import make_cell
from rlkit.agents.layers import MLP, Linear
from rlkit.agents.masking import ignoring_masks
from rlkit.agents.networks import make_network


class MemoryAlone(nnx.Module):
    """A layer and a GRU; only its memory goes on. The weights for its inputs are LeCun-normal."""

    def __init__(self, inputs, width, activation, rngs):
        self.layer = MLP(inputs, (width,), activation)
        self.cell = make_cell("gru", width, width)
        shape = self.cell.cell.dense_i.kernel.shape
        self.cell.cell.dense_i.kernel = nnx.Param(
            nnx.initializers.lecun_normal()(rngs.params(), shape)
        )

    def initial_carry(self, num_envs):
        """Zeros."""
        return self.cell.initial_carry(num_envs)

    def over(self, carry, obs, restart):
        """As `rlkit.agents.MemoryTorso` says: observations [L, B, ...], `restart` [L, B]."""
        return self.cell.over(carry, self.layer(obs.reshape(*restart.shape, -1)), restart)


class WideLayer(nnx.Module):
    """A hidden layer that starts with a gain of 2."""

    def __init__(self, width):
        self.layer = Linear(width, width, scale=2.0)

    def __call__(self, x):
        return jax.nn.relu(self.layer(x))


def as_purejaxrl(agent, task, space):
    """The actor-critic with that network in place of its own."""
    width, inputs = task.memory_size, space.shape[0]
    assert task.hidden == (width, width) and task.activation == "relu" and space.shape == (inputs,)

    def build(rngs):
        return MemoryAlone(inputs, width, task.activation, rngs)

    network = make_network(
        lambda rngs: SharedActorCritic(
            build, width, agent.head, last_layer=lambda: WideLayer(width), rngs=rngs
        )
    )
    return dataclasses.replace(agent, network=ignoring_masks(network))
