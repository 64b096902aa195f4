"""The records of one trial, out of those of the program that trained several. No JAX."""

from collections.abc import Iterator, Sequence

from rlkit.training.logs.metrics import average_records
from rlkit.training.logs.records import Record

SPEED = "train/steps_per_second"


def trial_records(records: Sequence[Record], lanes: range, num_lanes: int) -> Iterator[Record]:
    """What a run of the seeds in `lanes` would have logged, out of the records of all lanes.

    Its seeds count from 0; of one seed alone there is no row but that of the run. Speeds are its
    share of the speed of all `num_lanes`. Texts and events, which are about all trials, are left
    out.
    """
    if num_lanes == 1:
        yield from (record for record in records if record.text is None)
        return
    own: list[Record] = []
    for record in records:
        if record.seed is not None:
            own += [record] if record.seed in lanes else []
        elif record.text is None and own:
            rows, own = own, []
            found = average_records([row.metrics for row in rows], like=record)
            if SPEED in record.metrics:
                found[-1].metrics[SPEED] = record.metrics[SPEED] * len(lanes) / num_lanes
            yield from found


def logged_records(
    records: Sequence[Record], log_every: int, *, done: int, planned: int
) -> list[Record]:
    """Those that a run logs which logs the training of every `log_every`-th outer iteration.

    `records` are those of all the `done` outer iterations, of `planned` ones; the last is logged.
    If there are fewer, an earlier version of rlkit has left out the others already.
    """
    ends = sorted({record.env_steps for record in records if record.kind == "train"})
    if len(ends) < done:
        return list(records)
    logged = {
        steps
        for index, steps in enumerate(ends)
        if (iteration := index * done // len(ends) + 1) % log_every == 0 or iteration == planned
    }
    return [record for record in records if record.kind != "train" or record.env_steps in logged]
