"""Settings of a training run. Imports no JAX, so that `--help` and mistakes in the arguments answer at once."""

import dataclasses
from typing import Annotated, Literal

from annotated_types import Ge, Gt

WandbMode = Literal["online", "offline", "disabled"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoggerConfig:
    """Where the records of a run go. The JSONL file is the source of truth; all others are copies of it."""

    jsonl: str | None = None
    """File that receives one JSON record a row; None with a run directory: `<run_dir>/metrics.jsonl`, else no file."""
    console: bool = True
    """Print a line for each evaluation."""
    wandb: WandbMode | None = None
    """Also log to Weights & Biases: online, offline or disabled; None: do not import it."""
    wandb_project: str = "rlkit"
    """Project that the run is filed under."""
    wandb_entity: str | None = None
    """Team or user; None: the account's default."""
    wandb_name: str | None = None
    """Name of the run; None: the name of the run directory."""
    wandb_group: str | None = None
    """Group of the run."""
    wandb_tags: tuple[str, ...] = ()
    """Tags of the run."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointerConfig:
    """Where checkpoints go and which are kept: always the newest ones and, beside them, the best one."""

    directory: str | None = None
    """Directory of the checkpoints; None with a run directory: `<run_dir>/checkpoints`, else none are written."""
    max_to_keep: Annotated[int, Ge(1)] = 2
    """How many of the newest checkpoints stay."""
    keep_best: bool = True
    """Also keep the checkpoint with the highest evaluation return."""
    save_timeout: Annotated[float, Gt(0)] = 600.0
    """Seconds to wait for a write to finish before it counts as failed."""
