"""Progress: the newest, not too often, and never in anybody's way."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from bus.errors import ErrorCode, ModelForgeError
from bus.messages.api import ClaimGranted
from bus.messages.artifacts import ScanProgress
from bus.messages.blobs import Noted
from node_agent import scan_progress
from node_agent.claims import Lease
from node_agent.controller_api import Boot
from node_agent.scan_progress import ProgressSender
from tests.support.waiting import until


class Hearing:
    """A controller that hears, or fails."""

    def __init__(self, error: ModelForgeError | None = None) -> None:
        self.boot = Boot("local", "boot")
        self.heard: list[tuple[float, int]] = []
        self._error = error

    async def call(self, _verb: Any, request: Any, *, timeout_s: float) -> Noted:
        assert timeout_s <= 5
        assert (request.boot_id, request.lease_id, request.token) == ("boot", "lease", "t0ken")
        self.heard.append((asyncio.get_running_loop().time(), request.progress.files_done))
        if self._error is not None:
            raise self._error
        return Noted()


def sender(api: Hearing) -> ProgressSender:
    granted = ClaimGranted(lease_id="lease", attempt=1, token="t0ken", ttl_s=60.0)
    return ProgressSender(api, Lease(granted, "job", "$JS.ACK.x", 0.0))  # type: ignore[arg-type]  # all that is used


@pytest.mark.parametrize("error", [None, ModelForgeError(ErrorCode.NO_CONTROLLER, "away")])
async def test_the_newest_is_told_and_the_pause_is_kept(
    error: ModelForgeError | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_progress, "INTERVAL_S", 0.05)
    api = Hearing(error)
    async with sender(api) as telling:
        for number in range(500):
            telling.offer(ScanProgress(step="hashing", files_done=number))
            if number % 100 == 0:
                await until(lambda number=number: api.heard and api.heard[-1][1] >= number, "a report")  # type: ignore[misc]  # mypy infers no type of a lambda with a default
        await until(lambda: api.heard[-1][1] == 499, "the last report")
    assert len(api.heard) <= 12
    assert all(later - sooner >= 0.049 for (sooner, _), (later, _) in pairwise(api.heard))


async def test_the_end_does_not_wait_for_a_controller_that_is_silent() -> None:
    class Silent(Hearing):
        async def call(self, _verb: Any, _request: Any, *, timeout_s: float) -> Noted:
            self.heard.append((timeout_s, 0))
            await asyncio.Event().wait()
            raise AssertionError

    api = Silent()
    async with sender(api) as telling:
        telling.offer(ScanProgress(step="listing"))
        await until(lambda: api.heard, "a question")
