"""rlkit's `Trainer` on a jittable environment, including the prefill, without evaluation."""

import jax

from common import plain, serve
from rlkit_parts import IMPORTS, PACKAGES, bare_trainer, mean_return_of, outer_iterations_of, parts


def build(task):
    outer = outer_iterations_of(task)
    trainer = bare_trainer(task, *parts(task), outer_iterations=outer, num_seeds=task.num_seeds)

    def train(seed, outer_iterations=outer):
        trainer.state = None  # frees its memory before a new one is created
        trainer.init(seed)
        for _ in range(outer_iterations):
            metrics = trainer.train_epoch()
        return metrics, jax.block_until_ready(trainer.state)

    return lambda seed: train(seed, outer_iterations=1), train


def mean_return(task, output):
    """Mean return of the training episodes of the last tenth of the updates."""
    metrics = output[0]
    return mean_return_of(metrics["sum/episode_return"], metrics["sum/episodes"])


def gradient_steps(output):
    return output[1].learner.updates.to_int()


if __name__ == "__main__":
    serve(
        plain(build), mean_return, packages=PACKAGES, imports=IMPORTS, gradient_steps=gradient_steps
    )
