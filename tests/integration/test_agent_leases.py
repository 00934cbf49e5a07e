"""Leases as the agent holds them: token, renewal, fence, cancellation, and the boot that speaks for the node."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bus import ids, subjects
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.api import ClaimGranted, ClaimRetryAfter, Fenced
from bus.messages.evidence import ScanFinished
from bus.messages.jobs import CancelCommand, ProveCommand, ScanJob
from node_agent.measure.nvml import Discovery
from tests.support.agent_jobs import scan_job
from tests.support.agents import AgentBench, Slow, agent_bench, silence
from tests.support.waiting import until

pytestmark = pytest.mark.req("P4", "D1")


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


@pytest.mark.req("P4")
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


async def test_a_proof_of_life_does_not_wait_for_the_driver(bench: AgentBench) -> None:
    """The controller waits two seconds; a driver in trouble takes ten to name its cards."""
    free, asked = threading.Event(), threading.Event()

    def gpus() -> Discovery:
        if bench.controller.hellos:
            asked.set()
            free.wait(30)
        return Discovery(reason="no card")

    agent = await bench.agent(gpus=gpus)
    await until(asked.is_set, "a reading that hangs")
    try:
        await bench.controller.command(ProveCommand(boot_id=agent.boot.id))
        await bench.controller.until(lambda: len(bench.controller.hellos) == 2, within_s=1.5)
    finally:
        free.set()
    first, second = (hello.inventory for hello in bench.controller.hellos)
    assert second.sequence > first.sequence
    assert second.hardware.gpu_reason == "no card"


async def test_a_ledger_that_has_never_heard_of_the_node_gets_a_hello(bench: AgentBench) -> None:
    async def unknown(request: Any) -> Any:
        if len(bench.controller.hellos) < 2:
            raise ModelForgeError(ErrorCode.NODE_UNKNOWN, "who is that")
        return await bench.controller.on_claim(request)

    bench.controller.answers["claim"] = unknown
    await bench.agent()
    await bench.controller.put(scan_job())
    await bench.controller.until(lambda: len(bench.controller.hellos) == 2)


def keepers() -> int:
    return sum("Claims.keep" in repr(task) for task in asyncio.all_tasks())


async def test_a_finished_job_keeps_its_lease_until_the_controller_has_read_of_it(
    bench: AgentBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller that is behind by more than one TTL took the silence for a death, and gave the job out again."""
    controller = bench.controller

    async def stored_and_not_read(message: Any, delivery: str) -> None:
        await controller.client.publish(delivery, b"+ACK")
        controller.evidence.append(message)
        await controller._note()

    monkeypatch.setattr(controller, "_take", stored_and_not_read)
    agent = await bench.agent()
    job = scan_job()
    await controller.put(job)
    await finished(bench, job)
    await until(lambda: not agent.claims.active, "a free slot")
    so_far = len(controller.renewals)
    # Three renewals are one TTL.
    await controller.until(lambda: len(controller.renewals) >= so_far + 5)
    assert len(controller.claims) == 1
    assert keepers() == 1
    controller.terminal.add(job.job_id)
    await until(lambda: keepers() == 0, "the end of the renewals")


async def test_an_agent_that_stops_keeps_no_lease(bench: AgentBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.controller, "terminal", Never())
    agent = await bench.agent()
    job = scan_job()
    await bench.controller.put(job)
    await finished(bench, job)
    await until(lambda: not agent.claims.active, "a free slot")
    assert keepers() == 1
    agent.stopping.set()
    await asyncio.wait((agent.task,))
    assert keepers() == 0


class Never(set[str]):
    """Holds no job, whatever is put into it."""

    def __contains__(self, _: object) -> bool:
        return False
