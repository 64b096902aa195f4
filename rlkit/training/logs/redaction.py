"""`redact`: settings without secrets, before they leave the run directory."""

import re
from typing import Any

_SECRET = re.compile(r"token|secret|password|api_?key", re.IGNORECASE)


def redact(value: object) -> Any:
    """Plain data with the values of tokens, secrets, passwords and API keys masked."""
    if isinstance(value, dict):
        return {
            key: "<redacted>" if _SECRET.search(str(key)) else redact(item)
            for key, item in value.items()
        }
    return [redact(item) for item in value] if isinstance(value, list | tuple) else value
