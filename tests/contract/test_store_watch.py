"""A ledger that is taken away while it is open takes no more commits: none is confirmed and then lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bus.errors import ErrorCode, ModelForgeError
from controller.store.connection import Store
from controller.store.tx import Tx


def note(tx: Tx) -> int:
    return tx.audit("node", "local", "noted", "test")


def put_another(ledger: Path) -> None:
    (ledger.parent / "other").write_bytes(ledger.read_bytes())
    (ledger.parent / "other").replace(ledger)


HARMS: dict[str, tuple[Callable[[Path], object], str]] = {
    "removed": (Path.unlink, "no longer there"),
    "renamed": (lambda ledger: ledger.rename(ledger.parent / "away"), "no longer there"),
    "replaced": (put_another, "another file"),
    "truncated": (lambda ledger: os.truncate(ledger, 0), "truncated"),
    "log removed": (lambda ledger: Path(f"{ledger}-wal").unlink(), "write-ahead log"),
}


@pytest.mark.req("D2")
@pytest.mark.parametrize("harm", HARMS)
async def test_a_ledger_that_was_taken_away_confirms_nothing(tmp_path: Path, harm: str) -> None:
    ledger = tmp_path / "l.db"
    async with await Store.open(ledger) as first:
        await first.write(note)
    async with await Store.open(ledger) as store:
        await store.write(note)
        do, words = HARMS[harm]
        do(ledger)
        with pytest.raises(ModelForgeError) as raised:
            await store.write(note)
        assert raised.value.code is ErrorCode.STORE_UNAVAILABLE
        assert words in raised.value.message


async def test_a_ledger_that_is_put_back_goes_on(tmp_path: Path) -> None:
    ledger = tmp_path / "l.db"
    async with await Store.open(ledger) as store:
        await store.write(note)
        ledger.rename(tmp_path / "away")
        with pytest.raises(ModelForgeError):
            await store.write(note)
        (tmp_path / "away").rename(ledger)
        assert await store.write(note) == 2
