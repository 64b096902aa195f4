"""`export_folder`: writes an exported policy, and shows that it acts as the policy does."""

import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import jax
import numpy as np

from rlkit.errors import ExportError
from rlkit.training.export.checks import Format, check_export
from rlkit.training.export.manifest import (
    MANIFEST,
    ONNX_FILE,
    SAMPLED_FILE,
    STABLEHLO_FILE,
    manifest,
)
from rlkit.training.export.parity import Parity, act_in_fresh_process, compared, observations
from rlkit.training.export.policy_function import PolicyFunction
from rlkit.training.export.stablehlo import to_stablehlo
from rlkit.types import Action, Obs
from rlkit.validation import PlainData

Act = Callable[..., tuple[Action, list[Any]]]
"""`act(obs, memory, sampled=False)`: the policy's actions and new memory.

Observations are in the space's structure; the memory is a list of arrays, or None at the start.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exported:
    """A policy that was exported."""

    path: Path
    """The folder."""
    parity: list[Parity]
    """How its files compare with the policy."""


def export_folder(
    directory: str | os.PathLike[str],
    function: PolicyFunction,
    *,
    format: Format,
    source: PlainData,
    act: Act,
) -> Exported:
    """Writes the files of `function` to a new folder and compares them with `act`.

    The folder appears when it is complete and compared. `source` goes into the manifest. Raises
    `ExportError` if it exists, cannot be written, or acts otherwise than `act`.
    """
    target = check_export(directory, format)
    made = _files(function, format)  # before anything is written or compiled
    with _new_folder(target) as folder:
        names = {kind: name for kind, (name, _) in made.items()}
        for name, content in made.values():
            (folder / name).write_bytes(content)
        for kind in names.keys() - {"sampled"}:
            template = f"load_{kind}_with_memory.py" if function.memory else f"load_{kind}.py"
            _copy_loader(template, folder / f"load_{kind}.py")
        about = manifest(function, source, names)
        (folder / MANIFEST).write_text(json.dumps(about, indent=2) + "\n")
        parity = _compare(function, folder, list(made), act)
        about["parity"] = [dataclasses.asdict(each) for each in parity]
        (folder / MANIFEST).write_text(json.dumps(about, indent=2) + "\n")
    return Exported(path=target, parity=parity)


def _files(function: PolicyFunction, format: Format) -> dict[str, tuple[str, bytes]]:
    """(name, content) of each kind of file."""
    inputs = [(each.name, each.dtype, each.shape) for each in (*function.inputs, *function.memory)]
    names = [each.name for each in function.outputs]
    outputs = [*names, *(f"next_{each.name}" for each in function.memory)]
    files: dict[str, tuple[str, bytes]] = {}
    if format != "stablehlo":
        from rlkit.training.export.onnx.conversion import to_onnx

        files["onnx"] = (ONNX_FILE, to_onnx(function.best, inputs, outputs))
    if format != "onnx":
        files["stablehlo"] = (STABLEHLO_FILE, to_stablehlo(function.best, inputs))
        sampled = to_stablehlo(function.sampled, inputs, takes_key=True)
        files["sampled"] = (SAMPLED_FILE, sampled)
    return files


def _compare(function: PolicyFunction, folder: Path, kinds: list[str], act: Act) -> list[Parity]:
    obs = observations(function.observation_space, function.action_space, function.state.obs_stats)
    names = [each.name for each in function.inputs]
    found = act_in_fresh_process(folder, names, obs, kinds)
    batch = function.observation(obs)
    parity = []
    for kind in kinds:
        wanted = _acted(act, batch, sampled=kind == "sampled")
        parity.append(compared(kind, found[kind], wanted))
        one = _acted(act, jax.tree.map(lambda x: x[:1], batch), sampled=kind == "sampled")
        compared(f"{kind} for a batch of one", found[f"{kind}.one"], one)
    return parity


def _acted(act: Act, batch: Obs, *, sampled: bool) -> list[np.ndarray]:
    """The arrays of actions [N, ...]; with memory [2·N, ...], of a second step on the same
    observations too.
    """
    action, memory = act(batch, None, sampled=sampled)
    if memory:
        second = act(batch, memory, sampled=sampled)[0]
        action = jax.tree.map(lambda *x: np.concatenate(x), action, second)
    return jax.tree.leaves(action)


def _copy_loader(name: str, target: Path) -> None:
    text = resources.files("rlkit.training.export.loaders").joinpath(name).read_text()
    target.write_text(text)


@contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """A folder that appears as `target` at the end, or not at all after an error."""
    folder = target.with_name(f".{target.name}-{os.getpid()}")
    try:
        folder.mkdir(parents=True)
        yield folder
        folder.rename(target)
    except OSError as error:
        raise ExportError(
            f"cannot write {target}: {error.strerror or error}; choose another folder"
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
