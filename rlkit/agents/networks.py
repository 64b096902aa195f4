"""The one place that turns a Flax NNX module into `Network(init, apply)` on plain pytrees."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
from flax import linen, nnx, traverse_util
from jax import Array

from rlkit.agents import first_weights
from rlkit.agents.configs import NetworkConfig, Precision
from rlkit.errors import ConfigError, require
from rlkit.types import Key, Obs, Params, PyTree, Sequences

Outputs = TypeVar("Outputs")
TorsoBuilder = Callable[[nnx.Rngs], Callable[..., Any]]
"""`torso(rngs)`: an `nnx.Module` that maps observations [B, ...] to features [B, F], or a
`MemoryTorso`.
"""


@dataclasses.dataclass(frozen=True)
class Network(Generic[Outputs]):
    """A module as pure functions: `init(key) -> params`, `apply(params, *inputs) -> outputs`.

    `module(params)` is the Flax module with these parameters, for losses that call other methods or
    parts of it than `apply`. It computes with the precision of the parameters that it gets.
    """

    init: Callable[[Key], Params]
    apply: Callable[..., Outputs]
    module: Callable[[Params], Any]


def make_network(
    build: Callable[[nnx.Rngs], Callable[..., Outputs]],
    config: NetworkConfig | None = None,
    *,
    method: str = "__call__",
) -> Network[Outputs]:
    """The module that `build(rngs)` returns, as a `Network` whose params are plain nested dicts.

    `apply` calls that `method` of the module.

    The parameters are float32; `apply` computes with `config.precision` and returns float32. What
    stays float32 in between are last layers (`Linear`) and a memory that says so (`MinGRU`).
    The module is built once, without computing anything. `init` draws the initial weights of
    rlkit's own layers in one go, as `config.weight_init` says; for other layers, such as
    `nnx.Linear`, it builds the module again. Raises `ConfigError` if the module keeps anything but
    `nnx.Param` (batch statistics, dropout keys), since a policy must be a pure function of its
    parameters, or if it changes initial weights of rlkit's layers, which are drawn later, instead
    of replacing them.
    """
    config = config or NetworkConfig()
    precision = config.precision
    module = nnx.eval_shape(lambda: build(nnx.Rngs(0)))
    graphdef, state, rest = nnx.split(module, nnx.Param, ...)
    others = sorted({type(variable).__name__ for _, variable in nnx.to_flat_state(rest)})
    require(
        not others,
        f"{type(module).__name__} keeps {', '.join(others)} besides its parameters",
        "use layers whose only state is nnx.Param (LayerNorm rather than BatchNorm, no Dropout)",
    )
    params = dict(nnx.to_flat_state(state))
    exact = {path for path, param in params.items() if param.get_metadata("is_exact", False)}
    has_exact_memory = any(
        getattr(part, "is_exact_memory", False) for _, part in nnx.iter_graph(module)
    )
    wanted = first_weights.redescribed(first_weights.descriptions(params), config.weight_init)
    if replaced := first_weights.replaced(params):
        _require_whole_values(build, replaced)

    def merged(params: Params) -> Any:
        return nnx.merge(graphdef, params)

    def init(key: Key) -> Params:
        drawn_key, own_key = jax.random.split(key)
        weights = first_weights.draw(drawn_key, wanted)
        if len(wanted) < len(params):
            built = nnx.to_flat_state(nnx.state(build(nnx.Rngs(own_key)), nnx.Param))
            weights = {path: param.get_value() for path, param in built} | weights
        return traverse_util.unflatten_dict({path: weights[path] for path in params})

    def apply(params: Params, *inputs: PyTree) -> Outputs:
        if precision == "float32":
            return getattr(merged(params), method)(*inputs)
        return _cast(getattr(merged(rounded(params)), method)(*map(seen, inputs)), "float32")

    def rounded(params: Params) -> Params:
        flat = traverse_util.flatten_dict(params)
        return traverse_util.unflatten_dict(
            {path: x if path in exact else _cast(x, precision) for path, x in flat.items()}
        )

    def seen(given: PyTree) -> PyTree:
        cast = _cast(given, precision)
        if has_exact_memory and isinstance(given, Sequences):
            return cast.replace(carry=given.carry)
        return cast

    return Network(init, apply, merged)


def _cast(tree: PyTree, precision: Precision) -> Any:
    """The same tree, with floats of that precision; integers stay as they are."""

    def cast(x: Array) -> Array:
        return x.astype(precision) if jnp.issubdtype(x.dtype, jnp.floating) else x

    return jax.tree.map(cast, tree)


def _require_whole_values(
    build: Callable[[nnx.Rngs], Callable[..., Outputs]], paths: Sequence[tuple[object, ...]]
) -> None:
    """Raises `ConfigError` if a value that a module gives to rlkit's layer depends on the initial
    one, which is NaN until `make_network` draws it.
    """
    with jax.ensure_compile_time_eval():
        built = nnx.to_flat_state(nnx.state(build(nnx.Rngs(0)), nnx.Param))
        params: dict[tuple[object, ...], nnx.Param] = dict(built)
        for path in paths:
            require(
                not jnp.isnan(params[path].get_value()).any(),
                f"the module changes the initial weights {'.'.join(map(str, path))} of rlkit's"
                " layer, which are drawn only after it is built",
                "assign the whole array, from values of your own, or use nnx.Linear",
            )


def require_builder(build: TorsoBuilder) -> None:
    """Raises `ConfigError` for what is often passed in place of `torso(rngs)`."""
    kind = build if isinstance(build, type) else type(build)
    name = kind.__name__
    require(
        not issubclass(kind, linen.Module),
        f"the torso {name} is a module of flax.linen",
        "write it as an nnx.Module, and pass its class",
    )
    require(
        not isinstance(build, nnx.Module),
        f"the torso is a {name} that was built already, and each network needs one of its own",
        f"pass a function of rngs that builds it, such as torso={name}",
    )


def out_features(build: TorsoBuilder, example: Obs) -> int:
    """The number of features that the module built by `build` returns; runs nothing.

    `example` is a batch of observations. Raises `ConfigError` unless the output is one array
    [B, features].
    """
    try:
        out = jax.eval_shape(lambda obs: build(nnx.Rngs(0))(obs), example)
    except Exception as error:
        raise ConfigError(
            f"the torso fails on a batch of observations ({type(error).__name__}: {error});"
            " torso(rngs) must return a module that maps obs [B, ...], which have no action mask,"
            " to [B, features]"
        ) from error
    batch = jax.tree.leaves(example)[0].shape[0]
    shape = getattr(out, "shape", None)
    require(
        shape is not None and len(shape) == 2 and shape[0] == batch,
        f"the torso maps a batch of {batch} observations to {shape}",
        "return one array [B, features]",
    )
    return out.shape[-1]
