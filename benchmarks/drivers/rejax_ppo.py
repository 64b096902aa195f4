"""rejax's PPO."""

from rejax_serving import serve_rejax


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


if __name__ == "__main__":
    serve_rejax(make)
