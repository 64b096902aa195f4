"""`RunParts`: what a Trainer trains, from environments, agent and algorithm, or from a module."""

import dataclasses
import inspect

import gymnasium

from rlkit.agents.base import Agent
from rlkit.algorithms.base import Algorithm
from rlkit.algorithms.registry import algorithm_entry, list_algorithms
from rlkit.envs.base import EnvAdapter
from rlkit.envs.ids import DEFAULT_NUM_ENVS
from rlkit.envs.registry import make_env
from rlkit.errors import ConfigError, EnvContractError, require, shown
from rlkit.protocols import follows
from rlkit.training.config import Plan, TrainerConfig, make_plan
from rlkit.training.core.module import Module, RLModule
from rlkit.training.curriculum import Curriculum
from rlkit.training.programs.env_groups import num_at_once, remake
from rlkit.validation import settings

EnvSource = EnvAdapter | gymnasium.Env | type[gymnasium.Env]

DEFAULT_EVAL_ENVS = 8  # on the host, if training uses fewer
MAX_EVAL_ENVS = 64  # jittable ones


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunParts:
    """What is trained, where it is evaluated, and for how long."""

    module: Module
    plan: Plan
    eval_env: EnvAdapter | None  # set even if no evaluation is planned; None: there is none
    schedule_length: int | None = None  # outer iterations until schedules end; None: the plan's
    own_envs: tuple[EnvAdapter, ...] = ()  # made for this run, to be closed with it
    curriculum: Curriculum | None = None
    phases: tuple["RunParts", ...] = ()  # of the curriculum; (): there is none

    @property
    def is_compiled(self) -> bool:
        """Whether an outer iteration is one program, rather than a loop on the host."""
        return not isinstance(self.module, RLModule) or self.module.env.is_jittable

    def evaluation_module(self, episodes: int | None = None) -> RLModule:
        """The module with its evaluation environment, even if no evaluation is planned.

        It evaluates over `episodes` episodes (None: as many as planned). Raises `ConfigError` if
        there is no such environment.
        """
        assert isinstance(self.module, RLModule)
        require(
            self.eval_env is not None,
            "there is no environment to evaluate in: training uses the only one",
            "pass eval_env to the Trainer",
            ConfigError,
        )
        episodes = self.module.evaluation_episodes if episodes is None else episodes
        return dataclasses.replace(
            self.module, eval_env=self.eval_env, evaluation_episodes=episodes
        )


def parts_from_env(
    env: EnvSource,
    eval_env: EnvSource | None,
    agent: Agent,
    algorithm: Algorithm,
    config: TrainerConfig,
) -> RunParts:
    """The parts of `Trainer(env, eval_env, agent, algorithm, config)`."""
    config = _valid(config)
    _require_algorithm(algorithm, agent)
    if inspect.isfunction(agent):
        fix = f"call it: {agent.__name__}(env.observation_space, env.action_space)"
        raise ConfigError(f"agent must be an agent, got the function {agent.__name__}; {fix}")
    own_envs: list[EnvAdapter] = []
    train_env = as_adapter(env, own_envs)
    if eval_env is not None:
        eval_adapter = as_adapter(eval_env, own_envs)
    else:
        eval_adapter = evaluation_env(train_env, config, own_envs)
    algorithm, plan = plan_of(config, algorithm, train_env)
    module = RLModule(
        env=train_env,
        agent=agent,
        algorithm=algorithm,
        total_steps=plan.total_steps,
        eval_env=eval_adapter if config.enable_evaluation else None,
        evaluation_episodes=config.evaluation_episodes,
        max_evaluation_steps=config.max_evaluation_steps,
    )
    return RunParts(module=module, plan=plan, eval_env=eval_adapter, own_envs=tuple(own_envs))


def parts_from_module(
    module: Module, config: TrainerConfig, env_steps_per_iteration: int | None
) -> RunParts:
    """The parts of `Trainer.from_module(module, config)`."""
    config = _valid(config)
    if not isinstance(module, RLModule):
        plan = make_plan(config, env_steps_per_iteration=env_steps_per_iteration or 1)
        return RunParts(module=module, plan=plan, eval_env=None)
    eval_env = module.eval_env
    if eval_env is None and module.env.is_jittable:
        eval_env = module.env
    plan = _plan(config, module.algorithm, module.env)
    return RunParts(module=module, plan=plan, eval_env=eval_env)


