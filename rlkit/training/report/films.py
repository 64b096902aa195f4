"""Videos of runs, as part of the page."""

import base64
from collections.abc import Sequence
from pathlib import Path
from xml.etree.ElementTree import Element

from rlkit.training.logs.human_units import human_bytes
from rlkit.training.logs.loaded_run import LoadedRun
from rlkit.training.report.entries import Entry
from rlkit.training.report.html import element
from rlkit.training.video.movie_file import ENDINGS

MOST_BYTES = 32_000_000  # of a video: browsers read the whole page before they show it


def newest_film(run: LoadedRun) -> Path | None:
    """The newest video in the run's directory; None: there is none."""
    folder = run.directory / "videos"
    files = folder.iterdir() if folder.is_dir() else ()
    # A video that is still being recorded begins with a dot.
    films = [
        path
        for path in files
        if path.suffix.lower() in ENDINGS and not path.name.startswith(".") and path.is_file()
    ]
    return max(films, key=lambda path: (path.stat().st_mtime, path.name), default=None)


def films(entries: Sequence[Entry]) -> list[Element]:
    """A figure for each entry with a video: that of its first run that has one."""
    found = []
    for entry in entries:
        named = zip(entry.run_names, entry.runs, strict=True)
        paths = ((name, newest_film(run)) for name, run in named)
        found += [_figure(name, path) for name, path in paths if path is not None][:1]
    return found


def _figure(name: str, path: Path) -> Element:
    said = f"{name}: episodes of its policy ({path.name})"
    size = path.stat().st_size
    if size > MOST_BYTES:
        text = f"{said}, left out because of its {human_bytes(size)}; it is {path}."
        return element("p", text)
    content = base64.b64encode(path.read_bytes()).decode()
    if path.suffix.lower() == ".gif":
        film = element("img", src=f"data:image/gif;base64,{content}", alt=said)
    else:
        source = f"data:video/mp4;base64,{content}"
        film = element("video", src=source, controls="", loop="", muted="", aria_label=said)
    return element("figure", film, element("figcaption", said), class_="film")
