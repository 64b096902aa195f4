"""The contract of `JaxEnv`, checked on shapes and dtypes by `vectorize` and `check_env`.

Nothing here runs an environment: `reset` and `step` are traced once each.
"""

import dataclasses
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from rlkit.action_masks import check_mask
from rlkit.envs.base import EnvAdapter, JaxEnv, env_name, traced_params
from rlkit.envs.jittable.generators import generator_states
from rlkit.errors import EnvContractError, RlkitError, SpaceError
from rlkit.ops.strong_types import strong_types
from rlkit.spaces import (
    Space,
    abstract,
    check_action_space,
    check_observation_space,
    jax_dtype,
    leaf_tree,
    looks_channels_first,
)
from rlkit.types import Obs, PyTree

# The last line of a failed assertion is in the finding.
ASSERT_ON_TRACED = (
    "assertions on numbers do not work where they are compiled: assert shapes and dtypes alone, and"
    " check numbers in a test that calls step under jax.disable_jit()"
)
ASSERT_FAILED = (
    "look at what that line compares: while it is compiled, shapes, dtypes and attributes are"
    " known, and numbers are not"
)
PARAMS_ARE_TRACED = (
    "params are traced, so that changing them does not recompile: mark sizes and other fixed values"
    " among them with struct.field(pytree_node=False)"
)
SIX = "return (state, obs, reward, terminated, truncated, info)"


@dataclasses.dataclass(frozen=True)
class Finding:
    """One mistake: what is wrong, how to fix it and, if not obvious, why it matters.

    Errors break training, warnings may be intended, infos are advice.
    """

    severity: Literal["error", "warning", "info"]
    what: str
    fix: str
    why: str = ""

    def __str__(self) -> str:
        return f"{self.severity}: {self.what}; {self.fix}"


def finding_of(error: RlkitError) -> Finding:
    """Converts an rlkit error, "problem; fix", into a finding, without any appended traceback."""
    what, _, fix = str(error).split("\n\n")[0].rpartition("; ")
    return Finding("error", what or fix, fix.splitlines()[0] if what else "fix it")


# (function, its arguments or their shapes) -> shapes and dtypes of what it returns
Tracer = Callable[..., Any]


class TraceFailure(Exception):
    """A call that could not be traced; `finding` says why."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


def check_spaces(env: JaxEnv | EnvAdapter) -> None:
    """Raises `EnvContractError` if spaces are missing, `SpaceError` if agents cannot use them."""
    gymnax_env = found_of_gymnax(env)
    if gymnax_env is not None:
        kind = type(gymnax_env)
        is_built_in = kind.__module__.startswith("gymnax.")
        env_id = gymnax_env.name if is_built_in else f"{kind.__name__}-v0"
        register = "" if is_built_in else f"gymnax.register({env_id!r}, {kind.__name__}), then "
        raise EnvContractError(
            f"{kind.__name__} is an environment of Gymnax, which has an interface of its own; call"
            f" {register}make_env('gymnax/{env_id}', num_envs)"
        )
    for name, check in (
        ("observation_space", check_observation_space),
        ("action_space", check_action_space),
    ):
        space = getattr(env, name, None)
        if not isinstance(space, spaces.Space):
            raise EnvContractError(
                f"{env_name(env)}.{name} is {space!r}; set it to a gymnasium space, such as"
                " spaces.Box(...)"
            )
        check(space)
    check_mask(env.observation_space, env.action_space)


def found_of_gymnax(env: Any) -> Any:
    """The environment, if it is Gymnax's own kind or what `gymnax.make` returns; otherwise None."""
    first = env[0] if isinstance(env, tuple) and env else env
    has_its_interface = callable(getattr(first, "observation_space", None))
    return first if has_its_interface and hasattr(first, "default_params") else None


def space_findings(env: JaxEnv | EnvAdapter) -> Iterator[Finding]:
    """The errors of `check_spaces` as findings."""
    try:
        check_spaces(env)
    except (EnvContractError, SpaceError) as error:
        yield finding_of(error)


