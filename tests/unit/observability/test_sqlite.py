"""A SQLite file that cannot be opened leaves no thread that outlives the loop."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest

from observability.sqlite import connect


async def open_in_vain(path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError):
        _ = await connect(path)


def test_a_failed_open_ends_its_thread_before_it_raises(tmp_path: Path) -> None:
    before = threading.active_count()
    for _ in range(20):
        asyncio.run(open_in_vain(tmp_path))
    assert threading.active_count() == before


async def test_an_open_connection_works_and_closes(tmp_path: Path) -> None:
    connection = await connect(tmp_path / "file.db")
    try:
        async with connection.execute("SELECT 1") as cursor:
            assert await cursor.fetchone() == (1,)
    finally:
        await connection.close()
