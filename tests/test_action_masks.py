"""Masks in observations: their spaces, what networks see, and what does not fit."""

import numpy as np
import pytest
from gymnasium import spaces

from rlkit.action_masks import (
    check_mask,
    masked_space,
    unmasked_space,
    with_mask,
    without_mask,
)
from rlkit.errors import SpaceError

pytestmark = pytest.mark.fast

BOX = spaces.Box(-1.0, 1.0, (3,))
DICT = spaces.Dict({"a": BOX, "b": spaces.Discrete(2)})
THREE, PAIR = spaces.Discrete(3, start=-1), spaces.MultiDiscrete([2, 4])


@pytest.mark.parametrize(("action_space", "size"), [(THREE, 3), (PAIR, 6)])
@pytest.mark.parametrize("space", [BOX, DICT, spaces.Discrete(7)])
def test_a_mask_is_added_and_taken_away_again(space, action_space, size):
    masked = masked_space(space, action_space)
    check_mask(masked, action_space)
    assert masked["action_mask"] == spaces.MultiBinary(size)
    assert unmasked_space(masked) == space
    obs = space.sample()
    assert with_mask(obs, np.ones(size, np.int8)) in masked
    assert without_mask(with_mask(obs, None)) is obs or without_mask(with_mask(obs, None)) == obs
    assert without_mask(obs) is obs and unmasked_space(space) == space


@pytest.mark.parametrize(
    ("mask", "action_space", "said"),
    [
        (spaces.MultiBinary(4), THREE, "does not fit Discrete.*declare it as MultiBinary"),
        (spaces.MultiBinary(5), PAIR, "declare it as MultiBinary\\(6\\)"),
        (spaces.Box(0.0, 1.0, (3,)), THREE, "declare it as MultiBinary\\(3\\)"),
        (spaces.MultiBinary(3), BOX, "not for Box.*something else than 'action_mask'"),
    ],
)
def test_masks_that_do_not_fit_are_refused(mask, action_space, said):
    with pytest.raises(SpaceError, match=said):
        check_mask(spaces.Dict({"x": BOX, "action_mask": mask}), action_space)


@pytest.mark.parametrize("mask", [spaces.MultiBinary((3, 2)), spaces.Box(0, 1, (6,), np.int8)])
def test_masks_of_other_shapes_and_integers_are_taken(mask):
    check_mask(spaces.Dict({"x": BOX, "action_mask": mask}), PAIR)


def test_two_masks_and_a_mask_alone_are_refused():
    alone = spaces.Dict({"action_mask": spaces.MultiBinary(3)})
    with pytest.raises(SpaceError, match="nothing but an action mask"):
        check_mask(alone, THREE)
    with pytest.raises(SpaceError, match="has an 'action_mask' already"):
        masked_space(alone, THREE)
    with pytest.raises(SpaceError, match="not for Box"):
        masked_space(BOX, BOX)
