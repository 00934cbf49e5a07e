"""The repository as the house tests see it: its files, its rooms, its modules."""

from __future__ import annotations

import ast
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
DISTRIBUTION: Final = "modelforge"
ROOMS: Final = ("adapters", "bus", "controller", "modelforge", "node_agent", "observability", "tui")
GIT_S: Final = 20


@cache
def files() -> tuple[str, ...]:
    """Every file that is tracked, or would be by `git add`; paths relative to the root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=GIT_S).stdout.decode()
    return tuple(sorted(path for path in listed.split("\0") if path and (ROOT / path).is_file()))


def python_files(*folders: str) -> list[str]:
    """Python files below these folders (all of them when none is named)."""
    wanted = tuple(f"{folder}/" for folder in folders)
    return [path for path in files() if path.endswith(".py") and (not wanted or path.startswith(wanted))]


def module_name(path: str) -> str:
    """`bus/messages/api.py` -> `bus.messages.api`; a package's `__init__.py` -> the package."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def modules(room: str) -> list[str]:
    """Modules of one room that may be imported without running a program."""
    return [module_name(path) for path in python_files(room) if not path.endswith("/__main__.py")]


@cache
def text(path: str) -> str:
    """A file's text; bytes that are not UTF-8 are shown as escapes."""
    return (ROOT / path).read_text(encoding="utf-8", errors="backslashreplace")


@cache
def tree(path: str) -> ast.Module:
    """A Python file's syntax tree."""
    return ast.parse(text(path), filename=path)


@cache
def imported_roots(path: str) -> frozenset[str]:
    """First names of everything that a file imports, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name.split(".", maxsplit=1)[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".", maxsplit=1)[0])
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "importlib.import_module":
            found.update(str(a.value).split(".", maxsplit=1)[0] for a in node.args if isinstance(a, ast.Constant))
    return frozenset(found)
