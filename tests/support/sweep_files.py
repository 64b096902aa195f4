"""What sweeps leave, for comparing them."""

from rlkit.training.logs.loaded_run import load_run
from rlkit.training.sweeps.stages import PauseAt


def stops_at(iteration):
    """A `watch` that stops each trainer after so many outer iterations."""

    def watch(trainer):
        trainer._callbacks.append(PauseAt(iteration))

    return watch


def files_of(sweep):
    """What a sweep left: its results, and the state and records of each trial."""
    found = {"results": (sweep.directory / "results.jsonl").read_text()}
    for result in sweep.results:
        run = load_run(sweep.trial_directory(result.trial))
        rows = [(row.kind, row.env_steps, row.seed, row.metrics) for row in run.records]
        for row in rows:
            row[-1].pop("train/steps_per_second", None)
        found[result.trial] = run.summary["params_sha256"], [row for row in rows if row[-1]]
    return found
