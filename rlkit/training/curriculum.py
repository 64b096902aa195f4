"""`Curriculum` and `Phase`: what a run trains on, one phase after the other. Imports no JAX."""

import dataclasses
from typing import Annotated, Any, Literal

from annotated_types import Ge

from rlkit.agents.registry import AGENTS
from rlkit.algorithms.registry import ALGORITHMS
from rlkit.envs.ids import MIXTURE
from rlkit.errors import ConfigError, did_you_mean, require, shown
from rlkit.validation import (
    LargeCount,
    PlainData,
    PositiveInt,
    Unchecked,
    field_annotations,
    from_dict,
    to_dict,
    validate,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of a run. What it leaves out is as in the run's settings, not as in the phase before.

    Networks, optimiser, statistics, counters and replay memory go on from phase to phase. Other
    environments, another number of them or other weights mean new episodes.
    """

    steps: LargeCount | None = None
    """Environment steps, rounded up to whole outer iterations; the first phase includes the random
    steps before learning. None, for the last phase alone: up to `total_steps`.
    """
    name: str | None = None
    """What logs and pictures call it."""
    env: Unchecked = None
    """Registry id of its environments; in Python also an adapter, a `gymnasium.Env` class or
    environment.
    """
    env_params: PlainData | None = None
    """Arguments of the environment that replace those of the run, by name; for `gymnax/…` its
    parameters, such as {length: 1.0}.
    """
    weights: tuple[Annotated[float, Ge(0)], ...] | None = None
    """How often an episode is in each environment of a mixture (`rlkit/Mixture`)."""
    num_envs: PositiveInt | None = None
    """Number of parallel environments."""
    num_steps: PositiveInt | None = None
    """Steps that each environment takes in one iteration."""
    hyperparameters: PlainData = dataclasses.field(default_factory=dict)
    """Settings of the algorithm and its optimiser that replace those of the run, by name."""
    algorithm: Unchecked = None
    """In Python: the whole algorithm instead, for one with a loss or an optimiser of your own."""
    advance_at: float | None = None
    """End the phase after the first evaluation with a mean return, over seeds, of at least this.
    The last phase takes the steps that are left over.
    """

    def __post_init__(self) -> None:
        for name, value in vars(validate(self)).items():  # with Python's numbers
            object.__setattr__(self, name, value)
        require(
            self.num_steps is None or "num_steps" not in self.hyperparameters,
            "num_steps of a phase is set twice",
            "leave it out of its hyperparameters",
        )
        require(
            self.algorithm is None or not self.overrides,
            f"a phase sets algorithm and {', '.join(self.overrides)}",
            "set them in its algorithm",
        )
        for name in ("env_params", "weights"):
            require(
                self.env is None or isinstance(self.env, str) or getattr(self, name) is None,
                f"{name} go to an environment that is made from an id, but env is an object",
                f"make it with these arguments, and leave out {name}",
            )

    @property
    def overrides(self) -> PlainData:
        """The settings of the algorithm that it replaces."""
        steps = {} if self.num_steps is None else {"num_steps": self.num_steps}
        return self.hyperparameters | steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curriculum:
    """Phases that a run trains one after the other, each for whole outer iterations.

    With `total_steps` in the `TrainerConfig`, the last phase ends there, whatever its own steps.
    Schedules follow the progress of the whole run.
    """

    phases: tuple[Phase, ...]
    """In order."""
    evaluate_in: Literal["phase", "run"] = "phase"
    """Where evaluations play: in the environments of the phase, or always in that of the run. The
    best checkpoint is chosen among those that were evaluated where the last phase is.
    """

    def __post_init__(self) -> None:
        given: Any = self.phases
        known = isinstance(given, tuple | list) and len(given) > 0
        require(
            known and all(isinstance(phase, Phase) for phase in given),
            f"a curriculum needs phases, got {shown(given)}",
            "pass phases=(rlkit.Phase(steps=100_000), rlkit.Phase(steps=200_000))",
        )
        object.__setattr__(self, "phases", tuple(given))
        validate(self)
        earlier, last = self.phases[:-1], next(reversed(self.phases))
        for index, phase in enumerate(earlier):
            require(
                phase.steps is not None,
                f"{self.title(index)} has no steps",
                "set its steps; only the last phase may leave them out, up to total_steps",
            )
        require(
            last.advance_at is None,
            f"{self.title(len(earlier))} is the last one and has nothing to advance to",
            "leave out its advance_at; EarlyStopping(threshold=...) ends a run",
        )

    def title(self, index: int) -> str:
        """How sentences name a phase: "phase 2 of 3 (long pole)"."""
        name = self.phases[index].name
        return f"phase {index + 1} of {len(self.phases)}" + (f" ({name})" if name else "")


def from_plain(values: object) -> Curriculum | None:
    """The curriculum in plain data: {phases: [...]}, or the list alone. None stays None.

    Raises `ConfigError` for anything else.
    """
    if values is None or isinstance(values, Curriculum):
        return values
    values = {"phases": values} if isinstance(values, list) else values
    require(
        isinstance(values, dict) and isinstance(values.get("phases"), list),
        f"a curriculum needs a list of phases, got {shown(values)}",
        "use `phases:` and below it a line such as `- {steps: 100000}` for each",
    )
    assert isinstance(values, dict)
    for name in values:
        known = field_annotations(Curriculum)
        require(name in known, f"Curriculum has no field {name!r}", did_you_mean(str(name), known))
    phases = tuple(_phase(index, phase) for index, phase in enumerate(values["phases"]))
    return Curriculum(**{**values, "phases": phases})


def to_plain(curriculum: Curriculum) -> PlainData:
    """The curriculum as plain data; phases hold only what they set."""
    values, unset = to_dict(curriculum), to_dict(Phase())
    return values | {
        "phases": [
            {name: x for name, x in phase.items() if x != unset[name]} for phase in values["phases"]
        ]
    }


def _phase(index: int, values: object) -> Phase:
    try:
        known = values.get("algorithm") is None if isinstance(values, dict) else True
        fix = "set hyperparameters; in Python, an algorithm object"
        require(known, "all phases train the same algorithm", fix)
        if isinstance(values, dict):
            _require_no_network(values)
        env = values.get("env") if isinstance(values, dict) else None
        fix = "use an id such as gymnax/CartPole-v1"
        require(env is None or isinstance(env, str), f"env must be an id, got {shown(env)}", fix)
        return from_dict(Phase, values)
    except ConfigError as error:
        raise ConfigError(f"phase {index + 1}: {error}") from None


def _require_no_network(phase: PlainData) -> None:
    """Raises `ConfigError` for a setting of an agent, which is the same from phase to phase."""
    given = phase.get("hyperparameters")
    names = [*phase, *(given if isinstance(given, dict) else ())]
    of_agents = {x for entry in AGENTS.values() for x in field_annotations(entry.config)}
    known = {x for entry in ALGORITHMS.values() for x in field_annotations(entry.config)}
    of_network = {"network"} | of_agents - known - field_annotations(Phase).keys()
    found = next((name for name in names if name in of_network), None)
    require(
        found is None,
        f"a phase cannot change the network, got {found}",
        "set it for the whole run: below `network:`, or with its flag",
    )


def replaced(arguments: PlainData, phase: Phase, *, run_env: str, env: str) -> PlainData:
    """The arguments of the environments of a phase, whose id is `env`.

    `arguments` are those of the run's environment, which has the id `run_env`; they do not apply to
    another one.
    """
    arguments = dict(arguments) if env == run_env else {}
    params = phase.env_params or {}
    if params and env.startswith("gymnax/"):
        params = {"params": {**(arguments.get("params") or {}), **params}}
    weights = {} if phase.weights is None else {"weights": list(phase.weights)}
    require(
        not weights or env == MIXTURE,
        f"weights are those of a mixture of environments, but this is {env}",
        f"use env: {MIXTURE}, or leave them out",
    )
    return {**arguments, **params, **weights}
