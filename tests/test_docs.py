"""What README and docs say is true: Python runs, commands parse, links lead somewhere."""

import pkgutil
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from script_process import ScriptProcess

from rlkit.cli import flags
from rlkit.cli.check_env import CheckEnvFlags
from rlkit.cli.copy import CopyFlags
from rlkit.cli.evaluate import EvaluateFlags
from rlkit.cli.export import ExportFlags
from rlkit.cli.main import main
from rlkit.cli.plot import PlotFlags
from rlkit.cli.report import ReportFlags
from rlkit.cli.resume import ResumeFlags
from rlkit.cli.sweep_group import SweepGroupFlags
from rlkit.cli.video import VideoFlags
from rlkit.envs.ids import MIXTURE
from rlkit.envs.suites.table import ADAPTED

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
PROSE = [
    *PAGES,
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "benchmarks").glob("*.md")),
    *sorted((ROOT / "rlkit").rglob("*.md")),
]
COLUMNS = 100  # of a line of prose
FLAGS = {
    "resume": ResumeFlags,
    "sweep-group": SweepGroupFlags,
    "copy": CopyFlags,
    "evaluate": EvaluateFlags,
    "video": VideoFlags,
    "export": ExportFlags,
    "plot": PlotFlags,
    "report": ReportFlags,
    "check-env": CheckEnvFlags,
}


# Pages name a class of the reader's own; here stands one that exists.
PLACEHOLDER, OWN_CLASS = "my_package.my_module:MyEnv", "host_twins:SizedCounter"


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """(line of the first row, text) of every block of that language."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, match.start(1)) + 1, match[1]) for match in found]


def program(page: Path, *, without: str | None = None) -> str:
    """All Python of a page in order, its lines numbered as they are there, so that a traceback
    leads to the page. Blocks that contain `without` are left out.
    """
    rows: list[str] = []
    for line, text in blocks(page, "python"):
        if without is None or without not in text:
            rows += [""] * (line - 1 - len(rows)) + text.splitlines()
    return "\n".join(rows) + "\n"


@pytest.fixture(scope="module")
def scripts():
    with ScriptProcess() as process:
        yield process


PYTHON_PAGES = [page for page in PAGES if blocks(page, "python")]


@pytest.mark.full
@pytest.mark.process
@pytest.mark.parametrize("page", PYTHON_PAGES, ids=name)
def test_python_runs(page, scripts, tmp_path):
    if page.name == "suites.md":  # shows an opponent of one's own
        pytest.importorskip("pgx")
    (tmp_path / "page.py").write_text(program(page), encoding="utf-8")
    done = scripts.run(tmp_path / "page.py", directory=tmp_path)
    assert done.returncode == 0, f"{name(page)}: {done.stderr[-3000:]}"


@pytest.mark.full
@pytest.mark.process
@pytest.mark.parametrize("page", PYTHON_PAGES, ids=name)
def test_python_is_well_typed(page, tmp_path):
    """An editor shows no error in what people copy from a page."""
    # An environment with mistakes on purpose, of which pyright sees one as well.
    (tmp_path / "page.py").write_text(program(page, without="Forgetful"), encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "page.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{name(page)}: {done.stdout[-3000:]}"


def commands(page: Path) -> list[list[str]]:
    """The words of each command; what comes after `>` is the shell's, as is `\\` at an end."""
    texts = (text.replace("\\\n", " ") for _, text in blocks(page, "bash"))
    rows = (row.partition(" > ")[0] for text in texts for row in text.splitlines())
    return [words for row in rows if (words := shlex.split(row, comments=True))]


def files(page: Path) -> dict[str, str]:
    """The files that a page writes out, by the names in their first rows: "# phases.yaml"."""
    texts = [text for _, text in blocks(page, "yaml")]
    named = [(re.match(r"# (\S+\.yaml)\n", text), text) for text in texts]
    return {match[1]: text for match, text in named if match}


FILES = {file: text for page in PAGES for file, text in files(page).items()}
COMMANDS = [(name(page), words) for page in PAGES for words in commands(page)]


