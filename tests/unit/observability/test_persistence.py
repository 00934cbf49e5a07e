"""Totals survive a restart; a failing disk changes a metric and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from observability.counters import Counters, Operation, Outcome
from observability.persistence import CounterStore

UNSHARE = shutil.which("unshare") or ""
SERIES = (Operation.PROBE, Outcome.FAILED)


async def one_life(path: Path, counts: int) -> Counters:
    """A controller's life: open, run, count, be cancelled."""
    counters = Counters()
    store = await CounterStore.open(path)
    task = asyncio.create_task(store.run(counters, 3_600.0))
    await asyncio.sleep(0)  # the task has to begin before it can be cancelled
    for _ in range(counts):
        counters.count(*SERIES)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert store.health.snapshot().healthy
    return counters


@pytest.mark.req("D2", "O1")
async def test_totals_survive_restarts(tmp_path: Path) -> None:
    path = tmp_path / "observability.db"
    await one_life(path, 3)
    await one_life(path, 0)
    counters = await one_life(path, 2)
    assert counters.snapshot()[SERIES] == 5


@pytest.mark.req("D2")
async def test_a_folder_in_place_of_the_file_is_only_a_metric(tmp_path: Path) -> None:
    path = tmp_path / "observability.db"
    path.mkdir()
    counters = Counters()
    store = await CounterStore.open(path)
    counters.count(*SERIES)
    await store.flush(counters)
    state = store.health.snapshot()
    assert (state.healthy, state.failures, state.reason) == (False, 2, "OperationalError")
    assert counters.snapshot()[SERIES] == 1


async def test_a_disk_that_comes_back_late_keeps_what_it_held(tmp_path: Path) -> None:
    path, aside = tmp_path / "observability.db", tmp_path / "aside.db"
    await one_life(path, 7)
    path.rename(aside)
    path.mkdir()
    counters = Counters()
    store = await CounterStore.open(path)
    counters.count(*SERIES)
    await store.flush(counters)
    assert not store.health.snapshot().healthy
    path.rmdir()
    aside.rename(path)
    await store.flush(counters)
    assert store.health.snapshot().healthy
    assert counters.snapshot()[SERIES] == 8
    assert (await one_life(path, 0)).snapshot()[SERIES] == 8


async def test_a_locked_file_fails_in_bounded_time_and_heals(tmp_path: Path) -> None:
    path = tmp_path / "observability.db"
    await one_life(path, 1)
    counters = Counters()
    store = await CounterStore.open(path, flush_timeout_s=0.2)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        await asyncio.wait_for(store.flush(counters), 5)
        assert not store.health.snapshot().healthy
        other.execute("ROLLBACK")
    async with asyncio.timeout(10):
        while not store.health.snapshot().healthy:
            await store.flush(counters)


@pytest.mark.parametrize("content", [b"not a database at all" * 100, b"\0" * 4_096])
async def test_a_file_that_is_no_database_is_only_a_metric(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "observability.db"
    path.write_bytes(content)
    store = await CounterStore.open(path)
    await store.flush(Counters())
    assert not store.health.snapshot().healthy
    assert path.read_bytes() == content


async def test_no_thread_stays_behind(tmp_path: Path) -> None:
    before = threading.active_count()
    (tmp_path / "folder.db").mkdir()
    for name in ("good.db", "folder.db"):
        store = await CounterStore.open(tmp_path / name)
        await store.flush(Counters())
    deadline = time.monotonic() + 5
    while threading.active_count() > before:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


ON_A_FULL_DISK = """
import asyncio, sys
from pathlib import Path
from observability.counters import Counters, Operation, Outcome
from observability.persistence import CounterStore

async def main(folder):
    counters = Counters()
    store = await CounterStore.open(folder / "observability.db")
    await store.flush(counters)
    assert store.health.snapshot().healthy
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            print("full")
    for _ in range(200):
        counters.count(Operation.PROBE, Outcome.FAILED)
    await store.flush(counters)
    print("healthy" if store.health.snapshot().healthy else "failing")
    ballast.unlink()
    await store.flush(counters)
    print("healthy" if store.health.snapshot().healthy else "failing")

asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.mark.skipif(not UNSHARE, reason="needs unshare(1) to mount a small disk of its own")
def test_a_full_disk_is_only_a_metric_and_heals(tmp_path: Path) -> None:
    script = tmp_path / "full.py"
    script.write_text(ON_A_FULL_DISK, encoding="utf-8")
    disk = tmp_path / "disk"
    disk.mkdir()
    inside = 'mount -t tmpfs -o size=64k tmpfs "$1" && exec "$2" "$3" "$1"'
    result = subprocess.run(
        [UNSHARE, "--user", "--map-root-user", "--mount", "sh", "-c", inside, "sh", disk, sys.executable, script],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        cwd=Path(__file__).parents[3],
        env={"PYTHONPATH": str(Path(__file__).parents[3])},
    )
    if result.returncode != 0 and "Traceback" not in result.stderr:
        pytest.skip(f"no namespace for a small disk here: {result.stderr.strip()}")
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["full", "failing", "healthy"]
