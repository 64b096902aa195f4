"""Pictures that environments draw for people: what is one, and how many make a second."""

import math

import numpy as np

from rlkit.errors import require, shown

Picture = np.ndarray  # [H, W, 3] uint8


def checked_picture(found: object, call: str) -> Picture:
    """`found` if it is a picture; other integers than uint8 are converted if they fit.

    Raises `ConfigError` for anything else; `call` names what returned it, such as "Maze.render()".
    """
    try:
        picture = np.asarray(found)
    except ValueError:  # a list whose parts have different shapes
        picture = np.asarray(None)
    kind = picture.dtype.kind
    is_rgb = picture.ndim == 3 and picture.shape[-1] == 3 and picture.size > 0
    got = f"{picture.shape} {picture.dtype}" if picture.ndim else shown(found, 60)
    if not is_rgb:
        fix = "return one picture, with red, green and blue alone on its last axis"
    elif kind == "f":
        scaled = "(255 * picture)" if bool((picture <= 1).all()) else "picture"
        fix = f"convert it with {scaled}.astype(np.uint8)"
    else:
        fix = "return integers from 0 to 255"
    fits = is_rgb and kind in "iu" and int(picture.min()) >= 0 and int(picture.max()) <= 255
    require(fits, f"{call} must return [height, width, 3] uint8, got {got}", fix)
    return picture.astype(np.uint8, copy=False)


def frames_per_second(fps: object, owner: str) -> int:
    """The nearest whole number, at least 1, to the `render_fps` of `owner`.

    Raises `ConfigError` unless it is a positive number.
    """
    is_number = isinstance(fps, (int, float, np.number)) and not isinstance(fps, bool)
    number = float(fps) if is_number else math.nan  # pyright: ignore[reportArgumentType]
    require(
        math.isfinite(number) and number > 0,
        f"render_fps of {owner} is {shown(fps)}",
        "set it to how many pictures make a second, such as 30",
    )
    return max(1, round(number))
