"""One bad job or node costs itself only: never the others, and never the controller's start."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bus.client import BusClient
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.evidence import AnyEvidence
from bus.streams import StoredMessage, ensure_node_consumers
from bus.streams import last_message as real_last_message
from controller.evidence import ScanParts, apply
from controller.store.tx import Tx
from observability.counters import Outcome
from observability.vitals import Loop
from tests.support.controllers import Bench, controller_bench
from tests.support.waiting import until

QUICK_ENOUGH_S = 5.0


async def in_ledger(bench: Bench, job_id: str, *states: str) -> None:
    async def there() -> bool:
        return (await bench.row("jobs.by_id", id=job_id))["state"] in states

    await until(there, f"{job_id} is one of {states}")


@pytest.mark.req("D1")
async def test_a_job_that_cannot_be_settled_stops_no_other_and_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poisoned: set[str] = set()

    async def last_message(client: BusClient, stream: str, subject: str) -> StoredMessage | None:
        if subject.rsplit(".", 1)[-1] in poisoned:
            raise KeyError(subject)
        return await real_last_message(client, stream, subject)

    monkeypatch.setattr("controller.settle.last_message", last_message)
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        await agent.hello()
        bad = await bench.scan("bad")
        poisoned.add(bad)
        await agent.finish_scan(await agent.pull())
        await in_ledger(bench, bad, "succeeded")
        good = await bench.scan("good")
        await agent.finish_scan(await agent.pull())
        await in_ledger(bench, good, "succeeded")
        await bench.in_stream(bad)
        await bench.stop()
        await bench.start()
        assert bench.controller.faults.counts[Loop.RECONCILE] >= 1
        poisoned.clear()
        await bench.in_stream()


@pytest.mark.req("D1")
async def test_a_delivery_that_cannot_be_acknowledged_costs_the_message_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = BusClient.request

    async def request(client: BusClient, subject: str, data: bytes, *, timeout_s: float) -> bytes:
        if data == b"+ACK" and subject.startswith("$JS.ACK") and "MF_JOBS" in subject:
            raise ValueError(subject)
        return await real(client, subject, data, timeout_s=timeout_s)

    monkeypatch.setattr(BusClient, "request", request)
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        await agent.hello()
        await bench.scan()
        await agent.finish_scan(await agent.pull())
        await bench.in_stream()


@pytest.mark.req("D1", "D2")
async def test_a_node_whose_consumers_cannot_be_made_stops_no_other_and_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ensure(client: BusClient, node: str, **given: Any) -> Any:
        if node == "evil":
            raise OverflowError(node)
        return await ensure_node_consumers(client, node, **given)

    async with controller_bench(tmp_path, nodes=("local", "evil")) as bench:
        for node in ("evil", "local"):
            await (await bench.agent(node)).hello()
        monkeypatch.setattr("controller.reconcile.ensure_node_consumers", ensure)
        await bench.stop()
        await bench.client.js("CONSUMER.DELETE.MF_JOBS.local-work")
        await bench.start()
        assert "evil" in (await bench.call("status"))["streams"]["MF_JOBS"]
        assert (await bench.client.js("CONSUMER.INFO.MF_JOBS.local-work"))["name"] == "local-work"


@pytest.mark.req("D2")
async def test_absurd_slots_on_record_are_brought_into_their_bounds(tmp_path: Path) -> None:
    async with controller_bench(tmp_path) as bench:
        await (await bench.agent()).hello()
        [row] = await bench.rows("boots.all", limit=1)
        huge = row["inventory"].replace('"slots":2', f'"slots":{2**80}')
        assert huge != row["inventory"]
        facts = {"node": "local", "boot_id": row["boot_id"], "environment_id": None, "inventory": huge}
        await bench.store.write(lambda tx: tx.run("boots.seen", at=tx.at, **facts))
        await bench.stop()
        await bench.start()
        info = await bench.client.js("CONSUMER.INFO.MF_JOBS.local-work")
        assert info["config"]["max_ack_pending"] == 1_024


@pytest.mark.req("D1")
async def test_the_bad_evidence_of_one_node_keeps_nobody_else_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poisoned(tx: Tx, message: AnyEvidence, node: str, parts: ScanParts | None) -> Outcome:
        if node == "evil":
            raise KeyError(node)
        return apply(tx, message, node, parts)

    monkeypatch.setattr("controller.intake.apply", poisoned)
    async with controller_bench(tmp_path, nodes=("local", "evil")) as bench:
        evil, good = await bench.agent("evil"), await bench.agent("local")
        await evil.hello()
        await good.hello()
        lie = evil.phase("prb-0000000000", {"lease_id": "lse-0000000000", "attempt": 1}, 1, "loading")
        for _ in range(40):
            await evil.publish(lie)
        scan_id = await bench.scan()
        await good.finish_scan(await good.pull())
        await asyncio.wait_for(in_ledger(bench, scan_id, "succeeded"), QUICK_ENOUGH_S)
        assert bench.controller.faults.counts[Loop.EVIDENCE] >= 40


@pytest.mark.req("D1")
@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
async def test_a_moment_at_the_end_of_the_calendar_is_no_fault(tmp_path: Path, at: str) -> None:
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        await agent.hello()
        probe_id = await bench.queue(await bench.assessed(agent))
        lease = await agent.claim(await agent.pull())
        mark = {"state": "loading", "at": at, "attempt": 1}
        await agent.publish(agent.phase(probe_id, lease, 1, at=at, timeline=[mark]))

        async def loading() -> bool:
            return bool((await bench.probe(probe_id))["state"] == "loading")

        await until(loading, "the phase is taken")
        assert bench.controller.faults.counts[Loop.EVIDENCE] == 0


@pytest.mark.req("P4")
async def test_no_node_can_take_or_bury_the_boot_of_another(tmp_path: Path) -> None:
    async with controller_bench(tmp_path, nodes=("local", "evil")) as bench:
        local = await bench.agent("local", "b" * 32)
        thief = await bench.agent("evil", "b" * 32)
        await thief.hello()
        await (await bench.agent("evil", "c" * 32)).hello()  # buries the thief's boot, for its own node
        await local.hello()
        await local.hello()
        with pytest.raises(ModelForgeError) as raised:
            await thief.hello()
        assert raised.value.code == ErrorCode.BOOT_CONFLICT
        await bench.scan()
        assert (await local.claim(await local.pull()))["kind"] == "claim.granted.v1"
