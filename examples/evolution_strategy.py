"""A learner without gradients, collector or updater: an evolution strategy (Salimans et al. 2017)
as a `Module`.

`Trainer.from_module` and `fit` only need four methods, so it gets evaluations, logs and checkpoints
like PPO.

python examples/evolution_strategy.py --generations 10
"""

import dataclasses

import jax
import jax.numpy as jnp
import tyro
from flax import struct
from jax import Array

import rlkit


class Strategy(struct.PyTreeNode):
    """The weights of a linear policy, which evolve."""

    weights: Array  # [4]
    key: Array


@dataclasses.dataclass(frozen=True)
class EvolutionStrategy:
    """Tries noisy copies of the weights, one in each environment, and moves towards those that
    lasted longer.
    """

    env: rlkit.EnvAdapter
    noise: float = 0.5
    step_size: float = 0.5

    def init_train_state(self, key):
        """Zero weights."""
        return Strategy(weights=jnp.zeros(4), key=key)

    def get_batch(self, ts, i):
        """The noise [N, 4] of each copy, and its return [N]."""
        key, noise_key, play_key = jax.random.split(ts.key, 3)
        noise = jax.random.normal(noise_key, (self.env.num_envs, 4))
        return ts.replace(key=key), (noise, self.play(ts.weights + self.noise * noise, play_key))

    def training_step(self, i, ts, batch):
        """A step along the noise, weighted by how much better than average each copy was."""
        noise, returns = batch
        merit = (returns - returns.mean()) / (returns.std() + 1e-8)
        weights = ts.weights + self.step_size * (merit[:, None] * noise).mean(0)
        return ts.replace(weights=weights), {"population_return": returns.mean()}

    def eval_callback(self, ts):
        """The weights without noise, in every environment."""
        return {
            "return": self.play(jnp.tile(ts.weights, (self.env.num_envs, 1)), jax.random.key(0))
        }

    def play(self, weights, key):
        """The return [N] of one episode with each row of weights [N, 4].

        The policy pushes right where obs · weights is positive.
        """
        reset_key, step_key = jax.random.split(key)
        state, obs = self.env.reset(reset_key)

        def step(carry, key):
            state, obs, playing = carry
            state, timestep = self.env.step(key, state, ((obs * weights).sum(-1) > 0).astype(int))
            still = playing & ~(timestep.terminated | timestep.truncated)
            return (state, timestep.obs, still), jnp.where(playing, timestep.reward, 0.0)

        assert self.env.max_episode_steps is not None
        keys = jax.random.split(step_key, self.env.max_episode_steps)
        return jax.lax.scan(step, (state, obs, jnp.ones(self.env.num_envs, bool)), keys)[1].sum(0)


def main(generations: int = 10, run_dir: str | None = None) -> None:
    """Evolves a CartPole policy for `generations`; here a generation is a step."""
    module = EvolutionStrategy(rlkit.make_env("gymnax/CartPole-v1", num_envs=64))
    config = rlkit.TrainerConfig(
        total_steps=generations, num_checkpoints=generations, run_dir=run_dir
    )
    with rlkit.Trainer.from_module(module, config) as trainer:
        history = trainer.run(0)
    print("weights:", *(f"{weight:.2f}" for weight in trainer.state.weights))
    print(
        "return after each generation:",
        *(f"{evaluation['return'].mean():.0f}" for evaluation in history),
    )


if __name__ == "__main__":
    tyro.cli(main)
