"""The learning curves of purejaxql's pqn_gymnax.py, from a checkout at PUREJAXQL_PATH."""

import importlib
import os
import sys
from types import ModuleType

import jax
from curve_episodes import CountsEpisodes, curve
from curve_serving import serve


def import_script():
    """Imports the script, with empty modules for those that only its command line uses."""
    for absent in ("hydra", "omegaconf", "safetensors", "safetensors.flax", "wandb"):
        sys.modules[absent] = ModuleType(absent)
    sys.modules["hydra"].main = lambda **_: lambda function: function
    sys.modules["omegaconf"].OmegaConf = object
    sys.modules["safetensors.flax"].load_file = sys.modules["safetensors.flax"].save_file = None
    sys.path.insert(0, os.path.join(os.environ["PUREJAXQL_PATH"], "purejaxql"))
    return importlib.import_module("pqn_gymnax")


def trainer(task):
    """A function of a seed."""
    (width,) = set(task.hidden)
    assert task.activation == "relu"
    script = import_script()
    log = script.LogWrapper
    script.LogWrapper = lambda env: log(CountsEpisodes(env, task))
    train = script.make_train(
        {
            "ENV_NAME": task.env,
            "TOTAL_TIMESTEPS": task.env_steps,
            "TOTAL_TIMESTEPS_DECAY": task.env_steps,
            "NUM_ENVS": task.num_envs,
            "NUM_STEPS": task.num_steps,
            "NUM_EPOCHS": task.num_epochs,
            "NUM_MINIBATCHES": task.num_minibatches,
            "LR": task.learning_rate,
            "LR_LINEAR_DECAY": True,
            "MAX_GRAD_NORM": task.max_grad_norm,
            "GAMMA": task.gamma,
            "LAMBDA": task.q_lambda,
            "EPS_START": task.epsilon_start,
            "EPS_FINISH": task.epsilon_end,
            "EPS_DECAY": task.exploration_fraction,
            "HIDDEN_SIZE": width,
            "NUM_LAYERS": len(task.hidden),
            "NORM_TYPE": "layer_norm",
            "NORM_INPUT": False,
            "REW_SCALE": 1,
            "TEST_DURING_TRAINING": False,
            "WANDB_MODE": "disabled",
        }
    )
    program = jax.jit(lambda key: curve(train(key)["runner_state"]))
    return lambda seed: jax.block_until_ready(program(jax.random.PRNGKey(seed)))


if __name__ == "__main__":
    serve(trainer, ("jax", "jaxlib", "flax", "optax", "gymnax"))
