"""What `TrainerConfig.overlap` gains on host environments: PPO with 8 environments, sync and async.

    python benchmarks/overlap.py [ENV_ID ...] [--rounds 5]

Prints a Markdown table of environment steps per second for each environment. Every row is its own
Trainer; they alternate, and the first outer iteration of each, which compiles, is not counted.
"""

import argparse
import itertools
import time

import rlkit
from records import add_rounds, in_turns, markdown, with_spread

ENVS = ("gymnasium/CartPole-v1", "gymnasium/HalfCheetah-v5")
NUM_ENVS, NUM_STEPS, UPDATES = 8, 128, 20


def make_trainer(env_id: str, vectorization: str, overlap: str) -> rlkit.Trainer:
    env = rlkit.make_env(env_id, NUM_ENVS, vectorization=vectorization)
    agent = rlkit.actor_critic(env.observation_space, env.action_space)
    algorithm = rlkit.ppo(
        rlkit.PPOConfig(num_steps=NUM_STEPS, normalize_observations=True, normalize_rewards=True)
    )
    config = rlkit.TrainerConfig(
        num_checkpoints=10**6,
        epochs_per_checkpoint=UPDATES,
        enable_evaluation=False,
        debug=False,
        overlap=overlap,
    )
    trainer = rlkit.Trainer(env, None, agent, algorithm, config)
    trainer.init(0)
    trainer.train_epoch()
    return trainer


def speed(trainer: rlkit.Trainer) -> float:
    start = time.perf_counter()
    trainer.train_epoch()
    return NUM_ENVS * NUM_STEPS * UPDATES / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("env_ids", nargs="*", default=ENVS)
    add_rounds(parser, "timed outer iterations per row")
    arguments = parser.parse_args()
    for env_id in arguments.env_ids:
        cells = [*itertools.product(("sync", "async"), ("none", "acting", "update"))]
        trainers = {cell: make_trainer(env_id, *cell) for cell in cells}
        measured: dict[tuple[str, str], list[float]] = {cell: [] for cell in cells}
        for _, cell in in_turns(cells, arguments.rounds):
            measured[cell].append(speed(trainers[cell]))
        for trainer in trainers.values():
            trainer.close()
            trainer.module.env.close()
        rows = [
            [f"{vectorization}, overlap {overlap}", with_spread(speeds)]
            for (vectorization, overlap), speeds in measured.items()
        ]
        print(markdown([env_id, "env steps/s (min–max)"], rows), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
