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
from bus.messages.api import ClaimGranted, ClaimRetryAfter, Fenced
from bus.messages.evidence import ScanFinished
from bus.messages.gates import Manifest, SetEvidence
from bus.messages.inventory import NodeInventory
from bus.messages.jobs import CancelCommand, ProveCommand, ScanJob
from bus.streams import last_message
from tests.support.agent_jobs import scan_job
from tests.support.agents import AgentBench, agent_bench
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


async def test_the_lease_is_renewed_by_its_token_while_the_work_goes_on(bench: AgentBench) -> None:
    slow = Slow()
    agent = await bench.agent(scans=slow)
    job = scan_job()
    await bench.controller.put(job)
    # Longer than one TTL: without renewals of the delivery the message would have come again.
    await bench.controller.until(lambda: len(bench.controller.renewals) >= 5)
    grant = bench.controller.leases[job.job_id].grant
    assert {(r.boot_id, r.lease_id, r.token) for r in bench.controller.renewals} == {
        (agent.boot.id, grant.lease_id, grant.token)
    }
    assert len(bench.controller.claims) == 1
    assert not slow.leases[0].ended.is_set()


@pytest.mark.req("P4")
async def test_a_lease_that_cannot_be_renewed_ends_after_one_ttl(bench: AgentBench) -> None:
    slow = Slow()
    bench.controller.answers["renew"] = silence
    await bench.agent(scans=slow)
    began = asyncio.get_running_loop().time()
    await bench.controller.put(scan_job())
    await bench.controller.until(lambda: bool(bench.controller.claims))
    (lease,) = await slow.begun()
    async with asyncio.timeout(10):
        await lease.done.wait()
    took_s = asyncio.get_running_loop().time() - began
    assert lease.end is not None
    assert lease.end.code is ErrorCode.LEASE_FENCED
    assert 1.9 <= took_s <= 4.0


@pytest.mark.req("P4", "F2")
async def test_a_fenced_lease_reports_nothing(bench: AgentBench) -> None:
    async def fence(_: Any) -> Fenced:
        return Fenced(failure=ModelForgeError(ErrorCode.LEASE_FENCED, "a newer attempt").to_failure())

    bench.controller.answers["renew"] = fence
    slow = Slow(report=True)
    await bench.agent(scans=slow)
    await bench.controller.put(scan_job())
    (lease,) = await slow.begun()
    async with asyncio.timeout(10):
        await lease.done.wait()
    assert lease.end is not None
    assert lease.end.message == "a newer attempt"
    assert bench.controller.evidence == []


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


async def test_a_second_delivery_of_a_job_at_work_takes_the_firsts_place(bench: AgentBench) -> None:
    slow = Slow()
    await bench.agent(scans=slow)
    job = scan_job()
    await bench.controller.put(job)
    (lease,) = await slow.begun()
    first = lease.delivery
    await bench.controller.client.publish(first, b"-NAK")
    await bench.controller.until(lambda: len(bench.controller.claims) == 2)
    await until(lambda: lease.delivery != first, "the newer delivery")
    assert subjects.parse_delivery(lease.delivery).num_delivered == 2
    assert len(slow.leases) == 1


async def test_a_lost_grant_is_waited_out_and_claimed_again(bench: AgentBench) -> None:
    """The grant's reply is lost: nobody has the token, so the agent must not work, and must not forget the job."""
    lost: list[ClaimGranted] = []

    async def lose_the_first(request: Any) -> Any:
        reply = await bench.controller.on_claim(request)
        if not lost:
            lost.append(reply)
            raise ModelForgeError(ErrorCode.INTERNAL, "lost on its way")
        if len(bench.controller.claims) == 3:
            # In the meantime the lease ran out.
            del bench.controller.leases[request.job_id]
            return await bench.controller.on_claim(request)
        return reply

    bench.controller.answers["claim"] = lose_the_first
    await bench.agent()
    job = scan_job()
    await bench.controller.put(job)
    message = await finished(bench, job)
    assert message.lease_id != lost[0].lease_id


