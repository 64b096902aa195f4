"""PPO learns to balance a pole: the parts of a run, a trainer, and a policy that acts.

python examples/train_cartpole.py --total-steps 200000 --run-dir runs/mine
"""

import jax
import numpy as np
import tyro

import rlkit


def main(total_steps: int = 200_000, run_dir: str | None = None) -> None:
    """Trains for `total_steps` environment steps; with `run_dir`, writes checkpoints, logs and a
    learning curve there.
    """
    env = rlkit.make_env("gymnax/CartPole-v1", num_envs=8)
    eval_env = rlkit.make_env("gymnax/CartPole-v1", num_envs=16)
    agent = rlkit.actor_critic(env.observation_space, env.action_space)
    algorithm = rlkit.ppo(rlkit.PPOConfig(learning_rate=1e-3, entropy_coef=0.0))
    config = rlkit.TrainerConfig(
        total_steps=total_steps, num_checkpoints=10, evaluation_episodes=16, run_dir=run_dir
    )

    with rlkit.Trainer(env, eval_env, agent, algorithm, config) as trainer:
        history = trainer.run(0)
        episodes = trainer.rollout(num_episodes=4, key=jax.random.key(1))

    print(
        "return after each outer iteration:",
        *(f"{evaluation['return'].mean():.0f}" for evaluation in history),
    )
    print("four more episodes lasted", *episodes["length"], "steps")

    if run_dir is not None:
        policy = rlkit.load_policy(run_dir, which="best")
        print(
            "the pole leans to the right, push",
            ["left", "right"][int(policy(np.array([[0.0, 0.0, 0.1, 0.5]], np.float32))[0])],
        )


if __name__ == "__main__":
    tyro.cli(main)
