"""`make ledger`: which tests prove which requirement.

The numbers come from docs/requirements.md, the tests from the syntax trees of tests/: a test carries a number by
`@pytest.mark.req("G1")` on itself, on its class, or in the module's `pytestmark`. A test that is skipped, expected to
fail, or needs a card does not count: `make test` would not fail without the behaviour.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
REQUIREMENTS: Final = ROOT / "docs" / "requirements.md"
_ROW: Final = re.compile(r"^\| ([A-Z]\d+) \|", re.MULTILINE)
_NOT_RUN: Final = frozenset({"skip", "skipif", "xfail", "gpu"})

TestFunction = ast.FunctionDef | ast.AsyncFunctionDef


def numbers() -> list[str]:
    """Every number of the ledger, in its order."""
    return _ROW.findall(REQUIREMENTS.read_text(encoding="utf-8"))


@cache
def carried() -> dict[str, list[str]]:
    """Number -> ids of the tests that carry it; also numbers that the ledger does not know."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        name = path.relative_to(ROOT).as_posix()
        for test, marks in _tests(ast.parse(path.read_text(encoding="utf-8"))):
            if _NOT_RUN.isdisjoint(mark for mark, _ in marks):
                for number in dict.fromkeys(value for mark, value in marks if mark == "req"):
                    found.setdefault(number, []).append(f"{name}::{test}")
    return found


def _tests(module: ast.Module) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Each test of a module with all its marks as (name, argument); a mark with two arguments comes twice."""
    everywhere = [
        mark
        for node in module.body
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets)
        for expression in (node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value])
        for mark in _mark(expression)
    ]
    for node in module.body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            of_class = [mark for decorator in node.decorator_list for mark in _mark(decorator)]
            for member in node.body:
                if isinstance(member, TestFunction) and member.name.startswith("test"):
                    yield f"{node.name}::{member.name}", everywhere + of_class + _marks(member)
        elif isinstance(node, TestFunction) and node.name.startswith("test"):
            yield node.name, everywhere + _marks(node)


def _marks(function: TestFunction) -> list[tuple[str, str]]:
    return [mark for decorator in function.decorator_list for mark in _mark(decorator)]


def _mark(expression: ast.expr) -> list[tuple[str, str]]:
    """`pytest.mark.req("G1", "G2")` -> [("req", "G1"), ("req", "G2")]; a bare mark has an empty argument."""
    call = expression if isinstance(expression, ast.Call) else None
    target = call.func if call is not None else expression
    if not (isinstance(target, ast.Attribute) and ast.unparse(target.value) == "pytest.mark"):
        return []
    values = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)] if call else []
    return [(target.attr, value) for value in values] or [(target.attr, "")]


def main() -> int:
    """Print the ledger; exit 1 when a test carries a number that the ledger does not know."""
    known, tests = numbers(), carried()
    for number in known:
        mine = tests.get(number, [])
        print(f"{number:<4}{len(mine):>4} {'test ' if len(mine) == 1 else 'tests'}  {mine[0] if mine else '-'}")
    strangers = sorted(set(tests) - set(known))
    for number in strangers:
        print(f"{number} is not in docs/requirements.md but carried by {tests[number][0]}", file=sys.stderr)
    unproven = [number for number in known if number not in tests]
    print(f"unproven: {' '.join(unproven) or 'none'}")
    return 1 if strangers else 0


if __name__ == "__main__":
    sys.exit(main())
