"""Nothing lost, nothing twice: ledger against queue in both directions, and the loss of the server's store."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from bus import subjects
from bus.streams import delete_message, last_message
from tests.support.controllers import Bench, controller_bench
from tests.support.fake_agent import FakeAgent
from tests.support.waiting import until

UNRECORDED = 200


async def remove_message(bench: Bench, job_id: str) -> None:
    stored = await last_message(bench.client, subjects.JOBS_STREAM, f"mf.jobs.local.work.{job_id}")
    assert stored is not None
    await delete_message(bench.client, subjects.JOBS_STREAM, stored.sequence)


async def published(bench: Bench, job_id: str) -> int:
    """Wait until the ledger knows the message's sequence, and return it."""

    async def recorded() -> int | None:
        sequence: int | None = (await bench.row("jobs.by_id", id=job_id))["stream_sequence"]
        return sequence

    sequence: int = await until(recorded, f"{job_id} is published")
    return sequence


async def succeeded(bench: Bench, *job_ids: str) -> None:
    async def there() -> bool:
        return all([(await bench.row("jobs.by_id", id=job_id))["state"] == "succeeded" for job_id in job_ids])

    await until(there, f"{job_ids} succeed")


async def ready_agent(bench: Bench) -> FakeAgent:
    agent = await bench.agent()
    await agent.hello()
    return agent


@pytest.mark.req("D1")
async def test_a_job_whose_message_is_gone_is_published_again(tmp_path: Path) -> None:
    async with controller_bench(tmp_path, reconcile_interval_s=0.2) as bench:
        agent = await ready_agent(bench)
        scan_id = await bench.scan()
        first = await published(bench, scan_id)
        await remove_message(bench, scan_id)
        delivery = await agent.pull()
        assert delivery.job_id == scan_id
        assert delivery.sequence > first
        assert (await bench.audits(scan_id))[:2] == ["queued", "republished"]
        await agent.finish_scan(delivery)
        await succeeded(bench, scan_id)
        await bench.in_stream()


async def test_a_running_job_whose_message_is_gone_goes_on_under_its_lease(tmp_path: Path) -> None:
    async with controller_bench(tmp_path, reconcile_interval_s=0.2) as bench:
        agent = await ready_agent(bench)
        scan_id = await bench.scan()
        first = await agent.pull()
        lease = await agent.claim(first)
        await published(bench, scan_id)
        await remove_message(bench, scan_id)
        second = await agent.pull()
        assert (await agent.claim(second))["kind"] == "claim.already_yours.v1"
        await agent.finish_scan(second, lease)
        await succeeded(bench, scan_id)
        await bench.in_stream()


async def test_a_message_that_belongs_to_no_job_is_deleted_and_audited(tmp_path: Path) -> None:
    async with controller_bench(tmp_path, reconcile_interval_s=0.2) as bench:
        await ready_agent(bench)
        await bench.client.publish_stored("mf.jobs.local.work.prb-0000000000", b'{"kind":"probe.job.v1"}')
        await bench.in_stream()
        assert await bench.audits("prb-0000000000") == ["unknown-message-deleted"]


async def test_the_message_of_an_ended_job_does_not_come_back(tmp_path: Path) -> None:
    async with controller_bench(tmp_path, reconcile_interval_s=0.2) as bench:
        agent = await ready_agent(bench)
        scan_id = await bench.scan()
        await agent.finish_scan(await agent.pull())
        await succeeded(bench, scan_id)
        await bench.in_stream()
        payload = (await bench.row("jobs.by_id", id=scan_id))["payload"].encode()
        await bench.client.publish_stored(f"mf.jobs.local.work.{scan_id}", payload)
        await bench.in_stream()
        assert "unknown-message-deleted" not in await bench.audits(scan_id)


