"""Whether an object follows a protocol, the same way in every version of Python."""

from typing import TypeVar

from typing_extensions import TypeIs, get_protocol_members

P = TypeVar("P")


def follows(what: object, protocol: type[P]) -> TypeIs[P]:
    """Whether `what` has every member of the protocol, also by passing on those of another object.

    From Python 3.12, `isinstance` overlooks members that `__getattr__` passes on, as wrappers do.
    """
    return all(hasattr(what, name) for name in get_protocol_members(protocol))
