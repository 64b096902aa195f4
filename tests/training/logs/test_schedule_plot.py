"""The picture of a learning rate: what is drawn, and where it is written."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from rlkit.errors import ConfigError
from rlkit.optimizers import OptimizerConfig
from rlkit.training.logs import schedule_plot
from rlkit.training.logs.schedule_plot import plot_schedule

pytestmark = pytest.mark.fast
COSINE = OptimizerConfig(learning_rate_schedule="cosine", learning_rate_warmup=0.5)


@pytest.mark.parametrize(
    ("total_steps", "last", "label"),
    [(2000, 2000.0, "environment steps"), (None, 100.0, "per cent of the run")],
)
def test_it_draws_the_rate_over_the_run(tmp_path, monkeypatch, total_steps, last, label):
    figures: list[Figure] = []
    new_figure = schedule_plot.new_figure
    monkeypatch.setattr(
        schedule_plot, "new_figure", lambda size: figures.append(new_figure(size)) or figures[-1]
    )
    path = plot_schedule(COSINE, tmp_path / "new" / "rate.png", total_steps=total_steps, title="t")
    assert path.read_bytes().startswith(b"\x89PNG")
    (axes,) = figures[0].axes
    x, y = axes.lines[0].get_data()
    assert (x[0], x[-1], axes.get_xlabel()) == (0.0, last, label)
    np.testing.assert_allclose(y[[0, 250, 500, 750, 1000]], 3e-4 * np.array([0, 0.5, 1, 0.5, 0]))
    assert axes.get_ylim()[0] == 0.0 and axes.get_title(loc="left") == "t"


def test_what_cannot_be_drawn_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot draw a .gif file; choose a name that ends in"):
        plot_schedule(COSINE, tmp_path / "rate.gif")
    with pytest.raises(ConfigError, match="learning_rate_cycles has no effect"):
        plot_schedule(OptimizerConfig(learning_rate_cycles=2), tmp_path / "rate.svg")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot write .*; choose another file"):
        plot_schedule(COSINE, tmp_path / "file" / "rate.svg")
