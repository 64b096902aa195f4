"""Shared by rlkit's drivers: the components for a task, and a bare Trainer."""

import math

import rlkit

# rlkit imports its modules, and they their libraries, on first use.
IMPORTS = (
    "distrax",
    "gymnax",
    "rlkit.agents.actor_critic",
    "rlkit.agents.q_network",
    "rlkit.agents.soft_actor_critic",
    "rlkit.algorithms.dqn",
    "rlkit.algorithms.ppo",
    "rlkit.algorithms.sac",
    "rlkit.envs.jittable.gymnax",
    "rlkit.envs.registry",
    "rlkit.training.trainer",
)
PACKAGES = ("rlkit", "jax", "jaxlib", "flax", "optax", "distrax", "gymnax", "numpy")
OUTER_ITERATIONS = 10


def outer_iterations_of(task):
    """Number of outer iterations for the whole task: ten, if that divides its updates."""
    return math.gcd(task.num_updates, OUTER_ITERATIONS)


def parts(task):
    """Environment, agent and algorithm."""
    env = rlkit.make_env(f"{task.suite}/{task.env}", task.num_envs)
    agent, algorithm = {"ppo": _ppo, "sac": _sac, "dqn": _dqn}[task.kind[0]](task, env)
    return env, agent, algorithm


def bare_trainer(task, env, agent, algorithm, *, outer_iterations=1, **settings):
    """A `Trainer` that runs the whole task without evaluation, logs and checkpoints."""
    config = rlkit.TrainerConfig(
        num_checkpoints=outer_iterations,
        epochs_per_checkpoint=task.num_updates // outer_iterations,
        enable_evaluation=False,
        debug=False,
        **settings,
    )
    return rlkit.Trainer(env, None, agent, algorithm, config)


def mean_return_of(return_sum, episodes):
    """Mean return over all seeds; None if no episode ended."""
    return float(return_sum.sum() / episodes.sum()) if episodes.sum() else None


def _ppo(task, env):
    network = rlkit.ActorCriticConfig(
        hidden_sizes=task.hidden, activation=task.activation, image_encoder="flatten"
    )
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
    return rlkit.actor_critic(env.observation_space, env.action_space, network), rlkit.ppo(config)


def _sac(task, env):
    network = rlkit.SoftActorCriticConfig(hidden_sizes=task.hidden, activation=task.activation)
    agent = rlkit.soft_actor_critic(env.observation_space, env.action_space, network)
    return agent, rlkit.sac(rlkit.SACConfig(tau=task.tau, **_off_policy(task)))


def _dqn(task, env):
    network = rlkit.QNetworkConfig(
        hidden_sizes=task.hidden,
        activation=task.activation,
        epsilon_start=task.epsilon_start,
        epsilon_end=task.epsilon_end,
        exploration_fraction=task.exploration_fraction,
    )
    agent = rlkit.q_network(env.observation_space, env.action_space, network)
    config = rlkit.DQNConfig(
        target_period=task.target_period, double=False, loss="mse", **_off_policy(task)
    )
    return agent, rlkit.dqn(config)


def _off_policy(task):
    return {
        "prefill_steps": task.prefill_steps,
        "capacity": task.capacity,
        "batch_size": task.batch_size,
        "updates_per_step": 1 / task.num_envs,
        "gamma": task.gamma,
        "learning_rate": task.learning_rate,
    }
