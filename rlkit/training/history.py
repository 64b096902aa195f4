"""`History`: what a Trainer reported, as plain NumPy and floats."""

import dataclasses
import sys
from collections.abc import Iterable, Mapping

from rlkit.types import Measurements

MAX_ENTRIES = 10_000  # of each list: at most some ten megabytes


@dataclasses.dataclass(kw_only=True)
class History:
    """What was reported of the outer iterations of a run, in order.

    Each entry has the `env_steps` and `updates` of one seed at which it was made. A run that is
    restored has the entries of this Trainer alone. Each list keeps its newest 10,000 entries, so
    that a long run does not fill the memory; `rlkit.load_run` reads all of what was logged.
    """

    training: list[dict[str, float]] = dataclasses.field(default_factory=list)
    """Training metrics, averaged over seeds, with the names of the records without `train/`.

    One entry for each outer iteration, or for each iteration if `log_iterations` is set.
    """
    evaluations: list[Measurements] = dataclasses.field(default_factory=list)
    """What `Trainer.run` returns, one entry for each outer iteration; {} if it was not evaluated.
    """
    num_evaluations: int = 0
    """How many entries `evaluations` has been given, dropped ones included."""

    def add(self, training: Iterable[Mapping[str, float]], evaluation: Measurements) -> None:
        """Appends what was reported of an outer iteration."""
        # one string for each name, not one for each entry
        self.training.extend({sys.intern(name): x for name, x in row.items()} for row in training)
        self.evaluations.append(evaluation)
        self.num_evaluations += 1
        for entries in (self.training, self.evaluations):
            del entries[:-MAX_ENTRIES]

    def since(self, count: int) -> list[Measurements]:
        """The evaluations after the first `count`, as far as they are still kept."""
        return self.evaluations[max(0, len(self.evaluations) - (self.num_evaluations - count)) :]
