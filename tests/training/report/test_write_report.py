"""Reports, as a parser reads them: what is in them, that it is safe, and what is refused."""

import base64
import hashlib
import json
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest
import yaml
from html_page import Page
from written_runs import write_run

import rlkit
from rlkit.cli.main import main
from rlkit.errors import ConfigError, RunDirectoryError
from rlkit.training.logs.jsonl_logger import JsonlLogger
from rlkit.training.logs.records import Record
from rlkit.training.report import films
from rlkit.training.report.charts import thinned

pytestmark = pytest.mark.fast
SCALES = pathlib.Path(films.__file__).parent / "assets" / "scales.js"
SUMMARY = {"versions": {"jax": "0.10"}, "fingerprint": {"cores": 2}, "eval_return_std": 3.0}
HOSTILE = '</script><script>hacked=1</script><img src=x onerror="hacked=1">'


def report(tmp_path, *runs, **settings):
    return Page(rlkit.write_report(runs, tmp_path / "new" / "report.html", **settings))


def data(page):
    """What the script draws."""
    (found,) = (each for each in page.all("script") if each.attributes.get("id") == "data")
    return json.loads(found.text)


def in_section(page, name, tag):
    """The texts of the elements of a kind in a section."""
    sections, found = [each for each in page.all("section") if each["id"] == name], []
    for section in sections:
        start = page.found.index(section)
        for each in page.found[start + 1 :]:
            if "section" not in each.inside:
                break
            found += [each.text] if each.tag == tag else []
    return found


def test_a_report_of_one_run(tmp_path):
    run = write_run(tmp_path / "mine", seeds=2, summary=SUMMARY)
    page = report(tmp_path, run)
    assert page.texts("h1") == page.texts("title") == ["mine: ppo on gymnax/CartPole-v1"]
    assert page.texts("h2")[:3] == ["Results", "Warnings", "Curves"]
    row = page.rows("results")[1]
    assert row[:5] == ["mine", "ppo", "gymnax/CartPole-v1", "2", "4,000"]
    assert row[5:7] == ["40.5 [40, 41]", "40.5 [40, 41]at 4,000 steps"]
    assert row[7:] == ["250", "8s", "unknown"]
    assert ["jax", "0.10"] in page.rows("facts") and ["cores", "2"] in page.rows("facts")
    assert in_section(page, "warnings", "p") == ["None: no run gave a warning, and none failed."]


def test_curves_are_those_that_people_look_at_then_the_others(tmp_path):
    page = report(tmp_path, write_run(tmp_path / "mine", seeds=3))
    captions = page.texts("figcaption")
    assert captions[0] == "Evaluation return eval/avg_return"
    assert captions.index("Loss train/loss") < captions.index("train/own")
    (line,) = data(page)["charts"][0]
    assert line["x"]["env_steps"] == [0, 1000, 2000, 3000, 4000]
    assert line["x"]["wall_seconds"] == [0, 2, 4, 6, 8] and line["x"]["updates"] == [0, 1, 2, 3, 4]
    assert line["y"] == [1, 11, 21, 31, 41] and line["seeds"][2] == [2, 12, 22, 32, 42]
    assert line["high"][0] == pytest.approx(1 + 1 / np.sqrt(3), abs=1e-5)
    length = captions.index("Evaluation episode length (steps) eval/avg_length")
    assert data(page)["charts"][length][0]["y"] == [5, None, 5, 5, 5]  # JSON has no NaN
    settings = {"metrics": ["eval/avg_return"], "smooth": 2, "overwrite": True}
    ((line,),) = data(report(tmp_path, tmp_path / "mine", **settings))["charts"]
    assert line["y"] == [1, 6, 16, 26, 36]


def test_groups_are_rows_and_curves(tmp_path):
    for seed in range(2):
        write_run(tmp_path / f"ppo-{seed}", seeds=2, lift=10.0 * seed, settings={"seed": seed})
        write_run(tmp_path / f"dqn-{seed}", algorithm="dqn", settings={"seed": seed})
    write_run(tmp_path / "other", env="gymnax/Acrobot-v1")
    page = report(tmp_path, *sorted(tmp_path.iterdir()), group="algorithm")
    assert [row[0] for row in page.rows("results")[1:]] == [
        "dqn",
        "ppo on gymnax/Acrobot-v1",
        "ppo on gymnax/CartPole-v1",
    ]
    assert [row[3] for row in page.rows("results")[1:]] == ["2 (2 runs)", "1", "4 (2 runs)"]
    assert page.texts("h3") == ["gymnax/CartPole-v1", "gymnax/Acrobot-v1"]
    first = data(page)["charts"][0]
    assert [line["entry"] for line in first] == [0, 2] and len(first[1]["seeds"]) == 4
    assert first[1]["y"][0] == pytest.approx(np.mean([0, 1, 10, 11]))


