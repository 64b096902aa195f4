"""Entry points of installed packages: read once, and again when packages come."""

import importlib.metadata

import pytest

from rlkit import plugins

pytestmark = pytest.mark.fast


def install(directory, name, group="rlkit.envs"):
    """What an installer leaves in a directory of packages."""
    info = directory / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name}/Env = {name}:make\n")


def test_a_package_is_found_where_it_comes_while_the_program_runs(tmp_path, monkeypatch):
    assert "maze/Env" not in plugins.entry_points("rlkit.envs")
    monkeypatch.syspath_prepend(tmp_path)
    assert "maze/Env" not in plugins.entry_points("rlkit.envs")
    install(tmp_path, "maze")
    (found,) = plugins.entry_points("rlkit.envs")["maze/Env"]
    assert found.value == "maze:make"
    assert plugins.package(found) == "package 'maze'"
    assert "maze/Env" not in plugins.entry_points("rlkit.agents")


def test_packages_are_read_once(monkeypatch):
    before = plugins.entry_points("rlkit.envs")

    def read(**_):
        raise AssertionError("read again")

    monkeypatch.setattr(importlib.metadata, "entry_points", read)
    assert plugins.entry_points("rlkit.envs") == before
