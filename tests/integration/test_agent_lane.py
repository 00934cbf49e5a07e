"""The agent's work lane over a real nats-server: claims, renewals, refusals, and everything that goes wrong there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bus import ids, subjects
from bus.client import BusClient
from bus.codec import decode, encode
from bus.digest import sha256_hex
from bus.errors import ErrorCode, ModelForgeError
from bus.lease_puller import Delivered, LeasePuller
from bus.messages.artifacts import Manifest, SetEvidence
from bus.messages.evidence import ScanFinished
from bus.messages.inventory import NodeInventory
from bus.messages.jobs import ProbeJob, ScanJob
from bus.streams import last_message
from node_agent.claims import Lease
from node_agent.reporter import Reporter
from tests.support.agent_jobs import probe_job, scan_job
from tests.support.agents import AgentBench, Slow, agent_bench
from tests.support.waiting import until

pytestmark = pytest.mark.req("D1")


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[AgentBench]:
    async with agent_bench(tmp_path) as bench:
        model = bench.root / "model"
        model.mkdir()
        (model / "config.json").write_text('{"model_type": "bert"}')
        (model / "vocab.txt").write_bytes(os.urandom(1000))
        yield bench


async def finished(bench: AgentBench, job: ScanJob) -> ScanFinished:
    message = await bench.controller.finished(job.job_id)
    assert isinstance(message, ScanFinished)
    return message


async def queue_is_empty(client: BusClient) -> bool:
    info = await client.js(f"STREAM.INFO.{subjects.JOBS_STREAM}")
    return bool(info["state"]["messages"] == 0)


@pytest.mark.req("P1", "B1", "B2")
async def test_a_scan_is_pulled_claimed_run_and_reported(bench: AgentBench) -> None:
    agent = await bench.agent()
    job = scan_job()
    await bench.controller.put(job)
    message = await finished(bench, job)
    claim = bench.controller.claims[0]
    assert (message.outcome, message.node, message.boot_id) == ("succeeded", "local", agent.boot.id)
    assert (message.lease_id, message.attempt) == (bench.controller.leases[job.job_id].grant.lease_id, 1)
    assert subjects.parse_delivery(claim.delivery).consumer == "local-work"
    manifest = decode((message.manifest_json or "").encode(), Manifest)
    assert {entry.path: entry.sha256 for entry in manifest.files} == {
        path.name: sha256_hex(path.read_bytes()) for path in (bench.root / "model").iterdir()
    }
    assert decode((message.evidence_json or "").encode(), SetEvidence).documents == {
        "config.json": {"model_type": "bert"}
    }
    # The agent never acknowledges; the controller does, after its commit.
    await until(lambda: queue_is_empty(bench.controller.client), "the final acknowledgement")


@pytest.mark.parametrize(
    ("path", "code"),
    [("../x", "PATH_OUTSIDE_ROOT"), ("nowhere", "PATH_NOT_FOUND"), ("model/vocab.txt", "PATH_NOT_A_FOLDER")],
)
@pytest.mark.req("B4")
async def test_a_bad_path_is_a_typed_failure_without_a_place_of_the_host(
    bench: AgentBench, path: str, code: str
) -> None:
    await bench.agent()
    job = scan_job(path)
    await bench.controller.put(job)
    message = await finished(bench, job)
    assert message.failure is not None
    assert (message.outcome, message.failure.code, message.manifest_json) == ("failed", code, None)
    assert str(bench.root.parent) not in encode(message).decode()


async def test_a_controller_that_is_away_is_asked_again_until_it_answers(bench: AgentBench) -> None:
    failures = {"hello": 2, "claim": 2}

    def flaky(verb: str) -> Any:
        async def answer(request: Any) -> Any:
            if failures[verb]:
                failures[verb] -= 1
                raise ModelForgeError(ErrorCode.STORE_UNAVAILABLE, "the disk is full")
            return await getattr(bench.controller, f"on_{verb}")(request)

        return answer

    for verb in failures:
        bench.controller.answers[verb] = flaky(verb)
    await bench.agent()
    job = scan_job()
    await bench.controller.put(job)
    assert (await finished(bench, job)).outcome == "succeeded"
    assert failures == {"hello": 0, "claim": 0}


MALFORMED = {
    "no json": (b"\xff\xfe", "MALFORMED_MESSAGE"),
    "unknown kind": (b'{"kind": "rm.rf.v1", "command": "rm"}', "UNKNOWN_KIND"),
    "missing field": (b'{"kind": "scan.job.v1"}', "MALFORMED_MESSAGE"),
    "another node": (encode(msgspec.structs.replace(scan_job(), node="other")), "MALFORMED_MESSAGE"),
    "another id": (encode(scan_job()), "MALFORMED_MESSAGE"),
}


@pytest.mark.parametrize("name", MALFORMED)
@pytest.mark.req("P5", "B4")
async def test_a_job_that_cannot_be_understood_is_refused_typed_and_the_lane_goes_on(
    bench: AgentBench, name: str
) -> None:
    await bench.agent()
    data, code = MALFORMED[name]
    job_id = ids.new_id(ids.SCAN)
    await bench.controller.put_raw(job_id, data)
    good = scan_job()
    await bench.controller.put(good)
    assert (await finished(bench, good)).outcome == "succeeded"
    await bench.controller.until(lambda: bool(bench.controller.refusals))
    (refusal,) = bench.controller.refusals
    assert (refusal.job_id, refusal.failure.code) == (job_id, code)
    assert job_id not in {claim.job_id for claim in bench.controller.claims}


async def test_the_inventory_goes_out_on_every_change(bench: AgentBench) -> None:
    slow = Slow()
    agent = await bench.agent(scans=slow)
    job = scan_job()
    await bench.controller.put(job)
    (lease,) = await slow.begun()
    picture = await inventory(bench, lambda picture: bool(picture.active))
    assert [(a.job_id, a.lease_id, a.attempt) for a in picture.active] == [(job.job_id, lease.id, 1)]
    assert (picture.boot_id, picture.slots) == (agent.boot.id, 2)
    assert "runtime.probe.v1" in picture.capabilities
    assert picture.hardware.cpu_count >= 1
    assert picture.hardware.memory_total_bytes > 0
    slow.release.set()
    later = await inventory(bench, lambda picture: not picture.active)
    assert later.sequence > picture.sequence


async def test_two_slots_work_at_once_and_never_three(bench: AgentBench) -> None:
    slow = Slow()
    await bench.agent(scans=slow)
    jobs = [scan_job() for _ in range(3)]
    for job in jobs:
        await bench.controller.put(job)
    await until(lambda: len(slow.leases) == 2, "two jobs at work")
    info = await bench.controller.client.js(f"CONSUMER.INFO.{subjects.JOBS_STREAM}.local-work")
    assert (info["num_ack_pending"], info["num_pending"], len(slow.leases)) == (2, 1, 2)


async def test_a_stop_waits_for_what_ends_in_time(bench: AgentBench) -> None:
    slow = Slow(report=True)
    agent = await bench.agent(scans=slow, grace_s=10.0)
    job = scan_job()
    await bench.controller.put(job)
    await slow.begun()
    agent.stopping.set()
    slow.release.set()
    await agent.task
    assert (await finished(bench, job)).outcome == "succeeded"


async def test_a_stop_leaves_an_unfinished_job_to_its_successor(bench: AgentBench) -> None:
    slow = Slow(report=True)
    agent = await bench.agent(scans=slow, grace_s=0.1)
    job = scan_job()
    await bench.controller.put(job)
    (lease,) = await slow.begun()
    await agent.stop()
    assert lease.end is not None
    assert lease.end.code is ErrorCode.INTERRUPTED
    assert bench.controller.evidence == []
    await bench.agent()
    message = await finished(bench, job)
    assert (message.outcome, message.attempt) == ("succeeded", 2)


@pytest.mark.req("B2")
async def test_a_server_that_restarts_costs_nothing(bench: AgentBench) -> None:
    slow = Slow(report=True)
    await bench.agent(scans=slow)
    job = scan_job()
    await bench.controller.put(job)
    (lease,) = await slow.begun()
    await asyncio.to_thread(bench.stack.server.kill)
    slow.release.set()  # the report falls into the gap
    await asyncio.to_thread(bench.stack.server.start)
    message = await finished(bench, job)
    assert (message.outcome, message.lease_id) == ("succeeded", lease.id)
    later = scan_job()
    await bench.controller.put(later)
    assert (await finished(bench, later)).outcome == "succeeded"


async def test_a_defect_in_one_job_ends_that_job_typed_and_no_other(
    bench: AgentBench, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        async def run(self, job: ScanJob | ProbeJob, lease: Lease, reporter: Reporter) -> None:
            raise LookupError("/secret/place")

    slow = Slow(report=True)
    agent = await bench.agent(scans=slow, probes=lambda _: Broken())
    long, broken = scan_job(), probe_job(bench.root)
    await bench.controller.put(long)
    await slow.begun()
    await bench.controller.put(broken)
    message = await bench.controller.finished(broken.job_id)
    assert message.failure is not None
    assert (message.outcome, message.failure.code, message.attempt) == ("failed", "NODE_FAULT", 1)
    assert "/secret/place" not in encode(message).decode()
    assert "/secret/place" in caplog.text
    assert not agent.task.done()
    slow.release.set()
    assert (await finished(bench, long)).outcome == "succeeded"


async def test_a_defect_of_a_pull_does_not_end_what_runs(bench: AgentBench, monkeypatch: pytest.MonkeyPatch) -> None:
    pulls: list[float] = []

    class BrokenOnce(LeasePuller):
        async def pull(self, wait_s: float) -> Delivered | None:
            pulls.append(wait_s)
            if len(pulls) == 1:
                raise LookupError("a defect")
            return await super().pull(wait_s)

    # In the lane's module only: the scripted controller pulls too.
    monkeypatch.setattr("node_agent.lane.LeasePuller", BrokenOnce)
    await bench.agent()
    job = scan_job()
    await bench.controller.put(job)
    assert (await finished(bench, job)).outcome == "succeeded"
    assert len(pulls) >= 2


async def test_a_claimed_scan_warms_what_a_probe_will_want(bench: AgentBench) -> None:
    told: list[int] = []
    await bench.agent(scan_claimed=lambda: told.append(len(bench.controller.claims)))
    job = scan_job()
    await bench.controller.put(job)
    await finished(bench, job)
    await bench.controller.put(probe := probe_job(bench.root))
    await bench.controller.finished(probe.job_id)
    assert told == [1]


async def test_a_lost_consumer_is_waited_for(bench: AgentBench) -> None:
    await bench.agent()
    await bench.controller.until(lambda: bool(bench.controller.hellos))
    client = bench.controller.client
    config = (await client.js(f"CONSUMER.INFO.{subjects.JOBS_STREAM}.local-work"))["config"]
    await client.js(f"CONSUMER.DELETE.{subjects.JOBS_STREAM}.local-work")
    job = scan_job()
    await bench.controller.put(job)
    await client.js(
        f"CONSUMER.DURABLE.CREATE.{subjects.JOBS_STREAM}.local-work",
        {"stream_name": subjects.JOBS_STREAM, "config": config},
    )
    assert (await finished(bench, job)).outcome == "succeeded"


async def inventory(bench: AgentBench, wanted: Callable[[NodeInventory], bool]) -> NodeInventory:
    async def found() -> NodeInventory | None:
        stored = await last_message(bench.controller.client, subjects.INVENTORY_STREAM, subjects.inventory("local"))
        picture = decode(stored.data, NodeInventory) if stored is not None else None
        return picture if picture is not None and wanted(picture) else None

    picture = await until(found, "an inventory")
    assert isinstance(picture, NodeInventory)
    return picture
