"""`film`: episodes of a policy as an MP4 or a GIF."""

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np

from rlkit import spaces
from rlkit.agents.base import Agent
from rlkit.envs.base import EnvAdapter
from rlkit.envs.pictures import Picture
from rlkit.errors import require, require_positive_integer
from rlkit.spaces import Space
from rlkit.training.core.evaluator import choose
from rlkit.training.video.frames import captioned, even
from rlkit.training.video.movie_file import check_movie_file, open_movie
from rlkit.training.video.stages import Moment, Stage, open_stage
from rlkit.types import Action, Carry, Key, Obs, PolicyState

_PAUSE = 0.7  # seconds that the last picture of an episode stands


@dataclasses.dataclass(frozen=True, kw_only=True)
class Film:
    """A video that was recorded."""

    path: Path
    returns: list[float]
    """Of its episodes."""
    lengths: list[int]
    """Of its episodes, in environment steps."""


def film(
    path: str | os.PathLike[str],
    *,
    env: EnvAdapter,
    agent: Agent,
    policy: PolicyState,
    episodes: int,
    max_steps: int | None,
    seed: int,
    deterministic: bool,
    fps: int | None,
    overwrite: bool,
) -> Film:
    """Plays episodes in one environment like `env` and writes them to `path`, an .mp4 or .gif.

    `max_steps` ends longer episodes; None: the time limit of the environment. The file appears when
    it is complete. Raises `ConfigError` if it exists, has another ending, or needs a package that
    is missing, and if the environment shows no pictures or never ends.
    """
    require_positive_integer("episodes", episodes, example=3)
    require_positive_integer("fps", fps, example=30, none="as the environment says")
    require_positive_integer("max_steps", max_steps, example=1000, none="whole episodes")
    limit = max_steps or env.max_episode_steps
    require(
        limit is not None,
        "the environment has no time limit, so a video of an episode may never end",
        "pass max_steps=1000",
    )
    assert limit is not None
    file = check_movie_file(path, overwrite=overwrite)
    with open_stage(env) as stage:
        played = _Played(stage, agent, policy, env.action_space, deterministic=deterministic)
        speed = fps or stage.fps
        with open_movie(file, speed) as add:
            for number, key in enumerate(jax.random.split(jax.random.key(seed), episodes), 1):
                picture: Picture | None = None
                for picture in played.episode(key, limit):
                    add(_frame(picture, number, played))
                assert picture is not None
                last = _frame(picture, number, played)  # with what the last step brought
                for _ in range(max(1, round(_PAUSE * speed))):
                    add(last)
    return Film(path=file, returns=played.returns, lengths=played.lengths)


def _frame(picture: Picture, number: int, played: "_Played") -> Picture:
    text = f"episode {number}   step {played.steps:,}   return {played.total:.4g}"
    return even(captioned(picture, text))


class _Played:
    """Plays episodes on a stage, and counts."""

    def __init__(
        self,
        stage: Stage,
        agent: Agent,
        policy: PolicyState,
        action_space: Space,
        *,
        deterministic: bool,
    ):
        self._stage, self._agent, self._policy = stage, agent, policy

        def act(policy: PolicyState, obs: Obs, carry: Carry, key: Key) -> tuple[Action, Carry]:
            action, carry = choose(agent, policy, obs, carry, key, deterministic=deterministic)
            return spaces.clip(action_space, action), carry

        self._act = jax.jit(act)
        self.steps, self.total = 0, 0.0  # of the episode so far
        self.returns: list[float] = []
        self.lengths: list[int] = []

    def episode(self, key: Key, limit: int) -> Iterator[Picture]:
        """The pictures of one episode."""
        reset_key, key = jax.random.split(key)
        moment: Moment = self._stage.begin(reset_key)
        carry = self._agent.initial_carry(1)
        self.steps, self.total = 0, 0.0
        while True:
            if moment.picture is not None:
                yield moment.picture
            if moment.is_last or self.steps >= limit:
                break
            act_key, env_key = jax.random.split(jax.random.fold_in(key, self.steps))
            action, carry = self._act(self._policy, moment.obs, carry, act_key)
            moment = self._stage.step(env_key, jax.tree.map(np.asarray, action))
            self.steps, self.total = self.steps + 1, self.total + moment.reward
        self.returns.append(self.total)
        self.lengths.append(self.steps)
