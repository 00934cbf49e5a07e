"""Every promise of this release is carried by a test that runs."""

from __future__ import annotations

import ast
import subprocess
import sys
from typing import Final

import pytest

from tests.house import ledger

LEDGER_S: Final = 30
# What "first light" owes (CHANGELOG.md). A later release adds its numbers here; none is ever taken out.
OWED: Final = (
    "G1",
    "G2",
    "G5",
    "G6",
    "P1",
    "P2",
    "P3",
    "P4",
    "P5",
    "P6",
    "P11",
    "B1",
    "B3",
    "D1",
    "D2",
    "D4",
    "D5",
    "D6",
)


@pytest.mark.parametrize("number", OWED)
def test_an_owed_number_is_carried_by_a_test(number: str) -> None:
    assert number in ledger.numbers()
    assert ledger.carried().get(number, []) != []


def test_no_test_carries_an_unknown_number() -> None:
    assert set(ledger.carried()) - set(ledger.numbers()) == set()


def test_no_number_stands_twice() -> None:
    assert len(ledger.numbers()) == len(set(ledger.numbers()))


def test_marks_are_read_from_functions_classes_and_modules() -> None:
    source = """
pytestmark = [pytest.mark.req("D1"), pytest.mark.serial]
@pytest.mark.req("G1", "G2")
def test_one(): ...
@pytest.mark.req("P1")
class TestMany:
    @pytest.mark.skip
    async def test_two(self): ...
def helper(): ...
"""
    found = dict(ledger._tests(ast.parse(source)))

    assert found == {
        "test_one": [("req", "D1"), ("serial", ""), ("req", "G1"), ("req", "G2")],
        "TestMany::test_two": [("req", "D1"), ("serial", ""), ("req", "P1"), ("skip", "")],
    }


def test_the_printed_ledger_has_a_line_for_each_number_and_ends_with_the_unproven() -> None:
    command = [sys.executable, "-P", ledger.__file__]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=LEDGER_S)
    *lines, last = done.stdout.splitlines()

    assert [line.split()[0] for line in lines] == ledger.numbers()
    assert all(line.split()[1].isdecimal() for line in lines)
    assert last.startswith("unproven: ")
