"""SBX's PPO: Stable-Baselines3 with networks and updates in JAX."""

import flax.linen
from sb3_ppo import make_env, mean_return, settings
from sbx import PPO

from common import plain, serve

PACKAGES = (
    "sbx-rl",
    "stable-baselines3",
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "torch",
    "gymnasium",
    "numpy",
)


def create(algorithm, task, settings, **network):
    """A model of an SBX algorithm, with the task's environments and networks."""
    network |= {
        "net_arch": list(task.hidden),
        "activation_fn": getattr(flax.linen, task.activation),
    }
    return algorithm("MlpPolicy", make_env(task), policy_kwargs=network, seed=0, **settings)


def build(task):
    model = create(PPO, task, settings(task), ortho_init=True)
    start = model.policy.actor_state, model.policy.vf_state

    def train(seed, num_updates=task.num_updates):
        """Starts from the same weights each time, because a new model would compile again."""
        model.set_random_seed(seed)
        model.policy.actor_state, model.policy.vf_state = start
        return model.learn(task.num_envs * task.num_steps * num_updates, log_interval=None)

    return lambda seed: train(seed, 1), train


if __name__ == "__main__":
    serve(plain(build), mean_return, packages=PACKAGES)
