"""The ledger: one writer, grouped commits, nothing half-committed, nothing left running."""

from __future__ import annotations

import asyncio
import re
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from bus.errors import ErrorCode, ModelForgeError
from controller.store import migrate, queries
from controller.store.connection import MAX_WAITING_CHANGES, Store
from controller.store.migrate import Migration
from controller.store.tx import Tx
from tests.support.ledger import Lab, open_lab


def note(tx: Tx, what: str = "x") -> int:
    return tx.audit("node", "n", what, "test")


def counts_of(path: Path, *tables: str) -> list[int]:
    connection = sqlite3.connect(path)
    try:
        return [connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables]  # noqa: S608
    finally:
        connection.close()


async def count(store: Store, table: str) -> int:
    return await store.read(lambda tx: int(tx._connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]))  # noqa: S608


@pytest.mark.req("D2")
async def test_what_was_written_is_there_after_a_new_opening(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with await Store.open(path) as store:
        assert await store.write(note) == 1
        assert await store.read(lambda tx: tx._connection.execute("PRAGMA journal_mode").fetchone()[0]) == "wal"
        pragmas = {
            name: await store.write(lambda tx, name=name: tx._connection.execute(f"PRAGMA {name}").fetchone()[0])  # type: ignore[misc]
            for name in ("synchronous", "foreign_keys")
        }
        assert pragmas == {"synchronous": 2, "foreign_keys": 1}
    assert path.stat().st_mode & 0o077 == 0
    async with await Store.open(path) as store:
        assert await store.write(note) == 2


@pytest.mark.req("G6")
async def test_a_change_that_raises_takes_back_its_audit_and_nothing_else(tmp_path: Path) -> None:
    def fails(tx: Tx) -> None:
        note(tx, "doomed")
        raise ModelForgeError(ErrorCode.NOT_APPROVED, "no")

    async with await Store.open(tmp_path / "l.db") as store:
        results = await asyncio.gather(store.write(note), store.write(fails), store.write(note), return_exceptions=True)
        assert [results[0], results[2]] == [1, 2], "sequences have no gap where a change was taken back"
        assert isinstance(results[1], ModelForgeError)
        assert results[1].code is ErrorCode.NOT_APPROVED
        rows = await store.read(lambda tx: [row["what"] for row in tx.all("audit.list", limit=10)])
        assert rows == ["x", "x"]
        assert await count(store, "outbox") == 2


@pytest.mark.req("G6")
@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE audit SET what = 'y'",
        "DELETE FROM audit",
        "INSERT OR REPLACE INTO audit (sequence, at, entity, id, what, actor, detail) VALUES (1, 'a', 'b', 'c', 'd', 'e', '{}')",
    ],
)
async def test_the_audit_trail_is_append_only(tmp_path: Path, sql: str) -> None:
    async with await Store.open(tmp_path / "l.db") as store:
        await store.write(note)
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            await store.write(lambda tx: tx._connection.execute(sql))
        assert await count(store, "audit") == 1


@pytest.mark.req("G6")
def test_a_crash_leaves_change_audit_and_event_together_or_none(tmp_path: Path) -> None:
    """Kill -9 at every point of a transaction: the ledger never shows a change without its audit and event."""
    script = textwrap.dedent("""
        import asyncio, os, signal, sys
        from pathlib import Path
        from controller.store.connection import Store

        async def main(path, stop_at):
            store = await Store.open(Path(path))
            seen = 0
            def trace(_sql):
                nonlocal seen
                seen += 1
                if seen == stop_at:
                    os.kill(os.getpid(), signal.SIGKILL)
            def change(tx):
                tx.run("profiles.insert", id="sha256:x", name="p", version=1, body="{}", created_by="a", at=tx.at)
                tx.audit("profile", "sha256:x", "created", "user:a")
            await store._writer.call(lambda connection: connection.set_trace_callback(trace))
            await store.write(change)
            await store.close()
        asyncio.run(main(sys.argv[1], int(sys.argv[2])))
    """)
    outcomes = set()
    for stop_at in (3, 5, 7, 99):
        path = tmp_path / f"{stop_at}.db"
        done = subprocess.run([sys.executable, "-c", script, str(path), str(stop_at)], check=False, timeout=30)
        counts = counts_of(path, "profiles", "audit", "outbox")
        assert counts in ([0, 0, 0], [1, 1, 1]), f"killed at statement {stop_at}: {counts}"
        outcomes.add((done.returncode, counts[0]))
    assert (-9, 0) in outcomes, "no run was killed before its commit"
    assert (0, 1) in outcomes, "no run reached its end"


