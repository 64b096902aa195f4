"""rejax's TD3. Its training program includes the prefill."""

from rejax_sac import replay_settings
from rejax_serving import serve_rejax


def make(task):
    import rejax
    from flax import linen

    algo = rejax.get_algo("td3").create(
        actor_kwargs={"activation": task.activation},
        critic_kwargs={"activation": task.activation},
        policy_delay=2,
        exploration_noise=task.exploration_noise,
        **replay_settings(task),
    )
    activation = getattr(linen, task.activation)
    networks = {"hidden_layer_sizes": task.hidden, "activation": activation}
    return algo.replace(actor=algo.actor.clone(**networks), critic=algo.critic.clone(**networks))


def gradient_steps(output):
    return int(output[0].critic_ts.step)


if __name__ == "__main__":
    serve_rejax(make, gradient_steps=gradient_steps)