def test_what_is_smoothed_are_the_points_that_were_logged(tmp_path):
    """A run is smoothed before it is joined with those of other steps, whose points lie between."""
    runs = [write_run(tmp_path / "late", points=3, first_step=500), write_run(tmp_path / "early")]
    page = report(tmp_path, *runs, group="algorithm", metrics=["eval/avg_return"], smooth=2)
    ((line,),) = data(page)["charts"]
    assert line["x"]["env_steps"] == [500, 1000, 1500, 2000, 2500]
    assert line["seeds"] == [[0, 2.5, 5, 10, 15], [2.5, 5, 10, 15, 20]]


def test_settings_that_differ_come_first(tmp_path):
    runs = [
        write_run(tmp_path / f"run-{rate}", settings={"hyperparameters": {"learning_rate": rate}})
        for rate in (0.1, 0.2)
    ]
    page = report(tmp_path, *runs)
    rate = ["hyperparameters.learning_rate", "0.1", "0.2"]
    env = ["env.id", "gymnax/CartPole-v1", "gymnax/CartPole-v1"]
    names = ["Name", "run-0.1", "run-0.2"]
    assert page.rows("facts") == [names, rate, names, ["algorithm", "ppo", "ppo"], env, rate]
    marked = [each.text for each in page.all("mark") if "td" not in each.inside]
    assert marked == ["marked", "hyperparameters.learning_rate"]
    same = report(
        tmp_path,
        runs[0],
        write_run(tmp_path / "c" / "run-0.1", settings={"hyperparameters": {"learning_rate": 0.1}}),
        overwrite=True,
    )
    assert "All runs have the same settings." in in_section(same, "settings", "p")


def test_secrets_stay_in_the_run_directory(tmp_path):
    run = write_run(tmp_path / "mine", settings={"env_arguments": {"api_key": "1234", "size": 8}})
    path = rlkit.write_report(run, tmp_path / "report.html")
    assert "1234" not in path.read_text()
    assert ["env_arguments.api_key", "<redacted>"] in Page(path).rows("facts")


def test_a_deviation_is_that_of_the_last_evaluation(tmp_path):
    """The summary of a run that trains on is that of its part before."""
    for steps, is_shown in ((4000, True), (2000, False)):
        summary = SUMMARY | {"env_steps": steps}
        run = write_run(tmp_path / f"run-{steps}", summary=summary)
        page = report(tmp_path, run, overwrite=True)
        assert any("± 3" in cell for cell in page.rows("results")[1]) == is_shown


def test_an_error_is_named_by_its_own_line(tmp_path):
    """Notes may follow it, such as JAX's on the frames that it left out."""
    trace = "Traceback (most recent call last):\n  File\nValueError: no\nFor simplicity, JAX"
    page = report(tmp_path, write_run(tmp_path / "run", said=[("error", trace)]))
    assert "ValueError: no" in in_section(page, "warnings", "li")[0].split("everything")[0]


def test_warnings_and_how_a_run_ended(tmp_path):
    trace = "Traceback (most recent call last):\n  File\nValueError: no"
    warnings = [("warning", f"skipped {n}") for n in range(25)]
    said = [("event", "started"), *warnings, ("error", trace)]
    run = write_run(tmp_path / "bad", said=said)
    (run / "status.json").write_text(json.dumps({"status": "failed", "reason": "ValueError: no"}))
    page = report(tmp_path, write_run(tmp_path / "good"), run)
    items = in_section(page, "warnings", "li")
    assert items[0] == "bad: the run failed: ValueError: no"
    assert items[1] == "bad: skipped 6 (at 4,000 steps)"
    assert items[20].startswith("bad: ValueError: no") and trace in items[20]
    assert items[21:] == ["bad: and 6 earlier ones, see metrics.jsonl"]
    assert ["4,000", "event", "started"] in page.rows("log")


