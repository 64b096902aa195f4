"""Learning curves: pictures exist with the size promised, and mistakes are explained."""

import math
import os
import re
import stat
import struct

import matplotlib
import numpy as np
import pytest
from tiers import in_full

from rlkit.errors import ConfigError, RunDirectoryError
from rlkit.training.logs import plotting
from rlkit.training.logs.curves import Curve, Mark, curve_of
from rlkit.training.logs.jsonl_logger import JsonlLogger
from rlkit.training.logs.loaded_run import load_run
from rlkit.training.logs.plotting import _marks, _places, plot_runs
from rlkit.training.logs.records import Record

pytestmark = [pytest.mark.fast, pytest.mark.usefixtures("real_curves")]


def write_run(directory, *, seeds=(None,), points=5, value=lambda seed, point: 10.0 * point):
    logger = JsonlLogger(directory / "metrics.jsonl")
    for point in range(points):
        for seed in seeds:
            metrics = {"eval/avg_return": value(seed, point), "eval/avg_length": 5.0}
            steps = 1000 * point
            logger.log(
                Record(
                    kind="eval",
                    env_steps=steps,
                    updates=point,
                    wall_seconds=point,
                    seed=seed,
                    metrics=metrics,
                )
            )
    logger.close()
    return directory


def write_config(directory, algorithm, env):
    (directory / "config.yaml").write_text(f"algorithm: {algorithm}\nenv: {{id: {env}}}\n")
    return directory


def curve(directory):
    run = load_run(directory)
    return curve_of(run, directory.name, "eval/avg_return", "env_steps")


def drawn_text(runs, output, **settings):
    """The words of the picture, which an SVG can hold as text."""
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        return plot_runs(runs, output, **settings).read_text()


def png_size(path):
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG")
    return struct.unpack(">II", content[16:24])


@pytest.mark.parametrize("x", ["env_steps", "wall_seconds"])
def test_draws_several_runs(tmp_path, x):
    runs = [
        write_run(tmp_path / "a", seeds=(0, 1, 2)),
        write_run(tmp_path / "b"),
        write_run(tmp_path / "c", points=1),
    ]
    output = plot_runs(runs, tmp_path / "new" / "curve.png", x=x, title="a title")
    assert png_size(output) == (1020, 630)  # 6.8 x 4.2 inches at 150 dpi


@pytest.mark.parametrize(
    ("name", "start"),
    [("a.png", b"\x89PNG"), ("a.pdf", b"%PDF-"), ("a.svg", b"<?xml"), ("a.PDF", b"%PDF-")],
)
def test_the_ending_chooses_the_format(tmp_path, name, start):
    found = plot_runs([write_run(tmp_path / "run")], tmp_path / name)
    assert found == tmp_path / name and found.read_bytes().startswith(start)


def test_ticks_that_lie_close_have_digits_enough_to_differ(tmp_path):
    """A branch, evaluated from 10.00 to 10.10 million steps; its returns are 12,000 to 12,050."""
    logger = JsonlLogger(tmp_path / "run" / "metrics.jsonl")
    for place in range(11):
        metrics = {"eval/avg_return": 12_000 + 5.0 * place}
        steps = 10_000_000 + 10_000 * place
        logger.log(Record(kind="eval", env_steps=steps, updates=0, wall_seconds=0, metrics=metrics))
    logger.close()
    text = drawn_text([tmp_path / "run"], tmp_path / "curve.svg")
    assert "10.04M" in text and "12.02k" in text


