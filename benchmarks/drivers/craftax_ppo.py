"""Craftax_Baselines' ppo.py, from a checkout at CRAFTAX_BASELINES_PATH."""

import os
import sys
from types import ModuleType

from purejaxrl_ppo import config_of

from common import jitted, serve

# What ppo.py has beside the settings of PureJaxRL; its defaults.
OWN = {
    "USE_OPTIMISTIC_RESETS": True,
    "OPTIMISTIC_RESET_RATIO": 16,
    "TRAIN_ICM": False,
    "USE_E3B": False,
    "USE_WANDB": False,
}


def build(task):
    sys.path.insert(0, os.environ["CRAFTAX_BASELINES_PATH"])
    sys.modules["wandb"] = ModuleType("wandb")
    from ppo import make_train

    (width,) = set(task.hidden)
    assert len(task.hidden) == 3, "its networks have three layers"
    return make_train(config_of(task) | OWN | {"LAYER_SIZE": width})


if __name__ == "__main__":
    packages = ("jax", "jaxlib", "flax", "optax", "distrax", "craftax", "numpy")
    serve(jitted(build), lambda task, output: None, packages=packages, imports=("craftax",))
