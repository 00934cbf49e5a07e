"""A node that is refused over and over leaves a bounded trail, and the number of what is not in it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from controller.store.quota import MAX_REFUSALS, MAX_WINDOWS, LeftOut, Quota
from controller.store.tx import MAX_DETAIL_CHARS, MAX_DETAILS, MAX_ID_CHARS, Tx
from controller.sweeps import sweep
from tests.support.ledger import open_lab

AT = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(seconds=60)


@pytest.mark.req("G6")
def test_what_is_above_the_quota_is_counted_and_told_once() -> None:
    quota = Quota(limit=2)
    assert [quota.admit("evil", "refused", AT) for _ in range(5)] == [True, True, False, False, False]
    assert quota.admit("local", "refused", AT), "each node has its own"
    assert quota.admit("evil", "claim-refused", AT), "and each kind"
    assert quota.due(AT) == []
    assert quota.due(AT + MINUTE) == [LeftOut(node="evil", what="refused", count=3, since=AT)]
    assert quota.due(AT + MINUTE) == []
    assert quota.admit("evil", "refused", AT + MINUTE), "a new window"


def test_the_number_of_windows_is_bounded() -> None:
    quota = Quota(limit=1)
    for number in range(MAX_WINDOWS + 10):
        assert quota.admit(f"n{number}", "refused", AT)
    assert len(quota._windows) == MAX_WINDOWS


@pytest.mark.req("G6")
async def test_a_flood_of_refusals_leaves_a_bounded_trail(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:

        def flood(tx: Tx) -> None:
            for number in range(500):
                tx.audit_refusal("lease", f"job-{number}", "claim-refused", "evil", detail={"reason": "no"})

        await lab.store.write(flood)
        assert len(await lab.rows("SELECT 1 FROM audit")) == MAX_REFUSALS

        def later(tx: Tx) -> None:
            tx.at += MINUTE
            sweep(tx)

        await lab.store.write(later)
        [line] = await lab.rows("SELECT detail FROM audit WHERE what = 'refusals-left-out'")
        assert f'"count":"{500 - MAX_REFUSALS}"' in line["detail"]


@pytest.mark.req("G6")
async def test_what_is_audited_is_bounded_and_clean(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        detail = {f"k{number}": "\x1b]0;x\x07token=hunter2 \u202e" + "x" * 600_000 for number in range(100)}
        await lab.store.write(lambda tx: tx.audit("lease", "\x1b[2J" + "x" * 600_000, "refused", "a", detail=detail))
        [line] = await lab.rows("SELECT id, detail FROM audit")
        assert len(line["id"]) <= MAX_ID_CHARS
        assert len(line["detail"]) < MAX_DETAILS * (MAX_DETAIL_CHARS + 100)
        for bad in ("\x1b", "\\u001b", "hunter2", "\u202e"):
            assert bad not in line["id"] + line["detail"]
