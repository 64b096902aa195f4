"""`jit(vmap(fit))` over seeds never hangs: batched LAPACK calls on the CPU's thread pool do, so no
initialiser may make one.

In a process of its own under a time limit, for a hang in XLA cannot be interrupted. Seen failing
with `jax.nn.initializers.orthogonal` in place of ours; at 64 units a layer and below that does not
hang, hence 128.
"""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import jax
from rlkit.agents.actor_critic import actor_critic
from rlkit.agents.configs import ActorCriticConfig
from rlkit.algorithms.configs import PPOConfig
from rlkit.algorithms.ppo import ppo
from rlkit.envs.probes.value_probes import ValueByObservation
from rlkit.envs.jittable.vectorized import vectorize
from rlkit.training.core.module import RLModule, fit

env = vectorize(ValueByObservation(), 2)
config = ActorCriticConfig(hidden_sizes=(128, 128))
agent = actor_critic(env.observation_space, env.action_space, config)
algorithm = ppo(PPOConfig(num_steps=4, num_epochs=1, num_minibatches=1))
module = RLModule(env=env, agent=agent, algorithm=algorithm, total_steps=100.0)
train = jax.jit(jax.vmap(lambda key: fit(module, key, num_outer_iterations=1)[0].learner.params))
for run in range(50):
    jax.block_until_ready(train(jax.random.split(jax.random.key(run), 4)))
print("finished", run + 1)
"""


@pytest.mark.full
@pytest.mark.process
def test_fifty_vmapped_fits_finish():
    # One device, as users have.
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    environment["JAX_PLATFORMS"] = "cpu"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "finished 50" in done.stdout
