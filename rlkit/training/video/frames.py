"""Frames of a video: pictures of observations, and the caption below a picture."""

from typing import Any

import jax
import numpy as np
from gymnasium import spaces

from rlkit.envs.jittable.drawings import enlarged, magnified
from rlkit.envs.pictures import Picture
from rlkit.spaces import Space, leaves
from rlkit.types import PyTree

_SIZE = 320  # pixels
_NARROW = 200  # pixels that the least caption takes
_LEAST_TEXT, _TEXT = 11, 1 / 32  # pixels high; of the width, since a GIF is made smaller
_BAR = (0, 114, 178)
# Colours of the channels of a grid: Okabe and Ito's, apart also for the colour-blind.
_CHANNELS = np.array(
    [
        (0, 114, 178),
        (213, 94, 0),
        (0, 158, 115),
        (240, 228, 66),
        (204, 121, 167),
        (86, 180, 233),
        (230, 159, 0),
        (255, 255, 255),
    ],
    np.uint8,
)


def picture_of(space: Space, obs: PyTree) -> Picture:
    """A picture of one observation: images as they are, grids by channels, numbers as bars."""
    parts = [
        _picture(leaf, np.asarray(x))
        for leaf, x in zip(leaves(space), jax.tree.leaves(obs), strict=True)
    ]
    width = max(part.shape[1] for part in parts)
    return np.concatenate([_padded(part, part.shape[0], width) for part in parts])


def _picture(space: Any, x: np.ndarray) -> Picture:
    if x.ndim == 3 and x.shape[-1] in (1, 3) and x.dtype == np.uint8:
        return enlarged(np.broadcast_to(x, (*x.shape[:2], 3)), _SIZE)
    if x.ndim == 3 and min(x.shape[:2]) > 1:
        return enlarged(_grid(x), _SIZE)
    if x.ndim == 2 and min(x.shape) > 1:
        span = float(x.max() - x.min()) or 1.0
        gray = (255 * (x.astype(float) - float(x.min())) / span).astype(np.uint8)
        return enlarged(np.repeat(gray[..., None], 3, axis=-1), _SIZE)
    if isinstance(space, spaces.Discrete):
        x = np.arange(space.n) == x - space.start
    return _bars(x.ravel().astype(float))


def _grid(x: np.ndarray) -> np.ndarray:
    """A cell has the colour of its last channel that is not zero, and is dark without one."""
    colors = _CHANNELS[np.arange(x.shape[-1]) % len(_CHANNELS)]
    found = x != 0  # [H, W, C]
    last = x.shape[-1] - 1 - found[..., ::-1].argmax(-1)
    return np.where(found.any(-1)[..., None], colors[last], np.uint8(30)).astype(np.uint8)


def _bars(values: np.ndarray) -> Picture:
    """A bar for each number, up or down from the middle; full height stands for 3 or more."""
    picture = np.full((_SIZE // 2, _SIZE, 3), 245, np.uint8)
    middle = len(picture) // 2
    picture[middle] = 160
    edges = np.linspace(0, _SIZE, len(values) + 1).astype(int)
    heights = (np.clip(np.nan_to_num(values) / 3.0, -1.0, 1.0) * (middle - 2)).round().astype(int)
    for left, right, height in zip(edges, edges[1:], heights, strict=False):
        gap = 1 if right - left > 2 else 0
        top, bottom = middle - max(height, 0), middle - min(height, 0)
        picture[top:bottom, left + gap : right - gap] = _BAR
    return picture


def captioned(picture: Picture, text: str) -> Picture:
    """The picture, enlarged if it is narrower than the text, above a line of text."""
    from PIL import Image, ImageDraw, ImageFont

    picture = magnified(picture, -(-_NARROW // picture.shape[1]))
    size = max(_LEAST_TEXT, round(_TEXT * picture.shape[1]))
    line = Image.new("RGB", (picture.shape[1], 2 * size), (0, 0, 0))
    font = ImageFont.load_default(size)
    ImageDraw.Draw(line).text((size // 2, size // 3), text, fill=(255, 255, 255), font=font)
    return np.concatenate([picture, np.asarray(line)])


def even(picture: Picture) -> Picture:
    """With an even height and width, which the codec needs."""
    height, width = picture.shape[:2]
    return _padded(picture, height + height % 2, width + width % 2)


def _padded(picture: Picture, height: int, width: int) -> Picture:
    missing = ((0, height - picture.shape[0]), (0, width - picture.shape[1]), (0, 0))
    return np.pad(picture, missing)
