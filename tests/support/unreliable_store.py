"""An object store in this process of which many requests fail: `unreliable://`."""

import collections
import threading

from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import register_implementation


class UnreliableFileSystem(MemoryFileSystem):
    """Fails the first of three requests of a kind for a path, the fourth, and so on.

    It does not count requests for all paths together: of several threads that ask at once, one
    could then meet every failure until it gives up. `is_away` fails all requests.
    """

    protocol = "unreliable"
    store = {}  # noqa: RUF012 - of all instances, like that of the memory
    pseudo_dirs = [""]  # noqa: RUF012
    root_marker = "/"
    requests, is_away, lock = collections.Counter(), False, threading.Lock()

    @classmethod
    def _strip_protocol(cls, path):
        return MemoryFileSystem._strip_protocol(path.replace("unreliable://", "memory://"))

    def _request(self, kind, path):
        with self.lock:
            number = self.requests[kind, path]
            self.requests[kind, path] += 1
        if self.is_away or number % 3 == 0:
            raise ConnectionError("the network is away")


def _failing(name, path_at=0):
    def method(self, *arguments, **named):
        self._request(name, arguments[path_at])
        return getattr(MemoryFileSystem, name)(self, *arguments, **named)

    return method


for _name in ("ls", "find", "cat_file", "pipe_file", "get_file", "rm_file"):
    setattr(UnreliableFileSystem, _name, _failing(_name))
UnreliableFileSystem.put_file = _failing("put_file", path_at=1)


def register():
    """Makes `unreliable://` known to fsspec."""
    register_implementation("unreliable", UnreliableFileSystem, clobber=True)
