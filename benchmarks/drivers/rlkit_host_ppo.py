"""rlkit's PPO on a host environment with a bare `Trainer` (no evaluation, logs or checkpoints)."""

from common import plain, serve
from rlkit_parts import bare_trainer, parts


def build(task):
    trainer = bare_trainer(task, *parts(task))

    def train_briefly(seed):
        trainer.init(seed)
        trainer.train_step()

    def train(seed):
        trainer.init(seed)
        trainer.train_epoch()
        return trainer

    return train_briefly, train


def mean_return(task, output):
    """Mean return of 128 evaluation episodes with the stochastic policy."""
    return float(output.evaluate(128)["sampled_return"].mean())


if __name__ == "__main__":
    serve(
        plain(build),
        mean_return,
        packages=("rlkit", "jax", "jaxlib", "flax", "optax", "distrax", "gymnasium", "numpy"),
    )
