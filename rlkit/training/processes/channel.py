"""Short texts between processes, through the service that JAX runs in process 0."""

import json
from typing import Any

import jax

from rlkit.validation import PlainData

_ROOT = "rlkit"
_SLICE = 1000  # milliseconds that a call waits at most, so that signals are handled


class Channel:
    """Keys and plain values that all processes see."""

    def __init__(self, client: Any):
        self._client = client

    def put(self, key: str, value: PlainData) -> None:
        """Writes a value, also over an older one."""
        text = json.dumps(value)
        self._client.key_value_set(f"{_ROOT}/{key}", text, allow_overwrite=True)

    def get(self, key: str) -> PlainData | None:
        """The value of a key; None if nobody wrote one within a second, or nobody answers."""
        try:
            return json.loads(self._client.blocking_key_value_get(f"{_ROOT}/{key}", _SLICE))
        except jax.errors.JaxRuntimeError:
            return None

    def all(self, folder: str) -> dict[str, PlainData]:
        """What is written below a folder, by the last part of the key."""
        found = self._client.key_value_dir_get(f"{_ROOT}/{folder}/")
        return {key.rpartition("/")[2]: json.loads(text) for key, text in found}

    def delete(self, key: str) -> None:
        """Forgets a key."""
        self._client.key_value_delete(f"{_ROOT}/{key}")