async def test_waiting_changes_share_a_commit(tmp_path: Path) -> None:
    async with await Store.open(tmp_path / "l.db") as store:
        commits: list[str] = []
        await store._writer.call(lambda connection: connection.set_trace_callback(commits.append))
        calls: list[int] = []
        store.on_commit.append(lambda: calls.append(1))
        await asyncio.gather(*(store.write(note) for _ in range(200)))
        assert await count(store, "audit") == 200
        flushes = commits.count("COMMIT")
        assert 0 < flushes < 20
        assert len(calls) == flushes


async def test_a_cancelled_caller_does_not_stop_a_change(tmp_path: Path) -> None:
    async with await Store.open(tmp_path / "l.db") as store:
        task = asyncio.ensure_future(store.write(note))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    async with await Store.open(tmp_path / "l.db") as store:
        assert await count(store, "audit") == 1


@pytest.mark.req("D2")
async def test_a_full_disk_commits_nothing_and_the_ledger_goes_on_afterwards(tmp_path: Path) -> None:
    async with await Store.open(tmp_path / "l.db") as store:
        await store.write(note)
        pages = await store._writer.call(lambda connection: connection.execute("PRAGMA page_count").fetchone()[0])
        await store._writer.call(lambda connection: connection.execute(f"PRAGMA max_page_count = {pages}"))
        big = "x" * 1_900

        def large(tx: Tx) -> None:
            for number in range(50):
                tx.audit("node", f"n{number}", "big", "test", detail={"text": big})

        results = await asyncio.gather(store.write(note), store.write(large), return_exceptions=True)
        codes = [result.code for result in results if isinstance(result, ModelForgeError)]
        assert ErrorCode.STORE_UNAVAILABLE in codes
        committed = [result for result in results if isinstance(result, int)]
        assert await count(store, "audit") == 1 + len(committed)
        assert await count(store, "outbox") == 1 + len(committed)
        await store._writer.call(lambda connection: connection.execute("PRAGMA max_page_count = 1000000"))
        await store.write(large)
        assert await count(store, "audit") == 51 + len(committed)


async def test_a_read_cannot_write(tmp_path: Path) -> None:
    async with await Store.open(tmp_path / "l.db") as store:
        with pytest.raises(ModelForgeError) as caught:
            await store.read(note)
        assert caught.value.code is ErrorCode.STORE_UNAVAILABLE
        assert await count(store, "audit") == 0


async def test_a_closed_ledger_and_a_flooded_one_say_so(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "l.db")
    try:
        writes = [asyncio.ensure_future(store.write(note)) for _ in range(MAX_WAITING_CHANGES + 10)]
        results = await asyncio.gather(*writes, return_exceptions=True)
        refused = [result for result in results if isinstance(result, ModelForgeError)]
        assert {error.code for error in refused} == {ErrorCode.STORE_UNAVAILABLE}
        assert len(refused) == 10
    finally:
        await store.close()
        await store.close()
    for use in (store.write, store.read):
        with pytest.raises(ModelForgeError) as caught:
            await use(note)
        assert caught.value.code is ErrorCode.STORE_UNAVAILABLE


