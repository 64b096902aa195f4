"""rejax's SAC. Its training program prefills; it evaluates too, which is taken out, as no other contender evaluates in the
timing.
"""

from rejax_ppo import evaluated_return, without_evaluation

from common import jitted, serve


def make(task):
    import rejax

    return rejax.get_algo("sac").create(
        env=task.env,
        agent_kwargs={"activation": task.activation},
        hidden_layer_sizes=task.hidden,
        num_envs=task.num_envs,
        buffer_size=task.capacity,
        fill_buffer=task.prefill_steps,
        batch_size=task.batch_size,
        learning_rate=task.learning_rate,
        num_epochs=1,
        total_timesteps=task.total_steps,
        eval_freq=task.total_steps,
        gamma=task.gamma,
        polyak=1 - task.tau,
    )


def build(task):
    return without_evaluation(make(task))


def mean_return(task, output):
    """Of 128 evaluation episodes with the stochastic policy."""
    return evaluated_return(make(task), output)


def gradient_steps(output):
    return int(output[0].critic_ts.step)


if __name__ == "__main__":
    packages = ("rejax", "jax", "jaxlib", "flax", "optax", "distrax", "gymnax", "numpy")
    serve(jitted(build), mean_return, packages=packages, gradient_steps=gradient_steps)
