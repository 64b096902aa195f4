"""A gymnasium.Env of your own with a Dict observation, from the class to a trained policy, and a
drawing of one of its episodes.

python examples/own_gymnasium_environment.py --total-steps 100000
"""

import gymnasium
import jax
import numpy as np
import tyro
from gymnasium import spaces

import rlkit


class Harbour(gymnasium.Env):
    """Steer a boat to the buoy, in a wind from the left or from the right. Every step costs the
    distance to the buoy.
    """

    observation_space = spaces.Dict(
        {"offset": spaces.Box(-10, 10, (2,)), "wind": spaces.Discrete(3)}
    )
    action_space = spaces.Box(-1, 1, (2,))

    def reset(self, *, seed=None, options=None):
        """A random place around the buoy, and a random wind."""
        super().reset(seed=seed)
        self.offset = self.np_random.uniform(-5, 5, 2).astype(np.float32)
        self.wind = self.np_random.integers(3)
        return self.look(), {}

    def step(self, action):
        """One stroke; the task is done at the buoy."""
        drift = np.array([0.3 * (self.wind - 1), 0], np.float32)
        self.offset = np.clip(self.offset + action + drift, -10, 10)
        distance = float(np.hypot(*self.offset))
        return self.look(), -distance, distance < 0.5, False, {"distance": distance}

    def look(self):
        """The observation; a copy, because `step` changes the offset."""
        return {"offset": self.offset.copy(), "wind": self.wind}


def main(total_steps: int = 100_000) -> None:
    """Checks the environment, trains on it for `total_steps` steps, and draws an episode."""
    print(rlkit.check_env(Harbour, env_arguments={"max_episode_steps": 30}))

    env = rlkit.make_env(Harbour, num_envs=8, max_episode_steps=30)
    agent = rlkit.actor_critic(env.observation_space, env.action_space)
    algorithm = rlkit.ppo(
        rlkit.PPOConfig(learning_rate=1e-3, entropy_coef=0.0, normalize_observations=True)
    )
    config = rlkit.TrainerConfig(total_steps=total_steps, num_checkpoints=5, evaluation_episodes=32)
    with rlkit.Trainer(env, None, agent, algorithm, config) as trainer:
        last = trainer.run(0)[-1]
        episode = trainer.rollout(1, jax.random.key(0))
    env.close()

    print(
        f"return {last['return'].mean():.2f},"
        f" {last['done_info']['distance'].mean():.2f} from the buoy at the end"
    )
    draw(episode["obs"]["offset"][0, : episode["length"][0]])


def draw(offsets: np.ndarray) -> None:
    """The course of the boat, [L, 2], seen from above; the buoy is in the middle."""
    chart = [[" "] * 41 for _ in range(21)]
    chart[10][20] = "o"
    for number, (x, y) in enumerate(offsets):
        chart[round(10 - y)][round(20 + 2 * x)] = "0123456789abcdefghijklmnopqrstuvwxyz"[number]
    print("\n".join("".join(row).rstrip() for row in chart if set(row) != {" "}))


if __name__ == "__main__":
    tyro.cli(main)
