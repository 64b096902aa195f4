"""PureJaxRL's ppo.py, from a checkout at PUREJAXRL_PATH (scripts without a package)."""

import importlib
import os
import sys
from types import ModuleType

from common import jitted, serve


def import_script(name: str) -> ModuleType:
    """Imports a script."""
    prepare()
    return importlib.import_module(name)


def prepare() -> None:
    """Makes scripts importable, with empty modules for brax, navix and wandb, not measured here."""
    for absent in (
        "brax",
        "brax.envs",
        "brax.envs.wrappers",
        "brax.envs.wrappers.training",
        "navix",
        "wandb",
    ):
        sys.modules[absent] = ModuleType(absent)
    sys.modules["brax"].envs = sys.modules["brax.envs"]
    sys.modules["brax.envs.wrappers.training"].EpisodeWrapper = object
    sys.modules["brax.envs.wrappers.training"].AutoResetWrapper = object
    sys.path.insert(0, os.path.join(os.environ["PUREJAXRL_PATH"], "purejaxrl"))


def config_of(task):
    """The task in PureJaxRL's words."""
    return {
        "ENV_NAME": task.env,
        "NUM_ENVS": task.num_envs,
        "NUM_STEPS": task.num_steps,
        "TOTAL_TIMESTEPS": task.env_steps,
        "UPDATE_EPOCHS": task.num_epochs,
        "NUM_MINIBATCHES": task.num_minibatches,
        "LR": task.learning_rate,
        "ANNEAL_LR": True,
        "ACTIVATION": task.activation,
        "GAMMA": task.gamma,
        "GAE_LAMBDA": task.gae_lambda,
        "CLIP_EPS": task.clip_epsilon,
        "ENT_COEF": task.entropy_coef,
        "VF_COEF": task.value_coef,
        "MAX_GRAD_NORM": task.max_grad_norm,
        "DEBUG": False,  # its host callback would almost double the time
    }


def build(task):
    assert task.hidden == (64, 64), "PureJaxRL's networks have a fixed size"
    return import_script("ppo").make_train(config_of(task))


def mean_return(task, output):
    """Mean return of the training episodes that ended in the last tenth of the updates."""
    return mean_return_of(task, output["metrics"])


def mean_return_of(task, info):
    """The same, of what is known of each step [updates, steps, envs]."""
    last = slice(-max(1, task.num_updates // 10), None)
    ended = info["returned_episode"][last]
    return float(info["returned_episode_returns"][last].mean(where=ended)) if ended.any() else None


def serve_script(build, mean_return, library="distrax", **options):
    """Serves a script; `library` is what it needs beside what all of them need."""
    libraries = ("flax", "optax", library, "gymnax")
    packages = ("jax", "jaxlib", *libraries, "numpy")
    serve(jitted(build), mean_return, packages=packages, imports=libraries, **options)


if __name__ == "__main__":
    serve_script(build, mean_return)
