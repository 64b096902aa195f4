"""Farama's minigrid, and BabyAI in it: grid worlds that are stepped on the host."""

import functools
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from minigrid.core import constants  # pyright: ignore[reportMissingImports]
from minigrid.envs.babyai.core import roomgrid_level  # pyright: ignore[reportMissingImports]
from minigrid.wrappers import (  # pyright: ignore[reportMissingImports]
    FullyObsWrapper,
    RGBImgObsWrapper,
    RGBImgPartialObsWrapper,
)

from rlkit.envs.host.gymnasium import GymnasiumAdapter
from rlkit.envs.host.resume_by_replay import ResumeByReplay
from rlkit.errors import EnvContractError, did_you_mean, require

KINDS = len(constants.OBJECT_TO_IDX), len(constants.COLOR_TO_IDX), 4  # 4 directions, or 3 doors
MOST_WORDS = 72  # of the longest instruction that BabyAI's grammar makes
MOST_NAVIGATIONS = 8  # of an instruction: four parts, each to carry one thing to another
# fmt: off
WORDS = (
    ",", "a", "after", "and", "at", "avoid", "ball", "behind", "blue", "box", "door", "end",
    "fetch", "find", "from", "front", "get", "go", "goal", "green", "grey", "hallway", "in",
    "key", "lava", "left", "matching", "must", "near", "next", "object", "of", "on", "open",
    "opening", "pick", "purple", "put", "reach", "red", "right", "room", "rooms", "square",
    "the", "then", "to", "traverse", "unlock", "up", "use", "yellow", "you", "your",
)
# fmt: on
CODES = {word: code for code, word in enumerate(WORDS, start=1)}  # 0: no word

roomgrid_level.print = lambda *words: None  # BabyAI prints each level that it rejects


class _Readable(gymnasium.ObservationWrapper):
    """Numbers for what minigrid shows: codes of the cells, the direction, codes of the words."""

    def __init__(self, env: gymnasium.Env, num_words: int, limit: int, *, are_codes: bool):
        super().__init__(env)
        image = env.observation_space["image"]  # pyright: ignore[reportIndexIssue]
        if are_codes:
            nvec = np.broadcast_to(np.array(KINDS, np.uint8), image.shape)
            image = spaces.MultiDiscrete(nvec.copy(), dtype=np.uint8)
        parts = {"image": image, "direction": spaces.Discrete(4)}
        if num_words:
            parts["mission"] = spaces.MultiDiscrete([len(WORDS) + 1] * num_words, dtype=np.uint8)
        self.observation_space, self._num_words = spaces.Dict(parts), num_words
        self.max_episode_steps = limit

    def observation(self, observation: Any) -> dict[str, Any]:
        """What agents see of an observation."""
        shown = {"image": observation["image"], "direction": observation["direction"]}
        return shown | ({"mission": self._words(observation["mission"])} if self._num_words else {})

    def _words(self, mission: str) -> np.ndarray:
        codes = [CODES[word] for word in mission.replace(",", " , ").split()]
        if len(codes) > self._num_words:
            raise EnvContractError(
                f"the instruction {mission!r} has {len(codes)} words, and mission_words is"
                f" {self._num_words}; raise it"
            )
        return np.pad(np.array(codes, np.uint8), (0, self._num_words - len(codes)))


VIEWS: dict[str, Callable[..., gymnasium.Env]] = {
    "partial": lambda env, tile_size: env,
    "full": lambda env, tile_size: FullyObsWrapper(env),
    "rgb_partial": RGBImgPartialObsWrapper,
    "rgb_full": RGBImgObsWrapper,
}


def make(
    name: str,
    num_envs: int,
    *,
    view: str = "partial",
    tile_size: int = 8,
    mission_words: int | None = None,
    **arguments: Any,
) -> GymnasiumAdapter:
    """`num_envs` copies of a task. Other arguments go to it, or to `GymnasiumAdapter`.

    `view` is what agents see: the codes of the cells in front of them ("partial") or of the whole
    grid ("full"), or either as uint8 pictures of `tile_size` pixels a cell ("rgb_partial",
    "rgb_full"). `mission_words` is how many words of the instruction they see, as codes; `None`:
    all where it differs between episodes, otherwise none.
    """
    require(view in VIEWS, f"unknown view {view!r}", did_you_mean(view, VIEWS))
    for argument, value, least in (
        ("tile_size", tile_size, 1),
        ("mission_words", mission_words, 0),
    ):
        fits = isinstance(value, int) and not isinstance(value, bool) and value >= least
        is_none = value is None and argument == "mission_words"
        require(
            fits or is_none,
            f"{argument} must be an integer of at least {least}, got {value!r}",
            "pass one, such as 8",
        )
    factory = functools.partial(
        _build, name, view=view, tile_size=tile_size, mission_words=mission_words
    )
    factory.__name__ = f"minigrid/{name}"  # pyright: ignore[reportAttributeAccessIssue]
    return GymnasiumAdapter(factory, num_envs, **arguments)


def _build(
    name: str, *, view: str, tile_size: int, mission_words: int | None, **arguments: Any
) -> gymnasium.Env:
    env = gymnasium.make(name, disable_env_checker=True, **arguments)
    inner: Any = env.unwrapped
    if mission_words is None:  # what BabyAI declares of its instructions says nothing
        is_fixed = inner.observation_space["mission"].ordered_placeholders is None
        differs = isinstance(inner, roomgrid_level.RoomGridLevel) or not is_fixed
        mission_words = MOST_WORDS if differs else 0
    limit = inner.max_steps
    if limit == 0:  # BabyAI sets it by the level that it draws
        rooms = inner.num_rows * inner.num_cols
        limit = MOST_NAVIGATIONS * rooms * inner.room_size**2
    seen, are_codes = VIEWS[view](env, tile_size), not view.startswith("rgb")
    return ResumeByReplay(_Readable(seen, mission_words, limit, are_codes=are_codes))
