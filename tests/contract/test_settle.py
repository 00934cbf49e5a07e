"""Ended jobs whose message may still lie in the stream: each is looked at, whatever becomes of the others."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from bus.client import BusClient
from bus.errors import ErrorCode, ModelForgeError
from controller import settle
from controller.lease_rules import JobSnapshot
from controller.settle import Settler
from controller.store.tx import Tx
from tests.support.ledger import Lab, open_lab


class Stubborn(Settler):
    """Fails for the first jobs that it is given."""

    def __init__(self, lab: Lab, failing: int, code: ErrorCode) -> None:
        super().__init__(lab.store, cast("BusClient", None), 0.001)
        self.tried: list[str] = []
        self._failing = failing
        self._code = code

    async def settle(self, job: JobSnapshot, delivery: str | None) -> None:
        self.tried.append(job.id)
        if len(self.tried) <= self._failing:
            raise ModelForgeError(self._code, f"{delivery} is not settled")


async def ended_jobs(lab: Lab, count: int) -> set[str]:
    """Jobs that ended while their message may still lie in the stream."""
    await lab.hello()
    for number in range(count):
        await lab.scan(path=f"model-{number}")
    found = [row["id"] for row in await lab.rows("SELECT id FROM jobs")]

    def publish(tx: Tx) -> None:
        for sequence, job_id in enumerate(found, 1):
            tx.run("jobs.record_sequence", id=job_id, sequence=sequence)

    await lab.store.write(publish)
    return set(found)


@pytest.mark.parametrize("count", [6, 7])
async def test_jobs_that_cannot_be_settled_starve_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(settle, "BATCH_JOBS", 2)
    async with open_lab(tmp_path) as lab:
        jobs = await ended_jobs(lab, count)
        settler = Stubborn(lab, 4, ErrorCode.REQUEST_TIMEOUT)
        with pytest.raises(ModelForgeError):
            await settler.step()
        assert len(settler.tried) == count, "each once"
        assert set(settler.tried) == jobs
        await settler.step()


async def test_without_a_connection_nobody_is_tried_in_vain(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        await ended_jobs(lab, 3)
        settler = Stubborn(lab, 1, ErrorCode.NOT_CONNECTED)
        with pytest.raises(ModelForgeError):
            await settler.step()
        assert len(settler.tried) == 1
