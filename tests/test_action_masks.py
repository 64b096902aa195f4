"""Masks in observations: their spaces, what networks see, and what does not fit."""

import numpy as np
import pytest
from gymnasium import spaces

from rlkit.action_masks import (
    check_mask,
    first_without_choice,
    flat_mask,
    masked_space,
    random_allowed,
    unmasked_space,
    with_mask,
    with_some_allowed,
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
        (spaces.MultiBinary((2, 3)), PAIR, "declare it as MultiBinary\\(6\\)"),  # of pairs?
        (spaces.Box(0.0, 1.0, (3,)), THREE, "declare it as MultiBinary\\(3\\)"),
        (spaces.MultiBinary(3), BOX, "not for Box.*something else than 'action_mask'"),
    ],
)
def test_masks_that_do_not_fit_are_refused(mask, action_space, said):
    with pytest.raises(SpaceError, match=said):
        check_mask(spaces.Dict({"x": BOX, "action_mask": mask}), action_space)


@pytest.mark.parametrize(
    ("mask", "action_space"),
    [
        (spaces.MultiBinary((3, 3)), spaces.Discrete(9)),  # a board
        (spaces.Box(0, 1, (6,), np.int8), PAIR),
        (spaces.Box(0, 1, (3,), np.bool_), THREE),
    ],
)
def test_masks_of_a_board_and_of_integers_are_taken(mask, action_space):
    check_mask(spaces.Dict({"x": BOX, "action_mask": mask}), action_space)


def test_random_actions_are_allowed_and_equal_for_equal_masks():
    masks = np.array([[0, 1, 0, 1, 1, 0], [0, 1, 0, 1, 1, 0], [1, 1, 1, 0, 0, 0]])
    dice, seen = np.random.default_rng(0), set()
    for _ in range(50):
        one, other, third = random_allowed(masks, PAIR, dice).tolist()
        assert one == other and one[0] == 1 and one[1] in (1, 2) and third[1] == 0
        seen.add((*one, *third))
    assert len(seen) == 4
    assert random_allowed(masks[:, :3], THREE, dice).tolist()[:2] == [0, 0]


def test_a_mask_that_allows_nothing_is_made_to_allow_all():
    masks = np.array([[1, 0, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0]], np.int8)
    assert with_some_allowed(masks, (2, 4)).tolist() == [[1, 0, 1, 1, 1, 1], [1, 1, 0, 1, 0, 0]]


def test_the_first_mask_that_allows_nothing_is_found():
    masks = np.array([[1, 0, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1]])
    assert first_without_choice(masks, (2, 4)) == 1
    assert first_without_choice(masks[:1], (2, 4)) is None
    assert first_without_choice(masks, (6,)) is None
    assert flat_mask((np.ones(2), np.zeros(3))).tolist() == [True, True, False, False, False]


def test_two_masks_and_a_mask_alone_are_refused():
    alone = spaces.Dict({"action_mask": spaces.MultiBinary(3)})
    with pytest.raises(SpaceError, match="nothing but an action mask"):
        check_mask(alone, THREE)
    with pytest.raises(SpaceError, match="has an 'action_mask' already"):
        masked_space(alone, THREE)
    with pytest.raises(SpaceError, match="not for Box"):
        masked_space(BOX, BOX)
