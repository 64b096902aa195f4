"""The contract of agents: networks that act. Agents know no loss and no environment."""

from typing import Any, Protocol, runtime_checkable

from jax import Array

from rlkit.types import Action, Carry, Key, Obs, Params, PyTree


@runtime_checkable
class Agent(Protocol):
    """Pure functions over explicit parameters. Observations come in already normalised; `carry` is
    () for feed-forward agents.
    """

    spec: (
        tuple[str, Any] | None
    )  # (registry name, config) that rebuild it; None: no registry knows it

    def init(self, key: Key) -> Params:
        """Fresh parameters; the key is consumed."""
        ...

    def initial_carry(self, num_envs: int) -> Carry:
        """The recurrent state at the start of an episode, leaves [N, ...]."""
        ...

    def explore(
        self, params: Params, obs: Obs, carry: Carry, key: Key, progress: Array
    ) -> tuple[Action, Carry, dict[str, PyTree]]:
        """Actions [N, ...] to learn from, and extras that the rollout keeps; `progress` in [0, 1]
        drives schedules.
        """
        ...

    def exploit(self, params: Params, obs: Obs, carry: Carry, key: Key) -> tuple[Action, Carry]:
        """The best actions [N, ...] that the agent knows."""
        ...
