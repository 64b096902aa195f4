"""rlkit's PPO on a jittable environment through its `Trainer`: what `startup.py` starts, one outer iteration long."""

import jax
from rlkit_ppo import IMPORTS, parts

import rlkit
from common import plain, serve


def build(task):
    env, agent, algorithm = parts(task)
    config = rlkit.TrainerConfig(
        num_checkpoints=1, epochs_per_checkpoint=task.num_updates, enable_evaluation=False, debug=False
    )
    trainer = rlkit.Trainer(env, None, agent, algorithm, config)

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
