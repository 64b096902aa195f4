"""Settings of a training run. Imports no JAX, so that `--help` and mistakes in the arguments answer
at once.
"""

import dataclasses
from typing import Annotated, Literal

from annotated_types import Ge, Gt

from rlkit.errors import require

DEFAULT_CHECKPOINTS = 20
REPLAY_LIMIT = 2 * 1024**3  # bytes of replay memory, over all seeds, that checkpoints hold unasked
PositiveInt = Annotated[int, Gt(0)]
Overlap = Literal["none", "acting", "update"]
WandbMode = Literal["online", "offline", "disabled"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoggerConfig:
    """Where the records of a run go. The JSONL file is the source of truth; all others are copies
    of it.
    """

    jsonl: str | None = None
    """File that receives one JSON record a row; None with a run directory:
    `<run_dir>/metrics.jsonl`, else no file.
    """
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
    """Where checkpoints go and which are kept: always the newest ones and, beside them, the best
    one.
    """

    directory: str | None = None
    """Directory of the checkpoints; None with a run directory: `<run_dir>/checkpoints`, else none
    are written.
    """
    max_to_keep: Annotated[int, Ge(1)] = 2
    """How many of the newest checkpoints stay."""
    keep_best: bool = True
    """Also keep the checkpoint with the highest evaluation return, the newest of equals."""
    save_replay: bool | None = None
    """Save the replay buffer too; a run that is resumed without fills it anew by its policy. None:
    where it takes at most 2 GiB over all seeds.
    """
    save_timeout: Annotated[float, Gt(0)] = 600.0
    """Seconds to wait for a write to finish before it counts as failed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    """How long to train, and what happens between outer iterations.

    An outer iteration is `epochs_per_checkpoint` iterations (collect, then update) compiled as one
    program; after each the trainer evaluates, saves and logs. Give `total_steps`, or
    `num_checkpoints` and `epochs_per_checkpoint`.
    """

    total_steps: PositiveInt | None = None
    """Environment steps to train for, random ones before learning included, rounded up to whole
    outer iterations; None: num_checkpoints x epochs_per_checkpoint. Steps that fill a replay buffer
    anew, which was not saved, come on top.
    """
    num_checkpoints: PositiveInt | None = None
    """Outer iterations; None: 20, or what total_steps and epochs_per_checkpoint leave."""
    epochs_per_checkpoint: PositiveInt | None = None
    """Iterations (collect, then update) in an outer iteration; None: what total_steps and
    num_checkpoints leave.
    """
    num_seeds: PositiveInt = 1
    """Seeds trained side by side; with several, results have a leading axis of seeds."""
    enable_evaluation: bool = True
    """Evaluate after outer iterations."""
    evaluation_episodes: PositiveInt = 16
    """Episodes of each evaluation, played deterministically and again with sampled actions."""
    max_evaluation_steps: PositiveInt | None = None
    """Longest evaluation episode; None: the environment's own time limit."""
    skip_initial_evaluation: bool = False
    """Do not evaluate before the first outer iteration."""
    eval_every: PositiveInt = 1
    """Outer iterations from one evaluation to the next; the last one is always evaluated."""
    log_every: PositiveInt = 1
    """Outer iterations from one training record to the next."""
    checkpoint_every: PositiveInt = 1
    """Outer iterations from one checkpoint to the next; the last one is always saved."""
    run_dir: str | None = None
    """Directory that receives config, metrics, checkpoints, learning curve and summary of the run.
    """
    restore_checkpoint: Annotated[int, Ge(0)] | Literal["latest", "best", "auto"] | None = None
    """Start from a checkpoint: a step (0 is one), latest, best, or auto: the latest if there is
    any, else afresh.
    """
    replay_buffer_capacity: PositiveInt | None = None
    """Transitions that the replay buffer holds; None: the algorithm's own. Off-policy algorithms
    only.
    """
    warmup_steps: Annotated[int, Ge(0)] | None = None
    """Environment steps of random actions before learning, rounded up to whole rollouts; None: the
    algorithm's own.
    """
    max_queued: PositiveInt = 2
    """Outer iterations that may wait on the device before the host catches up."""
    overlap: Overlap = "none"
    """On the host, what happens at the same time. none: act, step, learn in that order; acting:
    half of the environments act while the others step; update: the next rollout is collected while
    the last one is learned from, by a policy one update old.
    """
    compile_host_loop: bool = True
    """On the host, where a rollout is a single step, as off policy: compile a whole outer
    iteration, which asks for each step; False: call one program after the other. Results agree to
    rounding. Without effect on a GPU and where JAX lacks `buffer_callback`.
    """
    deterministic: bool = False
    """Equal runs, also resumed ones, end with equal bits: the command line pins the CPU threads
    (NPROC=1) before JAX starts.
    """
    debug: bool = True
    """Show a progress bar."""
    logger_config: LoggerConfig = LoggerConfig()
    """Where records go."""
    checkpointer_config: CheckpointerConfig = CheckpointerConfig()
    """Where checkpoints go."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """A run in numbers: what `TrainerConfig` asks for, rounded to whole outer iterations."""

    num_checkpoints: int  # outer iterations
    epochs_per_checkpoint: int  # iterations in each
    env_steps_per_iteration: int  # environment steps in an iteration, over all environments
    prefill_steps: int  # environment steps of random actions before the first iteration

    @property
    def steps_per_checkpoint(self) -> int:
        """Environment steps in an outer iteration."""
        return self.epochs_per_checkpoint * self.env_steps_per_iteration

    @property
    def total_steps(self) -> int:
        """Environment steps of the whole run, prefill included."""
        return self.num_checkpoints * self.steps_per_checkpoint + self.prefill_steps


def make_plan(
    config: TrainerConfig, *, env_steps_per_iteration: int, prefill_steps: int = 0
) -> Plan:
    """Rounds `config` up to whole outer iterations. Raises `ConfigError` for settings that
    contradict each other.
    """
    total, outer, epochs = config.total_steps, config.num_checkpoints, config.epochs_per_checkpoint
    if total is None:
        require(
            outer is not None or epochs is not None,
            "the length of training is not set",
            "give total_steps=500_000, or num_checkpoints and epochs_per_checkpoint",
        )
        outer, epochs = outer or DEFAULT_CHECKPOINTS, epochs or 1
    else:
        require(
            outer is None or epochs is None,
            f"total_steps={total}, num_checkpoints={outer} and epochs_per_checkpoint={epochs} say"
            " the same thing twice",
            "leave out one of the three",
        )
        require(
            total > prefill_steps,
            f"total_steps={total} does not go beyond the {prefill_steps} random steps before"
            " learning",
            "raise total_steps or lower warmup_steps",
        )
        iterations = -(-(total - prefill_steps) // env_steps_per_iteration)
        if epochs is None:
            outer = min(outer or DEFAULT_CHECKPOINTS, iterations)
            epochs = -(-iterations // outer)
        outer = -(-iterations // epochs)
    return Plan(
        num_checkpoints=outer,
        epochs_per_checkpoint=epochs,
        env_steps_per_iteration=env_steps_per_iteration,
        prefill_steps=prefill_steps,
    )
