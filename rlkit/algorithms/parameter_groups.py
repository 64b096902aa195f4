"""Top-level groups of parameters: None for all, one name, or several."""

from collections.abc import Mapping

from rlkit.errors import did_you_mean, require
from rlkit.types import Params, PyTree

Group = str | tuple[str, ...] | None


def group_names(group: Group) -> tuple[str | None, ...]:
    """The names in a group; (None,) for all parameters."""
    return tuple(group) if isinstance(group, tuple | list) else (group,)


def select_group(params: Params, group: Group) -> PyTree:
    """The parameters of a group, by name if there are several.

    Raises `ConfigError` for a name that they do not have.
    """
    if group is None:
        return params
    known = params if isinstance(params, Mapping) else {}
    unknown = [str(name) for name in group_names(group) if name not in known]
    require(
        not unknown,
        f"a gradient step or the targets name the parameters {', '.join(map(repr, unknown))}, which"
        " the agent does not have",
        did_you_mean(unknown[0] if unknown else "", map(str, known)),
    )
    return params[group] if isinstance(group, str) else {name: params[name] for name in group}


def replace_group(params: Params, group: Group, part: PyTree) -> Params:
    """`params` with `part` in place of what `select_group` returns."""
    if group is None:
        return part
    return {**params, **({group: part} if isinstance(group, str) else part)}
