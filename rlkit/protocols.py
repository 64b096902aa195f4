"""Whether an object follows a protocol, the same way in every version of Python."""

from typing import TypeVar

from typing_extensions import TypeIs, get_protocol_members

P = TypeVar("P")
_ABSENT = object()


def follows(what: object, protocol: type[P]) -> TypeIs[P]:
    """Whether `what` has every member of the protocol, also by passing on those of another object.

    From Python 3.12, `isinstance` overlooks members that `__getattr__` passes on, as wrappers do. A
    method that is None is absent, as for `isinstance`.
    """
    return all(_has(what, protocol, name) for name in get_protocol_members(protocol))


def _has(what: object, protocol: type, name: str) -> bool:
    found = getattr(what, name, _ABSENT)
    is_method = callable(getattr(protocol, name, None))
    return found is not _ABSENT and not (found is None and is_method)
