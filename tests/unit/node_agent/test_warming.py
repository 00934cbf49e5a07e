"""Templates warmed ahead: begun once, given up at a stop, and never anybody's trouble."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from bus.errors import ErrorCode, ModelForgeError
from node_agent.warming import Warmer
from node_agent.worker import ChildFactory, WorkerSettings
from tests.support.waiting import until


@pytest.fixture
async def factory() -> AsyncIterator[ChildFactory]:
    made = ChildFactory(WorkerSettings(test_double=True, template_idle_s=0.3))
    yield made
    await made.close()


async def test_a_warmed_template_runs_ahead_of_any_probe_and_ends_when_none_comes(factory: ChildFactory) -> None:
    warmer = Warmer(factory, lambda: ("faulty",))
    warmer.warm()
    await until(lambda: factory.template_pid("faulty") is not None, "the template")
    await until(lambda: factory.template_pid("faulty") is None, "its idle end")
    await warmer.close()


@pytest.mark.parametrize("error", [ModelForgeError(ErrorCode.NODE_FAULT, "no torch"), LookupError("a defect")])
async def test_a_template_that_does_not_come_up_is_a_line_in_the_log(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(ChildFactory):
        async def warm(self, adapter: str) -> float:
            raise error

    warmer = Warmer(Broken(WorkerSettings()), lambda: ("faulty",))
    warmer.warm()
    await until(lambda: "no template could be warmed ahead" in caplog.text, "the line")
    await warmer.close()


async def test_it_is_begun_once_and_a_stop_does_not_wait_for_it() -> None:
    begun: list[str] = []

    class Slow(ChildFactory):
        async def warm(self, adapter: str) -> float:
            begun.append(adapter)
            await asyncio.Event().wait()
            return 0.0

    warmer = Warmer(Slow(WorkerSettings()), lambda: ("faulty",))
    warmer.warm()
    warmer.warm()
    await until(lambda: begun, "the beginning")
    warmer.warm()
    async with asyncio.timeout(5):
        await warmer.close()
    assert begun == ["faulty"]
