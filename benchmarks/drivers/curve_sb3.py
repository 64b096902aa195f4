"""Stable-Baselines3's learning curves."""

import stable_baselines3
import torch
from curve_stable_baselines import run

from tasks import ZooDQNTask


def choose_loss(task):
    """Its DQN minimises Huber's loss, and diverges with it on CartPole; most tasks ask for squared
    errors.
    """
    if not isinstance(task, ZooDQNTask):
        torch.nn.functional.smooth_l1_loss = torch.nn.functional.mse_loss


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.distributions.Distribution.set_default_validate_args(False)  # faster, and the same
    run(
        stable_baselines3,
        {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU},
        ("stable-baselines3", "torch", "gymnasium", "mujoco", "numpy"),
        choose_loss,
    )
