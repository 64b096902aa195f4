"""rlkit's SAC on a host environment with a bare `Trainer` (no evaluation, logs or checkpoints)."""

import jax

from common import prefilled, serve
from rlkit_parts import bare_trainer, parts


def build(task, overlap="none"):
    trainer = bare_trainer(task, *parts(task), overlap=overlap)

    def prefill(seed):
        trainer.state = None  # frees its memory before a new one is created
        return jax.block_until_ready(trainer.init(seed))

    def train_briefly(state):
        trainer.train_step()

    def train(state):
        metrics = trainer.train_epoch()
        return trainer, metrics

    return prefill, train_briefly, train


def mean_return(task, output):
    """Mean return of the training episodes that ended while learning."""
    metrics = output[1]
    return (
        float(metrics["sum/episode_return"] / metrics["sum/episodes"])
        if metrics["sum/episodes"]
        else None
    )


def gradient_steps(output):
    return output[0].state.learner.updates.to_int()


def run(build):
    packages = (
        "rlkit",
        "jax",
        "jaxlib",
        "flax",
        "optax",
        "distrax",
        "gymnasium",
        "mujoco",
        "numpy",
    )
    serve(prefilled(build), mean_return, packages=packages, gradient_steps=gradient_steps)


if __name__ == "__main__":
    run(build)
