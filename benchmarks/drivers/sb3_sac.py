"""Stable-Baselines3's SAC."""

import torch
from sb3_ppo import make_env, mean_return
from stable_baselines3 import SAC

from common import prefilled, serve


def settings(task):
    """Keyword arguments that Stable-Baselines3 and SBX share."""
    return {
        "learning_rate": task.learning_rate,
        "buffer_size": task.capacity,
        "learning_starts": task.prefill_steps,
        "batch_size": task.batch_size,
        "tau": task.tau,
        "gamma": task.gamma,
        "train_freq": 1,
        "gradient_steps": 1,
        "device": "cpu",
    }


def learn_prefill(task, model):
    """The model after the prefill, whose episodes are dropped."""
    model.learn(task.prefill_steps, log_interval=None)
    model.ep_info_buffer.clear()
    return model


def learn_on(model, num_steps):
    """The model after more steps."""
    return model.learn(num_steps, log_interval=None, reset_num_timesteps=False)


def functions(task, start):
    """The functions that `build` returns, for models created by `start(seed)`."""

    def prefill(seed):
        return learn_prefill(task, start(seed))

    def train_briefly(model):
        # SBX compiles again for the types that its first update returns.
        return learn_on(model, 2 * task.num_envs)

    return prefill, train_briefly, lambda model: learn_on(model, task.env_steps)


def build(task):
    torch.distributions.Distribution.set_default_validate_args(False)  # as for PPO
    env = make_env(task)
    activation = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU}[task.activation]
    network = {"net_arch": list(task.hidden), "activation_fn": activation}
    return functions(
        task, lambda seed: SAC("MlpPolicy", env, policy_kwargs=network, seed=seed, **settings(task))
    )


def gradient_steps(output):
    return output._n_updates


if __name__ == "__main__":
    packages = ("stable-baselines3", "torch", "gymnasium", "mujoco", "numpy")
    serve(prefilled(build), mean_return, packages=packages, gradient_steps=gradient_steps)