@pytest.mark.parametrize(
    ("page", "words"), COMMANDS, ids=[" ".join(words) for _, words in COMMANDS]
)
def test_command_exists(page, words, capsys, tmp_path, monkeypatch):
    program, arguments = words[0], words[1:]
    for suite in {word.partition("/")[0] for word in arguments} & ADAPTED.keys():
        if page == "docs/suites.md":
            pytest.importorskip(ADAPTED[suite].package)
    for file, text in FILES.items():
        (tmp_path / file).write_text(text)
    monkeypatch.chdir(tmp_path)
    if program == "make":
        # VARIABLE=value, or a target
        known = [r"^{} \?=" if "=" in argument else "^{}:" for argument in arguments]
        rows = [
            row.format(argument.partition("=")[0])
            for row, argument in zip(known, arguments, strict=True)
        ]
        assert all(re.search(row, (ROOT / "Makefile").read_text(), re.MULTILINE) for row in rows)
    elif program == "python":
        assert (ROOT / arguments[0]).is_file()
    elif program == "pip":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        install, editable, where = arguments
        named = where.removeprefix(".").strip("[]")
        assert (install, editable, where[0]) == ("install", "-e", ".")
        assert set(filter(None, named.split(","))) <= set(project["optional-dependencies"])
    else:
        assert program == "rlkit", f"{page}: no test for the command {program}"
        check_rlkit(arguments)


def check_rlkit(arguments: list[str]) -> None:
    """Runs the command where that writes nothing, else reads its flags."""
    if arguments[0] == "train":
        assert (
            main([*(OWN_CLASS if word == PLACEHOLDER else word for word in arguments), "--dry-run"])
            == 0
        )
    elif arguments[0] == "sweep":
        assert main([*arguments, "--dry-run"]) == 0
    elif arguments[0] in FLAGS:
        flags.parse(FLAGS[arguments[0]], arguments[1:], command=f"rlkit {arguments[0]}")
    else:
        assert main(arguments) == 0


@pytest.mark.fast
@pytest.mark.parametrize("page", PROSE, ids=name)
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
    paths = [page.parent / target for target in targets if not re.match(r"[a-z]+:", target)]
    # Paths in backticks are meant from the root of the repository.
    paths += [
        ROOT / path
        for path in re.findall(r"`((?:rlkit|tests|examples|benchmarks|docs|\.ci)/[\w./-]*)`", text)
        if path != MIXTURE
    ]
    assert [str(path) for path in paths if not path.exists()] == []


def names(page: Path) -> list[str]:
    """What prose names of rlkit, such as `rlkit.envs.TimeLimit`; blocks of code are left out."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return re.findall(r"`(rlkit(?:\.\w+)+)\b[^`]*`", text)


@pytest.mark.parametrize("page", PROSE, ids=name)
def test_names_exist(page):
    for dotted in names(page):
        assert pkgutil.resolve_name(dotted) is not None, dotted


def long_lines(text: str) -> list[int]:
    """The numbers of lines of prose that are too long; code, tables and links may be."""
    found, in_code = [], False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("```"):
            in_code = not in_code
        elif not in_code and not line.startswith("|"):
            prose = re.sub(r"\]\([^)]*\)", "]", line)
            if len(prose) > COLUMNS:
                found.append(number)
    return found


@pytest.mark.fast
@pytest.mark.parametrize("page", PROSE, ids=name)
def test_prose_wraps(page):
    assert long_lines(page.read_text(encoding="utf-8")) == []


@pytest.mark.fast
def test_a_long_line_is_seen():
    words = "word " * 25  # 125 columns
    link = f"A [short text](https://{'x' * COLUMNS}.example)"
    text = f"{words}\n\n| {words} |\n\n```python\n# {words}\n```\n\n- {words}\n{link}\n"
    assert long_lines(text) == [1, 9]


@pytest.mark.fast
def test_readme_shows_every_example():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [
        path.name
        for path in (ROOT / "examples").glob("*.py")
        if f"examples/{path.name}" not in text
    ] == []


@pytest.mark.fast
def test_a_broken_page_is_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A\n\n```python\nx = 1\n```\n\ntext\n\n```python\nassert x == 2\n```\n\n```bash\nrlkit"
        " tarin  # a typo\n```\n"
    )
    with pytest.raises(AssertionError):
        exec(program(page), {})
    assert program(page).splitlines()[9] == "assert x == 2"
    assert commands(page) == [["rlkit", "tarin"]]
    assert main(commands(page)[0][1:]) == 2
