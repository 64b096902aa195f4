"""`RLKIT_CPU_TUNING`: on, off, all but some, and nothing else."""

import jax
import pytest

from rlkit.errors import ConfigError
from rlkit.xla_cpu.switch import TRICKS, VARIABLE, is_on, is_wanted, may_be_on

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("setting", "wanted"),
    [
        (None, TRICKS),
        ("", TRICKS),
        ("on", TRICKS),
        ("ON", TRICKS),
        ("off", ()),
        ("no-matmul", tuple(trick for trick in TRICKS if trick != "matmul")),
        ("no-matmul, no-threefry", tuple(set(TRICKS) - {"matmul", "threefry"})),
    ],
)
def test_each_setting(monkeypatch, setting, wanted):
    if setting is None:
        monkeypatch.delenv(VARIABLE, raising=False)
    else:
        monkeypatch.setenv(VARIABLE, setting)
    assert {trick for trick in TRICKS if is_wanted(trick)} == set(wanted)


@pytest.mark.parametrize("setting", ["no", "0", "matmul", "no-matmul,", "no-matmull", "off,on"])
def test_anything_else_is_an_error(monkeypatch, setting):
    monkeypatch.setenv(VARIABLE, setting)
    with pytest.raises(ConfigError, match=f"{VARIABLE}='{setting}'.* use 'on', 'off'"):
        is_wanted("matmul")


def test_other_devices_need_no_tricks(monkeypatch):
    monkeypatch.setenv(VARIABLE, "on")
    jax.devices()  # makes the backend
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert is_wanted("matmul") and not is_on("matmul") and not may_be_on("matmul")
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert is_on("matmul") and may_be_on("matmul")
