"""The presets, and what each is held against. Imports no JAX."""

import dataclasses
from typing import Literal

from rlkit.training.run_config import preset_names, preset_values


@dataclasses.dataclass(frozen=True, kw_only=True)
class Goal:
    """What a preset should reach."""

    published: str = ""
    """Published returns as the table shows them, each with its steps and seeds."""
    bar: float | None = None
    """The mean return over seeds below which `make learning` fails."""
    measure: Literal["evaluation", "training"] = "evaluation"
    """evaluation: deterministic episodes at the end of training; training: the training episodes,
    with sampled actions, of the last tenth, as CleanRL's tables.
    """
    seeds: int = 5
    episodes: int = 64
    """Of each evaluation, for each seed."""


def settings(name: str) -> dict[str, object]:
    """What a preset's file sets, by which a record tells whether it belongs to it."""
    algorithm, _, env_id = name.partition("/")
    return preset_values(algorithm, env_id)


_ZOO = "rl-baselines3-zoo"
_SAC_PENDULUM = f"{_ZOO} -157 ± 89 (20k, 1 run)"
_TD3_PENDULUM = f"{_ZOO} -152 ± 90 (20k, 1 run)"
_NONE = "none found"  # in what the suite and others publish as numbers
_CAR = f"{_ZOO} 94.7 with SAC (50k, 1 run)"
# A return is 1 or -1 and the sum of random rewards of 1 or -1, one of each step before the last.
_UMBRELLA = Goal(bar=0.95, episodes=65_536)

