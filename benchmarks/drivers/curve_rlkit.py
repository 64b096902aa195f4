"""rlkit's learning curves: `rlkit.fit` as one program, or a bare `Trainer` on the host."""

import jax
import numpy as np
from cells import PARTS
from curve_serving import serve

import rlkit
from rlkit_parts import PACKAGES, bare_trainer, parts


def trainer(task, **changes):
    """A function of a seed; `changes` are settings of the agent or the algorithm."""
    train = _on_device if task.suite == "gymnax" else _on_host
    return train(task, *parts(task, **changes))


def _on_device(task, env, agent, algorithm):
    module = rlkit.RLModule(env=env, agent=agent, algorithm=algorithm, total_steps=task.total_steps)

    def train(key):
        _, results = rlkit.fit(
            module,
            key,
            num_outer_iterations=PARTS,
            iterations_per_outer=task.num_updates // PARTS,
        )
        return results["train"]["sum/episode_return"], results["train"]["sum/episodes"]

    traced = jax.jit(train).trace(jax.random.key(0))
    program = traced.lower().compile(compiler_options=rlkit.compiler_options(traced.jaxpr))
    return lambda seed: jax.block_until_ready(program(jax.random.key(seed)))


def _on_host(task, *parts):
    trainer = bare_trainer(task, *parts, outer_iterations=PARTS)

    def train(seed):
        trainer.state = None
        trainer.init(seed)
        found = [trainer.train_epoch() for _ in range(PARTS)]
        return np.array(
            [[epoch[f"sum/{name}"] for epoch in found] for name in ("episode_return", "episodes")]
        )

    return train


if __name__ == "__main__":
    rlkit.xla_cpu.enable()
    serve(trainer, (*PACKAGES, "gymnasium"))
