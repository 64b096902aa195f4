"""Pgx's example of PPO in MinAtar, from a checkout at PGX_PATH, with networks as ours."""

import importlib
import os
import sys
from types import ModuleType

import jax
import jax.numpy as jnp

from common import jitted, serve


def build(task):
    script = import_script(task)
    script.ActorCritic = networks(task)
    update = script.make_update_fn()

    def train(key):
        # What the script's `train` does, without its evaluations; it has keys of the old kind.
        key = jax.random.key_data(key)
        params_key, reset_key, key = jax.random.split(key, 3)
        reset_keys = jax.random.split(reset_key, task.num_envs)
        params = script.forward.init(params_key, jnp.zeros((1, *script.env.observation_shape)))
        opt_state = script.optimizer.init(params)
        env_state = jax.vmap(script.env.init)(reset_keys)
        runner = (params, opt_state, env_state, env_state.observation, key)
        return jax.lax.scan(lambda runner, _: update(runner), runner, None, task.num_updates)

    return train


def import_script(task) -> ModuleType:
    """Imports the script, which takes its settings from the command line."""
    settings = {
        "env_name": task.env,
        "lr": task.learning_rate,
        "num_envs": task.num_envs,
        "num_steps": task.num_steps,
        "total_timesteps": task.env_steps,
        "update_epochs": task.num_epochs,
        "minibatch_size": task.num_envs * task.num_steps // task.num_minibatches,
        "gamma": task.gamma,
        "gae_lambda": task.gae_lambda,
        "clip_eps": task.clip_epsilon,
        "ent_coef": task.entropy_coef,
        "vf_coef": task.value_coef,
        "max_grad_norm": task.max_grad_norm,
    }
    sys.argv = ["train.py", *(f"{name}={value}" for name, value in settings.items())]
    sys.modules["wandb"] = ModuleType("wandb")
    sys.path.insert(0, os.path.join(os.environ["PGX_PATH"], "examples", "minatar-ppo"))
    return importlib.import_module("train")


def networks(task):
    """Actor and critic of flattened images, with the task's layers, in place of its own CNN."""
    import haiku as hk

    activation = {"relu": jax.nn.relu, "tanh": jnp.tanh}[task.activation]

    class ActorCritic(hk.Module):
        def __init__(self, num_actions, activation):
            super().__init__()
            self.num_actions = num_actions

        def __call__(self, images):
            flat = images.astype(jnp.float32).reshape(len(images), -1)
            logits, value = (
                hk.nets.MLP((*task.hidden, size), activation=activation)(flat)
                for size in (self.num_actions, 1)
            )
            return logits, value.squeeze(-1)

    return ActorCritic


if __name__ == "__main__":
    packages = ("jax", "jaxlib", "dm-haiku", "optax", "distrax", "pgx", "numpy")
    serve(jitted(build), lambda task, output: None, packages=packages, imports=("pgx", "haiku"))
