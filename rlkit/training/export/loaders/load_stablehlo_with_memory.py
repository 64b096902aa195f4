"""The exported policy, run by JAX, with memory. Needs jax only."""

import json
from pathlib import Path

import jax
import numpy as np


class Policy:
    """The policy in `folder`, by default the one that this file is in."""

    def __init__(self, folder=Path(__file__).parent):
        self.manifest = json.loads((Path(folder) / "manifest.json").read_text())
        files = (Path(folder) / self.manifest["files"][name] for name in ("stablehlo", "sampled"))
        loaded = (jax.export.deserialize(bytearray(file.read_bytes())) for file in files)
        self.best, self.sampled = (jax.jit(each.call) for each in loaded)

    def start(self, size):
        """The memory at the start of `size` episodes: arrays [size, ...].

        Pass it to the first call, and to each call what the last one returned. Where an episode
        ended, replace the rows by those of `start(1)`.
        """
        found = []
        for each in self.manifest["memory"]:
            memory = np.empty((size, *each["shape"][1:]), each["dtype"])
            memory[:] = each["first"]
            found.append(memory)
        return found

    def __call__(self, obs, memory, seed=None):
        """(actions [N, ...], new memory) for raw observations [N, ...] and the memory.

        The best actions, or sampled ones with a seed.
        """
        arrays = []
        for each in self.manifest["inputs"]:
            leaf = obs
            for part in each["path"]:
                leaf = leaf[part]
            arrays.append(np.asarray(leaf, each["dtype"]))
        if seed is None:
            found = iter(self.best(*arrays, *memory))
        else:
            key = jax.random.key_data(jax.random.key(seed, impl="threefry2x32"))
            found = iter(self.sampled(key, *arrays, *memory))
        return in_structure(self.manifest["action_space"], found), list(found)


def in_structure(space, arrays):
    """The next arrays, in the structure of a space of the manifest: a dict, a tuple or just one."""
    if space["type"] == "Dict":
        return {name: in_structure(part, arrays) for name, part in space["spaces"].items()}
    if space["type"] == "Tuple":
        return tuple(in_structure(part, arrays) for part in space["spaces"])
    return np.asarray(next(arrays))
