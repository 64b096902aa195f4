"""The parts of a run with a curriculum: environments, algorithm and plan of each phase."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from rlkit.agents.base import Agent
from rlkit.algorithms.base import Algorithm
from rlkit.algorithms.registry import make_algorithm
from rlkit.envs.base import EnvAdapter
from rlkit.envs.registry import make_env
from rlkit.errors import RlkitError, require
from rlkit.training.config import TrainerConfig
from rlkit.training.core.module import RLModule
from rlkit.training.curriculum import Curriculum, Phase, replaced
from rlkit.training.phase_checks import check_env_of_phase, check_phase, check_stored
from rlkit.training.phase_plan import plan_of_phases, plan_phases
from rlkit.training.phase_programs import with_shared_programs
from rlkit.training.run_parts import (
    EnvSource,
    RunParts,
    as_adapter,
    evaluation_env,
    parts_from_env,
    plan_of,
    with_settings,
)
from rlkit.validation import field_annotations, from_dict, validate

# Of a plan with this length, only the random steps before learning are used.
_ANY_LENGTH: dict[str, Any] = {
    "total_steps": None,
    "num_checkpoints": 1,
    "epochs_per_checkpoint": 1,
}


def parts_of_curriculum(
    env: EnvSource,
    eval_env: EnvSource | None,
    agent: Agent,
    algorithm: Algorithm,
    config: TrainerConfig,
    curriculum: Curriculum,
) -> RunParts:
    """The parts of a `Trainer` with a curriculum; see `with_phases`."""
    require(
        isinstance(curriculum, Curriculum),
        f"curriculum must be a Curriculum, got {curriculum!r}",
        "pass rlkit.Curriculum(phases=(rlkit.Phase(steps=100_000), ...))",
    )
    any_length = dataclasses.replace(config, **_ANY_LENGTH)
    parts = parts_from_env(env, eval_env, agent, algorithm, any_length)
    with contextlib.ExitStack() as undo:
        for own in parts.own_envs:
            undo.callback(own.close)
        parts = with_phases(parts, curriculum, config, own_eval_env=eval_env is not None)
        undo.pop_all()
    return parts


def with_phases(
    parts: RunParts, curriculum: Curriculum, config: TrainerConfig, *, own_eval_env: bool
) -> RunParts:
    """The parts of a run with the phases of a curriculum; `own_eval_env`: evaluations use that.

    Raises `RlkitError`, naming the phase, before anything compiles, if a phase does not fit the
    run: it must train the same learner, in environments of the same spaces and kind.
    """
    assert isinstance(parts.module, RLModule)
    made: list[EnvAdapter] = []
    with contextlib.ExitStack() as undo:
        undo.callback(lambda: [env.close() for env in made])
        phases = list(_phases(parts, curriculum, config, made, own_eval_env=own_eval_env))
        phases = with_shared_programs(phases, config)
        sizes = [part.plan.env_steps_per_iteration for part in phases]
        prefill = phases[0].plan.prefill_steps
        plan = plan_phases(curriculum, config, env_steps_per_iteration=sizes, prefill_steps=prefill)
        undo.pop_all()

    def whole(index: int, part: RunParts) -> RunParts:
        assert isinstance(part.module, RLModule)
        module = dataclasses.replace(part.module, total_steps=plan.total_steps)
        planned = plan_of_phases(plan.phases, prefill, index)
        return dataclasses.replace(part, module=module, plan=planned)

    return dataclasses.replace(
        parts,
        plan=plan,
        own_envs=(*parts.own_envs, *made),
        curriculum=curriculum,
        phases=tuple(whole(index, part) for index, part in enumerate(phases)),
    )


def _phases(
    run: RunParts,
    curriculum: Curriculum,
    config: TrainerConfig,
    made: list[EnvAdapter],
    *,
    own_eval_env: bool,
) -> Iterator[RunParts]:
    """The parts of each phase. Equal ones are the same objects, so that a phase can go on in the
    environments of the one before, and uses its programs.
    """
    envs, algorithms = _Envs(run, config, made), _Algorithms(run, config)
    first: RLModule | None = None
    stored = 0  # transitions in the replay memory when a phase begins, at least
    assert isinstance(run.module, RLModule)
    for index, phase in enumerate(curriculum.phases):
        try:
            env = envs.of(phase)
            check_env_of_phase(run.module.env, env)
            require(
                index == 0 or "prefill_steps" not in phase.overrides,
                "prefill_steps has no effect here: random steps come before the first phase alone",
                "set it in the first phase, or for the whole run",
            )
            algorithm = algorithms.of(phase)
            eval_env = run.eval_env
            if not own_eval_env and curriculum.evaluate_in == "phase":
                eval_env = envs.evaluation_env(env)
            module = dataclasses.replace(
                run.module,
                env=env,
                algorithm=algorithm,
                eval_env=eval_env if config.enable_evaluation else None,
            )
            first = module if first is None else first
            check_phase(first, module)
            if index > 0:
                check_stored(module, stored)
            require(
                phase.advance_at is None or config.enable_evaluation,
                "advance_at needs evaluations, but enable_evaluation=False",
                "leave it out of the TrainerConfig",
            )
            plan = plan_of(dataclasses.replace(config, **_ANY_LENGTH), algorithm, env)[1]
            before = plan.prefill_steps if index == 0 else stored
            asked = stored + (phase.steps or 0) if phase.advance_at is None else 0
            stored = max(asked, before + plan.env_steps_per_iteration)
        except RlkitError as error:
            raise type(error)(f"{curriculum.title(index)}: {error}") from error
        yield RunParts(module=module, plan=plan, eval_env=eval_env)


class _Envs:
    """The environments of phases; equal ones are made once."""

    def __init__(self, run: RunParts, config: TrainerConfig, made: list[EnvAdapter]):
        assert isinstance(run.module, RLModule)
        self._own, self._own_eval = run.module.env, run.eval_env
        self._config, self._made = config, made
        self._known: list[tuple[object, EnvAdapter]] = []
        self._for_evaluation: list[tuple[EnvAdapter, EnvAdapter | None]] = []

    def of(self, phase: Phase) -> EnvAdapter:
        """The environments of a phase, perhaps those of the run."""
        own, number = self._own, phase.num_envs or self._own.num_envs
        if phase.env is not None and not isinstance(phase.env, str):
            return self._object(phase)
        if phase.env is None and own.spec is None:
            require(
                number == own.num_envs and not phase.env_params and phase.weights is None,
                "the environment of this run has no id, so that no phase can make another one",
                "register it with register_env and use its id, or pass env=... to the phase",
            )
            return own
        run_env, arguments = own.spec or ("", {})
        env_id = phase.env or run_env
        arguments = replaced(arguments, phase, run_env=run_env, env=env_id)
        wanted = (env_id, arguments, number)
        if own.spec is not None and _are_equal(wanted, (*own.spec, own.num_envs)):
            return own
        return self._once(wanted, lambda: make_env(env_id, number, **arguments))

    def evaluation_env(self, env: EnvAdapter) -> EnvAdapter | None:
        """Environments like `env`, for evaluation.

        The same ones for another number of them: their returns can be compared.
        """
        for known, found in [(self._own, self._own_eval), *self._for_evaluation]:
            if known is env or _is_made_alike(known, env):
                return found
        found = evaluation_env(env, self._config, self._made)
        self._for_evaluation.append((env, found))
        return found

    def _object(self, phase: Phase) -> EnvAdapter:
        given = phase.env
        if isinstance(given, type):
            number = phase.num_envs or self._own.num_envs
            return self._once((given, number), lambda: make_env(given, number))
        env = next((env for known, env in self._known if known is given), None)
        if env is None:
            env = as_adapter(given, self._made)
            self._known.append((given, env))
        require(
            phase.num_envs in (None, env.num_envs),
            f"num_envs={phase.num_envs}, but env is an adapter of {env.num_envs}",
            "leave num_envs out, or pass an adapter of that many",
        )
        return env

    def _once(self, what: object, make: Any) -> EnvAdapter:
        for known, env in self._known:
            if type(known) is type(what) and _are_equal(known, what):
                return env
        env = make()
        self._made.append(env)
        self._known.append((what, env))
        return env


def _is_made_alike(one: EnvAdapter, other: EnvAdapter) -> bool:
    """Whether both were made from the same id and arguments."""
    return one.spec is not None and _are_equal(one.spec, other.spec)


def _are_equal(one: object, other: object) -> bool:
    """Whether both are equal; if arrays in them leave that open, they count as others."""
    try:
        return bool(one == other)
    except (TypeError, ValueError):  # arrays have no single answer, or none: JAX wants equal shapes
        return False


class _Algorithms:
    """The algorithms of phases; equal ones are made once."""

    def __init__(self, run: RunParts, config: TrainerConfig):
        assert isinstance(run.module, RLModule)
        self._own, self._config = run.module.algorithm, config
        self._known: list[tuple[object, Algorithm]] = []

    def of(self, phase: Phase) -> Algorithm:
        """The algorithm of a phase, perhaps that of the run."""
        if phase.algorithm is not None:
            require(
                isinstance(phase.algorithm, Algorithm),
                f"algorithm must be an Algorithm, got {phase.algorithm!r}",
                "pass one, for example rlkit.ppo(rlkit.PPOConfig(learning_rate=1e-4))",
            )
            return self._once(phase.algorithm, lambda: phase.algorithm)
        if not phase.overrides:
            return self._own
        require(
            self._own.spec is not None and not self._own.custom,
            "a phase changes settings of an algorithm with parts built in Python"
            f" ({', '.join(self._own.custom) or 'it has no config'})",
            "pass the whole algorithm to the phase: Phase(algorithm=...)",
        )
        assert self._own.spec is not None
        name, config = self._own.spec
        changed = with_overrides(config, phase)
        if changed == config:
            return self._own
        return self._once(changed, lambda: make_algorithm(name, changed))

    def _once(self, what: object, make: Any) -> Algorithm:
        for known, algorithm in self._known:
            if known is what or (type(known) is type(what) and known == what):
                return algorithm
        algorithm = with_settings(make(), self._config)
        self._known.append((what, algorithm))
        return algorithm


def with_overrides(config: Any, phase: Phase) -> Any:
    """The config of an algorithm with the settings that a phase replaces.

    Raises `ConfigError` for settings that it does not have, or values out of range.
    """
    kind = type(config)
    if set(phase.overrides) <= field_annotations(kind).keys():
        given = from_dict(kind, phase.overrides)
        changes = {name: getattr(given, name) for name in phase.overrides}
        return validate(dataclasses.replace(config, **changes))
    return from_dict(kind, phase.overrides)  # which says what is wrong
