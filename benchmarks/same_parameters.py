"""Checks that two versions of rlkit train the same parameters, bit for bit.

    NPROC=1 python benchmarks/same_parameters.py --record before.json     # in the old checkout
    NPROC=1 python benchmarks/same_parameters.py --against before.json    # in the new one

Each row is a short `deterministic` run; the rows cover every algorithm, on jittable and on host
environments. Its digest covers the bytes of all parameters and of the target networks, whatever
their names and their order in the tree.
"""

import argparse
import hashlib
import json
import pathlib
import sys
from typing import Any

import jax
import numpy as np

import rlkit
from rlkit.training.run_config import from_dict

DISCRETE = ("ppo", "a2c", "pqn", "dqn", "qr_dqn", "discrete_sac")
CONTINUOUS = ("ppo", "a2c", "sac", "td3")
OFF_POLICY = ("dqn", "qr_dqn", "discrete_sac", "sac", "td3")


def rows() -> dict[str, dict[str, Any]]:
    """The settings of each run, by name."""
    settings = {}
    for suite in ("gymnax", "gymnasium"):
        for names, env in ((DISCRETE, "CartPole-v1"), (CONTINUOUS, "Pendulum-v1")):
            for name in names:
                settings[f"{name} {suite}/{env}"] = {"algorithm": name, "env": f"{suite}/{env}"}
        for name, env in (("ppo", "CartPole-v1"), ("sac", "Pendulum-v1")):
            row = settings[f"{name} {suite}/{env}"]
            settings[f"{name} {suite}/{env} 2 seeds"] = row | {"trainer": {"num_seeds": 2}}
        settings[f"dqn {suite}/CartPole-v1 prioritized"] = {
            "algorithm": "dqn",
            "env": f"{suite}/CartPole-v1",
            "hyperparameters": {"priority_exponent": 0.6, "n_step": 3},
        }
        settings[f"ppo {suite}/Pendulum-v1 normalized"] = {
            "algorithm": "ppo",
            "env": f"{suite}/Pendulum-v1",
            "hyperparameters": {"normalize_observations": True, "normalize_rewards": True},
        }
    for name in ("ppo", "pqn", "dqn"):
        settings[f"{name} gymnax/Breakout-MinAtar"] = {
            "algorithm": name,
            "env": "gymnax/Breakout-MinAtar",
        }
    settings["ppo gymnasium/CartPole-v1 overlap acting"] = {
        "algorithm": "ppo",
        "env": "gymnasium/CartPole-v1",
        "trainer": {"overlap": "acting"},
    }
    for name, env in (("ppo", "CartPole-v1"), ("sac", "Pendulum-v1"), ("dqn", "CartPole-v1")):
        settings[f"{name} gymnasium/{env} overlap update"] = {
            "algorithm": name,
            "env": f"gymnasium/{env}",
            "trainer": {"overlap": "update"},
        }
    return settings


def digest(row: dict[str, Any]) -> str:
    """SHA-256 of the final parameters."""
    is_off_policy = row["algorithm"] in OFF_POLICY
    steps = 800 if is_off_policy else 4096
    warmup = {"warmup_steps": 300, "replay_buffer_capacity": 1000} if is_off_policy else {}
    config = from_dict(
        {
            "algorithm": row["algorithm"],
            "env": {"id": row["env"], "num_envs": 4},
            "hyperparameters": row.get("hyperparameters", {}),
            "trainer": {
                "total_steps": steps,
                "num_checkpoints": 2,
                "enable_evaluation": False,
                "deterministic": True,
                "debug": False,
                "logger_config": {"console": False},
                **warmup,
                **row.get("trainer", {}),
            },
        }
    )
    with rlkit.build(config) as trainer:
        trainer.run(config.seed)
        leaves = jax.tree.leaves(
            jax.device_get((trainer.state.learner.params, trainer.state.learner.target_params))
        )
    each = sorted(hashlib.sha256(np.ascontiguousarray(x).tobytes()).hexdigest() for x in leaves)
    return hashlib.sha256("".join(each).encode()).hexdigest()[:16]


def main() -> None:
    """Records the digests, or compares them with recorded ones."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--record", type=pathlib.Path, help="file to write the digests to")
    parser.add_argument(
        "--against", type=pathlib.Path, help="file with the digests of another version"
    )
    parser.add_argument("--only", help="only rows whose name contains this text")
    arguments = parser.parse_args()
    before = json.loads(arguments.against.read_text()) if arguments.against else {}
    digests, different = {}, []
    for name, row in rows().items():
        if arguments.only and arguments.only not in name:
            continue
        digests[name] = digest(row)
        verdict = (
            "" if name not in before else "same" if before[name] == digests[name] else "DIFFERENT"
        )
        different += [name] if verdict == "DIFFERENT" else []
        print(f"{name:50} {digests[name]} {verdict}", flush=True)
    if arguments.record:
        arguments.record.write_text(json.dumps(digests, indent=1) + "\n")
    if different:
        sys.exit(f"different parameters: {', '.join(different)}")


if __name__ == "__main__":
    main()
