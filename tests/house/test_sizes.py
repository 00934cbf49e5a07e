"""Small modules, short functions, empty packages: what grows past a reader's head is split, not excused."""

from __future__ import annotations

import ast
from typing import Final

import pytest

from tests.support import repo

MAX_MODULE_LINES: Final = 400
MAX_FUNCTION_LINES: Final = 70


@pytest.mark.parametrize("path", repo.python_files())
def test_module_is_short(path: str) -> None:
    assert len(repo.text(path).splitlines()) <= MAX_MODULE_LINES


@pytest.mark.parametrize("path", repo.python_files())
def test_functions_are_short(path: str) -> None:
    functions = [node for node in ast.walk(repo.tree(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = {
        f"{node.name} (line {node.lineno})": (node.end_lineno or node.lineno) - node.lineno + 1 for node in functions
    }

    assert {name: length for name, length in lengths.items() if length > MAX_FUNCTION_LINES} == {}


@pytest.mark.parametrize("path", [path for path in repo.python_files() if path.endswith("__init__.py")])
def test_package_file_holds_a_docstring_only(path: str) -> None:
    """A static graph does not count what a parent package imports: so parents import nothing."""
    body = repo.tree(path).body

    assert len(body) == 1
    assert ast.get_docstring(repo.tree(path))


@pytest.mark.parametrize("room", repo.ROOMS)
def test_every_module_says_what_it_is(room: str) -> None:
    silent = [path for path in repo.python_files(room) if not ast.get_docstring(repo.tree(path))]

    assert silent == []