def test_a_home_directory_is_meant(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    found = plot_runs([write_run(tmp_path / "run")], "~/curve.png")
    assert found == tmp_path / "curve.png" and found.is_file() and not (tmp_path / "~").exists()


@pytest.mark.parametrize(("name", "what"), [("a.jpg", "a .jpg file"), ("a", "a, which has no")])
def test_other_endings_are_refused(tmp_path, name, what):
    with pytest.raises(ConfigError, match=rf"{what}.*ends in \.png, \.pdf or \.svg"):
        plot_runs([write_run(tmp_path / "run")], tmp_path / name)
    assert not (tmp_path / name).exists()


def test_the_title_says_what_was_trained(tmp_path):
    ppo = write_config(write_run(tmp_path / "a"), "ppo", "gymnax/CartPole-v1")
    dqn = write_config(write_run(tmp_path / "b"), "dqn", "gymnax/CartPole-v1")
    assert "ppo on gymnax/CartPole-v1" in drawn_text([ppo], tmp_path / "one.svg")
    both = drawn_text([ppo, dqn], tmp_path / "both.svg")
    assert "gymnax/CartPole-v1" in both and "ppo on" not in both
    given = drawn_text([ppo], tmp_path / "given.svg", title="mine")
    assert "mine" in given and "ppo on" not in given


def test_each_environment_has_a_panel(tmp_path):
    runs = [
        write_config(write_run(tmp_path / name, seeds=(0, 1)), "ppo", env)
        for name, env in (("a", "gymnax/CartPole-v1"), ("b", "gymnax/Acrobot-v1"))
    ]
    text = drawn_text([*runs, write_run(tmp_path / "c")], tmp_path / "panels.svg")
    for word in ("gymnax/CartPole-v1", "gymnax/Acrobot-v1", "environment not recorded"):
        assert text.count(f">{word}<") == 1
    assert text.count(">average return per evaluation episode<") == 3
    for name in ("a (n = 2)", "b (n = 2)", "c"):  # each panel says whose curve it is
        assert text.count(f">{name}<") == 1


def test_an_algorithm_has_one_colour_in_all_panels(tmp_path):
    curves = [
        curve(write_config(write_run(tmp_path / f"{algorithm}-{env}"), algorithm, env))
        for env, algorithms in (("A", ("ppo", "dqn")), ("B", ("dqn",)), ("C", ("ppo", "ppo-2")))
        for algorithm in algorithms
    ]
    known = ["ppo", "dqn", "ppo-2"]
    assert [_places(curves[:2], known), _places(curves[2:3], known)] == [[0, 1], [1]]
    assert _places(curves[3:], known) == [0, 2]
    assert _places([curves[0], curves[3]], known) == [0, 1]  # both ppo: told apart by colour


def test_same_run_same_picture(tmp_path):
    run = write_run(
        tmp_path / "a",
        seeds=(0, 1),
        value=lambda seed, point: math.nan if point == 2 else point + seed,
    )
    pictures = [plot_runs([run], tmp_path / f"{number}.png").read_bytes() for number in range(2)]
    assert pictures[0] == pictures[1]


def test_leaves_matplotlib_state_alone(tmp_path):
    before = dict(matplotlib.rcParams)
    plot_runs([write_run(tmp_path / "a")], tmp_path / "curve.png")
    assert dict(matplotlib.rcParams) == before


def test_mean_is_the_logged_one_else_that_of_the_seeds(tmp_path):
    without = write_run(tmp_path / "a", seeds=(0, 2), value=lambda seed, point: point + seed)
    assert curve(without).center("mean").tolist() == [1, 2, 3, 4, 5]
    logged = write_run(
        tmp_path / "b", seeds=(None, 0, 2), value=lambda seed, point: 7.0 if seed is None else point
    )
    assert curve(logged).center("mean").tolist() == [7.0] * 5
    late = write_run(  # the logged mean is that of seed 0 alone at first
        tmp_path / "c",
        seeds=(None, 0, 2),
        value=lambda seed, point: math.nan if seed == 2 and point < 2 else 7.0,
    )
    assert curve(late).center("mean").tolist() == [7.0] * 5
    assert np.isnan(curve(late).center("median")).tolist() == [True, True, False, False, False]
    assert curve(without).x.tolist() == [0, 1000, 2000, 3000, 4000]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"metric": "eval/avg_retrun"},
            ["did you mean 'eval/avg_return'", "It has eval/avg_length, eval/avg_return"],
        ),
        ({"x": "steps"}, ["unknown x axis 'steps'", "env_steps"]),
    ],
)
def test_mistakes_name_the_fix(tmp_path, arguments, words):
    run = write_run(tmp_path / "a")
    with pytest.raises(ConfigError) as error:
        plot_runs([run], tmp_path / "curve.png", **arguments)
    assert all(word in str(error.value) for word in words)


def test_nothing_to_plot_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="at least one run"):
        plot_runs([], tmp_path / "curve.png")
    with pytest.raises(RunDirectoryError, match=r"absent does not contain a run; .*metrics\.jsonl"):
        plot_runs([tmp_path / "absent"], tmp_path / "curve.png")
    with pytest.raises(ConfigError, match="has no metrics yet"):
        plot_runs([write_run(tmp_path / "empty", points=0)], tmp_path / "curve.png")
    with pytest.raises(ConfigError, match="no finite value"):
        plot_runs([write_run(tmp_path / "nan", value=lambda *_: math.nan)], tmp_path / "curve.png")
    with pytest.raises(ConfigError, match=r"taken\.png: Is a directory; choose another file"):
        (tmp_path / "taken.png").mkdir()
        plot_runs([write_run(tmp_path / "a")], tmp_path / "taken.png")


