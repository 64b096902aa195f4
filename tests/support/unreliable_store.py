"""An object store in this process of which every third request fails: `unreliable://`."""

import itertools
import threading

from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import register_implementation


class UnreliableFileSystem(MemoryFileSystem):
    """Fails before every third request; `is_away` fails them all."""

    protocol = "unreliable"
    store = {}  # noqa: RUF012 - of all instances, like that of the memory
    pseudo_dirs = [""]  # noqa: RUF012
    root_marker = "/"
    requests, is_away, lock = itertools.count(1), False, threading.Lock()

    @classmethod
    def _strip_protocol(cls, path):
        return MemoryFileSystem._strip_protocol(path.replace("unreliable://", "memory://"))

    def _request(self):
        with self.lock:
            number = next(self.requests)
        if self.is_away or number % 3 == 0:
            raise ConnectionError("the network is away")


def _failing(name):
    def method(self, *arguments, **named):
        self._request()
        return getattr(MemoryFileSystem, name)(self, *arguments, **named)

    return method


for _name in ("ls", "find", "cat_file", "pipe_file", "put_file", "get_file", "rm_file"):
    setattr(UnreliableFileSystem, _name, _failing(_name))


def register():
    """Makes `unreliable://` known to fsspec."""
    register_implementation("unreliable", UnreliableFileSystem, clobber=True)
