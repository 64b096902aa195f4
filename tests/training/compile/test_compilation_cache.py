"""The compilation cache is on, private, and never in the way."""

import os
import stat

import jax
import pytest

from rlkit.training.compile.compilation_cache import enable_compilation_cache


@pytest.fixture(autouse=True)
def untouched_cache(monkeypatch, tmp_path):
    """JAX as a user starts it, without a cache, and with a home of its own."""
    before = jax.config.values["jax_compilation_cache_dir"]
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("RLKIT_COMPILATION_CACHE", raising=False)
    yield
    jax.config.update("jax_compilation_cache_dir", before)


def configured():
    return jax.config.values["jax_compilation_cache_dir"]


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_is_private_to_the_user(tmp_path):
    directory = enable_compilation_cache()
    assert directory == str(tmp_path / "cache" / "rlkit" / "jax") == configured()
    assert mode(directory) == 0o700
    assert enable_compilation_cache() == directory


def test_lies_in_the_home_directory_by_default(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/so/ignored")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert enable_compilation_cache() == str(tmp_path / ".cache" / "rlkit" / "jax")


@pytest.mark.parametrize("value", ["off", "OFF", "0", "no"])
def test_can_be_turned_off(tmp_path, monkeypatch, value):
    monkeypatch.setenv("RLKIT_COMPILATION_CACHE", value)
    assert enable_compilation_cache() is None
    assert configured() is None
    assert not (tmp_path / "cache").exists()


def test_respects_the_choice_of_the_user(tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    assert enable_compilation_cache() == str(tmp_path)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("unsafe", [0o770, 0o702, 0o777])
def test_refuses_a_directory_that_others_can_write(tmp_path, caplog, unsafe):
    directory = tmp_path / "shared"
    directory.mkdir()
    directory.chmod(unsafe)
    assert enable_compilation_cache(str(directory)) is None
    assert configured() is None
    assert "is writable by others" in caplog.text


def test_refuses_a_directory_of_somebody_else(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(os, "getuid", lambda: os.stat(tmp_path).st_uid + 1)
    assert enable_compilation_cache(str(tmp_path / "cache")) is None
    assert "belongs to another user" in caplog.text


def test_goes_on_without_where_there_is_no_room(tmp_path, caplog):
    (tmp_path / "file").touch()
    assert enable_compilation_cache(str(tmp_path / "file" / "jax")) is None
    assert "cannot use" in caplog.text
