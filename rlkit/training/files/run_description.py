"""A run's settings and parts as plain data: written to `config.yaml`, compared, read back."""

import dataclasses
import enum
import inspect
import json
import os
from typing import Any

import jax
import numpy as np
from gymnasium import spaces

from rlkit.agents.base import Agent
from rlkit.agents.registry import agent_entry, make_agent
from rlkit.algorithms.base import Algorithm
from rlkit.algorithms.registry import algorithm_entry, make_algorithm
from rlkit.envs.base import EnvAdapter
from rlkit.errors import CheckpointError, RunDirectoryError, UnknownNameError, require, shown
from rlkit.protocols import follows
from rlkit.training import run_config
from rlkit.training.config import TrainerConfig
from rlkit.training.core.module import Module, RLModule
from rlkit.training.curriculum import Curriculum
from rlkit.training.files.same_parts import same
from rlkit.training.logs.redaction import REDACTED
from rlkit.validation import PlainData, from_dict, to_dict

# Settings that may change when a run is resumed: where it writes, how much it shows, how long it
# trains and on how many devices.
MAY_DIFFER = {
    "run_dir",
    "restore_checkpoint",
    "logger_config",
    "checkpointer_config",
    "debug",
    "devices",
    "shard",
    "log_every",
    "log_iterations",
    "max_queued",
    "max_skipped_updates",
    "overlap",
    "compile_host_loop",
    "total_steps",
    "num_checkpoints",
    "epochs_per_checkpoint",
}


def describe(
    module: Module,
    eval_env: EnvAdapter | None,
    config: TrainerConfig,
    seed: int | None,
    curriculum: Curriculum | None = None,
) -> PlainData:
    """The run as plain data: a `RunConfig` if every part comes from a registry.

    Otherwise its parts as readable data, and under `custom` the names of those built in Python.
    """
    settings = {"trainer": to_dict(config), "seed": seed}
    if not isinstance(module, RLModule):
        return {"custom": ["module"], "module": plain(module), **settings}
    custom = _custom_parts(module, eval_env, config)
    if curriculum is not None and not _is_described(curriculum):
        custom.append("curriculum")
    if custom:
        parts = {}
        for name, part in _parts(module).items():
            was_changed = name in custom and _has_name(name, part.spec)
            parts[name] = plain(part if part.spec is None or was_changed else part.spec)
        parts |= {} if curriculum is None else {"curriculum": plain(curriculum)}
        return {"custom": custom, **parts, "num_envs": module.env.num_envs, **settings}
    whole = _config_of(module, config, seed)
    return run_config.to_dict(dataclasses.replace(whole, curriculum=curriculum))


def hparams_to_dict(what: Any) -> PlainData:
    """Settings as a flat dict of plain values, such as `{"hyperparameters.gamma": 0.99, ...}`.

    `what` is a config or plain data, an algorithm, an agent, an environment or a module. Names are
    those of a `RunConfig`; what a registry cannot rebuild is described as far as it can be read.
    Raises `ConfigError` for anything else.
    """
    if isinstance(what, dict):
        return run_config.flat_settings(what)
    if isinstance(what, RLModule):
        settings = describe(what, what.eval_env, _settings_within(what.algorithm), None)
        own = {name: x for name, x in settings.items() if name not in ("trainer", "seed")}
        return run_config.flat_settings(own)
    kinds = {"agent": follows(what, Agent), "env": follows(what, EnvAdapter)}
    for name, is_one in {"algorithm": isinstance(what, Algorithm), **kinds}.items():
        if is_one:
            return run_config.flat_settings(_described(name, what))
    if dataclasses.is_dataclass(what) and not (isinstance(what, type) or follows(what, Module)):
        return run_config.flat_settings(what)
    described = plain(what)
    require(
        isinstance(described, dict),
        f"there are no settings in {shown(what)}",
        "pass a config, an algorithm, an agent, an environment or a module, such as rlkit.ppo()",
    )
    return run_config.flat_settings(described)


