"""rlkit's PPO on a jittable environment through its `Trainer`: what `startup.py` starts, and several seeds."""

import jax
from rlkit_ppo import IMPORTS, bare_trainer, mean_return_of, parts

from common import plain, serve

OUTER_ITERATIONS = 10


def build(task):
    trainer = bare_trainer(task, *parts(task), outer_iterations=OUTER_ITERATIONS, num_seeds=task.num_seeds)

    def train_briefly(seed):
        trainer.init(seed)
        trainer.train_epoch()
        jax.block_until_ready(trainer.state)

    def train(seed):
        trainer.init(seed)
        for _ in range(OUTER_ITERATIONS):
            metrics = trainer.train_epoch()
        jax.block_until_ready(trainer.state)
        return metrics

    return train_briefly, train


def mean_return(task, output):
    """As `rlkit_ppo`'s."""
    return mean_return_of(output["sum/episode_return"], output["sum/episodes"])


if __name__ == "__main__":
    packages = ("rlkit", "jax", "jaxlib", "flax", "optax", "distrax", "gymnax", "numpy")
    serve(plain(build), mean_return, packages=packages, imports=(*IMPORTS, "rlkit.training.trainer"))
