"""`HostMixture`: each episode in one of several Gymnasium environments. Imports no JAX."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from rlkit.envs.host.env_state import load_env, save_env
from rlkit.envs.host.gymnasium_worker import Recipe
from rlkit.envs.host.plain_bytes import Plain
from rlkit.errors import EnvStateError

MAX_SEED = 2**31


class HostMixture(gymnasium.Env):
    """Draws one of K members for each episode, by `weights` (K numbers of any sum).

    A seed at reset seeds the choice and, when they are next reset, all members.
    """

    def __init__(
        self,
        recipes: Sequence[Recipe],
        weights: np.ndarray,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        max_episode_steps: int | None,
        render_mode: str | None = None,
    ):
        self.members: list[gymnasium.Env] = [recipe.build() for recipe in recipes]
        self.observation_space, self.action_space = observation_space, action_space
        self.max_episode_steps = max_episode_steps  # the largest; None: some have none
        self.metadata, self.render_mode = dict(self.members[0].metadata), render_mode
        self._chances = weights / weights.sum()
        self._seeds: list[int | None] = [None] * len(self.members)  # for their next resets
        self._begun = [False] * len(self.members)
        self._which = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode in one of the members."""
        super().reset(seed=seed)
        if seed is not None:
            drawn = self.np_random.integers(MAX_SEED, size=len(self.members))
            self._seeds = [int(x) for x in drawn]
        self._which = int(self.np_random.choice(len(self.members), p=self._chances))
        own, self._seeds[self._which] = self._seeds[self._which], None
        self._begun[self._which] = True
        return self._playing.reset(seed=own, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """A step of the member that is played."""
        return self._playing.step(action)

    def render(self) -> Any:
        """A picture of the member that is played."""
        return self._playing.render()

    def close(self) -> None:
        """Closes all members."""
        for member in self.members:
            member.close()

    def get_state(self) -> Plain:
        """Which member is played, and the states of those that ever were."""
        states = [
            save_env(member) if begun else None
            for member, begun in zip(self.members, self._begun, strict=True)
        ]
        return {"which": self._which, "seeds": list(self._seeds), "members": states}

    def set_state(self, state: Any) -> None:
        """Goes to where `get_state` found it. Raises `EnvStateError` for other states."""
        count = len(self.members)
        if not _is_state(state, count):
            raise EnvStateError(f"it is not the state of a mixture of {count} environments")
        for index, (member, own) in enumerate(zip(self.members, state["members"], strict=True)):
            if own is not None:
                if not self._begun[index]:
                    member.reset(seed=0)
                load_env(member, own)
            self._begun[index] = own is not None
        self._which, self._seeds = state["which"], list(state["seeds"])

    @property
    def _playing(self) -> gymnasium.Env:
        return self.members[self._which]


def _is_state(state: Any, count: int) -> bool:
    """Whether it has the form of a state of `count` members."""
    if not (isinstance(state, dict) and state.keys() == {"which", "seeds", "members"}):
        return False
    lists = [state["seeds"], state["members"]]
    if not all(isinstance(each, list) and len(each) == count for each in lists):
        return False
    which = state["which"]
    is_member = isinstance(which, int) and 0 <= which < count
    seeds = all(seed is None or isinstance(seed, int) for seed in state["seeds"])
    saved = all(own is None or isinstance(own, np.ndarray) for own in state["members"])
    return is_member and seeds and saved and state["members"][which] is not None
