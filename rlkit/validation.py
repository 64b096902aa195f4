"""Validates configs against their annotations, before anything compiles.

Configs are frozen stdlib dataclasses with limits such as `Annotated[float, Gt(0)]`. Floats may be
tracers, whose limits are not checked, so that an algorithm can be built from traced hyperparameters
inside `jax.vmap`.
"""

import dataclasses
import functools
import json
import os
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

from annotated_types import Ge, Gt, Le, Lt
from pydantic import ConfigDict, TypeAdapter, ValidationError

from rlkit.errors import ConfigError, did_you_mean, require, shown
from rlkit.whole_numbers import as_whole

C = TypeVar("C")
Unchecked = Annotated[Any, "not settings"]  # a field for environments and other live objects
COUNT_LIMIT = 2**31  # JAX counts and indexes in int32
Count = Annotated[int, Ge(0), Lt(COUNT_LIMIT)]
PositiveInt = Annotated[int, Gt(0), Lt(COUNT_LIMIT)]
LargeCount = Annotated[int, Gt(0), Le(10**15)]  # counted in two words, or limited by memory
MAX_EPISODES = 1_000_000
Episodes = Annotated[int, Gt(0), Le(MAX_EPISODES)]  # of one evaluation, which none can interrupt
PlainData = dict[str, Any]  # what YAML and JSON hold: numbers, text, lists and dicts, by name


def validate(config: C) -> C:
    """Returns `config` if every field agrees with its annotation, as plain data where it can be.

    NumPy's and JAX's numbers become Python's, so that what counts with settings need not know those
    that overflow; a `pathlib.Path` becomes text. Each number of an array must agree; those of a
    tracer are not known, and only floats may be tracers. Nested dataclasses are checked too. Raises
    `ConfigError` naming the field, its limits and its value, or if `config` is no config at all.
    """
    if isinstance(config, type):
        raise ConfigError(
            f"settings must be an instance, got the class {config.__name__}; add parentheses:"
            f" {config.__name__}()"
        )
    if not dataclasses.is_dataclass(config):
        raise ConfigError(
            f"settings must be an instance of a config class, got {shown(config)}; pass for example"
            " TrainerConfig(total_steps=100_000) or PPOConfig(learning_rate=1e-3)"
        )
    plain = {}
    for name, annotation in field_annotations(type(config)).items():
        if annotation == Unchecked:
            continue
        given = getattr(config, name)
        value = _plain(given)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = validate(value)
        elif isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
            raise ConfigError(
                f"{type(config).__name__}.{name} must be a {annotation.__name__}, got"
                f" {shown(value)}; pass an instance"
            )
        else:
            values = [value]
            if _holds(annotation, float):
                values = _known(value)
            else:
                require_known(f"{type(config).__name__}.{name}", value)
            for each in values:
                _check_field(type(config).__name__, name, annotation, each)
        if value is not given:
            plain[name] = value
    checked: Any = config  # a dataclass, as was required
    return dataclasses.replace(checked, **plain) if plain else checked


def settings(config: C | None, kind: type[C]) -> C:
    """`config` if it is a valid `kind`; None: its defaults. Raises `ConfigError` otherwise."""
    config = kind() if config is None else config
    if isinstance(config, dict):  # else `validate` says what it is
        arguments = ", ".join(f"{name}={shown(value)}" for name, value in config.items())
        raise ConfigError(
            f"settings must be a {kind.__name__}, got a dict; pass {kind.__name__}({arguments})"
        )
    is_other = dataclasses.is_dataclass(config) and not isinstance(config, (type, kind))
    require(
        not is_other,
        f"settings must be a {kind.__name__}, got a {type(config).__name__}",
        f"pass {kind.__name__}(...)",
    )
    return validate(config)


def from_dict(kind: type[C], values: object) -> C:
    """Builds a config of type `kind` from plain data (as read from YAML or JSON).

    Whole numbers may be written as flags take them: 1e6, 100k.

    Raises `ConfigError` for unknown keys (with the nearest known one), wrong types and out-of-range
    values.
    """
    if not isinstance(values, dict):
        raise ConfigError(
            f"{kind.__name__} needs a mapping of field names to values, got {shown(values)}; use"
            " `field: value` lines"
        )
    annotations = field_annotations(kind)
    arguments = {}
    for name, value in values.items():
        if name not in annotations:
            raise ConfigError(
                f"{kind.__name__} has no field {name!r}; {did_you_mean(name, annotations)}"
            )
        arguments[name] = _from_plain(kind.__name__, name, annotations[name], value)
    try:
        return validate(kind(**arguments))
    except TypeError as error:
        raise ConfigError(
            f"{kind.__name__} is incomplete: {error}; add the missing fields"
        ) from None


def to_dict(config: Any) -> PlainData:
    """The config as JSON data: `from_dict(type(config), to_dict(config)) == config`."""
    return json.loads(json.dumps(dataclasses.asdict(config), default=_plain_scalar))


