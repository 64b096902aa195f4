"""Which checkpoint counts as the best, and stays beside the newest ones."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any


def best_of(scores: Mapping[int, float | None]) -> int | None:
    """The step with the highest finite score; the newest of equal ones, which has learned longest.

    None if no step has a finite score.
    """
    finite = [
        (score, step)
        for step, score in scores.items()
        if score is not None and math.isfinite(score)
    ]
    return max(finite)[1] if finite else None


Scores = tuple[float | None, ...]
"""The score of a step, over all seeds, and perhaps that of each seed after it."""


@dataclasses.dataclass(frozen=True)
class KeepBest:
    """Orbax preservation policy: keeps the best step by each of the `scores`, to which the
    checkpointer adds those of new steps.
    """

    scores: Mapping[int, Scores]

    def should_preserve(self, checkpoints: Sequence[Any], *, context: object) -> Sequence[bool]:
        """For each of the checkpoints on disk, whether it is the best of all seeds or of one."""
        known = {info.step: self.scores.get(info.step, ()) for info in checkpoints}
        columns = range(max(map(len, known.values()), default=0))
        best = {
            best_of({step: scores[i] for step, scores in known.items() if i < len(scores)})
            for i in columns
        }
        return [info.step in best for info in checkpoints]
