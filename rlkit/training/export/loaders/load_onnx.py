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
        """The best actions [N, ...] for raw observations [N, ...], a dict if the space is one."""
        arrays = {}
        for each in self.manifest["inputs"]:
            leaf = obs
            for part in each["path"]:
                leaf = leaf[part]
            arrays[each["name"]] = np.asarray(leaf, each["dtype"])
        return self.session.run(None, arrays)[0]
