"""`History`: what a Trainer reported, as plain NumPy and floats."""

import dataclasses

from rlkit.types import Measurements


@dataclasses.dataclass(frozen=True, kw_only=True)
class History:
    """What was reported of the outer iterations of a run, in order.

    Each entry has the `env_steps` and `updates` of one seed at which it was made. A run that is
    restored has the entries of this Trainer alone; `rlkit.load_run` reads them all.
    """

    training: list[dict[str, float]] = dataclasses.field(default_factory=list)
    """Training metrics, averaged over seeds, with the names of the records without `train/`.

    One entry for each outer iteration, or for each iteration if `log_iterations` is set.
    """
    evaluations: list[Measurements] = dataclasses.field(default_factory=list)
    """What `Trainer.run` returns, one entry for each outer iteration; {} if it was not evaluated.
    """
