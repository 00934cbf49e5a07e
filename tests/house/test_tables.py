"""The tables of bus/ hold together: states, errors, and the CHECKs of the ledger."""

from __future__ import annotations

import re
import sqlite3
from enum import StrEnum
from typing import Any, get_args

import pytest

from bus import states
from bus.errors import CODES, ErrorCode
from bus.messages.gates import Purpose, StartMethod
from bus.subjects import Lane
from tests.support import repo

MIGRATIONS = [path for path in repo.files() if re.fullmatch(r"controller/store/migrations/\d{4}_\w+\.sql", path)]


def members(value: StrEnum) -> set[StrEnum]:
    """Every member of a value's enum."""
    return set(type(value))


@pytest.mark.parametrize("table", states.TABLES, ids=lambda table: table.name)
@pytest.mark.req("P3")
def test_every_state_can_be_reached(table: states.Table[Any, Any]) -> None:
    reached = {table.initial}
    while more := {edge.to for (state, _), edge in table.edges.items() if state in reached} - reached:
        reached |= more

    assert reached == members(table.initial)


@pytest.mark.parametrize("table", states.TABLES, ids=lambda table: table.name)
@pytest.mark.req("P3")
def test_only_terminal_states_have_no_way_out(table: states.Table[Any, Any]) -> None:
    leaving = {state for (state, _), edge in table.edges.items() if edge.to != state}

    assert leaving == members(table.initial) - table.terminal
    assert not {state for state, _ in table.edges} & table.terminal


@pytest.mark.parametrize("table", states.TABLES, ids=lambda table: table.name)
def test_no_pair_is_both_an_edge_and_ignored(table: states.Table[Any, Any]) -> None:
    assert not set(table.edges) & table.ignored


@pytest.mark.parametrize("table", states.TABLES, ids=lambda table: table.name)
def test_every_event_is_used(table: states.Table[Any, Any]) -> None:
    some_event = next(iter(table.edges))[1]

    assert {event for _, event in table.edges} == members(some_event)


def test_every_code_has_its_row() -> None:
    assert list(CODES) == list(ErrorCode)


@pytest.mark.parametrize("code", ErrorCode)
def test_a_row_says_what_happened_and_what_to_do(code: ErrorCode) -> None:
    info = CODES[code]

    assert code.name == code.value
    assert info.meaning.endswith(".")
    assert info.remedy.endswith(".")


def ledger() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.create_function("unhex", 1, bytes.fromhex)  # SQLite has it by itself from 3.41 on only
    for path in MIGRATIONS:
        connection.executescript(repo.text(path))
    return connection


def checked_values(table: str, column: str) -> list[str]:
    """The values that the CHECK of a column admits, read from the schema that the migrations really make."""
    connection = ledger()
    try:
        (sql,) = connection.execute(
            "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)
        ).fetchone()
    finally:
        connection.close()
    found = re.search(rf"CHECK\s*\(\s*{column}\s+IN\s*\(([^)]*)\)", sql)
    assert found, f"{table}.{column} has no CHECK"
    return re.findall(r"'([^']*)'", found[1])


@pytest.mark.parametrize(
    ("table", "column", "values"),
    [
        ("probes", "state", states.ProbeState),
        ("jobs", "state", states.JobState),
        ("leases", "state", states.LeaseState),
        ("jobs", "lane", Lane),
    ],
)
@pytest.mark.req("P3")
def test_the_ledger_admits_exactly_the_states_of_the_tables(table: str, column: str, values: type[StrEnum]) -> None:
    assert checked_values(table, column) == [value.value for value in values]


@pytest.mark.parametrize(
    ("table", "column", "values"),
    [("approvals", "purpose", Purpose), ("probes", "start_method", StartMethod)],
)
def test_the_ledger_admits_exactly_the_values_of_the_messages(table: str, column: str, values: object) -> None:
    assert checked_values(table, column) == list(get_args(values))


def test_migrations_are_numbered_without_a_gap() -> None:
    numbers = [int(path.rsplit("/", maxsplit=1)[1][:4]) for path in MIGRATIONS]

    assert numbers == list(range(1, len(numbers) + 1))
