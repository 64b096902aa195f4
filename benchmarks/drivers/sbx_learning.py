"""Trains SBX on a task of `compare_sbx.py` with one seed; prints its evaluations as JSON."""

import json
import sys

import gymnasium
import sbx
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor


class Evaluate(BaseCallback):
    """Mean return of whole deterministic episodes, after given numbers of steps."""

    def __init__(self, env, episodes, steps):
        super().__init__()
        self.env, self.episodes, self.steps = env, episodes, steps
        self.evaluations = []

    def _on_step(self):
        if self.num_timesteps in self.steps:
            mean, _ = evaluate_policy(self.model, self.env, self.episodes, deterministic=True)
            self.evaluations.append([self.num_timesteps, float(mean)])
            print(self.num_timesteps, mean, file=sys.stderr, flush=True)
        return True


def main():
    task, seed = json.loads(sys.argv[1]), int(sys.argv[2])
    evaluation_env = Monitor(gymnasium.make(task["env"]))
    evaluation_env.reset(seed=1000 + seed)
    evaluate = Evaluate(evaluation_env, task["evaluation_episodes"], task["evaluated_at"])
    make = {"sac": sbx.SAC, "td3": sbx.TD3}[task["algorithm"]]
    settings = dict(task["settings"])
    if task["algorithm"] == "td3":
        import numpy as np
        from stable_baselines3.common.noise import NormalActionNoise

        size = evaluation_env.action_space.shape[0]
        settings["action_noise"] = NormalActionNoise(
            np.zeros(size), settings.pop("exploration_noise") * np.ones(size)
        )
    network = {"net_arch": list(task["hidden"])}
    model = make(
        "MlpPolicy", gymnasium.make(task["env"]), seed=seed, policy_kwargs=network, **settings
    )
    model.learn(task["total_steps"], callback=evaluate)
    print("RESULT", json.dumps(evaluate.evaluations), flush=True)


if __name__ == "__main__":
    main()
