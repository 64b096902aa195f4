"""Reports in a real browser: curves are drawn, values follow the pointer, nothing is fetched."""

import json

import numpy as np
import pytest
from browser import find_browser, open_browser
from PIL import Image
from written_runs import write_run

import rlkit

BROWSER = find_browser()
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome on the PATH"),
]
HOSTILE = '</script><script>hacked=1</script><img src=x onerror="hacked=1">'
TEXTS = "[...document.querySelector('.plot').querySelectorAll('text')].map((x) => x.textContent)"
LINES = "document.querySelector('.plot > svg').querySelectorAll('.line').length"
VALUES = "document.querySelector('.plot .values')"


@pytest.fixture(scope="module")
def browser():
    assert BROWSER is not None
    with open_browser(BROWSER) as page:
        yield page


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A report of two runs, of which one has two seeds, and one a hostile name."""
    folder = tmp_path_factory.mktemp("runs")
    runs = [
        write_run(folder / "ppo", seeds=2),
        write_run(folder / HOSTILE.replace("/", ""), lift=100.0, said=[("warning", HOSTILE)]),
    ]
    return rlkit.write_report(runs, folder / "report.html", title=HOSTILE)


def plot(browser):
    """Left, top, width and height of the first chart, which is scrolled into view."""
    found = browser.run(
        "document.querySelector('.plot').scrollIntoView();"
        "JSON.stringify(document.querySelector('.plot').getBoundingClientRect())"
    )
    box = json.loads(found)
    return [box[name] for name in ("left", "top", "width", "height")]


def point(browser, share, kind="Moved"):
    """Moves the pointer to a place along the first chart, from 0 to 1."""
    left, top, width, height = plot(browser)
    browser.mouse(kind, left + share * width, top + height / 2)


def test_it_opens_without_complaints_and_fetches_nothing(browser, path):
    browser.open(path)
    assert browser.run("document.documentElement.dataset.ready") == ""
    assert browser.requests == [path.as_uri()] and browser.complaints == []
    assert browser.run("typeof hacked") == "undefined"
    assert browser.run("document.querySelector('h1').textContent") == HOSTILE
    drawn = browser.run("document.querySelectorAll('.plot > svg .line').length")
    assert drawn == 2 * 4  # two runs, four charts, and one more that waits to be seen
    browser.run("document.querySelector('#curves details').open = true")
    browser.run("new Promise((done) => setTimeout(done, 50))")
    assert browser.run("document.querySelectorAll('.plot > svg .line').length") == 2 * 5


def test_what_the_page_did_not_bring_is_not_let_in(browser, path):
    browser.open(path)
    for tag, name, value in (("script", "text", "x = 1"), ("img", "src", f"{path.as_uri()}.png")):
        made = f"Object.assign(document.createElement('{tag}'), {{{name}: '{value}'}})"
        browser.run(f"document.body.append({made})")
    assert browser.run("typeof x") == "undefined"
    assert sum("Content Security Policy" in text for text in browser.complaints) == 2


def test_values_follow_the_pointer(browser, path):
    browser.open(path)
    point(browser, 0.99)
    said = browser.run(f"{VALUES}.innerText").split("\n")
    assert said[0] == "4,000 environment steps" and said[2] == "140" and said[3] == "ppo"
    assert said[4].startswith("40.5 [40, 41")
    browser.mouse("Moved", 1, 1)
    assert browser.run(f"{VALUES}.hidden") is True


def test_arrow_keys_read_the_values_out(browser, path):
    browser.open(path)
    browser.run("document.querySelector('.plot').focus()")
    for key in ("End", "ArrowLeft"):
        browser.press(key)
    said = browser.run("document.getElementById('spoken').textContent")
    assert said.startswith("3,000 environment steps: ") and "ppo 30.5 [" in said
    browser.press("Escape")
    assert browser.run(f"{VALUES}.hidden") is True


def test_a_run_can_be_hidden(browser, path):
    """And the y axis then fits those that are left."""
    browser.open(path)
    button = "document.querySelectorAll('#legend button')[1]"
    assert "100" in browser.run(TEXTS) and browser.run(LINES) == 2
    browser.run(f"{button}.click()")
    assert "100" not in browser.run(TEXTS) and browser.run(LINES) == 1
    assert browser.run(f"{button}.getAttribute('aria-pressed')") == "false"


def test_the_axis_and_a_part_of_it(browser, path):
    browser.open(path)
    browser.run(
        "const axis = document.getElementById('axis'); axis.value = 'wall_seconds';"
        "axis.dispatchEvent(new Event('change'))"
    )
    assert browser.run(f"{TEXTS}.at(-1)") == "wall time" and "8 s" in browser.run(TEXTS)
    for kind, share in (("Moved", 0.5), ("Pressed", 0.5), ("Moved", 0.8), ("Released", 0.8)):
        point(browser, share, kind)
    assert "8 s" not in browser.run(TEXTS) and "5 s" in browser.run(TEXTS)
    browser.run("document.getElementById('whole').click()")
    assert "8 s" in browser.run(TEXTS)


def test_it_follows_the_scheme_and_fits_a_narrow_window(browser, path, tmp_path):
    shades = {}
    for dark in (False, True):
        browser.open(path, width=380, height=700, dark=dark)
        browser.picture(tmp_path / "page.png", whole=False)
        with Image.open(tmp_path / "page.png") as picture:
            pixels = np.asarray(picture.convert("L"))
        shades[dark] = np.median(pixels)
        assert pixels.std() > 5, "nothing is drawn"
        assert browser.run("document.documentElement.scrollWidth") <= 380
    assert shades[False] > 200 and shades[True] < 60