async def test_what_was_committed_while_the_server_was_away_is_published_after_it(tmp_path: Path) -> None:
    async with controller_bench(tmp_path) as bench:
        agent = await ready_agent(bench)
        first = await bench.scan("one")
        await bench.in_stream(first)
        await asyncio.to_thread(bench.stack.server.kill)
        await until(lambda: not bench.controller._opened.client.connected, "the controller notices")
        second = await _committed_scan(bench)
        bench.stack.server.start()
        await bench.all_back(agent.client)
        await bench.in_stream(first, second)
        assert {(await agent.pull()).job_id, (await agent.pull()).job_id} == {first, second}
        assert "republished" not in await bench.audits(second)

        async def events() -> list[str]:
            document = await bench.client.js("STREAM.INFO.MF_EVENTS", {"subjects_filter": f"mf.events.scan.{second}.*"})
            return list(document["state"].get("subjects") or [])

        assert await until(events, "the event is there") == [f"mf.events.scan.{second}.queued"]


async def _committed_scan(bench: Bench) -> str:
    """Queue a scan as the API would, without the bus."""
    from bus.messages.api import ScanRequest  # noqa: PLC0415 -- only this test goes round the wire
    from bus.subjects import Caller  # noqa: PLC0415
    from controller.gates import artifact_sets  # noqa: PLC0415

    caller = Caller("user", "alice", "artifacts.scan")
    request = ScanRequest(node="local", path="two", request_id="offline")
    view = await bench.store.write(lambda tx: artifact_sets.scan(tx, bench.settings, caller, request))
    return view.id


async def test_a_controller_that_ended_in_between_publishes_at_its_next_start(tmp_path: Path) -> None:
    async with controller_bench(tmp_path) as bench:
        await ready_agent(bench)
        await asyncio.to_thread(bench.stack.server.kill)
        await until(lambda: not bench.controller._opened.client.connected, "the controller notices")
        scan_id = await _committed_scan(bench)
        await bench.stop()
        bench.stack.server.start()
        await until(lambda: bench.client.connected, "the server is back")
        await bench.start()
        await bench.in_stream(scan_id)


@pytest.mark.req("P4", "D1")
async def test_a_lost_store_costs_no_job_and_no_old_acknowledgement_touches_a_new_one(tmp_path: Path) -> None:
    async with controller_bench(tmp_path) as bench:
        agent = await ready_agent(bench)
        running, waiting = await bench.scan("running"), await bench.scan("waiting")
        held = await agent.pull()
        assert held.job_id == running
        lease = await agent.claim(held)
        assert (await published(bench, running), await published(bench, waiting)) == (1, 2)
        for number in range(UNRECORDED):  # published, and lost together with the word of it
            await bench.client.publish_stored(f"mf.jobs.local.work.scn-{number:010}", b"{}")
        await bench.wipe_and_restart_server()
        await bench.all_back(agent.client)
        await bench.in_stream(running, waiting)
        assert await published_above(bench, running, 2 + UNRECORDED)
        assert await published_above(bench, waiting, 2 + UNRECORDED)
        # The running attempt ends under its old delivery, which names sequence 1 of the lost stream.
        await finish(agent, held.job_id, lease)
        await succeeded(bench, running)
        await bench.in_stream(waiting)
        await agent.client.raw.publish(held.reply, b"+ACK")
        await bench.client.raw.publish(held.reply, b"+ACK")
        await bench.client.round_trip()
        await bench.in_stream(waiting)
        await agent.finish_scan(await agent.pull())
        await succeeded(bench, waiting)
        await bench.in_stream()


async def published_above(bench: Bench, job_id: str, sequence: int) -> bool:
    async def above() -> bool:
        recorded = (await bench.row("jobs.by_id", id=job_id))["stream_sequence"]
        return recorded is not None and recorded > sequence

    return bool(await until(above, f"{job_id} lies above {sequence}"))


async def finish(agent: FakeAgent, job_id: str, lease: dict[str, Any]) -> None:
    """Report a failed scan; retried while the stream of evidence is being made again."""
    from bus.errors import ModelForgeError  # noqa: PLC0415 -- a retry is all that this helper needs it for

    body = {
        **agent.phase(job_id, lease, 1), "kind": "scan.finished.v1", "outcome": "succeeded",
        "manifest_json": json.dumps({"files": [{"path": "a", "size_bytes": 1, "sha256": "a" * 64}]}),
        "evidence_json": "{}",
    }  # fmt: skip

    async def stored() -> bool:
        try:
            await agent.publish(body)
        except ModelForgeError:
            return False
        return True

    await until(stored, "the evidence is stored")
