"""rejax's TD3. Its training program includes the prefill."""

from rejax_serving import serve_rejax


def make(task):
    import rejax
    from flax import linen

    algo = rejax.get_algo("td3").create(
        env=task.env,
        actor_kwargs={"activation": task.activation},
        critic_kwargs={"activation": task.activation},
        num_envs=task.num_envs,
        buffer_size=task.capacity,
        fill_buffer=task.prefill_steps,
        batch_size=task.batch_size,
        learning_rate=task.learning_rate,
        num_epochs=1,
        policy_delay=2,
        exploration_noise=task.exploration_noise,
        total_timesteps=task.total_steps,
        eval_freq=task.total_steps,
        gamma=task.gamma,
        polyak=1 - task.tau,
    )
    activation = getattr(linen, task.activation)
    networks = {"hidden_layer_sizes": task.hidden, "activation": activation}
    return algo.replace(actor=algo.actor.clone(**networks), critic=algo.critic.clone(**networks))


def gradient_steps(output):
    return int(output[0].critic_ts.step)


if __name__ == "__main__":
    serve_rejax(make, gradient_steps=gradient_steps)
