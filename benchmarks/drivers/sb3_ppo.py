"""Stable-Baselines3's PPO with its default `DummyVecEnv`, which steps environments one by one."""

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from common import plain, serve


def settings(task):
    """Keyword arguments that Stable-Baselines3 and SBX share."""
    assert not task.clip_value_loss, "SBX cannot clip the value loss"
    return {
        "learning_rate": lambda remaining: task.learning_rate * remaining,
        "n_steps": task.num_steps,
        "batch_size": task.num_envs * task.num_steps // task.num_minibatches,
        "n_epochs": task.num_epochs,
        "gamma": task.gamma,
        "gae_lambda": task.gae_lambda,
        "clip_range": task.clip_epsilon,
        "ent_coef": task.entropy_coef,
        "vf_coef": task.value_coef,
        "max_grad_norm": task.max_grad_norm,
        "device": "cpu",
    }


def make_env(task):
    return make_vec_env(task.env, n_envs=task.num_envs)


def build(task):
    # An eighth faster; no other contender validates either.
    torch.distributions.Distribution.set_default_validate_args(False)
    env = make_env(task)
    activation = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU}[task.activation]
    network = {"net_arch": list(task.hidden), "activation_fn": activation}

    def train(seed, num_updates=task.num_updates):
        model = PPO("MlpPolicy", env, policy_kwargs=network, seed=seed, **settings(task))
        return model.learn(task.num_envs * task.num_steps * num_updates, log_interval=None)

    return lambda seed: train(seed, 1), train


def mean_return(task, output):
    """Mean return of the last 100 training episodes."""
    returns = [episode["r"] for episode in output.ep_info_buffer]
    return float(sum(returns) / len(returns)) if returns else None


if __name__ == "__main__":
    serve(plain(build), mean_return, packages=("stable-baselines3", "torch", "gymnasium", "numpy"))