def test_the_migrations_equal_the_schema() -> None:
    """`schema.sql` is what a reader looks at; the migrations are what runs. They are the same."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    written = sqlite3.connect(":memory:", isolation_level=None)
    try:
        migrate.migrate(connection, migrate.load_migrations())
        written.executescript((Path(migrate.__file__).parent / "schema.sql").read_text(encoding="utf-8"))
        assert migrate.schema(connection) == migrate.schema(written)
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    finally:
        connection.close()
        written.close()


def test_an_old_ledger_is_upgraded_and_keeps_its_rows(tmp_path: Path) -> None:
    steps = (*migrate.load_migrations(),)
    newer = (*steps, Migration(len(steps) + 1, "added", "CREATE TABLE later (id INTEGER PRIMARY KEY) STRICT;"))
    connection = sqlite3.connect(tmp_path / "l.db", isolation_level=None)
    try:
        assert migrate.migrate(connection, steps) == len(steps)
        connection.execute("INSERT INTO stream_marks VALUES ('MF_JOBS', 7)")
        assert migrate.migrate(connection, newer) == len(steps) + 1
        assert migrate.migrate(connection, newer) == len(steps) + 1
        assert connection.execute("SELECT max_sequence FROM stream_marks").fetchall() == [(7,)]
        with pytest.raises(ModelForgeError) as caught:
            migrate.migrate(connection, steps)
        assert caught.value.code is ErrorCode.STORE_SCHEMA_MISMATCH
    finally:
        connection.close()


def test_the_boots_that_are_dead_stay_dead_for_their_node(tmp_path: Path) -> None:
    steps = migrate.load_migrations()
    connection = sqlite3.connect(tmp_path / "l.db", isolation_level=None)
    try:
        migrate.migrate(connection, steps[:2])
        connection.execute("INSERT INTO nodes (name, created_at) VALUES ('local', 'now')")
        connection.execute("INSERT INTO dead_boots (boot_id, node, at) VALUES ('one', 'local', 'now')")
        migrate.migrate(connection, steps)
        assert connection.execute("SELECT node, boot_id FROM dead_boots").fetchall() == [("local", "one")]
    finally:
        connection.close()


def test_a_step_that_fails_leaves_nothing_of_itself(tmp_path: Path) -> None:
    broken = Migration(1, "broken", "CREATE TABLE one (id INTEGER PRIMARY KEY); CREATE TABLE one (id INTEGER);")
    connection = sqlite3.connect(tmp_path / "l.db", isolation_level=None)
    try:
        with pytest.raises(sqlite3.OperationalError):
            migrate.migrate(connection, (broken,))
        assert migrate.schema(connection) == {}
        assert connection.execute("PRAGMA user_version").fetchone()[0] == 0
    finally:
        connection.close()


@pytest.mark.parametrize("kind", ["foreign", "tampered", "newer", "text", "folder"])
async def test_a_file_that_is_no_ledger_of_ours_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "l.db"
    expected = ErrorCode.STORE_SCHEMA_MISMATCH
    if kind == "folder":
        path.mkdir()
        expected = ErrorCode.STORE_UNAVAILABLE
    elif kind == "text":
        path.write_text("this is a letter to a friend\n" * 100)
    else:
        if kind != "foreign":
            await (await Store.open(path)).close()
        connection = sqlite3.connect(path)
        script = {
            "foreign": "CREATE TABLE t (a)",
            "tampered": "DROP TRIGGER audit_no_update",
            "newer": "PRAGMA user_version = 99",
        }
        connection.execute(script[kind])
        connection.commit()
        connection.close()
    with pytest.raises(ModelForgeError) as caught:
        await Store.open(path)
    assert caught.value.code is expected
    assert ledger_threads() == []


def ledger_threads() -> list[threading.Thread]:
    """Threads of connections that have not ended within a few seconds."""
    found = [thread for thread in threading.enumerate() if "_connection_worker_thread" in thread.name]
    for thread in found:
        thread.join(5)
    return [thread for thread in found if thread.is_alive()]


@pytest.mark.parametrize(
    "body",
    [
        "async with await Store.open(path) as store: await store.write(lambda tx: tx.audit('a', 'b', 'c', 'd'))",
        "async with await Store.open(path) as store: await store.write(lambda tx: 1 / 0)",
        "async with await Store.open(path) as store: asyncio.current_task().cancel(); await asyncio.sleep(1)",
        "path.mkdir(); await Store.open(path)",
        "path.write_text('no database at all, but long enough to be read as one' * 99); await Store.open(path)",
        "task = asyncio.ensure_future(Store.open(path)); await asyncio.sleep(0); task.cancel(); await task",
    ],
)
def test_the_process_ends_whatever_happens(tmp_path: Path, body: str) -> None:
    """The thread of aiosqlite is no daemon: one connection left open keeps the process alive for ever."""
    script = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom controller.store.connection import Store\n"
        f"path = Path(sys.argv[1])\nasync def main():\n    {body}\nasyncio.run(main())\n"
    )
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", script, str(tmp_path / "l.db")]
    done = subprocess.run(command, check=False, timeout=20, capture_output=True, text=True)
    assert "ResourceWarning" not in done.stderr


@pytest.mark.req("D2")
def test_a_really_full_disk_is_typed_and_leaves_a_sound_ledger(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    mount = shutil.which("mount")
    if unshare is None or mount is None:
        pytest.skip("no unshare or mount here")
    probe = subprocess.run([unshare, "-Urm", "true"], check=False, capture_output=True)
    if probe.returncode != 0:
        pytest.skip("user namespaces are not allowed here")
    script = textwrap.dedent("""
        import asyncio, sys
        from pathlib import Path
        from bus.errors import ModelForgeError
        from controller.store.connection import Store

        async def main(path):
            async with await Store.open(path) as store:
                written = 0
                try:
                    while True:
                        await store.write(lambda tx: tx.audit("n", "n", "x", "t", detail={"text": "x" * 1900}))
                        written += 1
                except ModelForgeError as error:
                    print(error.code, written)
                rows = await store.read(lambda tx: tx.one("audit.last_sequence")["sequence"])
                check = await store.read(lambda tx: tx._connection.execute("PRAGMA integrity_check").fetchone()[0])
                print(rows == written, check)
        asyncio.run(main(Path(sys.argv[1]) / "l.db"))
    """)
    folder = tmp_path / "small"
    folder.mkdir()
    shell = f'"{mount}" -t tmpfs -o size=1m none "$1" && exec "$2" -c "$3" "$1"'
    command = [unshare, "-Urm", "sh", "-c", shell, "sh", str(folder), sys.executable, script]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=50)
    assert done.stdout.split()[0] == "STORE_UNAVAILABLE", done.stderr
    assert done.stdout.splitlines()[1] == "True ok"


async def test_every_query_is_valid_sql_and_every_name_is_used(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await check_queries(lab)
    product = Path(queries.__file__).parents[1]
    source = "".join(path.read_text(encoding="utf-8") for path in product.rglob("*.py"))
    unused = [name for name in queries.load() if f'"{name}"' not in source]
    assert unused == []


async def check_queries(lab: Lab) -> None:
    def explain(tx: Tx) -> None:
        for sql in queries.load().values():
            tx._connection.execute(f"EXPLAIN {sql}", dict.fromkeys(re.findall(r":([a-z0-9_]+)", sql))).fetchall()

    await lab.store.read(explain)


@pytest.mark.parametrize(
    ("text", "words"),
    [("SELECT 1", "without a name"), ("-- name: a\n-- name: a\nSELECT 1", "twice"), ("-- name: a\n", "empty")],
)
def test_a_query_file_has_one_form(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        queries.parse("f", text)
