"""`RLKIT_GPU_TUNING`: on GPUs alone, and nothing before JAX has its backend."""

import jax
import pytest

from rlkit import tuning_switch
from rlkit.errors import ConfigError
from rlkit.xla_gpu.switch import TRICKS, VARIABLE, is_on

pytestmark = pytest.mark.fast


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    jax.devices()  # makes the backend
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")


def test_on_a_gpu_all_are_on(gpu):
    assert all(map(is_on, TRICKS))


def test_some_are_left_out(gpu, monkeypatch):
    monkeypatch.setenv(VARIABLE, "no-fused-layers")
    assert not is_on("fused-layers") and is_on("whole-resets")
    monkeypatch.setenv(VARIABLE, "off")
    assert not any(map(is_on, TRICKS))


def test_anything_else_is_an_error(gpu, monkeypatch):
    monkeypatch.setenv(VARIABLE, "no-fused")
    with pytest.raises(ConfigError, match=f"{VARIABLE}='no-fused'.*did you mean 'no-fused-layers'"):
        is_on("whole-resets")


def test_off_on_a_cpu_and_before_there_is_a_backend(gpu, monkeypatch):
    monkeypatch.setattr(tuning_switch, "has_backend", lambda: False)
    assert not any(map(is_on, TRICKS))
    monkeypatch.setattr(tuning_switch, "has_backend", lambda: True)
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert not any(map(is_on, TRICKS))
