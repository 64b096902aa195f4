"""An environment of your own, from ten lines to a trained policy.

python examples/own_environment.py --total-steps 30000
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from gymnasium import spaces

import rlkit
from rlkit.envs import TimeLimit


@dataclasses.dataclass(frozen=True)
class Corridor:
    """Walk to the door at the right end. Every step costs 1, so the best return is minus the
    distance to the door.
    """

    length: int = 10

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)  # left, right

    def reset(self, key):
        """A random position in the corridor."""
        position = jax.random.randint(key, (), 0, self.length)
        return position, self.look(position)

    def step(self, key, position, action):
        """One step left or right; the state is the position."""
        position = jnp.clip(position + 2 * action - 1, 0, self.length)
        return (
            position,
            self.look(position),
            jnp.float32(-1.0),
            position == self.length,
            jnp.bool_(False),
            {},
        )

    def look(self, position):
        """The observation: the position as [1] in [0, 1]."""
        return jnp.float32([position / self.length])


def main(total_steps: int = 30_000) -> None:
    """Checks the environment, trains on it for `total_steps` steps, and compares the return with
    the best possible one.
    """
    corridor = TimeLimit(Corridor(), max_episode_steps=50)
    print(rlkit.check_env(corridor))

    rlkit.register_env(
        "mine/Corridor-v0", lambda length=10: TimeLimit(Corridor(length), max_episode_steps=50)
    )
    env = rlkit.make_env("mine/Corridor-v0", num_envs=16)
    agent = rlkit.actor_critic(env.observation_space, env.action_space)
    algorithm = rlkit.ppo(rlkit.PPOConfig(num_steps=64, learning_rate=3e-3))
    config = rlkit.TrainerConfig(total_steps=total_steps, num_checkpoints=5, evaluation_episodes=64)
    with rlkit.Trainer(env, None, agent, algorithm, config) as trainer:
        last = trainer.run(0)[-1]

    best = -np.arange(1, Corridor.length + 1).mean()
    print(f"return {last['return'].mean():.2f} from {last['return'].size} random starts")
    print(
        f"the best possible is {best:.2f} on average over all starts; random starts may be nearer"
        " to the door, or farther"
    )


if __name__ == "__main__":
    tyro.cli(main)
