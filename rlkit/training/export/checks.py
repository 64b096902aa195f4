"""What can be known of an export before anything is loaded. Imports no JAX."""

import importlib.util
import os
from pathlib import Path
from typing import Literal

from rlkit.errors import ExportError, require

Format = Literal["both", "onnx", "stablehlo"]
FORMATS = ("both", "onnx", "stablehlo")


def check_export(directory: str | os.PathLike[str], format: str) -> Path:
    """The directory to write.

    Raises `ExportError` if it exists, for an unknown format, or if a package is not installed.
    """
    require(
        format in FORMATS,
        f"format must be one of {', '.join(FORMATS)}, got {format!r}",
        'pass format="onnx"',
        ExportError,
    )
    missing = [name for name in ("onnx", "onnxruntime") if importlib.util.find_spec(name) is None]
    require(
        format == "stablehlo" or not missing,
        f"ONNX export needs {' and '.join(missing)}, not installed here",
        f"pip install {' '.join(missing)}, or export it with --format stablehlo"
        ' (format="stablehlo")',
        ExportError,
    )
    path = Path(directory).expanduser()
    require(
        not os.path.lexists(path),
        f"{path} already exists",
        "choose another folder (--output), or move it away",
        ExportError,
    )
    return path
