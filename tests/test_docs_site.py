"""The site of the documentation: strict, whole, and without a network."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("agents", "algorithms", "envs", "ops", "optimizers", "testing", "training", "xla_cpu")
REFERENCE = {path.name: path.read_text() for path in (ROOT / "docs" / "api").glob("*.md")}
LOADS = {  # what a browser fetches with a page
    "script": "src",
    "img": "src",
    "iframe": "src",
    "link": "href",
    "source": "src",
}


def exported(stub):
    """The names that a stub hands out, without packages."""
    text = (ROOT / "rlkit" / stub).read_text()
    names = set(re.findall(r"import (\w+) as \1\b", text))
    whole = re.search(r"__all__ = \[(.*?)\]", text, re.DOTALL)
    names |= set(re.findall(r'"(\w+)"', whole[1])) if whole else set()
    return names - set(PACKAGES)


def referred():
    """The names in the reference, as they are written there."""
    return [name for text in REFERENCE.values() for name in re.findall(r"^::: (\S+)$", text, re.M)]


@pytest.mark.fast
def test_every_public_name_is_in_the_reference_once():
    top = exported("__init__.pyi")
    wanted = {f"rlkit.{name}" for name in top - {"RlkitError"}} | {"rlkit.errors"}
    for package in PACKAGES:
        own = exported(f"{package}/__init__.pyi") - top
        wanted |= {f"rlkit.{package}.{name}" for name in own}
    assert sorted(referred()) == sorted(wanted)


@pytest.mark.fast
def test_every_error_is_in_the_reference():
    classes = re.findall(r"^class (\w+)\(", (ROOT / "rlkit" / "errors.py").read_text(), re.M)
    assert re.findall(r"^        - (\w+)$", REFERENCE["errors.md"], re.M) == classes


class Found(HTMLParser):
    """The links of a page, its ids, and what a browser loads with it."""

    def __init__(self):
        super().__init__()
        self.links, self.ids, self.loaded = [], set(), []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids |= {given.get("id"), given.get("name")}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag in LOADS and given.get(LOADS[tag]) and given.get("rel") != "canonical":
            self.loaded.append(given[LOADS[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """What each page of the site holds, by its file."""
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    done = subprocess.run(
        [*command, "--site-dir", str(directory)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {}
    for path in directory.rglob("*.html"):
        pages[path] = Found()
        pages[path].feed(path.read_text(encoding="utf-8"))
    return pages


@pytest.mark.full
@pytest.mark.process
def test_a_page_loads_nothing_from_elsewhere(site):
    foreign = [each for page in site.values() for each in page.loaded if urlsplit(each).netloc]
    assert len(site) > 40 and foreign == []
    for path in next(iter(site)).parent.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*['\"]?https?:", path.read_text(encoding="utf-8"))


@pytest.mark.full
@pytest.mark.process
def test_no_link_is_dead(site):
    """Neither to a page nor to a heading; the page of error 404 stands anywhere, so not its."""
    dead = []
    for path, page in site.items():
        for link in [*page.links, *page.loaded] if path.name != "404.html" else []:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
            anchor = unquote(parts.fragment)
            is_page = target in site
            if not target.is_file() or (is_page and anchor and anchor not in site[target].ids):
                dead.append(f"{path.name}: {link}")
    assert dead == []
