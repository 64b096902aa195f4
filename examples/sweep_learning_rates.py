"""A sweep without a sweep runner: `fit` is a pure function, so `jax.vmap` trains every learning
rate and seed in one program.

python examples/sweep_learning_rates.py --total-steps 50000
"""

import jax
import jax.numpy as jnp
import tyro

import rlkit

NUM_SEEDS = 3
LEARNING_RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)


def main(total_steps: int = 50_000) -> None:
    """Trains on CartPole for about `total_steps` environment steps with each learning rate and
    seed, and prints a table.
    """
    rlkit.xla_cpu.enable()  # CPU tuning, for a program that no Trainer compiles
    env = rlkit.make_env("gymnax/CartPole-v1", num_envs=4)
    agent = rlkit.actor_critic(env.observation_space, env.action_space)
    num_iterations = max(1, total_steps // (4 * 128))

    def train(learning_rate, key):
        algorithm = rlkit.ppo(rlkit.PPOConfig(learning_rate=learning_rate))  # a traced value
        module = rlkit.RLModule(
            env=env, eval_env=env, agent=agent, algorithm=algorithm, total_steps=total_steps
        )
        _, results = rlkit.fit(
            module, key, num_outer_iterations=1, iterations_per_outer=num_iterations
        )
        return results["eval"]["return"][-1].mean()  # the last evaluation, over its episodes

    over_seeds = jax.vmap(train, in_axes=(None, 0))
    over_rates = jax.vmap(over_seeds, in_axes=(0, None))
    keys = jax.random.split(jax.random.key(0), NUM_SEEDS)
    returns = jax.jit(over_rates)(jnp.asarray(LEARNING_RATES), keys)  # [rates, seeds]

    print("learning rate    return   each seed")
    for rate, row in zip(LEARNING_RATES, returns, strict=True):
        print(f"{rate:13g}  {row.mean():8.1f}   {'  '.join(f'{value:.0f}' for value in row)}")


if __name__ == "__main__":
    tyro.cli(main)