def _valid(config: TrainerConfig) -> TrainerConfig:
    """The same settings, with Python's numbers. Raises `ConfigError` unless they are valid."""
    require(
        config is not None,
        "the Trainer needs a config, got None",
        "pass TrainerConfig(total_steps=100_000)",
    )
    return settings(config, TrainerConfig)


def _require_algorithm(algorithm: object, agent: object) -> None:
    """Raises `ConfigError` unless it is an `Algorithm`, and says how to get one."""
    if isinstance(algorithm, Algorithm):
        return
    kind = algorithm if isinstance(algorithm, type) else type(algorithm)
    named = [name for name in list_algorithms() if algorithm_entry(name).config is kind]
    given, fix = repr(algorithm), 'pass one, for example rlkit.ppo() or rlkit.make_algorithm("ppo")'
    if isinstance(agent, Algorithm):
        given, fix = kind.__name__, "swap the two: the agent comes first"
    elif named:
        given, fix = kind.__name__, f"pass rlkit.{named[0]}({kind.__name__}(...))"
    elif inspect.isfunction(algorithm):
        given, fix = f"the function {algorithm.__name__}", f"call it: {algorithm.__name__}()"
    raise ConfigError(f"algorithm must be an Algorithm, got {given}; {fix}")


def plan_of(config: TrainerConfig, algorithm: Algorithm, env: EnvAdapter) -> tuple[Algorithm, Plan]:
    """The algorithm with the settings of `config` that are its own, and the length of the run."""
    algorithm = with_settings(algorithm, config)
    return algorithm, _plan(config, algorithm, env)


def with_settings(algorithm: Algorithm, config: TrainerConfig) -> Algorithm:
    """The algorithm with the settings of `config` that are its own."""
    return algorithm.override(
        warmup_steps=config.warmup_steps, replay_buffer_capacity=config.replay_buffer_capacity
    )


def _plan(config: TrainerConfig, algorithm: Algorithm, env: EnvAdapter) -> Plan:
    steps = algorithm.env_steps_per_iteration(env)
    prefill_steps = algorithm.prefill_collects(env) * steps
    return make_plan(config, env_steps_per_iteration=steps, prefill_steps=prefill_steps)


def as_adapter(env: EnvSource, own_envs: list[EnvAdapter]) -> EnvAdapter:
    """Returns adapters unchanged; adapts Gymnasium environments and adds those to `own_envs`."""
    if not follows(env, EnvAdapter):
        env = make_env(env, DEFAULT_NUM_ENVS if isinstance(env, type) else 1)
        own_envs.append(env)
    spec: object = env.spec
    require(
        spec is None
        or (isinstance(spec, tuple | list) and len(spec) == 2 and isinstance(spec[0], str)),
        f"{type(env).__name__}.spec must be what make_env needs, or None, got {shown(spec)}",
        "set it to (id, arguments), such as ('mine/Maze-v0', {}), or to None",
        EnvContractError,
    )
    return env


def evaluation_env(
    env: EnvAdapter, config: TrainerConfig, own_envs: list[EnvAdapter]
) -> EnvAdapter | None:
    """Environments like `env` for evaluation; those on the host are added to `own_envs`.

    None if there can be none and none is needed. Raises `ConfigError` if it is needed.
    """
    if env.is_jittable:
        return _jittable_evaluation_env(env, config)
    return _host_evaluation_env(env, config, own_envs)


def _jittable_evaluation_env(env: EnvAdapter, config: TrainerConfig) -> EnvAdapter:
    """Environments like `env` if it has a name, else `env` itself.

    Their number depends on settings alone, so evaluations are equal in a run of its config.yaml.
    """
    if env.spec is None:
        return env
    env_id, arguments = env.spec
    return make_env(env_id, min(config.evaluation_episodes, MAX_EVAL_ENVS), **arguments)


def _host_evaluation_env(
    env: EnvAdapter, config: TrainerConfig, own_envs: list[EnvAdapter]
) -> EnvAdapter | None:
    """Environments like `env` for evaluation, added to `own_envs`; they start when first needed."""
    most = max(env.num_envs, DEFAULT_EVAL_ENVS)
    try:
        eval_env = remake(env, num_at_once(env, config.evaluation_episodes, most))
    except ConfigError as error:
        if not config.enable_evaluation:
            return None
        raise ConfigError(f"{error}; or pass eval_env, or set enable_evaluation=False") from error
    own_envs.append(eval_env)
    return eval_env
