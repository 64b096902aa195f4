"""The exported policy, run by ONNX Runtime: `Policy()(obs)`. Needs numpy and onnxruntime only."""

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

    def __call__(self, obs):
        """The best actions [N, ...] for raw observations [N, ...], dicts if the spaces are."""
        arrays = {}
        for each in self.manifest["inputs"]:
            leaf = obs
            for part in each["path"]:
                leaf = leaf[part]
            arrays[each["name"]] = np.asarray(leaf, each["dtype"])
        return in_structure(self.manifest["action_space"], iter(self.session.run(None, arrays)))


def in_structure(space, arrays):
    """The next arrays, in the structure of a space of the manifest: a dict, a tuple or just one."""
    if space["type"] == "Dict":
        return {name: in_structure(part, arrays) for name, part in space["spaces"].items()}
    if space["type"] == "Tuple":
        return tuple(in_structure(part, arrays) for part in space["spaces"])
    return np.asarray(next(arrays))