def _settings_within(algorithm: Algorithm) -> TrainerConfig:
    """A config with those of its settings that an algorithm already has."""
    buffer = algorithm.replay_buffer
    if buffer is None:
        return TrainerConfig()
    return TrainerConfig(
        warmup_steps=algorithm.collector.prefill_steps, replay_buffer_capacity=buffer.capacity
    )


def _described(name: str, part: Any) -> PlainData:
    """One part, as a `RunConfig` describes it."""
    custom = [f"{name}.{extra}" for extra in getattr(part, "custom", ())]
    extra = {"custom": custom} if custom else {}
    if not _has_name(name, part.spec):
        return {name: plain(part), **extra}
    known, config = part.spec
    if name == "env":
        return {"env": {"id": known, "num_envs": part.num_envs, "arguments": plain(config)}}
    settings = {"algorithm": "hyperparameters", "agent": "network"}[name]
    return {name: known, settings: to_dict(config), **extra}


def _parts(module: RLModule) -> PlainData:
    return {"algorithm": module.algorithm, "env": module.env, "agent": module.agent}


def _custom_parts(
    module: RLModule, eval_env: EnvAdapter | None, config: TrainerConfig
) -> list[str]:
    """The parts that no registry can rebuild, by name, such as `env` or `agent.torso`."""
    custom = []
    for name, part in _parts(module).items():
        extras = [f"{name}.{extra}" for extra in getattr(part, "custom", ())]
        is_named = _has_name(name, part.spec) and _has_own_spec(part)
        if not is_named or not (extras or _is_as_rebuilt(name, module, config)):
            custom.append(name)
        custom += extras
    if module.env.spec is not None and not _is_plain(module.env.spec[1]):
        custom.append("env.arguments")
    if eval_env is not None and (
        eval_env.spec is None or plain(eval_env.spec) != plain(module.env.spec)
    ):
        custom.append("eval_env")
    return custom


def _has_name(part: str, spec: tuple[str, object] | None) -> bool:
    """Whether `spec` can rebuild the part.

    It cannot if its name was never registered, or was registered with another config.
    """
    entry_of = {"algorithm": algorithm_entry, "agent": agent_entry}.get(part)
    if spec is None or entry_of is None:
        return spec is not None
    try:
        return isinstance(spec[1], entry_of(spec[0]).config)
    except UnknownNameError:
        return False


def _has_own_spec(part: object) -> bool:
    """Whether `spec` is the part's own: one that wraps another may pass on that one's."""
    return inspect.getattr_static(part, "spec", None) is not None


def _is_as_rebuilt(name: str, module: RLModule, config: TrainerConfig) -> bool:
    """Whether a part is what a registry makes of its `spec`, and was not changed since.

    Environments are not made again, since that may take processes of their own.
    """
    part = _parts(module)[name]
    if name == "algorithm":
        rebuilt = make_algorithm(*part.spec).override(
            warmup_steps=config.warmup_steps, replay_buffer_capacity=config.replay_buffer_capacity
        )
    elif name == "agent":
        env = module.env
        rebuilt = make_agent(part.spec[0], env.observation_space, env.action_space, part.spec[1])
    else:
        return True
    return same(rebuilt, part)


def _is_plain(arguments: PlainData) -> bool:
    """Whether a file can hold arguments of an environment, and give back the same."""
    try:
        stored = json.dumps(arguments, default=lambda array: array.tolist())
        return json.loads(stored) == plain(arguments)
    except (TypeError, ValueError, AttributeError):
        return False


def _config_of(module: RLModule, config: TrainerConfig, seed: int | None) -> run_config.RunConfig:
    (algorithm, hyperparameters), (env_id, arguments), (agent, network) = (
        part.spec for part in _parts(module).values()
    )
    return run_config.RunConfig(
        algorithm=algorithm,
        env=run_config.EnvConfig(id=env_id, num_envs=module.env.num_envs, arguments=arguments),
        hyperparameters=hyperparameters,
        agent=agent,
        network=network,
        trainer=config,
        seed=seed,
    )