def test_many_runs_are_named_below_their_panel(tmp_path):
    """Beside it, the names would take the width of the curves."""

    def height(runs, name):
        return png_size(plot_runs(runs, tmp_path / name))[1]

    runs = [write_run(tmp_path / f"a-run-with-a-rather-long-name-{n}") for n in range(8)]
    assert height(runs, "many.png") > height(runs[:5], "few.png") + 100
    assert runs[7].name in drawn_text(runs, tmp_path / "all.svg")


def test_the_legend_says_how_many_seeds_a_curve_has(tmp_path):
    runs = [write_run(tmp_path / "a", seeds=(0, 1, 2)), write_run(tmp_path / "b")]
    text = drawn_text(runs, tmp_path / "all.svg", band="interval", center="interquartile_mean")
    assert ">a (n = 3)<" in text and ">b<" in text
    assert "interquartile mean; band: 95 % bootstrap interval over seeds" in text


def test_trials_of_a_sweep_are_named_by_what_differs(tmp_path):
    runs = []
    for trial, rate in enumerate((1e-4, 3e-4)):
        run = write_run(tmp_path / "trials" / f"00{trial}", seeds=(0, 1))
        settings = f"hyperparameters: {{learning_rate: {rate}, gamma: 0.9}}\nseed: {trial}\n"
        (run / "config.yaml").write_text(settings)
        runs.append(run)
    assert ">000 (n = 2)<" in drawn_text(runs, tmp_path / "runs.svg")
    (tmp_path / "sweep.yaml").touch()
    text = drawn_text(runs, tmp_path / "trials.svg")
    assert ">000 learning_rate=0.0001 (n = 2)<" in text and "gamma" not in text


@pytest.mark.parametrize("size", ["screen", "column"])
def test_a_legend_below_lies_inside_and_under_the_axis(tmp_path, size, monkeypatch):
    figures = []
    monkeypatch.setattr(
        plotting, "save_figure", lambda figure, output: figures.append(figure) or output
    )
    runs = [write_run(tmp_path / f"run-{n}", seeds=(0, 1)) for n in range(7)]
    plot_runs(runs, tmp_path / "many.png", size=size)
    (figure,) = figures
    figure.draw_without_rendering()
    axes = figure.axes[0]
    legend = axes.get_legend().get_window_extent()
    assert legend.x0 >= 0 and legend.x1 <= figure.bbox.x1
    assert legend.y0 >= 0 and legend.y1 <= axes.xaxis.label.get_window_extent().y0


def test_phases_that_not_all_runs_have_take_the_colour_of_theirs():
    def marked(name, *at):
        return Curve(
            name=name,
            algorithm="ppo",
            env="E",
            x=np.arange(3.0),
            seeds=np.zeros((1, 3)),
            marks=tuple(Mark(x, "phase") for x in at),
        )

    marks = _marks([marked("a", 2.0, 1.0), marked("b", 1.0)])
    assert marks == {Mark(1.0, "phase"): [0, 1], Mark(2.0, "phase"): [0]}
    assert list(marks) == [Mark(1.0, "phase"), Mark(2.0, "phase")]


def test_letters_of_a_pdf_are_true_type(tmp_path):
    """Publishers turn Type 3 away."""
    content = plot_runs([write_run(tmp_path / "a")], tmp_path / "a.pdf").read_bytes()
    assert b"/CIDFontType2" in content and b"/Type3" not in content


def test_groups_and_labels(tmp_path):
    runs = [
        write_config(write_run(tmp_path / name, seeds=(0, 1)), algorithm, "E")
        for name, algorithm in (("a", "ppo"), ("b", "ppo"), ("c", "dqn"))
    ]
    text = drawn_text(runs, tmp_path / "groups.svg", group="algorithm")
    assert ">ppo (n = 4)<" in text and ">dqn (n = 2)<" in text
    labels = ["ours", "theirs"]
    text = drawn_text(runs, tmp_path / "labels.svg", group="algorithm", labels=labels)
    assert ">ours (n = 4)<" in text and ">theirs (n = 2)<" in text
    message = "labels is 1, that of curves 2; pass a label for each of ppo, dqn"
    with pytest.raises(ConfigError, match=message):
        plot_runs(runs, tmp_path / "few.svg", group="algorithm", labels=["ours"])
    with pytest.raises(ConfigError, match="is given twice; leave one out"):
        plot_runs([runs[0], runs[0]], tmp_path / "twice.svg", group="settings")


