"""What stands outside of docs/ and belongs on the site: its pages, and the links to them.

Links in Markdown lead from file to file of the repository, as a code host follows them. Here they
become links from page to page. What is linked and is no page fails the strict build.
"""

import ast
import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "LICENSE": "license.md",
    "benchmarks/README.md": "benchmarks/index.md",
    "benchmarks/notes.md": "benchmarks/notes.md",
    "rlkit/presets/README.md": "presets.md",
    "rlkit/xla_cpu/README.md": "xla_cpu.md",
    "rlkit/xla_gpu/README.md": "xla_gpu.md",
    **{f"examples/{path.name}": f"examples/{path.stem}.md" for path in ROOT.glob("examples/*.py")},
}
"""Where a file of the repository is on the site."""
ORIGINS = {page: file for file, page in PAGES.items()}

LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")
NAMED = re.compile(r"\[([a-z_]+\.md)\]\(")
CODE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Adds the pages that are made from files outside of docs/."""
    for origin, page in PAGES.items():
        files.append(File.generated(config, page, content=content(ROOT / origin)))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """The text with its links turned from files to pages and titles; code stays as it is."""
    parts = CODE.split(markdown)  # text and code in turns
    parts[::2] = [LINK.sub(lambda link: target(link[1], page), titled(part)) for part in parts[::2]]
    return "".join(parts)


def titled(text: str) -> str:
    """Links that are called by a file, by the title of its page instead."""

    def name(link: re.Match[str]) -> str:
        file = ROOT / "docs" / link[1]
        title = re.match(r"# (.+)\n", file.read_text(encoding="utf-8")) if file.is_file() else None
        return f"[{title[1] if title else link[1]}]("

    return NAMED.sub(name, text)


def target(link: str, page: Page) -> str:
    """Where a link of the file leads on the site, as seen from its page."""
    here = page.file.src_uri
    origin = ORIGINS.get(here, f"docs/{here}")
    file = posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))
    if file not in PAGES and not file.startswith("docs/"):
        return link  # no page: the build says so
    destination = PAGES.get(file, file.removeprefix("docs/"))
    return os.path.relpath(destination, posixpath.dirname(here) or ".").replace(os.sep, "/")


def content(file: Path) -> str:
    """The Markdown of a page."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        return example(file.name, text)
    return text if file.suffix == ".md" else f"# {file.name.capitalize()}\n\n```text\n{text}```\n"


def example(name: str, source: str) -> str:
    """A script: what it shows, the command that runs it, its code.

    The command is the last paragraph of its docstring.
    """
    docstring = ast.get_docstring(ast.parse(source)) or ""
    says, _, command = docstring.rpartition("\n\n")
    code = source.split('"""', 2)[2].strip()
    return f"# {name}\n\n{says}\n\n```bash\n{command}\n```\n\n```python\n{code}\n```\n"