def observation_findings(name: str, observation_space: Space) -> Iterator[Finding]:
    """Numbers of observations that their bounds allow only one value for, and images whose
    channels seem to come first.
    """
    for path, space in jax.tree.leaves_with_path(leaf_tree(observation_space)):
        if not isinstance(space, spaces.Box):
            continue
        if looks_channels_first(space):
            yield Finding(
                "warning",
                f"{name} observation{jax.tree_util.keystr(path)} has shape {space.shape}, which"
                " looks channels-first",
                "return np.moveaxis(obs, 0, -1), and declare the space accordingly",
                "rlkit's convolutions expect images as [height, width, channels]",
            )
        fixed = np.argwhere(space.low == space.high)
        if len(fixed):
            first = [int(i) for i in fixed[0]]
            yield Finding(
                "warning",
                f"{name} observation{jax.tree_util.keystr(path)} has low = high in {len(fixed)} of"
                f" {space.low.size} numbers, such as {first} ({space.low[tuple(first)]})",
                "correct the bounds of observation_space, or leave constant numbers out",
                "what never changes tells an agent nothing, and images are scaled by their bounds",
            )


def trace_findings(
    env: JaxEnv, name: str | None = None, *, by: Tracer = jax.eval_shape
) -> Iterator[Finding]:
    """Mistakes seen while tracing `reset` and `step` once, up to the first that would hide others.

    Where there are `params`, once more with these traced. The spaces must be valid. `name` is what
    to call it (None: `env_name`).
    """
    name = name or env_name(env)
    key = jax.eval_shape(lambda: jax.random.key(0))
    try:
        reset = trace(f"{name}.reset", env.reset, key, by=by)
        if not (isinstance(reset, tuple) and len(reset) == 2):
            yield Finding(
                "error",
                f"{name}.reset returned {_count(reset)}, not (state, obs)",
                "return (state, obs)",
            )
            return
        state, obs = reset
        if fits(env.observation_space, state) and not fits(env.observation_space, obs):
            what = (
                f"{name}.reset returned (obs, state): the first value fits the observation space,"
                " the second does not"
            )
            yield Finding("error", what, "return (state, obs)")
            return
        yield from _obs_findings(f"{name}.reset observation", env.observation_space, obs)
        step = trace(f"{name}.step", env.step, key, state, abstract(env.action_space), by=by)
    except TraceFailure as failure:
        yield failure.finding
        return
    if isinstance(step, tuple) and len(step) == 6:
        yield from _step_findings(env, name, state, step)
        yield from _params_findings(env, name, key, state)
    else:
        yield Finding(
            "error", f"{name}.step returned {_count(step)} instead of six", _tuple_fix(step)
        )


def _params_findings(env: JaxEnv, name: str, key: PyTree, state: PyTree) -> Iterator[Finding]:
    """An error if `reset` or `step` cannot be traced with other params, as every run does it."""
    params = traced_params(env)
    if not jax.tree.leaves(params):
        return

    def bound(params: PyTree) -> JaxEnv:
        return env.replace_params(strong_types(params))  # pyright: ignore[reportAttributeAccessIssue]

    def reset(params: PyTree, key: PyTree) -> Any:
        return bound(params).reset(key)

    def step(params: PyTree, key: PyTree, state: PyTree, action: PyTree) -> Any:
        return bound(params).step(key, state, action)

    action = abstract(env.action_space)
    try:
        trace(f"{name}.reset with traced params", reset, params, key)
        trace(f"{name}.step with traced params", step, params, key, state, action)
    except TraceFailure as failure:
        yield dataclasses.replace(failure.finding, fix=PARAMS_ARE_TRACED)


