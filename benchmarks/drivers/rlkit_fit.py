"""rlkit's pure core `rlkit.fit` on a jittable environment as one program, including the prefill."""

import importlib.util

import rlkit
from common import jitted, serve
from rlkit_parts import IMPORTS, PACKAGES, mean_return_of, outer_iterations_of, parts

SUITES = [name for name in ("navix", "craftax", "jumanji", "pgx") if importlib.util.find_spec(name)]


def build(task):
    env, agent, algorithm = parts(task)
    module = rlkit.RLModule(env=env, agent=agent, algorithm=algorithm, total_steps=task.total_steps)
    outer = outer_iterations_of(task)
    return lambda key: rlkit.fit(
        module, key, num_outer_iterations=outer, iterations_per_outer=task.num_updates // outer
    )


def mean_return(task, output):
    """Mean return of the training episodes of the last tenth of the updates."""
    train = output[1]["train"]  # [10] or [seeds, 10]
    return mean_return_of(train["sum/episode_return"][..., -1], train["sum/episodes"][..., -1])


def gradient_steps(output):
    return output[0].learner.updates.to_int()


if __name__ == "__main__":
    rlkit.xla_cpu.enable()
    serve(
        jitted(build, rlkit.compiler_options),
        mean_return,
        packages=(*PACKAGES, *SUITES),
        imports=IMPORTS,
        gradient_steps=gradient_steps,
    )
