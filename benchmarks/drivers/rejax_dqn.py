"""rejax's DQN. Its training program prefills; it evaluates too, which is taken out, as no other contender evaluates in the
timing.
"""

from rejax_ppo import evaluated_return, without_evaluation

from common import jitted, serve


def make(task):
    import rejax
    from flax import linen
    from rejax.networks import DiscreteQNetwork, EpsilonGreedyPolicy

    algo = rejax.get_algo("dqn").create(
        env=task.env,
        num_envs=task.num_envs,
        buffer_size=task.capacity,
        fill_buffer=task.prefill_steps - task.num_envs,  # compared before the step that is added
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
    network = EpsilonGreedyPolicy(DiscreteQNetwork)(  # `create` knows no other sizes than 64x64
        hidden_layer_sizes=task.hidden, action_dim=algo.action_dim, activation=getattr(linen, task.activation)
    )
    return algo.replace(agent=network)


def build(task):
    return without_evaluation(make(task))


def mean_return(task, output):
    """Of 128 evaluation episodes with an epsilon of 0.005."""
    return evaluated_return(make(task), output)


def gradient_steps(output):
    return int(output[0].q_ts.step)


if __name__ == "__main__":
    packages = ("rejax", "jax", "jaxlib", "flax", "optax", "distrax", "gymnax", "numpy")
    serve(jitted(build), mean_return, packages=packages, gradient_steps=gradient_steps)
