"""Population-based training (Jaderberg et al. 2017): bad trials go on from copies of good ones."""

import dataclasses
import json
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from rlkit.errors import require
from rlkit.training.sweeps.config import SweepConfig
from rlkit.training.sweeps.shapes import Group
from rlkit.training.sweeps.space import Range
from rlkit.training.sweeps.stores.store import SweepStore
from rlkit.types import TrainState
from rlkit.validation import PlainData

SHARE = 0.25  # of the population: the worst that are replaced, and the best that they copy
FACTORS = (0.8, 1.2)  # of a copied number
RESAMPLED = 0.25  # probability of drawing a number anew instead


@dataclasses.dataclass(frozen=True, kw_only=True)
class Population:
    """What trials do to each other every `every` outer iterations; each has a single seed.

    A trial among the worst quarter continues from the whole state of one among the best quarter,
    drawn at random, but for its random key. Each of its hyperparameters is multiplied by 0.8 or
    1.2, or with probability 0.25 drawn anew, and stays in its range. The file `rows` of the
    store gets a row of JSON for each copy.
    """

    every: int
    ranges: Mapping[str, Range]
    seed: int
    store: SweepStore
    rows: str

    def exploit(
        self, state: TrainState, scores: Sequence[float], iteration: int, names: Sequence[int]
    ) -> TrainState:
        """The state [L, ...] of all trials after `iteration` outer iterations, once they have.

        `scores` are their returns, `names` their numbers. Depends on nothing else, so that a
        resumed sweep does the same.
        """
        count = len(scores)
        known = np.nan_to_num(np.asarray(scores, np.float64), nan=-np.inf)
        order = np.argsort(known, kind="stable")  # worst first
        size = max(int(SHARE * count), 1)
        dice = np.random.default_rng([self.seed, iteration])
        source = np.arange(count)
        source[order[:size]] = dice.choice(order[-size:], size)
        values = {name: np.asarray(x)[source] for name, x in state.learner.hyperparameters.items()}
        rows = []
        for lane in order[:size].tolist():
            for name, x in values.items():
                x[lane] = self._explored(self.ranges[name], float(x[lane]), dice)
            settings = {name: float(x[lane]) for name, x in values.items()}
            about = {"trial": names[lane], "copies": names[int(source[lane])]}
            rows.append({"outer_iteration": iteration} | about | {"settings": settings})
        self._write(rows, iteration)
        copied = jax.tree.map(lambda x: x[source], state)
        learner = copied.learner.replace(hyperparameters=values)
        return copied.replace(learner=learner, local=copied.local.replace(key=state.local.key))

    def _explored(self, space: Range, value: float, dice: np.random.Generator) -> float:
        if dice.random() < RESAMPLED:
            return float(space.draw(dice))
        return min(max(value * float(dice.choice(FACTORS)), space.low), space.high)

    def _write(self, rows: list[PlainData], iteration: int) -> None:
        """Adds rows; those of this iteration and later ones are what a killed sweep wrote."""
        before = (self.store.read(self.rows) or "").splitlines()
        kept = [row for row in before if json.loads(row)["outer_iteration"] < iteration]
        texts = [*kept, *(json.dumps(row) for row in rows)]
        self.store.write(self.rows, "".join(f"{text}\n" for text in texts))


def check_population(config: SweepConfig, groups: Sequence[Group], length: int) -> None:
    """Raises `ConfigError` if trials cannot learn from each other."""
    every = config.exploit_every
    assert every is not None
    require(
        len(groups) == 1 and len(groups[0].trials) >= 4,
        "a population needs at least 4 trials in one program",
        "raise --trials, and vary numbers alone, on a jittable environment, without"
        " --deterministic and --group-size; if memory is short, lower num_envs or"
        " replay_buffer_capacity",
    )
    require(
        every < length,
        f"exploit_every={every} is not within the {length} outer iterations of a trial",
        f"use --exploit-every {max(length // 4, 1)}, or raise --num-checkpoints",
    )
