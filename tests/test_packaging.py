"""What a user installs: the sdist is whole, and the wheel built from it imports from outside the
repository.
"""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import rlkit

ROOT = Path(__file__).parents[1]

IMPORT_ALL = """
import importlib, pkgutil, sys, rlkit
assert rlkit.__file__.startswith(sys.argv[1]), rlkit.__file__
for module in pkgutil.walk_packages(rlkit.__path__, "rlkit."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


def run(*command: object, cwd: Path, **env: str) -> None:
    arguments = [str(part) for part in command]
    done = subprocess.run(
        arguments, cwd=cwd, env=os.environ | env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def package_files() -> set[str]:
    paths = (
        path
        for path in (ROOT / "rlkit").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )
    return {path.relative_to(ROOT).as_posix() for path in paths}


@pytest.mark.full
@pytest.mark.process
def test_sdist_and_wheel_are_complete_and_import(tmp_path):
    # With neither --sdist nor --wheel, build makes the wheel out of the sdist.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path / "dist", cwd=ROOT)
    (sdist,), (wheel,) = (tmp_path / "dist").glob("*.tar.gz"), (tmp_path / "dist").glob("*.whl")
    with tarfile.open(sdist) as archive:
        source_files = {name.partition("/")[2] for name in archive.getnames()}
    with zipfile.ZipFile(wheel) as archive:
        wheel_files = set(archive.namelist())

    wanted = package_files()
    assert any(name.startswith("rlkit/envs/") for name in wanted) and "rlkit/py.typed" in wanted
    assert wanted - source_files == set() and wanted - wheel_files == set()
    assert {"README.md", "LICENSE", "tests/conftest.py"} <= source_files
    assert {name.split("/")[0] for name in wheel_files} == {
        "rlkit",
        f"rlkit-{rlkit.__version__}.dist-info",
    }

    target = tmp_path / "site"
    run(
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--target",
        target,
        wheel,
        cwd=tmp_path,
    )
    run(sys.executable, "-c", IMPORT_ALL, target, cwd=tmp_path, PYTHONPATH=str(target))
