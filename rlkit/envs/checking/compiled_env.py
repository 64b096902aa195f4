"""`reset` and `step` of a `JaxEnv`, each compiled once; and whether tracing them again differs."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np

from rlkit.envs.base import JaxEnv, JaxStep
from rlkit.types import Action, EnvState, Key, Obs

Tell = Callable[[str], None]  # called with what is being done, before it is
# Compiling takes far longer than the steps of a check, and a simulator's half as long like this.
QUICK: dict[str, bool | str] = {"xla_backend_optimization_level": "0"}
# But a step of a few simulators then takes seconds instead of milliseconds: Playground's swimmer.
SLOW = 1.0


class Tracing:
    """A `Tracer` that keeps what it traced, ready to be compiled."""

    def __init__(self) -> None:
        self.kept: list[jax.stages.Traced] = []

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """See `Tracer`."""
        self.kept.append(jax.jit(function).trace(*arguments))
        return self.kept[-1].out_info


class Program:
    """A traced function, compiled quickly; or well, if the first call takes `SLOW` seconds."""

    def __init__(self, name: str, traced: jax.stages.Traced, tell: Tell):
        self._name, self._traced, self._tell = name, traced, tell
        tell(f"compiling {name}")
        self._run = traced.lower().compile(QUICK)
        self._is_new = True

    def __call__(self, *arguments: Any) -> Any:
        """Its results. All calls are of one program, so that equal calls give equal bits."""
        if not self._is_new:
            return self._run(*arguments)
        self._is_new = False
        begun = time.perf_counter()
        result = jax.block_until_ready(self._run(*arguments))
        if time.perf_counter() - begun < SLOW:
            return result
        self._tell(f"compiling {self._name} again, for faster calls")
        self._run = self._traced.lower().compile()
        return self._run(*arguments)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompiledEnv:
    """What a check calls of an environment."""

    env: JaxEnv
    reset: Callable[[Key], tuple[EnvState, Obs]]
    step: Callable[[Key, EnvState, Action], JaxStep]

    @classmethod
    def of(cls, env: JaxEnv, tracing: Tracing, tell: Tell) -> "CompiledEnv":
        """`env`, whose `reset` and `step` were traced, in this order."""
        reset, step = tracing.kept
        return cls(env=env, reset=Program("reset", reset, tell), step=Program("step", step, tell))


def is_traced_the_same(function: Callable[..., Any], before: jax.stages.Traced) -> bool:
    """Whether `function` computes the same as when it was traced before.

    Randomness of NumPy or Python, which it draws while it is traced, are other numbers each time.
    """
    arguments = jax.tree.unflatten(before.in_tree, before.jaxpr.in_avals)[0]
    again = jax.make_jaxpr(lambda *args: function(*args))(*arguments)
    one, other = (list(_numbers(jaxpr)) for jaxpr in (before.jaxpr, again))
    return len(one) == len(other) and all(map(_equal, one, other))


def _numbers(jaxpr: jax.extend.core.ClosedJaxpr) -> Iterator[Any]:
    """What a traced computation holds that does not come from its arguments, in order."""
    yield from jaxpr.consts
    yield from _numbers_in(jaxpr.jaxpr)


def _numbers_in(jaxpr: jax.extend.core.Jaxpr) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for variable in equation.invars:
            if isinstance(variable, jax.extend.core.Literal):
                yield variable.val
        for value in equation.params.values():
            for part in value if isinstance(value, tuple | list) else (value,):
                if isinstance(part, jax.extend.core.ClosedJaxpr):
                    yield from _numbers(part)
                elif isinstance(part, jax.extend.core.Jaxpr):
                    yield from _numbers_in(part)
                elif isinstance(part, int | float | np.ndarray | np.generic):
                    yield part


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return one is other or one == other
    one, other = (_plain(x) for x in (one, other))
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")


def _plain(x: Any) -> np.ndarray:
    is_key = hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(x) if is_key else x)
