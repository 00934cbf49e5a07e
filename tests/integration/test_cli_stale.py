"""After a driver update: the command line says what went stale and why, and what to type next."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.cli import Result, modelforge
from tests.support.controllers import Bench, controller_bench
from tests.support.nats import OPERATOR
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(110)


@pytest.mark.req("A18")
async def test_a_driver_update_is_told_by_the_stale_list(tmp_path: Path) -> None:
    async with controller_bench(tmp_path / "bench") as bench:

        async def asked(*arguments: str) -> Result:
            key = str(bench.stack.credentials("operator"))
            options = ("--url", bench.stack.url, "--user", OPERATOR, "--credentials", key)
            return await asyncio.to_thread(modelforge, tmp_path / "state", *arguments, *options)

        agent = await bench.agent()
        await agent.hello()
        assessment = await bench.assessed(agent)
        fresh = await asked("assess", "list", "--stale")
        assert (fresh.code, fresh.out) == (0, "no assessment is stale\n")

        hardware = agent.inventory()["hardware"]
        before = hardware.get("driver_version") or "none"

        async def known() -> bool:
            await agent.say(hardware={**hardware, "driver_version": "575.51"})
            return await _is_stale(bench, assessment)

        await until(known, "the new driver is known")
        stale = await asked("assess", "list", "--stale")
        assert stale.code == 0, stale.err
        head, *sentences = stale.out.splitlines()
        assert head.startswith(f"{assessment} compatible: set ")
        assert sentences == [f"  - driver changed from {before} to 575.51"]
        assert "next: modelforge assess " in stale.err
        shown = await asked("assess", "show", assessment)
        assert shown.out.splitlines()[0] == "STALE: 1 fact changed since it was COMPATIBLE; assess again"
        queued = await asked("probe", "queue", assessment)
        assert queued.code == 4
        assert "error: ASSESSMENT_STALE" in queued.err
        assert f"driver changed from {before} to 575.51" in queued.err


async def _is_stale(bench: Bench, assessment: str) -> bool:
    return bool((await bench.call("assessments.show", id=assessment))["stale_because"])
