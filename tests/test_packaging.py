"""What a user installs: the sdist is whole, and the wheel built from it imports from outside the
repository.
"""

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import rlkit
from rlkit.envs.suites.table import ADAPTED

ROOT = Path(__file__).parents[1]

IMPORT_ALL = """
import importlib, importlib.util, pkgutil, sys, rlkit
from rlkit.envs.suites.table import ADAPTED
assert rlkit.__file__.startswith(sys.argv[1]), rlkit.__file__
adapters = tuple(f"rlkit.envs.suites.{name}" for name in ADAPTED)
for module in pkgutil.walk_packages(rlkit.__path__, "rlkit."):
    needs_a_suite = module.name.startswith(adapters) and not module.name.endswith("_ids")
    if not module.name.endswith("__main__") and not needs_a_suite:
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


def pinned(constraints: str) -> dict[str, str]:
    """The version of each package in a file of constraints."""
    rows = (ROOT / constraints).read_text().splitlines()
    pairs = (row.split("==") for row in rows if "==" in row)
    return {canonicalize_name(name): version for name, version in pairs}


def project() -> dict[str, Any]:
    """The table of that name in pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def requirements(python: str) -> list[Requirement]:
    """What rlkit and its extras require on that version of Python.

    Without the suites of others, which have constraints of their own.
    """
    extras = project()["optional-dependencies"].items()
    rows = [row for name, extra in extras if name not in ADAPTED for row in extra]
    rows = [*project()["dependencies"], *rows]
    found = [Requirement(row) for row in rows if not row.startswith("rlkit-jax[")]
    return [x for x in found if x.marker is None or x.marker.evaluate({"python_version": python})]


@pytest.mark.fast
@pytest.mark.parametrize(
    ("constraints", "python"),
    [
        ("constraints-lowest.txt", "3.11"),
        ("constraints.txt", "3.11"),
        ("constraints-newest.txt", "3.13"),
    ],
)
def test_the_tested_versions_are_within_the_bounds(constraints, python):
    versions = pinned(constraints)
    wrong = [
        f"{requirement}, tested with {versions.get(canonicalize_name(requirement.name))}"
        for requirement in requirements(python)
        if versions.get(canonicalize_name(requirement.name), "0") not in requirement.specifier
    ]
    assert wrong == []


@pytest.mark.fast
def test_suites_have_an_extra_each_and_are_tested_within_its_bounds():
    extras = project()["optional-dependencies"]
    assert extras["suites"] == [f"rlkit-jax[{','.join(ADAPTED)}]"]
    versions = pinned("constraints-suites.txt")
    for suite, row in ADAPTED.items():
        requirement, *_ = map(Requirement, extras[suite])
        assert requirement == Requirement(row.requirement)
        assert versions[canonicalize_name(requirement.name)] in requirement.specifier


@pytest.mark.fast
def test_the_lower_bounds_are_tested():
    """What README calls supported is what `make test-versions` runs on."""
    versions = pinned("constraints-lowest.txt")
    bounds = {
        canonicalize_name(requirement.name): bound.version
        for requirement in requirements("3.11")
        for bound in requirement.specifier
        if bound.operator == ">="
    }
    assert {"jax", "flax", "wandb", "pytest-xdist"} <= bounds.keys()
    higher = [name for name, low in bounds.items() if not f"{versions[name]}.".startswith(low)]
    assert higher == []


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
        f"rlkit_jax-{rlkit.__version__}.dist-info",
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