async def test_retry_after_gives_the_message_back(bench: AgentBench) -> None:
    asked: list[float] = []

    async def not_yet(request: Any) -> Any:
        asked.append(asyncio.get_running_loop().time())
        return ClaimRetryAfter(delay_s=0.5) if len(asked) == 1 else await bench.controller.on_claim(request)

    bench.controller.answers["claim"] = not_yet
    await bench.agent()
    job = scan_job()
    await bench.controller.put(job)
    assert (await finished(bench, job)).outcome == "succeeded"
    assert 0.45 <= asked[1] - asked[0] <= 1.5


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


@pytest.mark.req("P10")
async def test_a_cancel_command_ends_the_job(bench: AgentBench) -> None:
    slow = Slow(report=True)
    await bench.agent(scans=slow)
    job = scan_job()
    await bench.controller.put(job)
    (lease,) = await slow.begun()
    await bench.controller.client.publish(subjects.command("local"), b"\xffgarbage")
    await bench.controller.command(CancelCommand(job_id=ids.new_id(ids.SCAN)))
    await bench.controller.command(CancelCommand(job_id=job.job_id))
    async with asyncio.timeout(2):
        await lease.cancelled.wait()


@pytest.mark.req("P10")
async def test_a_cancel_that_only_the_renewal_tells_ends_the_job(bench: AgentBench) -> None:
    slow = Slow()
    await bench.agent(scans=slow)
    job = scan_job()
    await bench.controller.put(job)
    (lease,) = await slow.begun()
    bench.controller.cancel.add(job.job_id)
    async with asyncio.timeout(3):
        await lease.cancelled.wait()


@pytest.mark.parametrize("verb", ["hello", "claim", "renew"])
async def test_a_boot_that_was_replaced_ends_itself(bench: AgentBench, verb: str) -> None:
    async def superseded(_: Any) -> Any:
        raise ModelForgeError(ErrorCode.BOOT_SUPERSEDED, "a newer agent")

    bench.controller.answers[verb] = superseded
    agent = await bench.agent(scans=Slow())
    await bench.controller.put(scan_job())
    async with asyncio.timeout(10):
        with pytest.raises(ModelForgeError) as caught:
            await agent.task
    assert caught.value.code is ErrorCode.BOOT_SUPERSEDED


async def test_the_living_boot_proves_itself_by_saying_hello_again(bench: AgentBench) -> None:
    agent = await bench.agent()
    await bench.controller.until(lambda: len(bench.controller.hellos) == 1)
    await bench.controller.command(ProveCommand(boot_id="somebody-else"))
    await bench.controller.command(ProveCommand(boot_id=agent.boot.id))
    await bench.controller.until(lambda: len(bench.controller.hellos) == 2, within_s=2.0)
    assert {hello.inventory.boot_id for hello in bench.controller.hellos} == {agent.boot.id}


async def test_a_ledger_that_has_never_heard_of_the_node_gets_a_hello(bench: AgentBench) -> None:
    async def unknown(request: Any) -> Any:
        if len(bench.controller.hellos) < 2:
            raise ModelForgeError(ErrorCode.NODE_UNKNOWN, "who is that")
        return await bench.controller.on_claim(request)

    bench.controller.answers["claim"] = unknown
    await bench.agent()
    await bench.controller.put(scan_job())
    await bench.controller.until(lambda: len(bench.controller.hellos) == 2)


@pytest.mark.req("S3")
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


async def silence(_: Any) -> Any:
    await asyncio.Event().wait()


class Slow:
    """A scan that works until `release` is set, and keeps the leases it was given."""

    def __init__(self, *, report: bool = False) -> None:
        self.leases: list[Any] = []
        self.release = asyncio.Event()
        self._report = report

    async def run(self, job: ScanJob, lease: Any, reporter: Any) -> None:
        self.leases.append(lease)
        waits = [asyncio.ensure_future(event.wait()) for event in (self.release, lease.ended)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self._report:
            until_s = asyncio.get_running_loop().time() + 30
            await reporter.finish(ScanFinished(**reporter.head(), outcome="succeeded"), until_s=until_s)
        if lease.end is not None:
            raise lease.end

    async def begun(self) -> list[Any]:
        await until(lambda: self.leases, "a job at work")
        return self.leases
