"""`check_env`: reports the mistakes in an environment and how to fix each one."""

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium
import jax
import numpy as np

from rlkit.envs.base import EnvAdapter, JaxEnv, env_name
from rlkit.envs.checking.compiled_env import CompiledEnv, Tell, Tracing, is_traced_the_same
from rlkit.envs.checking.gymnasium_env import host_findings
from rlkit.envs.checking.gymnasium_rollout import LONGEST_LIMIT, exception_finding
from rlkit.envs.checking.host_batch import host_adapter_findings
from rlkit.envs.checking.jax_rollout import (
    counter_findings,
    limit_findings,
    mask_findings,
    random_adapter_rollout,
    random_rollout,
    reset_findings,
    same,
    value_findings,
    without_typed_keys,
)
from rlkit.envs.jittable.contract import (
    Finding,
    TraceFailure,
    finding_of,
    found_of_gymnax,
    observation_findings,
    space_findings,
    trace,
    trace_findings,
)
from rlkit.envs.jittable.masked import with_observed_mask
from rlkit.envs.jittable.vectorized import VectorizedEnv
from rlkit.envs.non_finite import NonFinite, chosen
from rlkit.envs.registry import check_arguments, make_env
from rlkit.errors import (
    ConfigError,
    EnvContractError,
    EnvFailedError,
    RlkitError,
    SpaceError,
    require,
    require_positive_integer,
)
from rlkit.protocols import follows
from rlkit.spaces import abstract, example
from rlkit.types import Key, PyTree, TimeStep

USE_GYMNASIUM = (
    "import gymnasium as gym instead of gym; reset must return (obs, info), step five values"
)
BE_PURE = (
    "draw all randomness from the key (jax.random) and keep everything that changes in the state"
)


