"""The learning curves of rejax's PPO, DQN, SAC and TD3."""

import jax
import jax.numpy as jnp
import rejax_dqn
import rejax_ppo
import rejax_sac
import rejax_td3
from curve_episodes import CountsEpisodes, curve
from curve_serving import serve
from rejax_serving import PACKAGES

MAKE = {"ppo": rejax_ppo.make, "dqn": rejax_dqn.make, "sac": rejax_sac.make, "td3": rejax_td3.make}


def trainer(task):
    """A function of a seed."""
    algo = MAKE[task.kind[0]](task)
    algo = algo.replace(
        env=CountsEpisodes(algo.env, task),
        eval_callback=lambda algo, state, key: jnp.zeros(()),
        skip_initial_evaluation=True,
    )
    program = jax.jit(lambda key: curve(algo.train(key)[0].env_state))
    return lambda seed: jax.block_until_ready(program(jax.random.PRNGKey(seed)))


if __name__ == "__main__":
    serve(trainer, PACKAGES)
