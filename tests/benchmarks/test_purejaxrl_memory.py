"""The network of PureJaxRL's ppo_rnn.py, as a row of `make curves` trains it."""

import jax
import numpy as np
import pytest


def test_purejaxrls_network_has_its_layers_and_first_weights():
    """A layer of √2, a GRU and for each head a layer of 2 that sees the memory alone."""
    from cells import CELLS

    from rlkit_parts import parts

    cell = CELLS["ppo-gru-memorychain"]
    (variant,) = cell.contenders[2:]
    env, agent, _ = parts(cell.task, **cell.changes(variant))
    network = agent.init(jax.random.key(0))["network"]
    first = network["torso"]["layer"]["layers"][0]["kernel"]
    inputs = env.observation_space.shape[0]
    np.testing.assert_allclose(first @ first.T, 2 * np.eye(inputs), atol=1e-5)
    for head in ("actor_last", "critic_last"):
        kernel = network[head]["layer"]["kernel"]
        np.testing.assert_allclose(kernel @ kernel.T, 4 * np.eye(128), atol=1e-4)
    gates = network["torso"]["cell"]["cell"]["dense_i"]["kernel"]
    assert gates.shape == (128, 3 * 128)
    assert float(gates.std()) == pytest.approx(128**-0.5, rel=0.02)
