"""`rlkit evaluate`: evaluates the trained policy of a run."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rlkit.cli import flags, trained
from rlkit.cli.closing_words import mean_and_spread
from rlkit.validation import Episodes, PlainData, PositiveInt

if TYPE_CHECKING:
    from rlkit.training.policy import Policy
    from rlkit.types import Measurements

COMMAND = "rlkit evaluate"
EXAMPLES = f"""examples:
  {COMMAND} runs/mine
  {COMMAND} runs/mine --checkpoint latest --episodes 1000
  {COMMAND} runs/mine --seed-index 0 --json"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateFlags(trained.PlayFlags):
    """Evaluates the policy of a run, with its most likely and with sampled actions."""

    episodes: Episodes = 100
    """Number of episodes with each kind of action."""
    num_envs: PositiveInt | None = None
    """Number of parallel environments; None: chosen automatically."""
    json: bool = False
    """Print a JSON object with the values of every episode."""


def run(arguments: Sequence[str]) -> int:
    """Runs the evaluation and returns the exit code."""
    chosen = flags.parse(EvaluateFlags, arguments, command=COMMAND, epilogue=EXAMPLES)
    trained.check(chosen)
    policy = trained.load(chosen)
    result = policy.evaluate(chosen.episodes, seed=chosen.seed, num_envs=chosen.num_envs)
    is_best = chosen.seed_index is None
    print(_as_json(policy, result) if chosen.json else _as_table(policy, result, is_best=is_best))
    return 0


def _as_table(policy: "Policy", result: "Measurements", *, is_best: bool) -> str:
    from rlkit.training.logs.metrics import flat_names, mean_of_known

    seed = ""
    if policy.num_seeds > 1:
        is_known = "eval/avg_return" in policy.metrics  # else the first was taken
        of_all = "the best of" if is_best and is_known else "of"
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
    broken = int(result.get("non_finite_episodes", 0))
    if broken > 0:
        lines += [
            "",
            f"{broken} of these episodes ended because the environment returned NaN or infinity,"
            " and count with the return until then",
        ]
    numbers = {
        name: values
        for name, values in flat_names(result.get("done_info", {})).items()
        if np.ndim(values) == 1
    }
    lines += (
        ["", "metrics reported by the environment at episode ends, averaged"] if numbers else []
    )
    lines += [f"{name:<28}{float(mean_of_known(values)):10.4g}" for name, values in numbers.items()]
    return "\n".join(line.rstrip() for line in lines)


def _as_json(policy: "Policy", result: "Measurements") -> str:
    import jax

    from rlkit.training.logs.metrics import mean_of_known
    from rlkit.training.logs.strict_json import to_strict_json

    episodes = {
        name: np.asarray(values).tolist() for name, values in result.items() if name != "done_info"
    }
    averages: PlainData = {
        f"{name}_mean": float(np.mean(values))
        for name, values in episodes.items()
        if np.ndim(values) > 0
    }
    done_info = result.get("done_info", {})
    averages["done_info_mean"] = jax.tree.map(lambda x: float(mean_of_known(x)), done_info)
    about = {
        "checkpoint": policy.checkpoint_step,
        "env_steps": policy.env_steps,
        "seed_index": policy.seed_index,
    }
    reported = {"done_info": jax.tree.map(lambda x: np.asarray(x).tolist(), done_info)}
    return to_strict_json({**about, **averages, **episodes, **reported})
