"""Small modules, short functions, empty packages: what grows past a reader's head is split, not excused."""

from __future__ import annotations

import ast
from typing import Final

import pytest

from tests.support import repo

MAX_MODULE_LINES: Final = 400
MAX_FUNCTION_LINES: Final = 70


def functions(path: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(repo.tree(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_modules_are_short() -> None:
    lengths = {path: repo.text(path).count("\n") for path in repo.python_files()}

    assert {path: lines for path, lines in lengths.items() if lines > MAX_MODULE_LINES} == {}


def test_functions_are_short() -> None:
    lengths = {
        f"{path}:{node.lineno} {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for path in repo.python_files()
        for node in functions(path)
    }

    assert {name: lines for name, lines in lengths.items() if lines > MAX_FUNCTION_LINES} == {}


def test_package_files_hold_a_docstring_only() -> None:
    """A static graph does not count what a parent package imports: so parents import nothing."""
    packages = [path for path in repo.python_files() if path.endswith("__init__.py")]

    assert [path for path in packages if len(repo.tree(path).body) != 1 or not ast.get_docstring(repo.tree(path))] == []


@pytest.mark.parametrize("room", repo.ROOMS)
def test_every_module_says_what_it_is(room: str) -> None:
    silent = [path for path in repo.python_files(room) if not ast.get_docstring(repo.tree(path))]

    assert silent == []
