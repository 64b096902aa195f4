"""rejax's SAC. Its training program includes the prefill."""

from rejax_serving import serve_rejax


def make(task):
    import rejax

    return rejax.get_algo("sac").create(
        agent_kwargs={"activation": task.activation},
        hidden_layer_sizes=task.hidden,
        **replay_settings(task),
    )


def replay_settings(task):
    """Keyword arguments that rejax's SAC and TD3 share."""
    return {
        "env": task.env,
        "num_envs": task.num_envs,
        "buffer_size": task.capacity,
        "fill_buffer": task.prefill_steps,
        "batch_size": task.batch_size,
        "learning_rate": task.learning_rate,
        "num_epochs": 1,
        "total_timesteps": task.total_steps,
        "eval_freq": task.total_steps,
        "gamma": task.gamma,
        "polyak": 1 - task.tau,
    }


def gradient_steps(output):
    return int(output[0].critic_ts.step)


if __name__ == "__main__":
    serve_rejax(make, gradient_steps=gradient_steps)
