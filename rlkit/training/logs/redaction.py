"""`redact`: settings without secrets, before they leave the run directory."""

import re
from typing import Any

REDACTED = "<redacted>"
_SECRET = re.compile(r"token|secret|password|api_?key", re.IGNORECASE)


def redact(value: object) -> Any:
    """Plain data with the texts of tokens, secrets, passwords and API keys masked.

    Numbers stay: `num_tokens=3` is a setting.
    """
    return _redacted(value, is_secret=False)


def _redacted(value: object, *, is_secret: bool) -> Any:
    if isinstance(value, dict):
        return {
            key: _redacted(item, is_secret=is_secret or _SECRET.search(str(key)) is not None)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_redacted(item, is_secret=is_secret) for item in value]
    return REDACTED if is_secret and isinstance(value, str) else value