GOALS: dict[str, Goal] = {
    "ppo/gymnax/CartPole-v1": Goal(
        bar=475, published=f"CleanRL 490 (training return, 500k, 3 seeds); {_ZOO} 500 (100k, 1 run)"
    ),
    "ppo/gymnax/Acrobot-v1": Goal(
        bar=-90,
        published="CleanRL -86.4 (training return, 500k, 3 seeds); gymnax -80 (500k, 1 run)",
    ),
    "ppo/gymnax/Pendulum-v1": Goal(
        bar=-154, published=f"{_ZOO} -172 ± 104 (100k, 1 run); gymnax -130 (1M, 1 run)"
    ),
    "ppo/gymnax/Breakout-MinAtar": Goal(
        bar=45, published="gymnax 28 (10M, 1 run, an older gymnax)"
    ),
    "ppo/gymnax/Asterix-MinAtar": Goal(bar=15, published="gymnax 15 (10M, 1 run, an older gymnax)"),
    "ppo/gymnax/SpaceInvaders-MinAtar": Goal(
        bar=131, published="gymnax 131 (10M, 1 run, an older gymnax)"
    ),
    "ppo/gymnax/Freeway-MinAtar": Goal(bar=58, published="gymnax 58 (10M, 1 run, an older gymnax)"),
    "ppo/gymnax/Seaquest-MinAtar": Goal(),
    "ppo/gymnax/MountainCar-v0": Goal(bar=-112, published=f"{_ZOO} -110.4 (1M, 1 run)"),
    "ppo/gymnax/MemoryChain-bsuite": Goal(bar=0.95),
    "ppo/rlkit/MemoryChain20-v0": Goal(bar=0.95),
    "ppo/rlkit/MemoryChain100-v0": Goal(bar=0.95),
    "ppo/gymnax/UmbrellaChain-bsuite": _UMBRELLA,
    "ppo/rlkit/UmbrellaChain20-v0": _UMBRELLA,
    "ppo/rlkit/UmbrellaChain100-v0": _UMBRELLA,
    "dqn/gymnax/MemoryChain-bsuite": Goal(bar=0.95),
    "dqn/rlkit/CartPoleNoVel-v1": Goal(bar=490),
    "ppo/rlkit/MountainCarContinuousNoVel-v0": Goal(
        bar=91.5, published=f"{_ZOO} 91.5 ± 1.8 (LSTM, 300k, 1 run)"
    ),
    "ppo/rlkit/CartPoleNoVel-v1": Goal(bar=490, published=f"{_ZOO} 500 (LSTM, 100k, 1 run)"),
    "ppo/rlkit/PendulumNoVel-v1": Goal(
        bar=-217.9, published=f"{_ZOO} -218 ± 140 (LSTM, 100k, 1 run)"
    ),
    "ppo/gymnasium/MountainCar-v0": Goal(bar=-112, published=f"{_ZOO} -110.4 (1M, 1 run)"),
    "ppo/gymnax/MountainCarContinuous-v0": Goal(bar=90, published=_CAR),
    "ppo/gymnasium/MountainCarContinuous-v0": Goal(bar=90, published=_CAR),
    "ppo/gymnasium/LunarLander-v3": Goal(bar=218, published=f"{_ZOO} 242 (v2, 1M, 1 run)"),
    "ppo/gymnasium/BipedalWalker-v3": Goal(bar=213, published=f"{_ZOO} 213 (5M, 1 run)"),
    "ppo/gymnasium/HalfCheetah-v5": Goal(
        bar=1298, measure="training", seeds=3, published="CleanRL 1443 ± 46 (v4, 1M, 3 seeds)"
    ),
    "ppo/gymnasium/Hopper-v5": Goal(
        bar=2145, measure="training", seeds=3, published="CleanRL 2383 ± 272 (v4, 1M, 3 seeds)"
    ),
    "ppo/gymnasium/Hopper-v4": Goal(
        bar=2145, measure="training", seeds=3, published="CleanRL 2383 ± 272 (1M, 3 seeds)"
    ),
    "ppo/gymnasium/Walker2d-v5": Goal(
        bar=2059, measure="training", seeds=3, published="CleanRL 2288 ± 572 (v4, 1M, 3 seeds)"
    ),
    "ppo/gymnasium/InvertedPendulum-v5": Goal(
        bar=867, measure="training", seeds=3, published="CleanRL 963 ± 22 (v4, 1M, 3 seeds)"
    ),
    "ppo/gymnasium/Ant-v5": Goal(bar=1194, seeds=3, published=f"{_ZOO} 1327 (v3, 1M, 1 run)"),
    "ppo/gymnasium/Swimmer-v5": Goal(bar=254, seeds=3, published=f"{_ZOO} 282 (v3, 1M, 1 run)"),
    "dqn/gymnax/CartPole-v1": Goal(
        bar=475, published="CleanRL 488.7 ± 16.1 (training return, 500k, 3 seeds)"
    ),
    "dqn/gymnax/Acrobot-v1": Goal(
        bar=-100, published="CleanRL -91.5 ± 7.2 (training return, 500k, 3 seeds)"
    ),
    "dqn/gymnasium/CartPole-v1": Goal(
        bar=475, published="CleanRL 488.7 ± 16.1 (training return, 500k, 3 seeds)"
    ),
    "dqn/gymnasium/Acrobot-v1": Goal(
        bar=-100, published="CleanRL -91.5 ± 7.2 (training return, 500k, 3 seeds)"
    ),
    "dqn/gymnax/MountainCar-v0": Goal(bar=-105, published=f"{_ZOO} -100.8 (120k, 1 run)"),
    "dqn/gymnasium/MountainCar-v0": Goal(bar=-105, published=f"{_ZOO} -100.8 (120k, 1 run)"),
    "qr_dqn/gymnax/CartPole-v1": Goal(bar=475, published=f"{_ZOO} 500 (50k, 1 run)"),
    "pqn/gymnax/CartPole-v1": Goal(
        bar=475, published="CleanRL 495.1 ± 6.9 (training return, 500k, 3 seeds)"
    ),
    "pqn/gymnax/Acrobot-v1": Goal(
        bar=-100, published="CleanRL -95.6 ± 5.7 (training return, 500k, 3 seeds)"
    ),
    "pqn/gymnasium/CartPole-v1": Goal(
        bar=475, published="CleanRL 495.1 ± 6.9 (training return, 500k, 3 seeds)"
    ),
    "pqn/gymnasium/Acrobot-v1": Goal(
        bar=-100, published="CleanRL -95.6 ± 5.7 (training return, 500k, 3 seeds)"
    ),
    "sac/gymnax/Pendulum-v1": Goal(bar=-200, published=_SAC_PENDULUM),
    "sac/gymnasium/Pendulum-v1": Goal(bar=-200, published=_SAC_PENDULUM),
    "sac/gymnax/MountainCarContinuous-v0": Goal(bar=92, published=_CAR),
    "sac/gymnasium/MountainCarContinuous-v0": Goal(bar=92, published=_CAR),
    "sac/gymnasium/HalfCheetah-v5": Goal(
        seeds=3,
        published="SAC in SimbaV2's results 11321 ± 1108 (v4, 1M, 10 seeds);"
        " CleanRL 9635 ± 1424 (training return, v4, 1M, 3 seeds)",
    ),
    "sac/gymnasium/Hopper-v5": Goal(
        bar=2508,
        seeds=3,
        published="SAC in SimbaV2's results 2787 ± 868 (v4, 1M, 10 seeds);"
        " CleanRL 2310 ± 343 (training return, v4, 1M, 3 seeds)",
    ),
    "td3/gymnax/Pendulum-v1": Goal(bar=-200, published=_TD3_PENDULUM),
    "td3/gymnasium/Pendulum-v1": Goal(bar=-200, published=_TD3_PENDULUM),
    "td3/gymnasium/HalfCheetah-v5": Goal(
        bar=8624, seeds=3, published="CleanRL 9583 ± 126 (training return, v4, 1M, 3 seeds)"
    ),
    "td3/gymnasium/Hopper-v5": Goal(
        bar=2821, seeds=3, published="CleanRL 3135 ± 360 (training return, v4, 1M, 3 seeds)"
    ),
    "discrete_sac/gymnax/CartPole-v1": Goal(bar=475),
    "ppo/brax/inverted_pendulum": Goal(bar=950, published=_NONE),
    "ppo/brax/reacher": Goal(bar=-25, seeds=3, published=_NONE),
    "ppo/craftax/Craftax-Classic-Symbolic-v1": Goal(
        bar=4.2,
        measure="training",
        seeds=3,
        published="PPO of Hafner 2021 4.2 ± 1.2 (Crafter, images, 1M); of the highest return, 22:"
        " DreamerV3 53.2 %, Dedieu 2025 69.7 % (images, 1M), PPO of Craftax 90 % (1B)",
    ),
    "ppo/jumanji/Game2048-v1": Goal(seeds=3, published=_NONE),
    "ppo/minigrid/MiniGrid-Empty-5x5-v0": Goal(
        bar=0.95, published=f"{_ZOO} 0.968 ± 0.013 (Empty-Random-5x5, 100k, 1 run)"
    ),
    "ppo/navix/Navix-Empty-5x5-v0": Goal(bar=0.95, published=_NONE),
    "ppo/pgx/minatar-breakout": Goal(
        seeds=3, published="Pgx 50 (sampled actions, 20M, read off its figure)"
    ),
    "ppo/pgx/tic_tac_toe": Goal(bar=0.8, published=_NONE),
    "ppo/playground/CartpoleBalance": Goal(
        bar=950,
        seeds=3,
        published="SLM-Lab 876 (training return, 100M, 4 seeds), which reads 950 off Playground's"
        " figure (100M)",
    ),
    "ppo/popgym/RepeatFirstEasy-v0": Goal(
        bar=0.95, published="POPGym 1.0 (GRU, best epoch of 15M, as others quote it)"
    ),
    "ppo/xminigrid/MiniGrid-Empty-5x5": Goal(
        bar=0.95, published="XLand-MiniGrid 0.8 or more (Empty-6x6, GRU, 100k)"
    ),
    "ppo/xminigrid/MiniGrid-MemoryS8": Goal(bar=0.9, seeds=3, published=_NONE),
}
assert sorted(GOALS) == preset_names()
