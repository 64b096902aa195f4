"""The exported policy, run by JAX: `Policy()(obs)`. Needs jax only."""

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

    def __call__(self, obs, seed=None):
        """Actions [N, ...] for raw observations [N, ...]: the best, or sampled with a seed."""
        arrays = []
        for each in self.manifest["inputs"]:
            leaf = obs
            for part in each["path"]:
                leaf = leaf[part]
            arrays.append(np.asarray(leaf, each["dtype"]))
        if seed is None:
            return np.asarray(self.best(*arrays)[0])
        key = jax.random.key(seed, impl="threefry2x32")
        return np.asarray(self.sampled(jax.random.key_data(key), *arrays)[0])
