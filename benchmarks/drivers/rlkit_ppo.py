"""rlkit's PPO through the pure core, `rlkit.fit`, without evaluation."""

import rlkit
from common import jitted, serve

# rlkit imports its parts, and they the libraries, when they are first used.
IMPORTS = (
    "distrax",
    "gymnax",
    "rlkit.agents.actor_critic",
    "rlkit.algorithms.ppo",
    "rlkit.envs.gymnax",
    "rlkit.envs.registry",
    "rlkit.training.compiling",
    "rlkit.training.module",
)


def parts(task):
    """Environment, agent and algorithm."""
    env = rlkit.make_env(f"{task.suite}/{task.env}", task.num_envs)
    network = rlkit.ActorCriticConfig(hidden_sizes=task.hidden, activation=task.activation, image_encoder="flatten")
    agent = rlkit.actor_critic(env.observation_space, env.action_space, network)
    config = rlkit.PPOConfig(
        num_steps=task.num_steps,
        num_epochs=task.num_epochs,
        num_minibatches=task.num_minibatches,
        learning_rate=task.learning_rate,
        learning_rate_schedule="linear",
        gamma=task.gamma,
        gae_lambda=task.gae_lambda,
        clip_epsilon=task.clip_epsilon,
        clip_value_loss=task.clip_value_loss,
        entropy_coef=task.entropy_coef,
        value_coef=task.value_coef,
        max_grad_norm=task.max_grad_norm,
    )
    return env, agent, rlkit.ppo(config)


def bare_trainer(task, env, agent, algorithm, *, outer_iterations=1, **settings):
    """A `Trainer` whose outer iterations are together the whole task, without evaluation, logs and checkpoints."""
    config = rlkit.TrainerConfig(
        num_checkpoints=outer_iterations,
        epochs_per_checkpoint=task.num_updates // outer_iterations,
        enable_evaluation=False,
        debug=False,
        **settings,
    )
    return rlkit.Trainer(env, None, agent, algorithm, config)


def build(task):
    env, agent, algorithm = parts(task)
    module = rlkit.RLModule(env=env, agent=agent, algorithm=algorithm, total_steps=task.env_steps)
    return lambda key: rlkit.fit(module, key, num_iterations=10, steps_per_iteration=task.num_updates // 10)


def mean_return(task, output):
    """Over the training episodes of the last tenth of the updates."""
    train = output[1]["train"]  # [10]
    return mean_return_of(train["sum/episode_return"][-1], train["sum/episodes"][-1])


def mean_return_of(return_sum, episodes):
    """Of all seeds, None where no episode ended."""
    return float(return_sum.sum() / episodes.sum()) if episodes.sum() else None


if __name__ == "__main__":
    serve(
        jitted(build, rlkit.compiler_options),
        mean_return,
        packages=("rlkit", "jax", "jaxlib", "flax", "optax", "distrax", "gymnax", "numpy"),
        imports=IMPORTS,
    )
