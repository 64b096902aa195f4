"""`rlkit evaluate`: evaluates the trained policy of a run."""

import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from rlkit import validation
from rlkit.cli import flags, own_env
from rlkit.cli.report import mean_and_spread
from rlkit.errors import CheckpointError, require
from rlkit.training.config import TrainerConfig
from rlkit.training.run_config import Seed, read_settings, require_seed
from rlkit.validation import Count, Episodes, PlainData, PositiveInt

if TYPE_CHECKING:
    from rlkit.training.policy import Policy
    from rlkit.types import Measurements

COMMAND = "rlkit evaluate"
EXAMPLES = f"""examples:
  {COMMAND} runs/mine
  {COMMAND} runs/mine --checkpoint latest --episodes 1000
  {COMMAND} runs/mine --seed-index 0 --json"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateFlags:
    """Evaluates the policy of a run, with its most likely and with sampled actions."""

    run_dir: flags.RunDir
    """Directory of the run."""
    checkpoint: Count | Literal["latest", "best"] | None = None
    """Which policy: best, latest or the step of a checkpoint.
    None: the best one, or the latest if the run was never evaluated.
    """
    episodes: Episodes = 100
    """Number of episodes with each kind of action."""
    seed_index: Count | None = None
    """Which of several parallel seeds, counted from 0; None: the best one."""
    seed: Seed | None = None
    """Seed of the episodes; None: fixed episodes that differ from those during training."""
    num_envs: PositiveInt | None = None
    """Number of parallel environments; None: chosen automatically."""
    env: str | None = None
    """The run's environment again, if it is your own class (module:Class):
    rlkit never imports code that is named in a file.
    """
    accept_differences: bool = False
    """Use the settings of config.yaml even if the checkpoint was trained with others."""
    json: bool = False
    """Print a JSON object with the values of every episode."""


def run(arguments: Sequence[str]) -> int:
    """Runs the evaluation and returns the exit code."""
    chosen = flags.parse(EvaluateFlags, arguments, command=COMMAND, epilogue=EXAMPLES)
    flags.validate(chosen, EvaluateFlags)
    settings = read_settings(chosen.run_dir)
    own_env.check_run(own_env.id_in(settings), typed=chosen.env, run_dir=chosen.run_dir)
    config = validation.from_dict(TrainerConfig, settings["trainer"])
    require_seed(chosen.seed_index, config.num_seeds)
    check_step(chosen.checkpoint, chosen.run_dir, config)
    own_env.register(chosen.env)
    from rlkit.training.compile.compilation_cache import enable_compilation_cache
    from rlkit.training.policy import load_policy
    from rlkit.xla_cpu import enable

    enable_compilation_cache()
    enable()
    policy = load_policy(
        chosen.run_dir,
        which=chosen.checkpoint,
        seed_index=chosen.seed_index,
        accept_differences=chosen.accept_differences,
    )
    result = policy.evaluate(chosen.episodes, seed=chosen.seed, num_envs=chosen.num_envs)
    is_best = chosen.seed_index is None
    print(_as_json(policy, result) if chosen.json else _as_table(policy, result, is_best=is_best))
    return 0


def check_step(step: object, run_dir: str, config: TrainerConfig) -> None:
    """Raises the error of `load_policy` about a checkpoint early."""
    directory = pathlib.Path(config.checkpoint_directory(run_dir))
    if isinstance(step, int) and directory.is_dir():
        names = (path.name for path in directory.iterdir())
        steps = sorted(int(name) for name in names if name.isdecimal())
        listed = ", ".join(map(str, steps)) or "none"
        known = f"its steps are: {listed}"
        require(step in steps, f"{directory} has no step {step}", known, CheckpointError)


def _as_table(policy: "Policy", result: "Measurements", *, is_best: bool) -> str:
    from rlkit.training.logs.metrics import mean_of_known

    seed = ""
    if policy.num_seeds > 1:
        of_all = "the best of" if is_best else "of"
        seed = f", seed index {policy.seed_index} ({of_all} {policy.num_seeds} seeds)"
    lines = [
        f"checkpoint {policy.checkpoint_step}, after {policy.env_steps:,} steps{seed}",
        f"mean ± standard deviation over {len(result['return'])} episodes per kind of action",
        "actions           return              length",
    ]
    for name, prefix in (("most likely", ""), ("sampled", "sampled_")):
        lines.append(
            f"{name:<12}{mean_and_spread(result[f'{prefix}return'])}{mean_and_spread(result[f'{prefix}length'])}"
        )
    done_info = result.get("done_info", {})
    lines += (
        ["", "metrics reported by the environment at episode ends, averaged"] if done_info else []
    )
    lines += [
        f"{name:<28}{float(mean_of_known(values)):10.4g}"
        for name, values in done_info.items()
        if np.ndim(values) == 1
    ]
    return "\n".join(line.rstrip() for line in lines)


def _as_json(policy: "Policy", result: "Measurements") -> str:
    import jax

    from rlkit.training.logs.metrics import mean_of_known

    episodes = {
        name: np.asarray(values).tolist() for name, values in result.items() if name != "done_info"
    }
    averages: PlainData = {
        f"{name}_mean": float(np.mean(values)) for name, values in episodes.items()
    }
    done_info = result.get("done_info", {})
    averages["done_info_mean"] = jax.tree.map(lambda x: float(mean_of_known(x)), done_info)
    about = {
        "checkpoint": policy.checkpoint_step,
        "env_steps": policy.env_steps,
        "seed_index": policy.seed_index,
    }
    reported = {"done_info": jax.tree.map(lambda x: np.asarray(x).tolist(), done_info)}
    return json.dumps({**about, **averages, **episodes, **reported})
