"""Bad input is refused in one line, with the cure, before anything is compiled or written."""

import ast
import pathlib
import random
import sys

import pytest
from bad_inputs import ROWS, BadInput, Drawing

from rlkit.cli.main import main
from rlkit.envs.jittable.vectorized import vectorize
from rlkit.errors import RlkitError
from rlkit.training.compile.aot_compile import Compiled

REFUSED = [row for row in ROWS if not row.shown_by]
ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture
def compiles_nothing(monkeypatch):
    """Fails the test if a program is compiled."""

    def refuse(*_: object) -> None:
        raise AssertionError("compiled")

    monkeypatch.setattr(Compiled, "compile", refuse)


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: f"{row.number}-{row.what}")
def test_refused(row: BadInput, tmp_path, monkeypatch, capsys, compiles_nothing):
    monkeypatch.chdir(tmp_path)
    for name, text in row.files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for name in row.hidden:
        monkeypatch.setitem(sys.modules, name, None)
    if row.call is None:
        assert main(row.command) == 2
        out, said = capsys.readouterr()
        assert out == "" and said.startswith("rlkit: error: ")
    else:
        with pytest.raises(RlkitError) as caught:
            row.call()
        said = str(caught.value).partition("\n\nTraceback")[0] + "\n"
    assert said.count("\n") == 1 and len(said) < 1000
    missing = [part for part in row.said if part not in said]
    assert not missing, said
    files = (path for path in tmp_path.rglob("*") if not path.is_dir())
    assert {str(path.relative_to(tmp_path)) for path in files} == set(row.files)


@pytest.mark.fast
def test_all_sixty_have_a_row():
    assert {row.number for row in ROWS} == {*range(1, 61), None}


@pytest.mark.fast
def test_the_tests_that_rows_name_exist():
    for row in ROWS:
        if row.shown_by:
            file, _, name = row.shown_by.partition("::")
            tree = ast.parse((ROOT / file).read_text())
            assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_a_generator_that_is_held_but_not_drawn_from_is_no_fault():
    env = vectorize(Drawing(generator=random.Random(0), method="neither"), 2)  # pyright: ignore
    assert env.num_envs == 2
