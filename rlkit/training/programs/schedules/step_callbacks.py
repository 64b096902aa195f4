"""The parts of an iteration, traced into a program whose caller takes the steps.

The only place that uses JAX's experimental `buffer_callback`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlkit.training.programs.host_functions import HostFunctions, Learned
from rlkit.training.programs.schedules.base import IterationResult, LoopState, update
from rlkit.training.programs.schedules.overlapped import Update
from rlkit.training.programs.schedules.step_exchange import StepExchange, StepResult
from rlkit.types import Action, Carry, Key, PolicyState, PyTree, Rollout, TrainState

try:
    from jax.experimental.buffer_callback import buffer_callback
except ImportError:  # a version of JAX without it
    buffer_callback: Any = None


def is_supported() -> bool:
    """Whether a compiled program can ask for steps: Python can read only a CPU's buffers."""
    return buffer_callback is not None and jax.default_backend() == "cpu"


class _Acted(NamedTuple):
    key: Key  # for the next step
    action: Action  # [(S,) N, ...]
    extras: dict[str, PyTree]
    carry: Carry


@dataclasses.dataclass(frozen=True, kw_only=True)
class TracedParts:
    """The parts (see `Parts` and `OverlappedParts`) of an iteration whose rollout is one step."""

    functions: HostFunctions
    learn: Callable[..., Learned]  # `SeedFunctions.learn`, mapped over seeds
    exchange: StepExchange
    shapes: StepResult
    is_last: Array  # [] bool: no step follows this update

    def copy_policy(self, policy: PolicyState) -> PolicyState:
        """See `OverlappedParts`; nothing is donated inside a program."""
        return policy

    def update(self, state: LoopState) -> tuple[TrainState, IterationResult]:
        """See `Parts`."""
        return update(self.learn, state)

    def collect(self, ts: TrainState, policy: PolicyState) -> LoopState:
        """See `Parts`; if no step was taken, the state keeps its key."""
        acted = self._act(ts, policy)
        is_taken, step = self._steps_by(self.exchange.ask)(acted.action)
        ts = _with_key(ts, jnp.where(is_taken, acted.key, ts.local.key))
        return self._after_step(ts, acted, is_taken, step)

    def collect_during(
        self, ts: TrainState, policy: PolicyState, update: Update
    ) -> tuple[LoopState, IterationResult]:
        """See `OverlappedParts`; no step follows the last update."""
        acted = self._act(ts, policy)
        key = jnp.where(self.is_last, ts.local.key, acted.key)
        # The update takes its key from `send`, and `receive` waits for the update, so the step is
        # taken between the two. An update that draws nothing may run before `send`, so `receive`
        # waits for `send` as well, or it could wait forever.
        words = self._send(key, acted.action)
        sent = jax.random.wrap_key_data(words, impl=jax.random.key_impl(key))
        ts, result = update(_with_key(ts, sent))
        is_taken, step = self._steps_by(self.exchange.receive)(result.metrics, words)
        return self._after_step(ts, acted, is_taken, step), result

    def _act(self, ts: TrainState, policy: PolicyState) -> _Acted:
        key, (keys,) = self.functions.keys_of_rollout.function(ts.local.key)
        act = self.functions.act.function
        action, extras, _, carry = act(policy, keys, np.int32(0), ts.local.carry, ts.local.obs)
        return _Acted(key, action, extras, carry)

    def _send(self, key: Key, action: Action) -> Array:
        """The words of the key, available once the actions are handed over."""
        words = jax.random.key_data(key)
        send = buffer_callback(self.exchange.send, jax.typeof(words), has_side_effect=True)
        return send(words, action)

    def _steps_by(self, callback: Callable[..., None]) -> Callable[..., tuple[Array, StepResult]]:
        """Wraps `callback`: it returns whether a step was taken ([] bool), and the step."""
        shapes = (jax.ShapeDtypeStruct((), bool), self.shapes)
        return buffer_callback(callback, shapes, has_side_effect=True)

    def _after_step(
        self, ts: TrainState, acted: _Acted, is_taken: Array, step: StepResult
    ) -> LoopState:
        """The state after a step (or none) whose actions came from the observations of `ts`."""
        before, restart = ts.local, self.functions.restart_carry.function
        carry = restart(acted.carry, step["terminated"] | step["truncated"])
        carry = jax.tree.map(lambda new, old: jnp.where(is_taken, new, old), carry, before.carry)
        fields = step | {"obs": before.obs}
        transition = Rollout(**fields, action=acted.action, extras=acted.extras)
        return LoopState(
            ts=ts.replace(local=before.replace(obs=step["obs"], carry=carry)),
            rollout=jax.tree.map(lambda x: x[None], transition),
            is_collected=is_taken,
        )


def _with_key(ts: TrainState, key: Key) -> TrainState:
    return ts.replace(local=ts.local.replace(key=key))