def test_names_are_text_whatever_they_begin_with(tmp_path):
    """matplotlib reads dollars as formulas, and leaves names that begin with "_" out of legends."""
    runs = [write_run(tmp_path / name) for name in ("_ours", "theirs")]
    text = drawn_text(runs, tmp_path / "names.svg", title=r"$\foo$", labels=["_ours", "$5$"])
    assert all(f">{name}<" in text for name in (r"$\foo$", "_ours", "$5$"))


def test_a_picture_that_fails_leaves_the_one_before(tmp_path, monkeypatch):
    run, output = write_run(tmp_path / "a"), tmp_path / "curve.png"
    before = plot_runs([run], output).read_bytes()

    def fail(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", fail)
    with pytest.raises(ZeroDivisionError):
        plot_runs([run], output)
    assert output.read_bytes() == before


def test_records_elsewhere_are_named(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text("trainer: {logger_config: {jsonl: rows.jsonl}}\n")
    with pytest.raises(
        ConfigError,
        match=r"its records are in rows\.jsonl \(--jsonl\): copy that file to .*run/metrics\.jsonl",
    ):
        plot_runs([run], tmp_path / "curve.png")


def test_sampled_returns_are_dotted_beside(tmp_path):
    logger = JsonlLogger(tmp_path / "run" / "metrics.jsonl")
    for point in range(3):
        metrics = {"eval/avg_return": 9.0, "eval/sampled_avg_return": float(point)}
        logger.log(
            Record(kind="eval", env_steps=point, updates=0, wall_seconds=0.0, metrics=metrics)
        )
    logger.close()
    text = drawn_text([tmp_path / "run"], tmp_path / "both.svg", sampled=True)
    assert ">sampled actions<" in text and ">most likely actions<" in text
    assert "stroke-dasharray" in text
    with pytest.raises(ConfigError, match="no sampled form of 'train/loss'"):
        plot_runs([tmp_path / "run"], tmp_path / "no.svg", metric="train/loss", sampled=True)


@pytest.mark.parametrize(("size", "inches"), [("column", 3.3), in_full(("page", 6.8))])
def test_sizes_for_papers(tmp_path, size, inches):
    runs = [
        write_config(write_run(tmp_path / name), "ppo", env)
        for name, env in (("a", "E"), ("b", "F"))
    ]
    for number in (1, 2):
        path = plot_runs(runs[:number], tmp_path / f"{number}.png", size=size)
        assert png_size(path)[0] == round(150 * inches)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"band": "minmax"}, "unknown band 'minmax'; did you mean 'min_max'"),
        ({"center": "iqm"}, "unknown center 'iqm'"),
        ({"group": "env"}, "unknown group 'env'"),
        ({"size": "poster"}, "unknown size 'poster'"),
        ({"smooth": 0}, "smooth must be a positive integer"),
        (
            {"center": "median", "band": "standard_error"},
            "that of the mean, not of the median; use band='interval'",
        ),
    ],
)
def test_unknown_choices_are_refused(tmp_path, arguments, what):
    with pytest.raises(ConfigError, match=what):
        plot_runs([write_run(tmp_path / "a")], tmp_path / "curve.png", **arguments)


@pytest.mark.parametrize(("size", "is_below"), [("screen", False), ("column", True)])
def test_a_narrow_picture_has_its_caption_below(tmp_path, size, is_below):
    """Beside the title, it would lie on it."""
    run = write_config(write_run(tmp_path / "a", seeds=(0, 1)), "ppo", "gymnax/CartPole-v1")
    lines = drawn_text([run], tmp_path / "one.svg", size=size).splitlines()

    def place(words):
        (line,) = [line for line in lines if line.strip().startswith("<text") and words in line]
        x_y = re.search(r'translate\([\d.]+ ([\d.]+)\)|" y="([\d.]+)"', line)
        return float(x_y[1] or x_y[2])

    assert (place("thin: each seed") > place("environment steps")) == is_below


def test_a_picture_is_as_readable_as_the_umask_and_the_one_before_say(tmp_path):
    run, output = write_run(tmp_path / "a"), tmp_path / "curve.png"
    before = os.umask(0o077)
    try:
        plot_runs([run], output)
    finally:
        os.umask(before)
    assert stat.S_IMODE(output.stat().st_mode) == 0o600
    plot_runs([run], output)
    assert stat.S_IMODE(output.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "curve.png"]
