"""Navix's own PPO, on its symbolic observations made flat."""

import dataclasses

import jax

from common import jitted, serve


def build(task):
    from navix.agents import PPO, ActorCritic, PPOHparams
    from navix.environments import registry

    assert task.hidden == (64, 64), "Navix's networks have a fixed size"
    assert task.activation == "tanh"
    settings = PPOHparams(
        budget=task.env_steps,
        num_envs=task.num_envs,
        num_steps=task.num_steps,
        num_minibatches=task.num_minibatches,
        num_epochs=task.num_epochs,
        gae_lambda=task.gae_lambda,
        clip_eps=task.clip_epsilon,
        ent_coef=task.entropy_coef,
        vf_coef=task.value_coef,
        max_grad_norm=task.max_grad_norm,
        lr=task.learning_rate,
        clip_value_loss=task.clip_value_loss,
    )
    env = registry.make(task.env, gamma=task.gamma)
    seen = env.observation_fn
    shape = (env.observation_space.shape[0] * env.observation_space.shape[1] * 3,)
    space = dataclasses.replace(env.observation_space, shape=shape)
    env = env.replace(observation_fn=lambda state: seen(state).ravel(), observation_space=space)
    network = ActorCritic(action_dim=len(env.action_set))
    return PPO(hparams=settings, network=network, env=env).train


def mean_return(task, output):
    """Mean return of the training episodes that ended in the last tenth of the updates."""
    logs = jax.device_get(output[1])
    last = slice(-max(1, task.num_updates // 10), None)
    ended = logs["done_mask"][last]
    return float(logs["returns"][last].mean(where=ended)) if ended.any() else None


if __name__ == "__main__":
    packages = ("jax", "jaxlib", "flax", "optax", "distrax", "navix", "numpy")
    serve(jitted(build), mean_return, packages=packages, imports=("navix", "distrax", "wandb"))
