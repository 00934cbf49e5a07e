"""A long-lived task never ends silently."""

from __future__ import annotations

import asyncio
import logging

import pytest

from bus.errors import ErrorCode, ModelForgeError
from controller.loops import Faults, Wake, keep
from observability.vitals import Loop


async def test_a_poisoned_step_is_counted_and_the_loop_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    calls, done, faults = 0, asyncio.Event(), Faults()

    async def step() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ValueError("poison")
        if calls == 2:
            raise ModelForgeError(ErrorCode.NOT_CONNECTED, "no server")
        done.set()
        await asyncio.Event().wait()

    with caplog.at_level(logging.WARNING, "controller.loops"):
        task = asyncio.create_task(keep(Loop.SWEEP, step, faults, first_pause_s=0.001))
        async with asyncio.timeout(5):
            await done.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert faults.counts[Loop.SWEEP] == 2
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert caplog.records[0].exc_info is not None, "a defect is told with its traceback"


async def test_a_pause_is_cut_short_by_a_reconnect() -> None:
    failed, again, hurry = asyncio.Event(), asyncio.Event(), Wake()

    async def step() -> None:
        if failed.is_set():
            again.set()
            await asyncio.Event().wait()
        failed.set()
        raise ModelForgeError(ErrorCode.NOT_CONNECTED, "no server")

    task = asyncio.create_task(keep(Loop.SWEEP, step, Faults(), hurry=hurry, first_pause_s=1_000))
    async with asyncio.timeout(5):
        await failed.wait()
        hurry.set()
        await again.wait()
    task.cancel()


async def test_a_call_before_the_wait_is_not_lost() -> None:
    wake = Wake()
    assert await wake.wait(0.001) is False
    wake.set()
    assert await wake.wait(1) is True
    assert await wake.wait(0.001) is False