def test_videos_are_in_the_page(tmp_path, monkeypatch):
    runs = [write_run(tmp_path / name) for name in ("a", "b", "c")]
    for run, name in zip(runs, ("old.gif", "film.mp4", "none.txt"), strict=True):
        (run / "videos").mkdir()
        (run / "videos" / name).write_bytes(b"film of " + name.encode())
    (runs[1] / "videos" / ".new-1.mp4").write_bytes(b"half of a film")
    page = report(tmp_path, *runs)
    (image,), (video,) = page.all("img"), page.all("video")
    assert image["src"] == f"data:image/gif;base64,{base64.b64encode(b'film of old.gif').decode()}"
    assert video["src"].startswith("data:video/mp4;base64,") and "controls" in video.attributes
    assert image["alt"] and video["aria-label"]
    monkeypatch.setattr(films, "MOST_BYTES", 3)
    page = report(tmp_path, *runs, overwrite=True)
    said = in_section(page, "films", "p")
    assert not page.all("video") and "left out because of its 16 bytes" in said[1]


def test_text_of_a_run_is_shown_as_text(tmp_path):
    """Names, settings, logs and metrics that look like tags or scripts."""
    name = HOSTILE.replace("/", "")
    said = [(kind, HOSTILE) for kind in ("warning", "error", "event")]
    settings = {"note": HOSTILE, HOSTILE: 1}
    run = write_run(tmp_path / name, algorithm=HOSTILE, env=HOSTILE, settings=settings, said=said)
    row = {"kind": "user", "env_steps": 1, "updates": 1, "wall_seconds": 1.0, "seed": None}
    with open(run / "metrics.jsonl", "a") as file:
        file.write(json.dumps(row | {"metrics": {f"user/{HOSTILE}": 1.0}}) + "\n")
    page = report(tmp_path, run, write_run(tmp_path / "b"), title=HOSTILE)
    assert len(page.all("script")) == 2 and not page.all("img")
    assert not any(name.startswith("on") for each in page.found for name in each.attributes)
    assert page.texts("h1") == [HOSTILE] and ["note", HOSTILE, "–"] in page.rows("facts")
    assert page.rows("results")[1][:3] == [name, HOSTILE, HOSTILE]
    assert data(page)["entries"] == [name, "b"]
    assert f"user/{HOSTILE}" in page.texts("figcaption")


def test_nothing_is_fetched_and_nothing_else_runs(tmp_path):
    path = rlkit.write_report(write_run(tmp_path / "mine"), tmp_path / "report.html")
    page = Page(path)
    sources = ("src", "href", "data", "action", "poster", "srcset")
    leads = [each.attributes[x] for each in page.found for x in sources if x in each.attributes]
    assert leads and all(lead.startswith(("#", "data:")) for lead in leads)
    # The only address is the name of SVG's elements.
    addresses = set(re.findall(r"\w+://[^\s\"'`)]+", path.read_text()))
    assert addresses == {"http://www.w3.org/2000/svg"}
    (policy,) = (each["content"] for each in page.all("meta") if "http-equiv" in each.attributes)
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy
    (style,), script = page.texts("style"), page.all("script")[-1].text
    for kind, text in (("style", page.all("style")[0].text), ("script", script)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "url(" not in style and "@import" not in style
    assert not any("style" in each.attributes for each in page.found)


def test_a_page_that_everybody_can_read(tmp_path):
    """Headings without gaps, captions, names of rows and columns, names of charts."""
    runs = [write_run(tmp_path / name, env=name) for name in ("a", "b")]
    page = report(tmp_path, *runs)
    assert page.all("html")[0]["lang"] == "en"
    levels = [int(each.tag[1]) for each in page.found if re.fullmatch(r"h\d", each.tag)]
    assert levels[0] == 1 and max(np.diff(levels)) <= 1
    assert len(page.all("caption")) == len(page.all("table")) == 3
    assert {each["scope"] for each in page.all("th")} == {"row", "col"}
    plots = [each for each in page.all("div") if each.attributes.get("class") == "plot"]
    assert plots[0]["aria-label"] == "Evaluation return over environment steps: a from 0 to 40."
    assert all(each["tabindex"] == "0" for each in plots)
    named = {each["id"] for each in page.found if "id" in each.attributes}
    assert all(each["href"][1:] in named for each in page.all("a"))


def test_a_run_that_cannot_be_filmed_is_reported_all_the_same(tmp_path, capsys, monkeypatch):
    run = write_run(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(run), "--video"]) == 0
    said = capsys.readouterr()
    assert said.err.startswith(f"rlkit: no video of {run}: ") and said.err.count("\n") == 1
    assert said.out == "report.html\n" and Page(tmp_path / "report.html").rows("results")