@dataclasses.dataclass(frozen=True)
class CheckReport:
    """The findings of `check_env`; `print` it for the whole report."""

    name: str
    findings: tuple[Finding, ...]
    # Steps, episodes and speed of host environments.
    measured: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Mistakes that break training."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """Likely mistakes that may be intended."""
        return tuple(finding for finding in self.findings if finding.severity == "warning")

    @property
    def infos(self) -> tuple[Finding, ...]:
        """Advice."""
        return tuple(finding for finding in self.findings if finding.severity == "info")

    @property
    def ok(self) -> bool:
        """Whether there are no errors; warnings may remain."""
        return not self.errors

    def __str__(self) -> str:
        mistakes = (
            f"{len(self.errors)} error(s), {len(self.warnings)} warning(s)"
            if self.errors or self.warnings
            else ""
        )
        lines = [f"{self.name}: {mistakes or 'no problems found'}"]
        for finding in (*self.errors, *self.warnings, *self.infos):
            lines.append(f"  {finding.severity:7} {finding.what}")
            lines += [f"          why: {finding.why}"] if finding.why else []
            lines.append(f"          fix: {finding.fix}")
        if self.measured:
            lines.append(
                "  "
                + ", ".join(
                    f"{name.replace('_', ' ')} {value:,g}" for name, value in self.measured.items()
                )
            )
        return "\n".join(lines)


def check_env(
    env: "JaxEnv | EnvAdapter | gymnasium.Env | type[gymnasium.Env] | Callable[..., Any] | str",
    *,
    num_steps: int = 200,
    raise_on_error: bool = True,
    seed: int = 0,
    env_arguments: Mapping[str, Any] | None = None,
    progress: Callable[[str], None] | None = None,
) -> CheckReport:
    """Runs `env` for `num_steps` random steps and reports mistakes.

    `env` is anything that `make_env` takes (an id, a class or a function, called with
    `env_arguments`) or an object: a `JaxEnv`, which is also traced; a `gymnasium.Env`, which is
    also run through Gymnasium's own checker; or an adapter (for one made by `vectorize`, the
    environment inside is checked). Time limits of up to 1000 steps are reached even if `num_steps`
    is smaller. Host environments are closed afterwards, so train on a new one. `progress` is called
    with the name of each stage when it begins: compiling a large environment takes a while.

    Raises `EnvContractError` with the whole report if `raise_on_error` is set and there is an
    error; warnings and infos never raise. Raises `ConfigError` for an unknown id or unknown
    arguments.
    """
    require(num_steps >= 1, f"num_steps must be positive, got {num_steps}", "pass num_steps=200")
    tell: Tell = progress or (lambda stage: None)
    tell("making the environment")
    built = _build(env, dict(env_arguments or {}))
    name = _name(env if isinstance(built, Finding) else built)
    findings, measured = (
        ([built], {}) if isinstance(built, Finding) else _check(built, name, num_steps, seed, tell)
    )
    report = CheckReport(name, tuple(findings), measured)
    if raise_on_error and not report.ok:
        raise EnvContractError(str(report))
    return report


def _build(env: object, arguments: dict[str, Any]) -> Any:
    """The object to check, or a `Finding` if the environment's own code fails to build it."""
    maker: Any = env
    is_function = callable(env) and not hasattr(env, "step")
    is_class = isinstance(env, type) and issubclass(env, gymnasium.Env)
    if isinstance(env, type) and not is_class:
        raise EnvContractError(
            f"{env.__name__} is a class; pass an instance: check_env({env.__name__}(...))"
        )
    if not (is_class or is_function or isinstance(env, str)):
        require(
            not arguments,
            f"env_arguments need an id or a class, got an instance of {_name(env)}",
            "leave env_arguments out",
        )
        return env
    try:
        has_batch_arguments = (
            not isinstance(env, str)
            and arguments.keys() - inspect.signature(maker).parameters.keys()
        )
        if not (isinstance(env, str) or has_batch_arguments):
            return maker(**arguments)
        check_arguments(arguments)
        return make_env(maker, 2, **arguments)
    except (SpaceError, EnvContractError, EnvFailedError) as error:
        return finding_of(error)
    except Exception as error:
        if isinstance(env, str) or isinstance(error, ConfigError):
            raise
        given, called = (
            ", ".join(f"{name}={value!r}" for name, value in arguments.items()),
            _name(env),
        )
        failure = exception_finding(f"{called}({given})", error)
        fix = (
            f"fix it, or pass the arguments that it needs: check_env({called},"
            f" env_arguments={{...}}) or {called}(...)"
        )
        return Finding("error", failure.what, fix)


def _name(env: object) -> str:
    """Its id or name if there is one, otherwise its class, or that inside all wrappers of rlkit."""
    if isinstance(env, str):
        return env
    if isinstance(env, type) or inspect.isfunction(env):
        return env.__name__
    if isinstance(env, gymnasium.Env):
        return getattr(env.spec, "id", None) or type(env.unwrapped).__name__
    is_batch = follows(env, EnvAdapter) and not isinstance(env, VectorizedEnv)
    is_named = getattr(env, "spec", None) or getattr(env, "name", None)
    return type(env).__name__ if is_batch and not is_named else env_name(env)


def _check(
    env: Any, name: str, num_steps: int, seed: int, tell: Tell
) -> tuple[list[Finding], dict[str, float]]:
    """Returns (findings, measurements) of an environment object."""
    if isinstance(env, gymnasium.Env):
        return host_findings(env, name, num_steps, seed, tell)
    inner = env.env if isinstance(env, VectorizedEnv) else env
    if any(kind.__module__.partition(".")[0] == "gym" for kind in type(inner).__mro__):
        why = "gym is Gymnasium's unmaintained predecessor; its reset and step return other values"
        return [
            Finding("error", f"{name} is an environment of the old gym package", USE_GYMNASIUM, why)
        ], {}
    if follows(inner, EnvAdapter) and not inner.is_jittable:
        return host_adapter_findings(inner, name, num_steps, seed, tell)
    key = jax.random.key(seed)
    if follows(inner, EnvAdapter):
        return _adapter_findings(inner, name, key, num_steps, tell), {}
    setting: NonFinite = "reset" if getattr(env, "non_finite", None) == "reset" else "raise"
    return JaxCheck(inner, name, key, num_steps, setting, tell).findings(), {}


