"""The environment `rlkit/Mixture`: one of several environments, drawn for each episode."""

import dataclasses
import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from rlkit.envs.base import EnvAdapter
from rlkit.envs.host.gymnasium import GymnasiumAdapter
from rlkit.envs.host.mixture import HostMixture
from rlkit.envs.ids import MIXTURE
from rlkit.envs.jittable.mixture import jax_mixture
from rlkit.envs.jittable.vectorized import VectorizedEnv, vectorize
from rlkit.envs.non_finite import NonFinite, chosen
from rlkit.errors import ConfigError, require, shown
from rlkit.spaces import Space
from rlkit.validation import PlainData, from_dict

# Suites whose argument `params` is traced.
TRACED_PARAMS = ("gymnax/", "brax/", "craftax/", "playground/")
EXAMPLE = "envs=['gymnax/CartPole-v1', {'id': 'gymnax/CartPole-v1', 'arguments': {...}}]"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Member:
    """One environment of a mixture."""

    id: str
    arguments: PlainData = dataclasses.field(default_factory=dict)


def make_mixture(
    make_env: Callable[..., EnvAdapter],
    num_envs: int,
    envs: Sequence[str | PlainData],
    weights: Sequence[float] | None = None,
    non_finite: NonFinite | None = None,
    **settings: Any,
) -> EnvAdapter:
    """`num_envs` environments, each of which plays every episode in one of `envs`.

    `envs` are ids, or {"id": ..., "arguments": {...}}; `weights` say how often an episode is in
    each (None: equally often). They must all be jittable, or all Gymnasium's; then `settings` are
    those of `GymnasiumAdapter`. Their action spaces are equal, and their observation spaces but for
    the bounds. `non_finite` is that of all; None: "reset" if that is the setting of one of them.

    Raises `ConfigError` if they do not fit together.
    """
    members = _members(envs)
    if settings.pop("action_masks", False):  # whose infos and methods only they have
        members = [
            dataclasses.replace(each, arguments={"action_masks": True, **each.arguments})
            for each in members
        ]
    chances = _weights(weights, len(members))
    made = [make_env(member.id, 1, **member.arguments) for member in members]
    if non_finite is None:
        non_finite = "reset" if "reset" in [chosen(None, env) for env in made] else "raise"
    names = [member.id for member in members]
    space = _joint_space(names, [env.observation_space for env in made])
    for name, env in zip(names, made, strict=True):
        require(
            env.action_space == made[0].action_space,
            f"the environments of a mixture have the action spaces {made[0].action_space}"
            f" ({names[0]}) and {env.action_space} ({name})",
            "mix environments with the same actions",
        )
    jittable = [env for env in made if isinstance(env, VectorizedEnv)]
    if len(jittable) == len(made):
        require(
            not settings,
            f"a mixture of jittable environments does not take {', '.join(settings)}",
            "leave it out, or pass it in the arguments of each environment",
        )
        kinds = [_kind(member) for member in members]
        mixture = jax_mixture([env.env for env in jittable], kinds, chances, space)
        return vectorize(mixture, num_envs, non_finite=non_finite)
    settings["non_finite"] = non_finite
    return _host_mixture(names, made, chances, space, num_envs, settings)


def _host_mixture(
    names: Sequence[str],
    made: Sequence[EnvAdapter],
    weights: np.ndarray,
    space: Space,
    num_envs: int,
    settings: dict[str, Any],
) -> GymnasiumAdapter:
    recipes, limits = [], []
    for name, env in zip(names, made, strict=True):
        env.close()
        if not isinstance(env, GymnasiumAdapter):
            raise ConfigError(
                f"{name} cannot be mixed with {', '.join(n for n in names if n != name) or name};"
                " mix jittable environments, or those of Gymnasium"
            )
        recipes.append(env.recipe)
        limits.append(env.max_episode_steps)
    limit = None if None in limits else max(limits)
    factory: Any = functools.partial(
        _mixture_of, recipes, weights, space, made[0].action_space, limit
    )
    factory.__name__ = MIXTURE
    return GymnasiumAdapter(factory, num_envs, **settings)


def _mixture_of(recipes: Any, *parts: Any, render_mode: str | None = None) -> HostMixture:
    shown = [dataclasses.replace(recipe, render_mode=render_mode) for recipe in recipes]
    return HostMixture(shown, *parts, render_mode=render_mode)


def _members(envs: object) -> list[Member]:
    fix = f"pass {EXAMPLE}"
    problem = f"{MIXTURE} needs the environments that it mixes, got envs={shown(envs)}"
    require(isinstance(envs, list | tuple) and len(envs) > 0, problem, fix)
    assert isinstance(envs, list | tuple)
    found = []
    for given in envs:
        require(isinstance(given, str | dict), f"a mixture has no {shown(given)}", fix)
        member = from_dict(Member, {"id": given} if isinstance(given, str) else given)
        require(member.id != MIXTURE, "a mixture is no part of another one", "list all members")
        found.append(member)
    return found


def _weights(weights: object, count: int) -> np.ndarray:
    if weights is None:
        return np.ones(count)
    fix = f"pass {count} numbers, such as weights={[1.0] * count}"
    is_list = isinstance(weights, list | tuple) and len(weights) == count
    require(is_list, f"{count} environments are mixed with weights={shown(weights)}", fix)
    assert isinstance(weights, list | tuple)
    known = all(isinstance(x, int | float) and not isinstance(x, bool) for x in weights)
    numbers = np.asarray(weights if known else [-1.0], np.float64)
    fine = bool(np.isfinite(numbers).all() and (numbers >= 0).all() and numbers.sum() > 0)
    problem = f"weights must be 0 or more, and one of them more, got {shown(weights)}"
    require(fine, problem, fix)
    return numbers


def _kind(member: Member) -> str:
    """Equal for members that differ in the traced parameters of their environment alone."""
    is_traced = member.id.startswith(TRACED_PARAMS)
    own = {n: x for n, x in member.arguments.items() if not (is_traced and n == "params")}
    return json.dumps([member.id, own], sort_keys=True, default=repr)


def _joint_space(names: Sequence[str], each: Sequence[Space]) -> Space:
    """The space of all observations: boxes of one shape and dtype may have other bounds."""
    first = each[0]
    for name, space in zip(names, each, strict=True):
        require(
            space == first or (_is_box(space) and _is_box(first) and _form(space) == _form(first)),
            f"the environments of a mixture have the observation spaces {first} ({names[0]}) and"
            f" {space} ({name})",
            "mix environments with the same observations, or wrap them",
        )
    boxes = [space for space in each if isinstance(space, spaces.Box)]
    if not boxes or all(space == first for space in each):
        return first
    low = np.min([box.low for box in boxes], axis=0)
    high = np.max([box.high for box in boxes], axis=0)
    return spaces.Box(low, high, boxes[0].shape, boxes[0].dtype.type)


def _is_box(space: Space) -> bool:
    return isinstance(space, spaces.Box)


def _form(space: Space) -> tuple[Any, ...]:
    return space.shape, space.dtype