def _is_described(curriculum: Curriculum) -> bool:
    """Whether plain data can rebuild it: its phases hold no environment or algorithm."""
    return all(
        (phase.env is None or isinstance(phase.env, str))
        and phase.algorithm is None
        and _is_plain(phase.env_params or {})
        and _is_plain(phase.hyperparameters)
        for phase in curriculum.phases
    )


def plain(value: object, depth: int = 6) -> Any:
    """Any object as plain data, to be read and compared.

    Numbers and strings stay as they are; objects become type and fields, `depth` levels deep.
    """
    if isinstance(value, spaces.Space | enum.Enum):
        return str(value)
    # Before numbers: NumPy's float64 is a Python float too, but not plain data.
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return np.asarray(value).tolist() if np.size(value) <= 64 else f"array{list(value.shape)}"
    if value is None or isinstance(value, bool):
        return value
    for kind in (int, float, str):  # also what derives from them, which YAML would refuse
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, list | tuple):
        return [plain(item, depth) for item in value]
    if isinstance(value, dict):
        return {str(name): plain(item, depth) for name, item in value.items()}
    if callable(value) and hasattr(value, "__qualname__"):
        return value.__qualname__
    if depth == 0 or not hasattr(value, "__dict__"):
        return type(value).__qualname__
    fields = {
        name: plain(item, depth - 1)
        for name, item in vars(value).items()
        if not name.startswith("_")
    }
    return {"type": type(value).__qualname__, **fields}


def require_same_settings(path: str, stored: object, wanted: PlainData) -> None:
    """Raises `RunDirectoryError` if the settings of the run at `path` differ from `wanted`.

    `stored` describes that run; settings in `MAY_DIFFER` may differ.
    """
    different = differences(stored, wanted)
    require(
        not different,
        f"{path} holds a run with other settings ({listed(different)})",
        "use another run_dir, or the same settings",
        RunDirectoryError,
    )


def require_as_recorded(
    record: object, now: PlainData, step: int, *, accepted: bool, any_seed: bool = False
) -> list[str]:
    """The settings of a run that differ from those recorded in its checkpoint `step`.

    With `any_seed`, the seed may differ. Raises `CheckpointError` if there are any, unless they are
    `accepted`.
    """
    found = differences(record, now)
    different = [text for text in found if not (any_seed and text.startswith("seed: "))]
    require(
        accepted or not different,
        f"settings differ from those that checkpoint {step} was trained with ({listed(different)})",
        f"undo the change, perhaps in config.yaml, or {ACCEPT}",
        CheckpointError,
    )
    return different


ACCEPT = "accept it with accept_differences=True (--accept-differences)"


def differences(before: object, now: object) -> list[str]:
    """Settings that differ between two descriptions of a run, as "name: x there, y here".

    Those in `MAY_DIFFER` may. A name that only one of them has is that of another version of rlkit.
    """
    old, new = _comparable(before), _comparable(now)
    _name_parts_that_changed_kind(old, new)
    _name_parts_that_changed_kind(new, old)
    return [
        f"{name}: {old[name]!r} there, {new[name]!r} here"
        for name in sorted(old.keys() & new.keys())
        if old[name] != new[name]
    ]


def _name_parts_that_changed_kind(settings: PlainData, others: PlainData) -> None:
    """Names each part of `settings` that is a plain value in `others`, so that both have it."""
    for name in list(settings):
        parts = name.split(".")
        parents = (".".join(parts[:length]) for length in range(1, len(parts)))
        settings.update({parent: "a part with settings" for parent in parents if parent in others})