@dataclasses.dataclass
class JaxCheck:
    """The check of a `JaxEnv`, which is compiled once."""

    env: JaxEnv
    name: str
    key: Key
    num_steps: int
    non_finite: NonFinite
    tell: Tell
    tracing: Tracing = dataclasses.field(default_factory=Tracing)

    def findings(self) -> list[Finding]:
        """Each stage runs only if the previous ones found no errors."""
        needed = () if found_of_gymnax(self.env) is not None else ("reset", "step")
        missing = [name for name in needed if not callable(getattr(self.env, name, None))]
        findings = [
            Finding("error", f"{self.name} has no method {name}", "add it (see JaxEnv)")
            for name in missing
        ]
        findings += space_findings(self.env)
        for stage in (self._constants, self._tracing, self._running):
            if any(finding.severity == "error" for finding in findings):
                break
            findings += stage()
        return findings

    def _constants(self) -> Iterator[Finding]:
        return observation_findings(self.name, self.env.observation_space)

    def _tracing(self) -> Iterator[Finding]:
        self.tell("tracing reset and step")
        before = _attributes(self.env)
        findings = list(trace_findings(self.env, self.name, by=self.tracing))
        yield from findings
        after = _attributes(self.env)
        changed = [name for name, value in after.items() if before.get(name) != value]
        if changed:
            what = (
                f"{self.name} sets its own attributes in reset or step"
                f" ({', '.join(changed)}); compiled code does this only once, while tracing"
            )
            fix = "keep everything that changes in the state that step returns"
            yield Finding("error", what, fix)
        elif all(finding.severity == "warning" for finding in findings):
            yield from self._batching()

    def _batching(self) -> Iterator[Finding]:
        self.tell("tracing them in a batch")
        name, keys = self.name, jax.random.split(self.key, 2)
        limit = getattr(self.env, "max_episode_steps", None)
        try:
            none = "no limit"
            require_positive_integer(f"{name}.max_episode_steps", limit, example=500, none=none)
            chosen(None, self.env)
            env = with_observed_mask(self.env)
            state, _ = trace(f"{name}.reset under vmap", jax.vmap(env.reset), keys)
            action = example(env.action_space, (2,))
            trace(f"{name}.step under vmap", jax.vmap(env.step), keys, state, action)
        except TraceFailure as failure:
            yield failure.finding
        except RlkitError as error:
            yield finding_of(error)

    def _running(self) -> Iterator[Finding]:
        name, limit = self.name, getattr(self.env, "max_episode_steps", None)
        reset, step = self.tracing.kept
        env = self._compiled()
        self.tell("calling reset")
        keys = jax.random.split(self.key, 8)
        starts, obs = _stacked([env.reset(key) for key in keys])
        is_same = same((starts, obs), _stacked([env.reset(key) for key in keys]))
        if not (is_same and is_traced_the_same(self.env.reset, reset)):
            what = f"{name}.reset gives two different results for the same key"
            yield Finding("error", what, BE_PURE)
        if all((x == x[0]).all() for x in jax.tree.leaves(obs)):
            what = f"{name}.reset gives the same observation for 8 different keys"
            fix = "draw the initial state from the key, unless a fixed start is intended"
            yield Finding("warning", what, fix)
        num_steps, key = _steps(self.num_steps, limit), jax.random.fold_in(self.key, 1)
        self.tell(f"playing {num_steps:,} random steps")
        resets_broken = self.non_finite == "reset"
        rollout = random_rollout(env, key, num_steps, resets_broken=resets_broken)
        is_same = rollout.is_repeatable
        if not (is_same and is_traced_the_same(self.env.step, step)):
            what = f"{name}.step gives two different results for the same key, state and action"
            yield Finding("error", what, BE_PURE)
        yield from value_findings(name, env.env.observation_space, rollout, self.non_finite)
        yield from mask_findings(name, env.env.action_space, rollout)
        yield from limit_findings(name, limit, rollout)
        auto_reset = getattr(self.env, "auto_reset", None)
        yield from reset_findings(name, auto_reset, rollout, starts)

    def _compiled(self) -> CompiledEnv:
        """The environment, with its masks in observations."""
        env, tracing = with_observed_mask(self.env), self.tracing
        if env is not self.env:
            tracing = Tracing()
            state, _ = tracing(env.reset, self.key)
            tracing(env.step, self.key, state, abstract(env.action_space))
        return CompiledEnv.of(env, tracing, self.tell)


