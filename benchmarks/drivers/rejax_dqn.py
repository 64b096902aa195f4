"""rejax's DQN. Its training program includes the prefill."""

from rejax_serving import serve_rejax


def make(task):
    import rejax
    from flax import linen
    from rejax.networks import DiscreteQNetwork, EpsilonGreedyPolicy

    algo = rejax.get_algo("dqn").create(
        env=task.env,
        num_envs=task.num_envs,
        buffer_size=task.capacity,
        fill_buffer=task.prefill_steps - task.num_envs,  # compared before the step is added
        batch_size=task.batch_size,
        learning_rate=task.learning_rate,
        num_epochs=1,
        total_timesteps=task.total_steps,
        eval_freq=task.total_steps,
        gamma=task.gamma,
        target_update_freq=task.target_period,
        polyak=0.0,
        eps_start=task.epsilon_start,
        eps_end=task.epsilon_end,
        exploration_fraction=task.exploration_fraction,
        ddqn=False,
    )
    network = EpsilonGreedyPolicy(DiscreteQNetwork)(  # `create` only supports 64x64
        hidden_layer_sizes=task.hidden,
        action_dim=algo.action_dim,
        activation=getattr(linen, task.activation),
    )
    return algo.replace(agent=network)


def gradient_steps(output):
    return int(output[0].q_ts.step)


if __name__ == "__main__":
    serve_rejax(make, gradient_steps=gradient_steps)
