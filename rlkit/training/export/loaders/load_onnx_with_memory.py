"""The exported policy, run by ONNX Runtime, with memory. Needs numpy and onnxruntime only."""

import json
from pathlib import Path

import numpy as np
import onnxruntime


class Policy:
    """The policy in `folder`, by default the one that this file is in."""

    def __init__(self, folder=Path(__file__).parent, providers=("CPUExecutionProvider",)):
        self.manifest = json.loads((Path(folder) / "manifest.json").read_text())
        model = Path(folder) / self.manifest["files"]["onnx"]
        self.session = onnxruntime.InferenceSession(model, providers=list(providers))

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

    def __call__(self, obs, memory):
        """(best actions [N, ...], new memory) for raw observations [N, ...] and the memory."""
        arrays = {f"memory.{i}": x for i, x in enumerate(memory)}
        for each in self.manifest["inputs"]:
            leaf = obs
            for part in each["path"]:
                leaf = leaf[part]
            arrays[each["name"]] = np.asarray(leaf, each["dtype"])
        found = iter(self.session.run(None, arrays))
        return in_structure(self.manifest["action_space"], found), list(found)


def in_structure(space, arrays):
    """The next arrays, in the structure of a space of the manifest: a dict, a tuple or just one."""
    if space["type"] == "Dict":
        return {name: in_structure(part, arrays) for name, part in space["spaces"].items()}
    if space["type"] == "Tuple":
        return tuple(in_structure(part, arrays) for part in space["spaces"])
    return np.asarray(next(arrays))
