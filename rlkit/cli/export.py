"""`rlkit export`: a trained policy as ONNX and StableHLO, for programs without rlkit."""

import dataclasses
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlkit.cli import flags, trained
from rlkit.training.export.checks import Format, check_export

if TYPE_CHECKING:
    from rlkit.training.export.parity import Parity

COMMAND = "rlkit export"
EXAMPLES = f"""examples:
  {COMMAND} runs/mine
  {COMMAND} runs/mine --output policy --format onnx
  {COMMAND} runs/mine --checkpoint latest --seed-index 0"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportFlags(trained.PolicyFlags):
    """Writes the policy of a run as ONNX and StableHLO, with loaders that do without rlkit."""

    output: str | None = None
    """Folder to write, which must not exist.
    None: exports/checkpoint-STEP in the directory of the run, or -2 and so on.
    """
    format: Format = "both"
    """What to write. ONNX needs the packages onnx and onnxruntime."""


def run(arguments: Sequence[str]) -> int:
    """Exports the policy and returns the exit code."""
    chosen = flags.parse(ExportFlags, arguments, command=COMMAND, epilogue=EXAMPLES)
    trained.check(chosen)
    default = os.path.join(chosen.run_dir, "exports")
    check_export(chosen.output or flags.free_name(default), chosen.format)
    policy = trained.load(chosen)
    free = flags.free_name(os.path.join(default, f"checkpoint-{policy.checkpoint_step}"))
    exported = policy.export(chosen.output or free, format=chosen.format)
    print(f"{exported.path}: {', '.join(sorted(os.listdir(exported.path)))}")
    print(f"in a process without rlkit, on {exported.parity[0].observations} random observations:")
    for each in exported.parity:
        print(f"{each.kind:<11}{_agreement(each)}")
    return 0


def _agreement(parity: "Parity") -> str:
    if parity.differing == 0:
        return "every action equal to the bit"
    equal = parity.observations - parity.differing
    return (
        f"{equal} of {parity.observations} actions equal to the bit, the largest difference"
        f" {parity.largest_difference:.2g}"
    )