def _stacked(results: list[PyTree]) -> PyTree:
    """As arrays of NumPy, one below the other."""
    plain = [jax.tree.map(np.asarray, without_typed_keys(result)) for result in results]
    return jax.tree.map(lambda *x: np.stack(x), *plain)


def _adapter_findings(
    env: EnvAdapter, name: str, key: Key, num_steps: int, tell: Tell
) -> list[Finding]:
    findings = list(space_findings(env))
    if findings:
        return findings
    findings += observation_findings(name, env.observation_space)
    tell("tracing reset and step")
    try:
        state, obs = trace(f"{name}.reset", env.reset, key)
        action = example(env.action_space, (env.num_envs,))
        after, step = trace(f"{name}.step", env.step, key, state, action)
    except TraceFailure as failure:
        return [failure.finding]
    wrong = list(_adapter_shapes(env, name, state, obs, after, step))
    findings += wrong
    if not wrong:
        count = _steps(num_steps, env.max_episode_steps)
        rollout = random_adapter_rollout(env, key, count, tell)
        findings += value_findings(name, env.observation_space, rollout, "raise")
        findings += counter_findings(name, rollout)
        findings += mask_findings(name, env.action_space, rollout)
        findings += limit_findings(name, env.max_episode_steps, rollout)
    return findings


def _adapter_shapes(
    env: EnvAdapter, name: str, state: PyTree, obs: PyTree, after: PyTree, step: object
) -> Iterator[Finding]:
    wanted = abstract(env.observation_space, (env.num_envs,))
    if not isinstance(step, TimeStep):
        yield Finding(
            "error", f"{name}.step returned {type(step).__name__}", "return (state, TimeStep(...))"
        )
        return
    parts = (("reset obs", obs), ("step obs", step.obs), ("step next_obs", step.next_obs))
    flags = jax.ShapeDtypeStruct((env.num_envs,), bool)
    pairs = [(label, wanted, part) for label, part in parts]
    pairs += [
        ("step terminated", flags, step.terminated),
        ("step truncated", flags, step.truncated),
    ]
    pairs += [("step reward", jax.ShapeDtypeStruct((env.num_envs,), np.float32), step.reward)]
    for label, expected, got in pairs:
        if _types(expected) != _types(got):
            yield Finding(
                "error",
                f"{name} {label} is {_types(got)}, not {_types(expected)}",
                "return arrays [num_envs, ...]",
            )
    old, new = _types(state, weak=True), _types(after, weak=True)
    if old != new:
        yield Finding(
            "error",
            f"{name}.step changes the state from {old} to {new}",
            "keep its structure, shapes and (strong) dtypes",
        )


def _types(tree: PyTree, *, weak: bool = False) -> Any:
    return jax.tree.map(
        lambda x: f"{x.dtype}{list(x.shape)}{'*' if weak and x.weak_type else ''}", tree
    )


def _steps(num_steps: int, limit: int | None) -> int:
    return max(num_steps, limit + 1) if limit is not None and limit <= LONGEST_LIMIT else num_steps


def _attributes(env: object) -> dict[str, str]:
    return {name: repr(value) for name, value in getattr(env, "__dict__", {}).items()}
