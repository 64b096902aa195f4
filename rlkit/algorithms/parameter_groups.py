"""Top-level groups of parameters: None for all, one name, or several."""

from rlkit.types import Params, PyTree

Group = str | tuple[str, ...] | None


def group_names(group: Group) -> tuple[str | None, ...]:
    """The names in a group; (None,) for all parameters."""
    return group if isinstance(group, tuple) else (group,)


def select_group(params: Params, group: Group) -> PyTree:
    """The parameters of a group, by name if there are several."""
    if group is None:
        return params
    return params[group] if isinstance(group, str) else {name: params[name] for name in group}


def replace_group(params: Params, group: Group, part: PyTree) -> Params:
    """`params` with `part` in place of what `select_group` returns."""
    if group is None:
        return part
    return {**params, **({group: part} if isinstance(group, str) else part)}