def listed(different: list[str]) -> str:
    """The first differences, and how many more there are."""
    more = f" and {len(different) - 5} more" if len(different) > 5 else ""
    return ", ".join(different[:5]) + more


def completed(settings: PlainData) -> PlainData:
    """Settings read from a file, with the defaults of those that it leaves out.

    Those of a run with parts of its own stay as they are.
    """
    if "custom" in settings:
        return settings
    return run_config.to_dict(run_config.from_dict(settings))


def _comparable(description: object, prefix: str = "") -> PlainData:
    is_leaf = prefix == "env.arguments."  # the names of arguments are not rlkit's
    if not isinstance(description, dict) or is_leaf:
        return {prefix.rstrip("."): description}
    flat: PlainData = {}
    for name, value in description.items():
        if prefix != "trainer." or name not in MAY_DIFFER:
            flat |= _comparable(value, f"{prefix}{name}.")
    return flat


def read_config(run_dir: str | os.PathLike[str]) -> run_config.RunConfig:
    """The config of a run directory.

    Raises `CheckpointError` if it has parts that no registry can rebuild.
    """
    settings = run_config.read_settings(run_dir)
    custom = settings.get("custom")
    if custom:
        raise CheckpointError(
            f"{os.fspath(run_dir)} has parts built in Python ({', '.join(custom)}) that its"
            " config.yaml cannot rebuild; continue it from its own script, with"
            ' TrainerConfig(restore_checkpoint="auto")'
        )
    return run_config.from_dict(settings)


def registered_env(
    run_dir: str | os.PathLike[str], settings: PlainData
) -> tuple[str, int, PlainData]:
    """(id, number, arguments) of the run's environments.

    Raises `CheckpointError` if no registry can rebuild them.
    """
    if "custom" not in settings:
        env_id, arguments = settings["env"]["id"], settings["env"]["arguments"]
    else:
        _require_known(run_dir, settings, "env")
        env_id, arguments = settings["env"]
    for name, value in arguments.items():
        require(
            REDACTED not in str(value),
            f"{run_dir}: the argument {name} of its environments is a secret, which was left out",
            "make them yourself, and pass env=rlkit.make_env(...)",
            CheckpointError,
        )
    return env_id, num_envs_of(settings), arguments


def num_envs_of(settings: PlainData) -> int:
    """The number of the run's environments."""
    return (settings if "custom" in settings else settings["env"])["num_envs"]


def registered_agent(run_dir: str | os.PathLike[str], settings: PlainData) -> tuple[str, Any]:
    """(name, config) of the run's agent.

    Raises `CheckpointError` if no registry can rebuild it.
    """
    if "custom" not in settings:
        name, network = settings["agent"], settings["network"]
    else:
        _require_known(run_dir, settings, "agent")
        name, described = settings["agent"]
        network = {field: value for field, value in described.items() if field != "type"}
    return name, from_dict(agent_entry(name).config, network)


def named(settings: PlainData) -> PlainData:
    """Names of the algorithm, agent and environment of a run, and its seed.

    None for what no registry has a name for.
    """
    parts = {part: settings.get(part) for part in ("algorithm", "agent", "env")}
    names = {part: _name_of(found) for part, found in parts.items()}
    return {**names, "seed": settings.get("seed")}


def _name_of(described: Any) -> str | None:
    """From a name, a spec (name, arguments), or the settings of an environment."""
    if isinstance(described, dict):
        described = described.get("id")
    if isinstance(described, list | tuple):
        described = described[0]
    return described if isinstance(described, str) else None


def _require_known(run_dir: str | os.PathLike[str], settings: PlainData, part: str) -> None:
    custom = [name for name in settings["custom"] if name.split(".")[0] in (part, "module")]
    if custom:
        raise CheckpointError(
            f"{os.fspath(run_dir)} was trained with its own {', '.join(custom)}, which config.yaml"
            f" cannot rebuild; pass it: load_policy(run_dir, {part}=...)"
        )
