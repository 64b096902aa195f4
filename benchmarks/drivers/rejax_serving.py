"""Shared by the rejax drivers.

Evaluation is removed from rejax's training programs, since no other contender evaluates while it is
timed. The return is that of 128 episodes afterwards, evaluated as rejax does: with the stochastic
policy, and for DQN with an epsilon of 0.005.
"""

from common import jitted, serve

PACKAGES = ("rejax", "jax", "jaxlib", "flax", "optax", "distrax", "gymnax", "numpy")


def serve_rejax(make, *, gradient_steps=None):
    """Runs the driver for rejax's algorithm `make(task)`; `gradient_steps` as in `serve`."""

    def build(task):
        import jax
        import jax.numpy as jnp

        algo = make(task).replace(
            eval_callback=lambda algo, state, key: jnp.zeros(()), skip_initial_evaluation=True
        )
        return lambda key: algo.train(jax.random.key_data(key))

    def mean_return(task, output):
        import jax

        algo = make(task)

        def returns(state):
            return algo.eval_callback(algo, state, jax.random.PRNGKey(99))[1]

        return float(
            jax.jit(returns if task.num_seeds == 1 else jax.vmap(returns))(output[0]).mean()
        )

    serve(
        jitted(build),
        mean_return,
        packages=PACKAGES,
        imports=("rejax",),
        gradient_steps=gradient_steps,
    )
