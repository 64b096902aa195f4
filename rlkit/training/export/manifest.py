"""`manifest`: what an exported policy takes and returns, and where it comes from, as JSON."""

import importlib.metadata
import math
from typing import Any

import numpy as np
from gymnasium import spaces

from rlkit import __version__
from rlkit.spaces import Space
from rlkit.training.export.onnx.graph import IR_VERSION, OPSET
from rlkit.training.export.policy_function import PolicyFunction, Port
from rlkit.training.export.stablehlo import PLATFORMS
from rlkit.validation import PlainData

MANIFEST = "manifest.json"
FORM = 1  # of the manifest; to be raised if a loader of before could not read it
ONNX_FILE, STABLEHLO_FILE, SAMPLED_FILE = (
    "policy.onnx",
    "policy.stablehlo",
    "policy_sampled.stablehlo",
)


def manifest(function: PolicyFunction, source: PlainData, files: PlainData) -> PlainData:
    """The contents of `manifest.json`. `source`: the run and checkpoint; `files`: by their kind."""
    inputs, outputs = (
        [_described_port(each) | {"path": list(each.path)} for each in ports]
        for ports in (function.inputs, function.outputs)
    )
    memory = [
        _described_port(each) | {"first": _bound(np.asarray(first[0]))}
        for each, first in zip(function.memory, function.initial_memory(), strict=True)
    ]
    return {
        "form": FORM,
        **source,
        "inputs": inputs,
        "outputs": outputs,
        "memory": memory,
        "observation_space": described(function.observation_space),
        "action_space": described(function.action_space),
        "files": files,
        "onnx": {"opset": OPSET, "ir_version": IR_VERSION} if "onnx" in files else None,
        "stablehlo": {"platforms": list(PLATFORMS)} if "stablehlo" in files else None,
        "versions": {"rlkit": __version__, "jax": importlib.metadata.version("jax")},
    }


def described(space: Space) -> PlainData:
    """A space as plain data. Bounds are one number if all are equal; null stands for infinity.

    The parts of a Dict are in the order of leaves.
    """
    if isinstance(space, spaces.Dict):
        parts = {str(name): described(space.spaces[name]) for name in sorted(space.spaces)}
        return {"type": "Dict", "spaces": parts}
    if isinstance(space, spaces.Tuple):
        return {"type": "Tuple", "spaces": [described(part) for part in space.spaces]}
    known = {"type": type(space).__name__, "shape": list(space.shape or ())}
    if isinstance(space, spaces.Box):
        bounds = {"low": _bound(space.low), "high": _bound(space.high)}
        return {**known, "dtype": str(space.dtype), **bounds}
    if isinstance(space, spaces.Discrete):
        return {**known, "dtype": str(space.dtype), "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        counts = {"nvec": space.nvec.tolist(), "start": space.start.tolist()}
        return {**known, "dtype": str(space.dtype), **counts}
    return {**known, "dtype": str(space.dtype)}


def _described_port(each: Port) -> PlainData:
    return {"name": each.name, "dtype": each.dtype.name, "shape": ["batch", *each.shape]}


def _bound(values: np.ndarray) -> Any:
    is_one = values.size > 0 and (values == values.flat[0]).all()
    return _finite(values.flat[0].item() if is_one else values.tolist())


def _finite(numbers: Any) -> Any:
    if isinstance(numbers, list):
        return [_finite(number) for number in numbers]
    return numbers if math.isfinite(numbers) else None
