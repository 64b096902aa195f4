"""Pictures of observations, captions and sizes."""

import numpy as np
import pytest
from gymnasium import spaces

from rlkit.training.video.frames import captioned, even, picture_of

pytestmark = pytest.mark.fast

IMAGE = spaces.Box(0, 255, (4, 4, 3), np.uint8)
GRID = spaces.Box(0, 1, (5, 5, 2), np.float32)
VECTOR = spaces.Box(-10.0, 10.0, (4,), np.float32)


def is_picture(picture):
    return picture.ndim == 3 and picture.shape[-1] == 3 and picture.dtype == np.uint8


def test_an_image_is_shown_as_it_is():
    image = np.random.default_rng(0).integers(0, 256, (4, 4, 3), np.uint8)
    shown = picture_of(IMAGE, image)
    factor = len(shown) // 4
    assert factor == 80
    np.testing.assert_array_equal(shown[factor // 2 :: factor, factor // 2 :: factor], image)


def test_a_cell_of_a_grid_has_the_colour_of_its_last_channel():
    grid = np.zeros((5, 5, 2), np.float32)
    grid[1, 1, 0] = grid[2, 2, 1] = 1.0
    grid[3, 3] = 1.0
    shown = picture_of(GRID, grid)
    factor = len(shown) // 5
    cells = shown[factor // 2 :: factor, factor // 2 :: factor]
    first, second, both, empty = cells[1, 1], cells[2, 2], cells[3, 3], cells[0, 0]
    assert (first != second).any() and (both == second).all()
    assert (empty != first).any() and (empty == cells[4, 0]).all()


def test_bars_go_up_and_down_from_the_middle():
    shown = picture_of(VECTOR, np.array([3.0, -3.0, 0.0, 1.5], np.float32))
    blue = (shown == (0, 114, 178)).all(-1)
    middle, width = len(shown) // 2, shown.shape[1] // 4
    up, down = blue[:middle].sum(0), blue[middle:].sum(0)
    heights = [(up[i * width + width // 2], down[i * width + width // 2]) for i in range(4)]
    assert heights[0][0] > 0 and heights[0][1] == 0
    assert heights[1] == (0, heights[0][0])
    assert heights[2] == (0, 0)
    assert heights[3] == (heights[0][0] // 2, 0)


@pytest.mark.parametrize(
    ("space", "obs"),
    [
        (spaces.Discrete(3, start=-1), np.int32(1)),
        (spaces.MultiBinary(4), np.array([0, 1, 1, 0], np.int8)),
        (spaces.Box(0, 1, (3, 7), np.float32), np.eye(3, 7, dtype=np.float32)),
        (spaces.Box(-np.inf, np.inf, (2,), np.float32), np.array([np.nan, 9.0], np.float32)),
        (spaces.Box(0, 1, (1000,), np.float32), np.ones(1000, np.float32)),
    ],
)
def test_every_space_has_a_picture(space, obs):
    assert is_picture(picture_of(space, obs))


def test_the_parts_of_a_dict_stand_below_each_other():
    space = spaces.Dict({"image": IMAGE, "speed": VECTOR})
    obs = {"image": np.zeros((4, 4, 3), np.uint8), "speed": np.zeros(4, np.float32)}
    both = picture_of(space, obs)
    image, bars = picture_of(IMAGE, obs["image"]), picture_of(VECTOR, obs["speed"])
    assert both.shape == (len(image) + len(bars), image.shape[1], 3)


def test_a_caption_is_below_and_sizes_become_even():
    picture = np.full((11, 201, 3), 7, np.uint8)
    assert captioned(picture[:, :67], "step 1").shape == (3 * 11 + 22, 3 * 67, 3)
    with_text, without = captioned(picture, "step 1"), captioned(picture, "")
    np.testing.assert_array_equal(with_text[:11], picture)
    assert (with_text[11:] != without[11:]).any()
    assert even(picture).shape == (12, 202, 3)
    assert even(picture[:10, :200]).shape == (10, 200, 3)


def test_a_caption_grows_with_its_picture():
    """A GIF is made smaller, and its caption with it."""
    heights = [len(captioned(np.zeros((10, width, 3), np.uint8), "x")) - 10 for width in (320, 640)]
    assert heights == [22, 40]
