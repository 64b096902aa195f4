"""rlkit's PPO through the pure core, `rlkit.fit`, without evaluation."""

from common import serve


def build(task):
    import rlkit

    env = rlkit.make_env(f"gymnax/{task.env}", num_envs=task.num_envs)
    agent = rlkit.actor_critic(env.observation_space, env.action_space, hidden=task.hidden, activation=task.activation)
    algorithm = rlkit.ppo(
        rlkit.PPOConfig(
            num_steps=task.num_steps,
            num_epochs=task.num_epochs,
            num_minibatches=task.num_minibatches,
            learning_rate=task.learning_rate,
            anneal_learning_rate=True,
            gamma=task.gamma,
            gae_lambda=task.gae_lambda,
            clip_epsilon=task.clip_epsilon,
            clip_value=True,
            entropy_coef=task.entropy_coef,
            value_coef=task.value_coef,
            max_grad_norm=task.max_grad_norm,
        )
    )
    module = rlkit.RLModule(env=env, eval_env=None, agent=agent, algorithm=algorithm)
    return lambda key: rlkit.fit(module, key, num_iterations=1, steps_per_iteration=task.num_updates)


def mean_return(task, output):
    """Over the training episodes of the last tenth of the updates."""
    return None


if __name__ == "__main__":
    serve(build, mean_return, packages=("rlkit", "jax", "jaxlib", "flax", "optax", "distrax", "gymnax", "numpy"))
