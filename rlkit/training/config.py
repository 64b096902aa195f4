"""Settings of a training run. Imports no JAX, so that `--help` and errors are quick."""

import dataclasses
import os
from typing import Annotated, Literal

from annotated_types import Ge, Gt

from rlkit.errors import require
from rlkit.validation import Count, Episodes, LargeCount, PositiveInt

DEFAULT_CHECKPOINTS = 20
# Replay memory, in bytes over all seeds, up to which checkpoints include it by default.
REPLAY_LIMIT = 2 * 1024**3
ENVIRONMENTS_LIMIT = 256 * 1024**2  # states of host environments, in bytes over all seeds
Shard = Literal["data", "seeds", "both"]
Overlap = Literal["none", "acting", "update"]
WandbMode = Literal["online", "offline", "disabled"]
WandbRuns = Literal["one", "per_seed"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoggerConfig:
    """Where the records of a run are logged. The JSONL file is the source of truth, the others are
    copies.
    """

    jsonl: str | None = None
    """JSONL file for the records, one per row. A new run in a run directory refuses a file
    with rows.
    None: `<run_dir>/metrics.jsonl`, or no file without a run directory.
    """
    console: bool = True
    """Print a line per evaluation."""
    csv: bool = False
    """Also write the metrics to `<run_dir>/metrics.csv`, for spreadsheets and pandas."""
    tensorboard: bool = False
    """Also write TensorBoard's files to `<run_dir>/tensorboard`; needs tensorboardX."""
    wandb: WandbMode | None = None
    """Also log to Weights & Biases: online, offline or disabled; None: wandb is not imported."""
    wandb_project: str | None = None
    """W&B project of the run; None: WANDB_PROJECT, or rlkit."""
    wandb_entity: str | None = None
    """W&B team or user; None: WANDB_ENTITY, or the account's default."""
    wandb_name: str | None = None
    """W&B name of the run; None: WANDB_NAME, or the name of the run directory.
    With a run for each seed, -seed_<index> follows.
    """
    wandb_group: str | None = None
    """W&B group of the run; None: WANDB_RUN_GROUP,
    or with a run for each seed the name of the run directory.
    """
    wandb_tags: tuple[str, ...] = ()
    """W&B tags of the run; none: WANDB_TAGS."""
    wandb_notes: str | None = None
    """W&B notes on the run; None: WANDB_NOTES."""
    wandb_runs: WandbRuns = "one"
    """one: a single W&B run, with a curve for each seed;
    per_seed: a run for each seed, in one group.
    """
    wandb_artifacts: bool = False
    """Upload the best policy (or the latest) to W&B at the end of the run, for load_policy."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointerConfig:
    """Where checkpoints are saved and which are kept: the newest ones and, optionally, the best."""

    directory: str | None = None
    """Directory of the checkpoints.
    None: `<run_dir>/checkpoints`, or no checkpoints without a run directory.
    """
    max_to_keep: Annotated[int, Ge(1)] = 2
    """Number of newest checkpoints to keep."""
    keep_best: bool = True
    """Also keep the checkpoint with the highest evaluation return (the newest if tied)."""
    keep_seed_bests: bool = False
    """With several seeds, also keep the best checkpoint of each seed, if keep_best;
    `load_policy(run_dir, seed_index=3)` and `rlkit evaluate` then take that of the seed.
    """
    save_replay: bool | None = None
    """Save the replay buffer too; otherwise a resumed run refills it with its policy.
    None: if it takes at most 2 GiB over all seeds.
    """
    save_timeout: Annotated[float, Gt(0)] = 600.0
    """Seconds after which an unfinished write counts as failed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    """Length of training, and what happens between outer iterations.

    An outer iteration is `epochs_per_checkpoint` iterations (collect, then update), compiled as one
    program. After each, the trainer evaluates, saves and logs. Set `total_steps`, or
    `num_checkpoints` and `epochs_per_checkpoint`.
    """

    total_steps: LargeCount | None = None
    """Environment steps to train for, with warm-up steps, rounded up to whole outer iterations.
    None: num_checkpoints x epochs_per_checkpoint iterations.
    Steps that refill an unsaved replay buffer after a resume are not counted.
    """
    num_checkpoints: PositiveInt | None = None
    """Number of outer iterations, or fewer if total_steps has not as many iterations or cannot be
    cut so; None: 20, or derived from the other two. A curriculum may have more: none is longer than
    its shortest phase.
    With restore_checkpoint, those after the checkpoint; with auto, those of the whole run.
    """
    epochs_per_checkpoint: PositiveInt | None = None
    """Iterations (collect, then update) per outer iteration; None: derived from the other two."""
    num_seeds: PositiveInt = 1
    """Number of parallel seeds; with several, results have a leading seed axis."""
    devices: PositiveInt = 1
    """Devices to train on, each with an equal share; all settings count the whole. With 1, several
    processes train on all that they have.
    The environment variable JAX_NUM_CPU_DEVICES divides a CPU into several, to try it.
    """
    shard: Shard = "data"
    """What several devices share. data: the environments, batches and replay buffer of each seed;
    seeds: the seeds; both: the seeds as far as they can be divided, then the environments of each.
    """
    enable_evaluation: bool = True
    """Evaluate after outer iterations."""
    evaluation_episodes: Episodes = 16
    """Episodes per evaluation, with deterministic actions and again with sampled ones."""
    max_evaluation_steps: PositiveInt | None = None
    """Maximum length of evaluation episodes; None: the environment's time limit."""
    skip_initial_evaluation: bool = False
    """Skip the evaluation before the first outer iteration."""
    eval_every: PositiveInt = 1
    """Evaluate every this many outer iterations, and after the last one."""
    log_every: PositiveInt = 1
    """Log training metrics every this many outer iterations."""
    log_iterations: bool = False
    """Log the training metrics of every iteration, not their averages over each outer iteration
    that log_every selects.
    """
    checkpoint_every: PositiveInt = 1
    """Save a checkpoint every this many outer iterations, and after the last one."""
    run_dir: str | None = None
    """Directory for config, metrics, checkpoints, learning curve and summary of the run.
    None: no directory; the command line makes a new one in runs/.
    """
    restore_checkpoint: Count | Literal["latest", "best", "auto"] | None = None
    """Checkpoint to start from: a step (0 is one), latest, best,
    or auto: the latest if there is one, else start anew.
    """
    warm_start: str | None = None
    """Run directory to take the parameters from (its best checkpoint);
    optimiser, exploration and steps start anew. None: fresh networks.
    """
    replay_buffer_capacity: LargeCount | None = None
    """Capacity of the replay buffer in transitions, for off-policy algorithms.
    None: the algorithm's default.
    """
    warmup_steps: Count | None = None
    """Environment steps of random actions before learning, rounded up to whole rollouts.
    None: the algorithm's default.
    """
    max_queued: PositiveInt = 2
    """Number of outer iterations queued on the device before the host waits for results.
    Those that take more than a second are never queued, so that a stop comes soon.
    """
    max_skipped_updates: PositiveInt | None = 100
    """End with an error once all seeds skipped this many updates in a row, because a loss, gradient
    or new parameter was not finite; counted in whole outer iterations. None: never.
    """
    overlap: Overlap = "none"
    """What overlaps on host environments. none: act, step and learn in turn;
    acting: half of the environments act while the others step;
    update: collect the next rollout during the update, by a policy that is one update old.
    """
    compile_host_loop: bool = True
    """On the host, if a rollout is a single step (as off policy): compile whole outer iterations,
    which ask Python for each step. False: one call per step. Results agree to rounding.
    No effect on GPUs, or if JAX lacks `buffer_callback`.
    """
    deterministic: bool = False
    """Make equal runs, resumed ones too, end with equal bits.
    The command line then limits JAX to one CPU thread (NPROC=1).
    """
    debug: bool = True
    """Show a progress bar, in a terminal or a notebook."""
    logger_config: LoggerConfig | None = LoggerConfig()
    """Where records are logged; None: nowhere."""
    checkpointer_config: CheckpointerConfig | None = CheckpointerConfig()
    """Where checkpoints are saved; None: nowhere."""

    def checkpoint_directory(self, run_dir: str | os.PathLike[str]) -> str:
        """The directory of the checkpoints of a run in `run_dir`."""
        own = None if self.checkpointer_config is None else self.checkpointer_config.directory
        return os.path.expanduser(own or os.path.join(run_dir, "checkpoints"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhasePlan:
    """The size of one phase of a curriculum."""

    num_checkpoints: int  # outer iterations
    epochs_per_checkpoint: int  # iterations per outer iteration
    env_steps_per_iteration: int  # environment steps per iteration, over all environments

    @property
    def steps_per_checkpoint(self) -> int:
        """Environment steps per outer iteration."""
        return self.epochs_per_checkpoint * self.env_steps_per_iteration


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """The size of a run: `TrainerConfig`'s request, rounded up to whole outer iterations.

    With a curriculum, iterations have the size that they have in the current phase.
    """

    num_checkpoints: int  # outer iterations
    epochs_per_checkpoint: int  # iterations per outer iteration
    env_steps_per_iteration: int  # environment steps per iteration, over all environments
    prefill_steps: int  # environment steps with random actions before the first iteration
    phases: tuple[PhasePlan, ...] = ()  # of a curriculum; (): there is none
    # Environment steps beyond (or below) what these sizes count: earlier ones had other sizes.
    earlier_steps: int = 0

    @property
    def steps_per_checkpoint(self) -> int:
        """Environment steps per outer iteration."""
        return self.epochs_per_checkpoint * self.env_steps_per_iteration

    @property
    def total_steps(self) -> int:
        """Environment steps of the whole run, prefill included."""
        return self.steps_after(self.num_checkpoints)

    def steps_after(self, iteration: int) -> int:
        """Environment steps of a run after `iteration` outer iterations, prefill included."""
        return self.prefill_steps + self.earlier_steps + self.steps_up_to(iteration)

    def going_on(self, iteration: int, steps: int, total_steps: int | None) -> "Plan":
        """This plan, for a run that took `steps` environment steps up to outer iteration
        `iteration`, prefill included, perhaps with iterations of other sizes.

        It ends at `total_steps`, rounded up; None: after as many outer iterations as this plan.
        """
        outer = self.num_checkpoints
        if total_steps is not None:
            left = -(-(total_steps - steps) // self.steps_per_checkpoint)
            outer = iteration + max(left, 0)
        earlier = steps - self.prefill_steps - self.steps_up_to(iteration)
        return dataclasses.replace(self, num_checkpoints=outer, earlier_steps=earlier)

    def steps_up_to(self, iteration: int) -> int:
        """Environment steps of the first `iteration` outer iterations, without the prefill."""
        steps = 0
        for phase in self.phases[:-1]:
            count = min(iteration, phase.num_checkpoints)
            steps += count * phase.steps_per_checkpoint
            iteration -= count
        last = self.phases[-1] if self.phases else self
        return steps + iteration * last.steps_per_checkpoint


def make_plan(
    config: TrainerConfig, *, env_steps_per_iteration: int, prefill_steps: int = 0
) -> Plan:
    """Rounds `config` up to whole outer iterations. Raises `ConfigError` if settings contradict
    each other.
    """
    total, outer, epochs = config.total_steps, config.num_checkpoints, config.epochs_per_checkpoint
    if total is None:
        require(
            outer is not None or epochs is not None,
            "the length of training is not set",
            "set total_steps=500_000, or num_checkpoints and epochs_per_checkpoint",
        )
        outer, epochs = outer or DEFAULT_CHECKPOINTS, epochs or 1
    else:
        require(
            outer is None or epochs is None,
            f"total_steps={total}, num_checkpoints={outer} and epochs_per_checkpoint={epochs} are"
            " redundant",
            "leave out one of the three",
        )
        require(
            total > prefill_steps,
            f"total_steps={total} does not exceed the {prefill_steps} random steps before learning",
            "raise total_steps, or lower prefill_steps (or warmup_steps, if you set it)",
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
