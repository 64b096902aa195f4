"""rlkit's SAC and DQN through the pure core, `rlkit.fit`, prefill included, without evaluation."""

import math

from rlkit_ppo import IMPORTS

import rlkit
from common import jitted, serve


def parts(task):
    """Environment, agent and algorithm."""
    env = rlkit.make_env(f"{task.suite}/{task.env}", task.num_envs)
    shared = {
        "prefill_steps": task.prefill_steps,
        "capacity": task.capacity,
        "batch_size": task.batch_size,
        "updates_per_step": 1 / task.num_envs,
        "gamma": task.gamma,
        "learning_rate": task.learning_rate,
    }
    if task.algorithm == "sac":
        network = rlkit.SoftActorCriticConfig(hidden_sizes=task.hidden, activation=task.activation)
        agent = rlkit.soft_actor_critic(env.observation_space, env.action_space, network)
        return env, agent, rlkit.sac(rlkit.SACConfig(tau=task.tau, **shared))
    network = rlkit.QNetworkConfig(
        hidden_sizes=task.hidden,
        activation=task.activation,
        epsilon_start=task.epsilon_start,
        epsilon_end=task.epsilon_end,
        exploration_fraction=task.exploration_fraction,
    )
    agent = rlkit.q_network(env.observation_space, env.action_space, network)
    return env, agent, rlkit.dqn(rlkit.DQNConfig(target_period=task.target_period, double=False, loss="mse", **shared))


def build(task):
    env, agent, algorithm = parts(task)
    module = rlkit.RLModule(env=env, agent=agent, algorithm=algorithm, total_steps=task.total_steps)
    outer = math.gcd(task.num_updates, 10)
    return lambda key: rlkit.fit(module, key, num_iterations=outer, steps_per_iteration=task.num_updates // outer)


def mean_return(task, output):
    """Over the training episodes of the last tenth of the updates."""
    train = output[1]["train"]
    episodes = float(train["sum/episodes"][-1])
    return float(train["sum/episode_return"][-1]) / episodes if episodes else None


def gradient_steps(output):
    return output[0].learner.updates.to_int()


if __name__ == "__main__":
    packages = ("rlkit", "jax", "jaxlib", "flax", "optax", "distrax", "gymnax", "numpy")
    serve(
        jitted(build, rlkit.compiler_options),
        mean_return,
        packages=packages,
        imports=(
            *IMPORTS,
            "rlkit.agents.soft_actor_critic",
            "rlkit.agents.q_network",
            "rlkit.algorithms.sac",
            "rlkit.algorithms.dqn",
        ),
        gradient_steps=gradient_steps,
    )
