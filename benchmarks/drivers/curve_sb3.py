"""Stable-Baselines3's learning curves."""

import stable_baselines3
import torch
from curve_stable_baselines import run

if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.distributions.Distribution.set_default_validate_args(False)  # faster, and the same
    # Its DQN minimises Huber's loss, with which it diverges here; the task is squared errors.
    torch.nn.functional.smooth_l1_loss = torch.nn.functional.mse_loss
    run(
        stable_baselines3,
        {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU},
        ("stable-baselines3", "torch", "gymnasium", "mujoco", "numpy"),
    )
