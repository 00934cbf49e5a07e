"""What a node found changed or gone is stale at once; what lies elsewhere too is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bus.errors import ErrorCode, ModelForgeError
from tests.support.controllers import Bench, controller_bench
from tests.support.fake_agent import FakeAgent
from tests.support.waiting import until

GONE = ["PATH_NOT_FOUND", "PATH_NOT_A_FOLDER", "ARTIFACT_EMPTY"]


async def completed(bench: Bench, agent: FakeAgent) -> tuple[str, str]:
    """A candidate of the set at `model`: the ids of the candidate and of its assessment."""
    await agent.hello()
    assessment = await bench.assessed(agent)
    probe_id = await bench.queue(assessment)
    lease = await agent.claim(await agent.pull())
    await agent.publish(agent.finished(probe_id, lease, 1))
    view = await ended(bench, probe_id, "completed")
    return view["candidate_id"], assessment


async def ended(bench: Bench, probe_id: str, state: str) -> dict[str, Any]:
    async def there() -> dict[str, Any] | None:
        view = await bench.probe(probe_id)
        return view if view["state"] == state else None

    view: dict[str, Any] = await until(there, f"{probe_id} is {state}")
    return view


async def stale_because(bench: Bench, candidate_id: str) -> list[str]:
    reasons: list[str] = (await bench.call("candidates.show", id=candidate_id))["stale_because"]
    return reasons


async def scan_ends(bench: Bench, agent: FakeAgent, path: str, **fields: Any) -> str:
    scan_id = await bench.scan(path)
    await agent.finish_scan(await agent.pull(), **fields)

    async def over() -> bool:
        return bool((await bench.call("scans.show", id=scan_id))["state"] in {"succeeded", "failed"})

    await until(over, f"{scan_id} ends")
    return scan_id


def failed(code: str) -> dict[str, Any]:
    return {"outcome": "failed", "failure": {"code": code, "message": "a test"}, "manifest_json": None}


@pytest.mark.req("A18", "A19", "G6")
async def test_a_set_that_a_probe_found_changed_makes_its_candidate_stale(tmp_path: Path) -> None:
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        candidate, assessment = await completed(bench, agent)
        assert await stale_because(bench, candidate) == []
        probe_id = await bench.queue(assessment)
        lease = await agent.claim(await agent.pull())
        changed = {"code": "ARTIFACT_CHANGED", "message": "tokenizer.json: other bytes"}
        await agent.publish(agent.finished(probe_id, lease, 1, "failed", failure=changed))
        view = await ended(bench, probe_id, "failed")
        corrupt = "set integrity changed from verified to corrupt: tokenizer.json: other bytes"
        assert await stale_because(bench, candidate) == [corrupt]
        assert "location-corrupt" in await bench.audits(view["set_digest"])
        with pytest.raises(ModelForgeError) as raised:
            await bench.queue(assessment)
        assert raised.value.code is ErrorCode.ASSESSMENT_STALE
        assert corrupt in raised.value.message
        await scan_ends(bench, agent, "model")
        assert await stale_because(bench, candidate) == [], "the same bytes lie there again"


@pytest.mark.req("A18")
@pytest.mark.parametrize("code", GONE)
async def test_a_folder_that_a_scan_found_gone_makes_its_candidate_stale(tmp_path: Path, code: str) -> None:
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        candidate, _ = await completed(bench, agent)
        await scan_ends(bench, agent, "elsewhere", **failed(code))
        await scan_ends(bench, agent, "model", **failed("ARTIFACT_UNREADABLE"))
        assert await stale_because(bench, candidate) == []
        await scan_ends(bench, agent, "model", **failed(code))
        assert await stale_because(bench, candidate) == ["set location changed from model to none"]


@pytest.mark.req("A18", "P5")
async def test_an_identical_copy_elsewhere_makes_nothing_stale(tmp_path: Path) -> None:
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        candidate, assessment = await completed(bench, agent)
        await scan_ends(bench, agent, "a-copy")
        assert await stale_because(bench, candidate) == []
        probe_id = await bench.queue(assessment)
        assert (await bench.probe(probe_id))["location"] == "model", "a probe loads what was assessed"


@pytest.mark.req("A18", "A19")
async def test_a_driver_update_makes_what_was_proven_stale_and_says_so(tmp_path: Path) -> None:
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        candidate, assessment = await completed(bench, agent)
        proven = await bench.call("assessments.show", id=assessment)
        assert proven["proof"]["candidate_id"] == candidate
        assert await stale_listed(bench) == {}
        hardware = agent.inventory()["hardware"]
        sentence = f"driver changed from {hardware.get('driver_version') or 'none'} to 575.51"

        async def told() -> dict[str, list[str]]:
            await agent.say(hardware={**hardware, "driver_version": "575.51"})
            return await stale_listed(bench)

        assert await until(told, "the new driver is known") == {assessment: [sentence]}
        assert await stale_because(bench, candidate) == [sentence]
        assert (await bench.call("assessments.show", id=assessment))["proof"] is None
        with pytest.raises(ModelForgeError) as raised:
            await bench.queue(assessment)
        assert raised.value.code is ErrorCode.ASSESSMENT_STALE


async def stale_listed(bench: Bench) -> dict[str, list[str]]:
    found = (await bench.call("assessments.list", stale_only=True))["assessments"]
    return {one["id"]: one["stale_because"] for one in found}
