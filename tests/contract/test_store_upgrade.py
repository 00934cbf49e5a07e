"""A ledger of the version before is brought up whole, or stays as it was."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from bus.errors import ErrorCode, ModelForgeError
from controller.store import migrate, quarantines
from controller.store.connection import Store
from controller.store.tx import Tx

# A row of every table that a later step makes anew, and of those that point to them.
SCHEMA_3_ROWS = """
INSERT INTO nodes (name, created_at) VALUES ('local', '2026-01-01');
INSERT INTO environments VALUES ('sha256:0', '{}', '2026-01-01');
INSERT INTO artifact_sets VALUES ('sha256:0', '{}', '{}', 1, 2, '2026-01-01');
INSERT INTO set_locations VALUES ('local', 'b', 'sha256:0', 'scn-1', '2026-01-01'), ('local', 'a', 'sha256:0', 'scn-2', '2026-01-01');
INSERT INTO profiles VALUES ('sha256:b', 'gpu', '{}', 'bob', '2026-01-01'), ('sha256:a', 'cpu', '{}', 'alice', '2026-01-01');
INSERT INTO assessments VALUES
    ('asm-1', 'sha256:0', 'sha256:a', 'local', 'sha256:0', 'sha256:f', 'compatible', '{}', 'alice', '2026-01-01'),
    ('asm-2', 'sha256:0', 'sha256:b', 'local', 'sha256:0', 'sha256:f', 'blocked', '{}', 'alice', '2026-01-01');
INSERT INTO approvals VALUES
    ('apv-1', 'sha256:0', 'pickle', 'alice', 'why', '2026-01-01', 'bob', '2026-01-01', 'no'),
    ('apv-2', 'sha256:0', 'lab_execution', 'alice', 'why', '2026-01-01', NULL, NULL, NULL);
INSERT INTO jobs (id, request_id, type, node, lane, state, payload, max_attempts, queued_by, queued_at, deadline_at,
    finished_at) VALUES ('prb-1', 'r', 'probe', 'local', 'work', 'succeeded', '{}', 3, 'alice', '2026-01-01', '2026-01-01', '2026-01-01');
INSERT INTO probes (id, assessment_id, approval_id, set_digest, profile_id, node, location, start_method, state, state_at)
    VALUES ('prb-1', 'asm-1', 'apv-2', 'sha256:0', 'sha256:a', 'local', 'a', 'fresh', 'completed', '2026-01-01');
INSERT INTO candidates (id, probe_id, set_digest, profile_id, node, environment_id, fingerprint, created_at)
    VALUES ('cnd-1', 'prb-1', 'sha256:0', 'sha256:a', 'local', 'sha256:0', 'sha256:f', '2026-01-01');
"""
TABLES = ("set_locations", "profiles", "assessments", "approvals", "probes", "candidates")


def ledger_of_schema_3(path: Path, more: str = "") -> dict[str, list[dict[str, object]]]:
    """A ledger as the version before wrote it; what is in each table."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.row_factory = sqlite3.Row
    try:
        migrate.migrate(connection, migrate.load_migrations()[:3])
        connection.execute("PRAGMA foreign_keys = ON")
        connection.executescript(SCHEMA_3_ROWS)
        connection.executescript(f"PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON; {more}")
        return rows_of(connection)
    finally:
        connection.close()


async def open_and_close(path: Path) -> None:
    """A ledger that opens against all expectation must not keep the test's process alive."""
    async with await Store.open(path):
        pass


def rows_of(connection: sqlite3.Connection) -> dict[str, list[dict[str, object]]]:
    return {
        table: [dict(row) for row in connection.execute(f"SELECT * FROM {table} ORDER BY rowid")]  # noqa: S608 -- the test's own names
        for table in TABLES
    }


