"""Whether exported files act as the policy does: they run in a fresh process, without rlkit."""

import copy
import dataclasses
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from gymnasium import spaces

from rlkit.action_masks import ACTION_MASK, has_mask, num_choices, with_some_allowed
from rlkit.errors import ExportError, require
from rlkit.ops.running_stats import RunningStats
from rlkit.spaces import Space, bounds, jax_dtype, leaves, map_space

ROWS = 256  # observations to act on
SEED = 0  # of the observations, and of sampled actions
TOLERANCE = 1e-4  # of continuous actions, times max(1, |action|); rounding is about 1e-6
TIES = 0.01  # share of discrete actions that rounding may decide otherwise

# `loader` is load_onnx or load_stablehlo. A batch of one is acted on too: the size is symbolic.
_PROGRAM = """
import importlib, sys
sys.modules["rlkit"] = None
folder, batch, found = sys.argv[1:4]
sys.path.insert(0, folder)
import numpy as np
given = np.load(batch)
results = {}
def arrays(action):
    if isinstance(action, dict):
        return [x for name in sorted(action) for x in arrays(action[name])]
    return [x for part in action for x in arrays(part)] if isinstance(action, tuple) else [action]
for loader, kind, arguments in (
    ("load_onnx", "onnx", {}),
    ("load_stablehlo", "stablehlo", {}),
    ("load_stablehlo", "sampled", {"seed": 0}),
):
    if kind not in sys.argv[4:]:
        continue
    policy = importlib.import_module(loader).Policy()
    for rows, name in ((slice(None), kind), (slice(1), kind + ".one")):
        obs = {}
        for each in policy.manifest["inputs"]:
            here, path = obs, ["obs", *each["path"]]
            for part in path[:-1]:
                here = here.setdefault(part, {})
            here[path[-1]] = given[each["name"]][rows]
        if policy.manifest["memory"]:
            memory = policy.start(len(given[policy.manifest["inputs"][0]["name"]][rows]))
            first, memory = policy(obs["obs"], memory, **arguments)
            second, memory = policy(obs["obs"], memory, **arguments)
            steps = list(map(np.concatenate, zip(arrays(first), arrays(second))))
        else:
            steps = arrays(policy(obs["obs"], **arguments))
        for index, each in enumerate(steps):
            results[f"{name}/{index}"] = each
np.savez(found, **results)
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parity:
    """How the actions of one exported file compare with those of the policy."""

    kind: str
    """onnx, stablehlo, or sampled: the StableHLO that samples."""
    observations: int
    """How many were acted on."""
    differing: int
    """How many of the actions are not equal to the bit, in any part."""
    largest_difference: float
    """Between two actions; of discrete ones, 0 unless a near tie was decided otherwise."""


def observations(
    space: Space, action_space: Space, stats: RunningStats | None, number: int = ROWS
) -> list[np.ndarray]:
    """Made-up observations, [number, ...] for each leaf of `space`; always the same.

    Floats are drawn from the distribution that `stats` describe (None: the standard normal) and
    clipped to their bounds, all else uniformly. A mask allows something.
    """
    generator = np.random.default_rng(SEED)
    means, variances = [0.0] * len(leaves(space)), [1.0] * len(leaves(space))
    if stats is not None:
        means, variances = map(jax.tree.leaves, jax.device_get((stats.mean, stats.variance)))
    drawn = []
    for leaf, mean, variance in zip(leaves(space), means, variances, strict=True):
        if isinstance(leaf, spaces.Box) and np.issubdtype(leaf.dtype, np.floating):
            normal = generator.standard_normal((number, *leaf.shape))
            values = mean + np.sqrt(variance) * normal
            drawn.append(np.clip(values, *bounds(leaf)).astype(leaf.dtype))
        elif isinstance(leaf, spaces.Box) and np.issubdtype(leaf.dtype, np.integer):
            # What a policy can be given: JAX has no integers of 64 bits.
            known = np.iinfo(jax_dtype(leaf))
            low, high = (np.clip(edge, known.min, known.max) for edge in (leaf.low, leaf.high))
            integers = generator.integers(low, high, (number, *leaf.shape), endpoint=True)
            drawn.append(integers.astype(leaf.dtype))
        else:
            # Sampling from the environment's would move its generator on.
            own: Any = copy.deepcopy(leaf)
            own.seed(SEED)
            drawn.append(np.stack([own.sample() for _ in range(number)]))
    if isinstance(space, spaces.Dict) and has_mask(space):
        mask = space.spaces[ACTION_MASK]
        place = jax.tree.leaves(map_space(lambda leaf: leaf is mask, space)).index(True)
        drawn[place] = with_some_allowed(drawn[place], num_choices(action_space))
    return drawn


def act_in_fresh_process(
    folder: Path, names: Sequence[str], obs: Sequence[np.ndarray], kinds: Sequence[str]
) -> dict[str, list[np.ndarray]]:
    """The arrays of the actions of the loaders in `folder`, by kind; those of the first row alone
    as `kind.one`.

    `names` are those of the inputs. Raises `ExportError` if the process fails.
    """
    with tempfile.TemporaryDirectory() as directory:
        batch, found = Path(directory, "batch.npz"), Path(directory, "found.npz")
        named: dict[str, Any] = dict(zip(names, obs, strict=True))
        np.savez(batch, **named)
        # -P: what lies in the working directory is not imported.
        command = [sys.executable, "-P", "-B", "-c", _PROGRAM, folder, batch, found, *kinds]
        # On the CPU: this process may hold the memory of the GPU.
        environment = os.environ | {"JAX_PLATFORMS": "cpu"}
        done = subprocess.run(
            list(map(str, command)), env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise ExportError(
                f"the exported policy does not run in a process of its own ({last}); report it,"
                " with the settings of the agent"
            )
        by_kind: dict[str, list[np.ndarray]] = {}
        with np.load(found) as actions:
            for name in actions:  # in the order in which they were saved
                by_kind.setdefault(name.rpartition("/")[0], []).append(actions[name])
        return by_kind


def compared(kind: str, found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> Parity:
    """Compares the arrays of actions, [N, ...] each.

    Raises `ExportError` if they are not those of the policy.
    """
    off = [_differences(kind, *arrays) for arrays in zip(found, wanted, strict=True)]
    differing = np.any([(x != 0).reshape(len(x), -1).any(-1) for x in off], axis=0)
    return Parity(
        kind=kind,
        observations=len(differing),
        differing=int(differing.sum()),
        largest_difference=max(float(x.max(initial=0.0)) for x in off),
    )


def _differences(kind: str, found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Between two arrays of actions, [N, ...]."""
    require(
        (found.shape, found.dtype) == (wanted.shape, wanted.dtype),
        f"the exported {kind} returns {found.dtype} {list(found.shape)}, the policy {wanted.dtype}"
        f" {list(wanted.shape)}",
        "report it, with the settings of the agent",
        ExportError,
    )
    off = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
    differing = int((off != 0).reshape(len(off), -1).any(-1).sum())
    largest = float(off.max(initial=0.0))
    if np.issubdtype(wanted.dtype, np.floating):
        is_same = bool((off <= TOLERANCE * np.maximum(1.0, np.abs(wanted))).all())
    else:
        is_same = differing <= TIES * len(off)
    require(
        is_same,
        f"the exported {kind} acts otherwise than the policy on {differing} of {len(off)}"
        f" observations, by up to {largest:.3g}",
        "report it, with the settings of the agent",
        ExportError,
    )
    return off