def test_an_untrained_network_is_never_the_best(tmp_path):
    run = tmp_path / "run"
    logger = JsonlLogger(run / "metrics.jsonl")
    for updates, value in enumerate((90.0, 10.0, 30.0, 20.0)):
        when = {"env_steps": 100 * updates, "updates": updates, "wall_seconds": 1.0}
        logger.log(Record(kind="eval", metrics={"eval/avg_return": value}, **when))
        page = report(tmp_path, run, overwrite=True)
        best = page.rows("results")[1][6]
        assert best == {0: "–", 1: "10at 100 steps"}.get(updates, "30at 200 steps")
    logger.close()


def test_a_run_whose_records_are_elsewhere_says_how_far_it_came(tmp_path):
    run = write_run(tmp_path / "run", summary=SUMMARY | {"env_steps": 4000, "wall_seconds": 8.0})
    (run / "metrics.jsonl").unlink()
    row = report(tmp_path, run).rows("results")[1]
    assert (row[4], row[8]) == ("4,000", "8s")


@pytest.mark.process
@pytest.mark.skipif(shutil.which("node") is None, reason="no node on the PATH")
def test_ticks_of_a_short_stretch_are_told_exactly():
    program = SCALES.read_text() + (
        "console.log(JSON.stringify([countTicks(1e6, 1001000, 4), countTicks(123456, 123460, 4),"
        " countTicks(0, 4000, 4), durationTicks(10000, 10010, 2)]"
        ".map((found) => found.map((each) => each.text))))"
    )
    said = subprocess.run(["node", "-e", program], capture_output=True, check=True, text=True)
    assert json.loads(said.stdout) == [
        ["1M", "1.00025M", "1.0005M", "1.00075M", "1.001M"],
        ["123.456k", "123.457k", "123.458k", "123.459k", "123.46k"],
        ["0", "1k", "2k", "3k", "4k"],
        ["2.778 h", "2.78 h"],
    ]


def test_a_run_that_has_only_begun(tmp_path):
    run = tmp_path / "new"
    run.mkdir()
    (run / "config.yaml").write_text(yaml.safe_dump({"algorithm": "ppo"}))
    page = Page(rlkit.write_report(run, tmp_path / "report.html"))
    assert page.rows("results")[1][2:9] == ["–", "1", "0", "–", "–", "–", "0s"]
    assert "Nothing was logged yet." in in_section(page, "curves", "p")
    assert "No versions recorded: runs say this when they end." in in_section(page, "versions", "p")


def test_mistakes_name_the_fix(tmp_path):
    run = write_run(tmp_path / "mine")
    old = tmp_path / "report.html"
    old.write_text("mine")
    for settings, said in [
        ({}, r"report.html already exists; choose another name, or overwrite it"),
        ({"path": tmp_path / "report.pdf"}, r"a report is an \.html file, .*; write report\.html"),
        ({"path": run / "config.yaml" / "x.html"}, "cannot write .*; choose another file"),
        ({"path": "."}, r"\. is a directory; name a file in it: report\.html"),
        ({"path": "/"}, r"/ is a directory; name a file in it: /report\.html"),
        ({"group": "algoritm"}, "unknown group 'algoritm'; did you mean 'algorithm'"),
        ({"center": "median", "band": "standard_error"}, "the standard error is that of the mean"),
        ({"smooth": 0}, "smooth must be a positive integer"),
        ({"metrics": ["train/los"], "path": tmp_path / "b.html"}, "did you mean 'train/loss'"),
        ({"run_dirs": [run, run], "path": tmp_path / "b.html"}, "mine is given twice"),
        ({"run_dirs": []}, "no run to report"),
    ]:
        with pytest.raises(ConfigError, match=said):
            rlkit.write_report(**{"run_dirs": run, "path": old, **settings})
    with pytest.raises(RunDirectoryError, match="nothing does not contain a run"):
        rlkit.write_report(tmp_path / "nothing", tmp_path / "b.html")
    assert old.read_text() == "mine" and not (tmp_path / "b.html").exists()
    rlkit.write_report(run, old, overwrite=True)
    assert old.read_text().startswith("<!DOCTYPE html>")


def test_long_lines_are_thinned_without_losing_spikes():
    values = np.sin(np.arange(5000.0))
    values[[1234, 4321]] = 9.0, -9.0
    values[:10] = np.nan
    kept = thinned(values, 100)
    assert len(kept) <= 100 and {0, 1234, 4321, 4999} <= set(kept.tolist())
    assert (np.diff(kept) > 0).all() and len(thinned(values[:100], 100)) == 100
