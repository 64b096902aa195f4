"""Pgx: board and card games against an opponent, MinAtar, and 2048."""

import dataclasses
import importlib.util
import io
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pgx  # Pgx's own: absolute imports do not find this file
from flax import struct
from gymnasium import spaces
from jax import Array

from rlkit.envs.base import JaxStep
from rlkit.envs.jittable.wrappers import TimeLimit
from rlkit.envs.suites.pgx_ids import LIMITS
from rlkit.envs.suites.pgx_opponents import OPPONENTS, Opponent
from rlkit.errors import did_you_mean, require, require_positive_integer
from rlkit.ops.strong_types import strong_types
from rlkit.spaces import Space
from rlkit.types import Action, Key, PyTree

DEFAULT_LIMIT = 10_000  # steps, where Pgx has no limit: evaluations need one
SMALLEST_IMAGE = 6  # squares a side: a convolution would leave little of a smaller board


class GameState(struct.PyTreeNode, kw_only=True):
    """A game, and which of its players the agent is."""

    game: PyTree
    agent: Array  # [] int32


@dataclasses.dataclass(frozen=True)
class PgxEnv:
    """A game of Pgx as a `JaxEnv`: the agent's moves, each with the replies of the others.

    What the game ends is `terminated`, so its own limit has to be out of reach.
    """

    game: Any
    observation_space: Space
    action_space: Space
    opponent: Opponent
    seat: int | None
    """Which player the agent is, 0 for the one who begins; None: drawn for each episode."""
    action_mask: Callable[[GameState], Array] | None
    """None where all actions are always legal."""
    render: Callable[[GameState], np.ndarray] | None
    """None where a picture of the observation says as much."""
    render_fps: int

    def reset(self, key: Key) -> tuple[GameState, Array]:
        """Starts a game, until it is the agent's turn; returns (state, obs). Consumes the key."""
        init_key, seat_key, reply_key = jax.random.split(key, 3)
        game = strong_types(self.game.init(init_key))
        seat = jax.random.randint(seat_key, (), 0, self.game.num_players)
        seat = seat if self.seat is None else jnp.int32(self.seat)
        agent = (game.current_player + seat) % self.game.num_players
        game, _ = self._replies(reply_key, game, agent)
        return GameState(game=game, agent=agent), self._observed(game)

    def step(self, key: Key, state: GameState, action: Action) -> JaxStep:
        """A move of the agent, and those of the others until its next turn. Consumes the key."""
        game_key, reply_key = jax.random.split(key)
        game = strong_types(self.game.step(state.game, action, game_key))
        reward = game.rewards[state.agent]
        game, more = self._replies(reply_key, game, state.agent)
        reward += more
        return (
            state.replace(game=game),
            self._observed(game),
            reward,
            game.terminated,
            jnp.bool_(False),
            {} if self.game.num_players == 1 else {"won": reward > 0, "lost": reward < 0},
        )

    def _replies(self, key: Key, game: PyTree, agent: Array) -> tuple[PyTree, Array]:
        """Others move until it is the agent's turn or the end: (game, rewards of the agent)."""
        if self.game.num_players == 1:
            return game, jnp.float32(0)

        def waiting(carry: tuple[Key, PyTree, Array]) -> Array:
            _, game, _ = carry
            return (game.current_player != agent) & ~game.terminated

        def reply(carry: tuple[Key, PyTree, Array]) -> tuple[Key, PyTree, Array]:
            key, game, reward = carry
            key, own_key, game_key = jax.random.split(key, 3)
            action = self.opponent(own_key, self._observed(game), game.legal_action_mask)
            game = strong_types(self.game.step(game, action, game_key))
            return key, game, reward + game.rewards[agent]

        return jax.lax.while_loop(waiting, reply, (key, game, jnp.float32(0)))[1:]

    def _observed(self, game: PyTree) -> Array:
        """What the player sees whose turn it is."""
        return game.observation.reshape(self.observation_space.shape).astype(
            self.observation_space.dtype
        )


def make(
    name: str,
    *,
    opponent: str | Opponent = "random",
    seat: int | None = None,
    time_limit: int | None = None,
) -> TimeLimit:
    """The game `name`, played against `opponent`: "random", "first" (the first legal action), or a
    function (key, observation, legal actions [A]) -> action of JAX operations.

    `seat` is the agent's: 0 begins, 1 is second, None draws one for each episode. `time_limit` is
    in steps of the agent, by default the game's own, or 10,000 if it has none.
    """
    require(
        callable(opponent) or opponent in OPPONENTS,
        f"opponent={opponent!r} is neither known nor a function",
        did_you_mean(str(opponent), OPPONENTS),
    )
    require_positive_integer("time_limit", time_limit, example=100, none="the game's own")
    game: Any = pgx.make(name)
    require(
        seat is None or (game.num_players == 2 and seat in (0, 1)),
        f"seat={seat!r} is none of pgx/{name}, a game of {game.num_players}",
        "pass 0 to begin or 1 to be second" if game.num_players == 2 else "leave it out",
    )
    longest = LIMITS.get(name)
    require(
        time_limit is None or longest is None or time_limit <= longest,
        f"time_limit={time_limit} is more than pgx/{name} lasts",
        f"pass at most {longest}",
    )
    is_board = not name.startswith("minatar-")
    env = PgxEnv(
        game=game,
        observation_space=_space_of(game),
        action_space=spaces.Discrete(game.num_actions),
        opponent=opponent if callable(opponent) else OPPONENTS[opponent],
        seat=seat,
        action_mask=_legal if is_board else None,
        render=_picture if is_board else None,
        render_fps=2 if is_board else 10,
    )
    return TimeLimit(env, time_limit or longest or DEFAULT_LIMIT)


def _space_of(game: Any) -> Space:
    """Planes as an image, if the board is large enough to convolve, otherwise as numbers."""
    seen = jax.eval_shape(game.init, jax.random.key(0)).observation
    is_image = len(seen.shape) == 3 and min(seen.shape[:2]) >= SMALLEST_IMAGE
    if seen.dtype == jnp.bool_:
        return (
            spaces.Box(0, 1, seen.shape, np.uint8) if is_image else spaces.MultiBinary(seen.shape)
        )
    if seen.dtype == jnp.int32:  # backgammon: checkers on each point, those of the other negative
        return spaces.Box(-15, 15, seen.shape, np.float32)
    shape = seen.shape if is_image else (math.prod(seen.shape),)
    return spaces.Box(0, 1, shape, np.float32)


def _legal(state: GameState) -> Array:
    return state.game.legal_action_mask


def _picture(state: GameState) -> np.ndarray:
    """Pgx's own drawing, an SVG, as pixels."""
    require(
        importlib.util.find_spec("resvg_py") is not None,
        "pictures of Pgx's games need the package 'resvg_py', which is not installed",
        "pip install resvg-py",
    )
    import resvg_py  # pyright: ignore[reportMissingImports]
    from PIL import Image

    png = resvg_py.svg_to_bytes(svg_string=jax.tree.map(jnp.asarray, state.game).to_svg())
    return np.asarray(Image.open(io.BytesIO(bytes(png))).convert("RGB"))
