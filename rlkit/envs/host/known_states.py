"""What changes in the environments and wrappers of Gymnasium: names and checks of their fields.

Must not import JAX. Only what has an influence on observations, rewards and ends is listed, and
what rendering shows of it. Classes are named, not imported, since some need other packages.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

Layer = Any  # a `gymnasium.Env`, which may be a wrapper
Check = Callable[[Layer, Any, Any], bool]  # (layer, present value, saved value)
MOST = 10**9  # for counts


def known_fields(layer: Layer) -> dict[str, Check] | None:
    """The fields of `layer` by name, which may be dotted; None if its class is unknown.

    Subclasses are unknown, because they may have further fields.
    """
    kind = type(layer)
    return KNOWN.get(f"{kind.__module__}.{kind.__qualname__}")


def _flag(layer: Layer, now: Any, value: Any) -> bool:
    return isinstance(value, (bool, np.bool_))


def _real(layer: Layer, now: Any, value: Any) -> bool:
    is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    is_array = isinstance(value, np.ndarray) and value.size == 1
    return (is_number or is_array) and bool(np.isfinite(value).all())


def _count(layer: Layer, now: Any, value: Any) -> bool:
    return _integer(value, 0, MOST)


def _state(layer: Layer, now: Any, value: Any) -> bool:
    return _integer(value, 0, int(layer.observation_space.n) - 1)


def _action(layer: Layer, now: Any, value: Any) -> bool:
    return bool(_integer(value, 0, MOST) and layer.action_space.contains(int(value)))


def _any_action(layer: Layer, now: Any, value: Any) -> bool:
    return fits(layer.action_space, value)


def _like_now(layer: Layer, now: Any, value: Any) -> bool:
    """A finite array of the present shape and dtype."""
    same = isinstance(value, np.ndarray) and (value.shape, value.dtype) == (now.shape, now.dtype)
    return same and bool(np.isfinite(value).all())


def _observations(layer: Layer, now: Any, value: Any) -> bool:
    is_short = isinstance(value, list) and (now.maxlen is None or len(value) <= now.maxlen)
    return is_short and all(fits(layer.env.observation_space, obs) for obs in value)


def _numbers(layer: Layer, now: Any, value: Any) -> bool:
    is_short = isinstance(value, list) and len(value) <= now.maxlen
    return bool(is_short) and all(_real(layer, None, x) for x in value)


def _hand(layer: Layer, now: Any, value: Any) -> bool:
    return (
        isinstance(value, list) and 0 < len(value) < 30 and all(_integer(x, 1, 10) for x in value)
    )


def _word(*words: str) -> Check:
    return lambda layer, now, value: isinstance(value, str) and value in words


def _vector(size: int) -> Check:
    """Finite numbers, as an array or a tuple."""

    def check(layer: Layer, now: Any, value: Any) -> bool:
        if isinstance(value, tuple):
            return len(value) == size and all(_real(layer, None, x) for x in value)
        is_array = isinstance(value, np.ndarray) and value.shape == (size,)
        return is_array and value.dtype.kind == "f" and bool(np.isfinite(value).all())

    return check


def _optional(check: Check) -> Check:
    return lambda layer, now, value: value is None or check(layer, now, value)


def _integer(value: Any, low: int, high: int) -> bool:
    is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return is_integer and bool(low <= value <= high)


def fits(space: gymnasium.Space, value: Any) -> bool:
    """Whether `value` has the structure, shapes and dtypes of `space`; it may be out of bounds."""
    if isinstance(space, spaces.Dict):
        names = space.spaces.keys()
        same = isinstance(value, dict) and value.keys() == names
        return same and all(fits(space[name], value[name]) for name in names)
    if isinstance(space, spaces.Tuple):
        same = isinstance(value, tuple) and len(value) == len(space.spaces)
        return same and all(map(fits, space.spaces, value))
    if isinstance(space, spaces.Discrete):
        return _integer(value, int(space.start), int(space.start + space.n) - 1)
    if not isinstance(value, (np.ndarray, np.generic)) or value.shape != space.shape:
        return False
    is_number = value.dtype.kind in "biuf"
    return is_number and np.can_cast(value.dtype, space.dtype or value.dtype, "same_kind")


_STATISTICS = ("mean", "var")
_ENVS: dict[str, dict[str, Check]] = {
    "classic_control.cartpole.CartPoleEnv": {
        "state": _vector(4),
        "steps_beyond_terminated": _optional(_count),
    },
    "classic_control.acrobot.AcrobotEnv": {"state": _vector(4)},
    "classic_control.mountain_car.MountainCarEnv": {"state": _vector(2)},
    "classic_control.continuous_mountain_car.Continuous_MountainCarEnv": {"state": _vector(2)},
    "classic_control.pendulum.PendulumEnv": {"state": _vector(2), "last_u": _optional(_real)},
    "toy_text.frozen_lake.FrozenLakeEnv": {"s": _state, "lastaction": _optional(_action)},
    "toy_text.cliffwalking.CliffWalkingEnv": {"s": _state, "lastaction": _optional(_action)},
    "toy_text.taxi.TaxiEnv": {
        "s": _state,
        "lastaction": _optional(_action),
        "fickle_step": _flag,
        "taxi_orientation": _action,
    },
    "toy_text.blackjack.BlackjackEnv": {
        "dealer": _hand,
        "player": _hand,
        "dealer_top_card_suit": _word("C", "D", "H", "S"),
        "dealer_top_card_value_str": _word("A", "J", "Q", "K", *map(str, range(2, 10))),
    },
}
_WRAPPERS: dict[str, dict[str, Check]] = {
    "common.TimeLimit": {"_elapsed_steps": _optional(_count)},
    "common.OrderEnforcing": {"_has_reset": _flag},
    "common.Autoreset": {"autoreset": _flag},
    "common.PassiveEnvChecker": {
        "checked_reset": _flag,
        "checked_step": _flag,
        "checked_render": _flag,
    },
    # not its clock, which starts anew with the process
    "common.RecordEpisodeStatistics": {
        "episode_count": _count,
        "episode_returns": _real,
        "episode_lengths": _count,
        "return_queue": _numbers,
        "length_queue": _numbers,
    },
    "stateful_observation.NormalizeObservation": {
        **{f"obs_rms.{name}": _like_now for name in _STATISTICS},
        "obs_rms.count": _real,
        "_update_running_mean": _flag,
    },
    "stateful_observation.FrameStackObservation": {"obs_queue": _observations},
    "stateful_observation.DelayObservation": {"observation_queue": _observations},
    "stateful_observation.TimeAwareObservation": {"timesteps": _count},
    "stateful_observation.MaxAndSkipObservation": {"_obs_buffer": _like_now},
    "stateful_reward.NormalizeReward": {
        **{f"return_rms.{name}": _real for name in (*_STATISTICS, "count")},
        "discounted_reward": _real,
        "_update_running_mean": _flag,
    },
    "stateful_action.StickyAction": {
        "last_action": _optional(_any_action),
        "is_sticky_actions": _flag,
        "num_repeats": _count,
        "repeats_taken": _count,
    },
    # without state, as long as the functions given to some of them have none
    "stateful_action.RepeatAction": {},
    **{f"transform_action.{name}Action": {} for name in ("Transform", "Clip", "Rescale")},
    "transform_action.DiscretizeAction": {},
    **{
        f"transform_observation.{name}Observation": {}
        for name in (
            "Transform",
            "Filter",
            "Flatten",
            "Grayscale",
            "Resize",
            "Reshape",
            "Rescale",
            "Dtype",
            "Discretize",
        )
    },
    **{f"transform_reward.{name}Reward": {} for name in ("Transform", "Clip")},
}
KNOWN = {f"gymnasium.envs.{name}": fields for name, fields in _ENVS.items()} | {
    f"gymnasium.wrappers.{name}": fields for name, fields in _WRAPPERS.items()
}


def read_field(layer: Layer, name: str) -> Any:
    """The plain value of a field; a deque becomes a list."""
    value: Any = layer
    for part in name.split("."):
        value = getattr(value, part)
    return list(value) if isinstance(value, deque) else value


def write_field(layer: Layer, name: str, value: Any) -> None:
    """Sets a field to a checked value; a deque keeps its length limit."""
    owner: Any = layer
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    now = getattr(owner, last)
    if isinstance(now, deque):
        now.clear()
        now.extend(value)
    else:
        setattr(owner, last, value)


def check_field(layer: Layer, name: str, check: Check, value: Any) -> bool:
    """Whether a saved value may be the field's."""
    now: Any = layer
    for part in name.split("."):
        now = getattr(now, part)
    return check(layer, now, value)
