"""rlkit's PPO on a jittable environment through its `Trainer`: what `startup.py` starts, one outer iteration long."""

import jax
from rlkit_ppo import IMPORTS, bare_trainer, parts

from common import plain, serve


def build(task):
    trainer = bare_trainer(task, *parts(task))

    def train(seed):
        trainer.init(seed)
        metrics = trainer.train_epoch()
        jax.block_until_ready(trainer.state)
        return metrics

    return train, train


def mean_return(task, output):
    """Over all training episodes."""
    return float(output["sum/episode_return"] / output["sum/episodes"]) if output["sum/episodes"] else None


if __name__ == "__main__":
    packages = ("rlkit", "jax", "jaxlib", "flax", "optax", "distrax", "gymnax", "numpy")
    serve(plain(build), mean_return, packages=packages, imports=(*IMPORTS, "rlkit.training.trainer"))
