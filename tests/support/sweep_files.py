"""What sweeps leave, for comparing them."""

import json
from pathlib import Path


def stops_at(iteration):
    """A `watch` that stops each trainer after so many outer iterations."""

    from rlkit.training.sweeps.stages import PauseAt

    def watch(trainer):
        trainer._callbacks.append(PauseAt(iteration))

    return watch


def files_of(sweep):
    """What a sweep left: its results, and the state and records of each trial."""
    from rlkit.training.logs.loaded_run import load_run

    found = {"results": (sweep.directory / "results.jsonl").read_text()}
    for result in sweep.results:
        run = load_run(sweep.trial_directory(result.trial))
        rows = [(row.kind, row.env_steps, row.seed, row.metrics) for row in run.records]
        for row in rows:
            row[-1].pop("train/steps_per_second", None)
        found[result.trial] = run.summary["params_sha256"], [row for row in rows if row[-1]]
    return found


def results_of(directory: Path) -> tuple[str, list[str]]:
    """The results of a finished sweep, and the hash of each trial's parameters."""
    runs = sorted((directory / "trials").iterdir())
    summaries = [json.loads((run / "summary.json").read_text()) for run in runs]
    rows = (directory / "results.jsonl").read_text()
    return rows, [summary["params_sha256"] for summary in summaries]