@pytest.mark.req("D2")
async def test_a_ledger_whose_tables_are_made_anew_keeps_rows_references_and_rules(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    before = ledger_of_schema_3(path)
    async with await Store.open(path) as store:
        assert store.schema_version == len(migrate.load_migrations())

        def look(tx: Tx) -> dict[str, list[dict[str, object]]]:
            assert tx._connection.execute("PRAGMA foreign_keys").fetchone()[0] == 1
            assert tx._connection.execute("PRAGMA foreign_key_check").fetchall() == []
            return rows_of(tx._connection)

        after = await store.write(look)
        for table, rows in before.items():
            kept = [{name: row[name] for name in rows[0]} for row in after[table]]
            assert kept == rows, f"{table}: every row, in its order"
        assert [row["version"] for row in after["profiles"]] == [1, 1]
        assert {row["state"] for row in after["set_locations"]} == {"present"}
        for sql, words in (
            ("UPDATE profiles SET body = '[]'", "a profile is immutable"),
            ("UPDATE assessments SET verdict = 'blocked'", "an assessment is immutable"),
            ("UPDATE approvals SET reason = 'x'", "an approval is immutable"),
            ("DELETE FROM approvals", "an approval is immutable"),
            ("DELETE FROM assessments", "FOREIGN KEY"),
            ("DELETE FROM profiles", "FOREIGN KEY"),
            (
                "INSERT INTO approvals SELECT 'apv-3', 'sha256:0', 'lab_execution', 'a', 'b', 'c', NULL, NULL, NULL",
                "UNIQUE",
            ),
            ("UPDATE set_locations SET state = 'corrupt'", "CHECK"),
        ):
            with pytest.raises(sqlite3.IntegrityError, match=words):
                await store.write(lambda tx, sql=sql: tx._connection.execute(sql))  # type: ignore[misc]


@pytest.mark.req("A5")
async def test_bytes_of_sets_that_were_recorded_before_can_be_quarantined(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    same, other = "ab" * 32, "0c" * 32
    manifests = (
        {
            "files": [
                {"path": "a", "sha256": same},
                {"path": "b", "sha256": same},
                {"path": f'"{other}', "sha256": "1" * 64},
            ]
        },
        {"files": [{"path": "a", "sha256": other}]},
        {"files": [{"path": "x", "sha256": other}, {"path": "y", "sha256": same}]},
    )
    rows = ", ".join(
        f"('sha256:{number}', '{json.dumps(manifest)}', '{{}}', 1, 2, '2026-01-01')"
        for number, manifest in enumerate(manifests, 1)
    )
    ledger_of_schema_3(path, f"INSERT INTO artifact_sets VALUES {rows}")  # noqa: S608 -- the test's own rows
    async with await Store.open(path) as store:
        _, marked = await store.write(
            lambda tx: quarantines.insert(tx, "sha256:3", {same: "y"}, {same: "why"}, "user:alice")
        )
        assert marked == {"sha256:1": [same], "sha256:3": [same]}
        members = await store.read(lambda tx: tx._connection.execute("SELECT count(*) FROM set_members").fetchone()[0])
        assert members == 5


@pytest.mark.req("D2")
@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("DELETE FROM artifact_sets", "a row of"),
        ("UPDATE probes SET id = 'prb-2'", "a row of"),
        ("INSERT INTO profiles VALUES ('sha256:c', 'x', 'no json', 'a', '2026-01-01')", "breaks a rule"),
        (
            "INSERT INTO set_locations VALUES ('local', 'c', 'sha256:gone', 'scn-3', '2026-01-01')",
            "a row of set_locations",
        ),
        (
            """INSERT INTO artifact_sets VALUES ('sha256:1', '{"files": [{"sha256": "no"}]}', '{}', 1, 2, '2026-01-01')""",
            "breaks a rule",
        ),
    ],
)
async def test_a_broken_row_is_said_and_leaves_the_old_ledger_as_it_was(
    tmp_path: Path, broken: str, words: str
) -> None:
    path = tmp_path / "l.db"
    drop = "DROP TRIGGER probes_gates_immutable; " if "probes" in broken else ""
    before = ledger_of_schema_3(path, f"{drop}{broken};")
    with pytest.raises(ModelForgeError) as caught:
        await open_and_close(path)
    assert caught.value.code is ErrorCode.STORE_SCHEMA_MISMATCH
    assert words in caught.value.message
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    try:
        assert rows_of(connection) == before
        assert connection.execute("PRAGMA user_version").fetchone()[0] == 3
        assert migrate.schema(connection).get("table quarantines") is None
    finally:
        connection.close()
