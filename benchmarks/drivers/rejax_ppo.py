"""rejax's PPO. Its training program evaluates; here that is taken out, as no other contender evaluates in the timing."""

from common import jitted, serve


def make(task):
    import optax
    import rejax

    return rejax.get_algo("ppo").create(
        env=task.env,
        agent_kwargs={"activation": task.activation, "hidden_layer_sizes": task.hidden},
        num_envs=task.num_envs,
        num_steps=task.num_steps,
        num_epochs=task.num_epochs,
        num_minibatches=task.num_minibatches,
        learning_rate=optax.linear_schedule(task.learning_rate, 0.0, task.gradient_steps),
        max_grad_norm=task.max_grad_norm,
        total_timesteps=task.env_steps,
        eval_freq=task.env_steps,
        gamma=task.gamma,
        gae_lambda=task.gae_lambda,
        clip_eps=task.clip_epsilon,
        ent_coef=task.entropy_coef,
        vf_coef=task.value_coef,
    )


def without_evaluation(algo):
    """The training program of an algorithm of rejax, as a function of a typed key."""
    import jax
    import jax.numpy as jnp

    algo = algo.replace(eval_callback=lambda algo, state, key: jnp.zeros(()), skip_initial_evaluation=True)
    return lambda key: algo.train(jax.random.key_data(key))


def evaluated_return(algo, output):
    """Of 128 episodes, as rejax evaluates."""
    import jax

    returns = jax.jit(lambda state, key: algo.eval_callback(algo, state, key)[1])(output[0], jax.random.PRNGKey(99))
    return float(returns.mean())


def build(task):
    return without_evaluation(make(task))


def mean_return(task, output):
    """Of 128 evaluation episodes with the stochastic policy."""
    return evaluated_return(make(task), output)


if __name__ == "__main__":
    serve(jitted(build), mean_return, packages=("rejax", "jax", "jaxlib", "flax", "optax", "distrax", "gymnax", "numpy"))