def is_array(value: object) -> bool:
    """Whether `value` is a NumPy or JAX array or a tracer; imports neither library."""
    return hasattr(value, "dtype") and hasattr(value, "shape")


def is_numpy(value: object) -> bool:
    """Whether `value` is a NumPy array or scalar, whose limits can be checked (unlike a tracer)."""
    return is_array(value) and type(value).__module__ == "numpy"


def require_known(name: str, value: object) -> None:
    """Raises `ConfigError` for a tracer in a setting that shapes and loops depend on."""
    require(
        not _is_tracer(value),
        f"{name} decides what is compiled, so jax.vmap and jax.jit cannot vary it",
        "loop over its values in Python, or use rlkit sweep; floats such as learning_rate can",
    )


def _plain(value: Any) -> Any:
    """The value with Python's numbers, lists and text in place of other libraries'; or itself.

    JAX's arrays of several numbers and its tracers stay as they are.
    """
    if is_numpy(value) or (_is_jax(value) and value.shape == ()):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, tuple):
        plain = tuple(map(_plain, value))
        is_same = all(new is old for new, old in zip(plain, value, strict=True))
        return value if is_same else plain
    return value


def _is_jax(value: object) -> bool:
    """Whether it is an array of JAX's, whose numbers are known (unlike those of a tracer)."""
    return is_array(value) and type(value).__name__ == "ArrayImpl"


def _known(value: Any) -> list[Any]:
    """The value, or the numbers of an array of JAX's; none of a tracer, which has none yet."""
    if _is_tracer(value):
        return []
    return value.__array__().ravel().tolist() if _is_jax(value) else [value]


def _is_tracer(value: object) -> bool:
    return is_array(value) and any(each.__name__ == "Tracer" for each in type(value).__mro__)


def _holds(annotation: Any, kind: type) -> bool:
    """Whether an annotation admits values of `kind`, limits aside."""
    parts = typing.get_args(annotation)
    return annotation in (kind, Any) or any(_holds(part, kind) for part in parts)


def _check_field(owner: str, name: str, annotation: Any, value: object) -> None:
    try:
        _adapter(annotation).validate_python(value, strict=True)
    except ValidationError as error:
        raise ConfigError(_explain(owner, name, error)) from None
    _require_float32(f"{owner}.{name}", value)


@functools.cache
def field_annotations(kind: type) -> dict[str, Any]:
    """The resolved annotations of all fields of the dataclass `kind`, including limits."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


@functools.cache
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(
        annotation, config=ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False)
    )


def _from_plain(owner: str, name: str, annotation: object, value: object) -> Any:
    nested = [
        kind
        for kind in (annotation, *typing.get_args(annotation))
        if dataclasses.is_dataclass(kind)
    ]
    if nested and isinstance(value, dict):
        return from_dict(typing.cast(type, nested[0]), value)
    if dataclasses.is_dataclass(annotation):
        raise ConfigError(
            f"{owner}.{name} needs a mapping of field names to values, got {shown(value)}; use"
            " `field: value` lines"
        )
    try:  # JSON mode: lists become tuples, everything else is strict
        text = json.dumps(as_whole(annotation, value), default=_plain_scalar)
        return _adapter(annotation).validate_json(text, strict=True)
    except TypeError:
        raise ConfigError(
            f"{owner}.{name} must be plain data, got {shown(value)}; use numbers, strings, lists"
        ) from None
    except ValidationError as error:
        raise ConfigError(_explain(owner, name, error)) from None


def _require_float32(place: str, value: object) -> None:
    """Raises `ConfigError` for numbers that become 0 or infinity in JAX's arithmetic."""
    for number in value if isinstance(value, (tuple, list)) else (value,):
        size = abs(number) if isinstance(number, float) else 0.0
        require(
            size == 0.0 or 1e-37 < size < 3e38,
            f"{place}: {number!r} is too {'large' if size > 1 else 'small'} for float32",
            "use a number between 1e-37 and 3e38",
        )


def _explain(owner: str, name: str, error: ValidationError) -> str:
    details = error.errors()
    wanted = " or ".join(dict.fromkeys(map(_wanted, details)))
    place, given = ".".join([owner, name]), details[0]["input"]
    cure = f"; pass {shown(tuple(given))}" if _is_list_for_tuple(details, given) else ""
    return f"{place}: {wanted}, got {shown(given)}{cure}"


def _wanted(item: Mapping[str, Any]) -> str:
    """Pydantic's words, which name tuples where the command line knows lists."""
    if item["type"] == "too_short":
        least = item["ctx"]["min_length"]
        return f"needs at least {least} value{'s' * (least > 1)}"
    return item["msg"][0].lower() + item["msg"][1:]


def _is_list_for_tuple(details: Sequence[Mapping[str, Any]], given: object) -> bool:
    return isinstance(given, list) and any(item["type"] == "tuple_type" for item in details)


def _plain_scalar(value: Any) -> Any:
    if is_array(value):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{value!r} cannot be converted to plain data")