def _step_findings(
    env: JaxEnv, name: str, state: PyTree, step: tuple[Any, ...]
) -> Iterator[Finding]:
    next_state, obs, reward, terminated, truncated, info = step
    if fits(env.observation_space, next_state) and not fits(env.observation_space, obs):
        yield Finding(
            "error",
            f"{name}.step returned (obs, state, ...): its first value fits the observation space",
            SIX,
        )
        return
    yield from _obs_findings(f"{name}.step observation", env.observation_space, obs)
    for label, value in (("reward", reward), ("terminated", terminated), ("truncated", truncated)):
        shape = getattr(value, "shape", None)
        if shape != ():
            problem = f"has shape {shape}" if shape is not None else f"is a {type(value).__name__}"
            yield Finding(
                "error",
                f"{name}.step {label} {problem}",
                "return a scalar: a JaxEnv is a single environment without a batch axis",
            )
        elif label != "reward" and not np.issubdtype(value.dtype, np.bool_):
            yield Finding(
                "error",
                f"{name}.step {label} is {value.dtype}, not bool",
                f"{SIX}, with boolean flags",
            )
    yield from _info_findings(env, name, info)
    yield from _state_findings(name, state, next_state)


def _info_findings(env: JaxEnv, name: str, info: Any) -> Iterator[Finding]:
    if not isinstance(info, dict):
        yield Finding(
            "error",
            f"{name}.step info is a {type(info).__name__}",
            "return a dict of arrays, {} if there is none",
        )
        return
    for path, value in jax.tree.leaves_with_path(info, is_leaf=_is_structure):
        if _is_structure(value):
            yield Finding(
                "error",
                f"{name}.step info{jax.tree_util.keystr(path)} is a {type(value).__name__}",
                "return an array, or a dict of arrays: logs have a name for each number",
            )
        elif jnp.issubdtype(value.dtype, jax.dtypes.extended):
            yield Finding(
                "error",
                f"{name}.step info{jax.tree_util.keystr(path)} is a {value.dtype}, not numbers",
                "leave it out, or return jax.random.key_data(key)",
            )
    if getattr(env, "auto_reset", False):
        if "final_observation" in info:
            yield from _obs_findings(
                f'{name}.step info["final_observation"]',
                env.observation_space,
                info["final_observation"],
            )
        else:
            what = f"{name} sets auto_reset=True but info has no 'final_observation'"
            yield Finding("error", what, "put the observation from before the reset there")


def _is_structure(node: object) -> bool:
    """Whether it is a container that is no dict, list or plain tuple, such as a dataclass."""
    is_plain = node is None or isinstance(node, dict | list) or type(node) is tuple
    return not is_plain and not jax.tree_util.all_leaves([node])


def _state_findings(name: str, before: PyTree, after: PyTree) -> Iterator[Finding]:
    if jax.tree.structure(before) != jax.tree.structure(after):
        what = (
            f"{name}.step changes the state's structure from {jax.tree.structure(before)} to"
            f" {jax.tree.structure(after)}"
        )
        yield Finding("error", what, "return the same fields as reset")
        return
    weak = []
    for (path, old), new in zip(
        jax.tree.leaves_with_path(before), jax.tree.leaves(after), strict=True
    ):
        leaf = f"state{jax.tree_util.keystr(path)}"
        if old.shape != new.shape or old.dtype != new.dtype:
            what = (
                f"{name}.step changes {leaf} from {old.dtype}{list(old.shape)} to"
                f" {new.dtype}{list(new.shape)}"
            )
            yield Finding(
                "error", what, "keep shape and dtype, for example with jnp.asarray(x, old.dtype)"
            )
        elif old.weak_type != new.weak_type:
            weak.append(leaf)
    if weak:
        what = (
            f"{name}.step changes the weak type of {', '.join(weak)}: a jitted loop compiles twice"
        )
        yield Finding(
            "warning",
            what,
            "write jnp.int32(0) instead of 0 in reset, and so on (vectorize does it for you)",
        )


