"""The learning curves of Stable-Baselines3 and of SBX, which has its interface."""

import numpy as np
import sb3_ppo
import sb3_sac
from curve_serving import parts_of, serve
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import VecNormalize

from tasks import NormalizedPPOTask, ZooDQNTask


class Episodes(BaseCallback):
    """The return of every training episode, and the environment step at which it ended."""

    def __init__(self):
        super().__init__()
        self.ended_at, self.returns = [], []

    def _on_step(self):
        for info in self.locals["infos"]:
            if "episode" in info:
                self.ended_at.append(self.num_timesteps)
                self.returns.append(info["episode"]["r"])
        return True


def run(library, activations, packages, prepare=lambda task: None):
    """Runs the driver of a library.

    `activations` are its functions by name; `prepare` is called with the task before all else.
    """

    def trainer(task):
        prepare(task)
        network = {
            "net_arch": list(task.hidden),
            "activation_fn": activations[task.activation],
        }
        name = task.kind[0]
        make = getattr(library, name.upper())

        def train(seed):
            env = make_vec_env(task.env, n_envs=task.num_envs, seed=seed)
            settings = SETTINGS[name](task, env)
            if isinstance(task, NormalizedPPOTask):
                env = VecNormalize(
                    env,
                    norm_obs=task.normalize_observations,
                    norm_reward=task.normalize_rewards,
                    gamma=task.gamma,
                )
            model = make("MlpPolicy", env, policy_kwargs=network, seed=seed, **settings)
            episodes = Episodes()
            model.learn(task.total_steps, callback=episodes, log_interval=None)
            env.close()
            return parts_of(episodes.ended_at, episodes.returns, task)

        return train

    serve(trainer, packages)


def _a2c(task, env):
    names = ("gamma", "gae_lambda", "max_grad_norm", "learning_rate")
    return {name: getattr(task, name) for name in names} | {
        "n_steps": task.num_steps,
        "ent_coef": task.entropy_coef,
        "vf_coef": task.value_coef,
        "device": "cpu",
    }


def _dqn(task, env):
    settings = sb3_sac.settings(task)
    del settings["tau"]
    if isinstance(task, ZooDQNTask):
        settings |= {
            "train_freq": task.num_steps,
            "gradient_steps": task.steps_per_update,
            "max_grad_norm": task.max_grad_norm,
        }
    return settings | {
        "target_update_interval": task.target_period,
        "exploration_initial_eps": task.epsilon_start,
        "exploration_final_eps": task.epsilon_end,
        "exploration_fraction": task.exploration_fraction,
    }


def _td3(task, env):
    size = env.action_space.shape[0]
    noise = NormalActionNoise(np.zeros(size), task.exploration_noise * np.ones(size))
    return sb3_sac.settings(task) | {"policy_delay": 2, "action_noise": noise}


SETTINGS = {
    "ppo": lambda task, env: sb3_ppo.settings(task),
    "a2c": _a2c,
    "sac": lambda task, env: sb3_sac.settings(task),
    "td3": _td3,
    "dqn": _dqn,
}
