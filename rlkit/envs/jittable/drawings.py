"""Pictures of the states of Gymnax environments, for videos."""

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

from rlkit.envs.pictures import Picture
from rlkit.errors import ConfigError
from rlkit.types import PyTree

Draw = Callable[[PyTree], Picture]

_CLASSIC = {  # and what Gymnasium's environment of that name has as its state
    "CartPole-v1": ("x", "x_dot", "theta", "theta_dot"),
    "Acrobot-v1": ("joint_angle1", "joint_angle2", "velocity_1", "velocity_2"),
    "Pendulum-v1": ("theta", "theta_dot"),
    "MountainCar-v0": ("position", "velocity"),
    "MountainCarContinuous-v0": ("position", "velocity"),
}
_SIZE = 400  # pixels, of our own drawings
_WALL, _FLOOR, _GOAL, _AGENT, _OTHER = (
    (60, 60, 60),
    (245, 245, 245),
    (0, 158, 115),
    (0, 114, 178),
    (213, 94, 0),
)


def gymnax_drawing(env: Any, params: Any) -> tuple[Draw, int] | None:
    """How the states of a Gymnax environment are drawn, and in how many pictures per second.

    None: a picture of its observations says as much (MinAtar, Pong, Catch), or there is nothing to
    see (bandits, chains). Classic control is drawn by Gymnasium, whose environments have the same
    states. Raises `ConfigError` if that needs a package that is not installed.
    """
    if env.name in _CLASSIC:
        return _classic_control(env.name)
    draw = {
        "FourRooms-misc": _maze,
        "MetaMaze-misc": _maze,
        "FrozenLake-misc": _frozen_lake,
        "PointRobot-misc": _point_robot,
        "Reacher-misc": _reacher,
        "Swimmer-misc": _swimmer,
    }.get(env.name)
    return None if draw is None else (functools.partial(draw, env, params), 20)


def _classic_control(name: str) -> tuple[Draw, int]:
    if importlib.util.find_spec("pygame") is None:
        raise ConfigError(
            f'pictures of gymnax/{name} need pygame; pip install "gymnasium[classic-control]"'
        )
    import gymnasium

    env: Any = gymnasium.make(name, render_mode="rgb_array").unwrapped
    env.reset(seed=0)

    def draw(state: Any) -> Picture:
        numbers = [np.ravel(getattr(state, field))[0] for field in _CLASSIC[name]]
        env.state = np.array(numbers, np.float64)
        if name == "Pendulum-v1":
            env.last_u = float(np.ravel(state.last_u)[0])
        return np.asarray(env.render())

    return draw, env.metadata["render_fps"]


def _maze(env: Any, params: Any, state: Any) -> Picture:
    """Walls, the goal and the agent; positions are (row, column)."""
    walls = np.asarray(env.occupied_map, bool)
    grid = np.where(walls[..., None], np.array(_WALL, np.uint8), np.array(_FLOOR, np.uint8))
    for position, color in ((state.goal, _GOAL), (state.pos, _AGENT)):
        row, column = np.asarray(position, int)
        grid[row, column] = color
    return enlarged(grid, _SIZE)


def _frozen_lake(env: Any, params: Any, state: Any) -> Picture:
    """Ice, holes, the goal and the agent."""
    from gymnax.environments.misc import frozen_lake

    tiles = np.asarray(env.desc)
    grid = np.full((*tiles.shape, 3), _FLOOR, np.uint8)
    grid[tiles == frozen_lake.HOLE] = _WALL
    grid[tiles == frozen_lake.GOAL] = _GOAL
    grid[divmod(int(state.position), tiles.shape[1])] = _AGENT
    return enlarged(grid, _SIZE)


def _point_robot(env: Any, params: Any, state: Any) -> Picture:
    """The half circle on which goals lie, the goal and the robot."""
    canvas = _Canvas(low=(-1.4, -0.5), high=(1.4, 2.3))
    angles = np.linspace(0.0, np.pi, 60)
    canvas.line(float(params.circle_radius) * np.stack([np.cos(angles), np.sin(angles)], -1), _WALL)
    canvas.disc(state.goal, float(params.goal_radius), _GOAL)
    canvas.disc(state.pos, 0.06, _AGENT)
    return canvas.picture()


def _reacher(env: Any, params: Any, state: Any) -> Picture:
    """Links of length one from the centre, each at its own angle to the horizontal."""
    angles = np.asarray(state.angles)
    reach = len(angles) + 0.5
    canvas = _Canvas(low=(-reach, -reach), high=(reach, reach))
    links = np.cumsum(np.stack([np.cos(angles), np.sin(angles)], -1), axis=0)
    canvas.disc(state.goal_xy, 0.15, _GOAL)
    canvas.line(np.vstack([np.zeros((1, 2)), links]), _AGENT, width=6)
    canvas.disc(links[-1], 0.1, _AGENT)
    return canvas.picture()


def _swimmer(env: Any, params: Any, state: Any) -> Picture:
    """Urchins, the goal and the swimmer."""
    positions = np.vstack([state.urchin_xys, state.xy[None], state.goal_xy[None]])
    far = max(1.2, float(np.abs(positions).max()) + 0.2)
    canvas = _Canvas(low=(-far, -far), high=(far, far))
    for urchin in np.asarray(state.urchin_xys):
        canvas.disc(urchin, 0.05 * far, _OTHER)
    canvas.disc(state.goal_xy, 0.05 * far, _GOAL)
    canvas.disc(state.xy, 0.04 * far, _AGENT)
    return canvas.picture()


class _Canvas:
    """A square picture of a square of the plane, y upwards."""

    def __init__(self, *, low: tuple[float, float], high: tuple[float, float]):
        from PIL import Image, ImageDraw

        self._image = Image.new("RGB", (_SIZE, _SIZE), _FLOOR)
        self._draw = ImageDraw.Draw(self._image)
        self._low, self._scale = np.array(low), _SIZE / (np.array(high) - np.array(low))

    def _pixels(self, points: Any) -> np.ndarray:
        x, y = np.moveaxis((np.asarray(points, float) - self._low) * self._scale, -1, 0)
        return np.stack([x, _SIZE - y], -1)

    def line(self, points: Any, color: tuple[int, int, int], width: int = 3) -> None:
        self._draw.line([tuple(p) for p in self._pixels(points)], fill=color, width=width)

    def disc(self, center: Any, radius: float, color: tuple[int, int, int]) -> None:
        x, y = self._pixels(center)
        r = radius * self._scale[0]
        self._draw.ellipse((x - r, y - r, x + r, y + r), fill=color)

    def picture(self) -> Picture:
        return np.asarray(self._image)


def enlarged(picture: np.ndarray, size: int) -> Picture:
    """The picture with each pixel as a square, about `size` pixels high or wide."""
    return magnified(picture, max(1, size // max(picture.shape[:2])))


def magnified(picture: np.ndarray, factor: int) -> Picture:
    """The picture with each pixel as a square of `factor` pixels a side."""
    return picture.repeat(factor, axis=0).repeat(factor, axis=1)
