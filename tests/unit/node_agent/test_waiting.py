"""Ends of tasks: a cancel that gets lost is said again, and the end of an agent does not hang on it."""

from __future__ import annotations

import asyncio

import pytest

from node_agent import waiting
from node_agent.waiting import end_tasks, unless


async def deaf_to_the_first(times: int) -> str:
    """Loses cancels as `asyncio.wait_for` does when its result comes in the same moment."""
    for _ in range(times):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue
    await asyncio.Event().wait()
    return "never"


async def test_a_lost_cancel_is_said_again() -> None:
    task = asyncio.ensure_future(deaf_to_the_first(2))
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await end_tasks(task, again_s=0.01)
    assert task.cancelled()


async def test_a_stop_ends_work_that_lost_the_first_cancel(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(0.02, stop.set)
    async with asyncio.timeout(5):
        assert await unless(stop, deaf_to_the_first(1)) is None


async def test_a_task_that_never_ends_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(waiting, "MAX_CANCELS", 3)
    task = asyncio.ensure_future(deaf_to_the_first(3))
    await asyncio.sleep(0)
    await end_tasks(task, again_s=0.01)
    assert "did not end after 3 cancels" in caplog.text
    await end_tasks(task)


async def test_what_ended_before_keeps_its_result() -> None:
    task = asyncio.ensure_future(asyncio.sleep(0, "done"))
    await task
    await end_tasks(task)
    assert task.result() == "done"
