"""Runs end with a picture of their learning curve, which takes matplotlib longer than the rest of a
tiny run. Here it is a white dot, written as any figure; tests of pictures ask for `real_curves`.
"""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mP4DwABAQEAHLCMmQAAAABJRU5ErkJggg=="
)
_DRAW = "rlkit.training.logs.plotting._Picture.draw"
_real: list[Any] = []


class _Dot:
    def savefig(self, file: Any, **_: Any) -> None:
        file.write(DOT)


def _draw_a_dot(picture: Any, curves: Any, sampled: Any, output: Path, title: Any) -> Path:
    from rlkit.training.logs.figures import save_figure

    return save_figure(_Dot(), output)  # pyright: ignore[reportArgumentType]


@pytest.fixture(scope="session", autouse=True)
def blank_curves() -> Iterator[None]:
    """For a conftest.py to import."""
    from rlkit.training.logs import plotting

    if not _real:
        _real.append(plotting._Picture.draw)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_DRAW, _draw_a_dot)
        yield


@pytest.fixture
def real_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Curves are drawn."""
    monkeypatch.setattr(_DRAW, _real[0])