def _obs_findings(label: str, space: Space, obs: Obs) -> Iterator[Finding]:
    """Differences in structure, shape and dtype between an observation and its space."""
    leaves = leaf_tree(space)
    if jax.tree.structure(leaves) != jax.tree.structure(obs):
        what = f"{label} is structured {jax.tree.structure(obs)}, but its space is {space}"
        yield Finding("error", what, "make them agree: dict for Dict, tuple for Tuple")
        return
    values = zip(jax.tree.leaves_with_path(leaves), jax.tree.leaves(obs), strict=True)
    for (path, leaf), value in values:
        name, dtype = label + jax.tree_util.keystr(path), jax_dtype(leaf)
        if tuple(value.shape) != leaf.shape:
            yield Finding(
                "error",
                f"{name} has shape {tuple(value.shape)}, but its space has {leaf.shape}",
                "make them agree",
            )
        elif value.dtype != dtype:
            lossy = np.issubdtype(value.dtype, np.floating) and not np.issubdtype(
                dtype, np.floating
            )
            what = (
                f"{name} is {value.dtype}, but its space has"
                f" {dtype}{': fractions would be cut off' if lossy else ''}"
            )
            yield Finding(
                "error" if lossy else "warning",
                what,
                f"return jnp.asarray(obs, jnp.{dtype}) or change the space",
            )


def trace(
    label: str, function: Callable[..., Any], *arguments: Any, by: Tracer = jax.eval_shape
) -> Any:
    """Shapes and dtypes of what `function` returns, without running it.

    Raises `TraceFailure`, which names the failing line, and also if `function` draws from a
    generator of NumPy or Python, see `generator_states`: compiled, it would return the same number
    for ever. One that it makes itself is not noticed here, but by `check_env`.
    """
    before = generator_states(function)
    try:
        # a new function each time, so nothing is cached
        found = by(lambda *args: function(*args), *arguments)
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:
        what = (
            f"{label} cannot be compiled: {where(error)} needs the value of an array while tracing"
            f" ({type(error).__name__})"
        )
        fix = (
            "use jnp.where or jax.lax.cond instead of if, jax.lax.while_loop instead of while, jnp"
            " instead of numpy or float()"
        )
        if "`assert" in where(error):
            fix = ASSERT_ON_TRACED
        raise TraceFailure(Finding("error", what, fix)) from error
    except Exception as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        what = f"{label} raises {type(error).__name__} at {where(error)}: {reason}"
        only_arrays = "fix that line; reset and step may only return arrays and numbers"
        fix = ASSERT_FAILED if isinstance(error, AssertionError) else only_arrays
        raise TraceFailure(Finding("error", what, fix)) from error
    after = generator_states(function)
    if drawn := [name for name, state in after.items() if name in before and state != before[name]]:
        what = f"{label} draws from {' and '.join(drawn)}: compiled, it repeats one number for ever"
        raise TraceFailure(Finding("error", what, "draw from the key, with jax.random"))
    return found


def where(error: BaseException) -> str:
    """The last line of the user's code in the traceback of `error`."""
    checking = Path(__file__).parents[1] / "checking"
    inside = (str(Path(jax.__file__).parent), __file__, str(checking))
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(inside)
    ]
    return (
        f"{Path(frames[-1].filename).name}:{frames[-1].lineno} `{frames[-1].line}`"
        if frames
        else "its call"
    )


def fits(space: Space, value: PyTree) -> bool:
    """Whether `value` has the structure and the shapes of an observation of `space`."""
    wanted = jax.tree.leaves_with_path(leaf_tree(space))
    actual = jax.tree.leaves_with_path(value)
    return [(path, leaf.shape) for path, leaf in wanted] == [
        (path, tuple(np.shape(x))) for path, x in actual
    ]


def _count(value: object) -> str:
    return f"{len(value)} values" if isinstance(value, tuple) else f"a {type(value).__name__}"


def _tuple_fix(step: object) -> str:
    known = {
        4: "this is the old Gym order (obs, reward, done, info)",
        5: "this is the Gymnasium order (no state) or that of Gymnax's step_env (no truncated)",
    }
    hint = known.get(len(step)) if isinstance(step, tuple) else None
    return f"{hint}: {SIX}, with time limits reported as truncated" if hint else SIX
