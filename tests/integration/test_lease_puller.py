"""Exactly one lease for each pull, whatever is stored and whatever happens to the server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bus import subjects
from bus.client import BusClient
from bus.lease_puller import ConsumerGone, LeasePuller
from bus.streams import delete_message, ensure_node_consumers, list_subjects
from bus.subjects import Lane
from tests.support import raw_nats
from tests.support.nats import NatsStack, nats_stack
from tests.support.waiting import until

JOB = b"mf.jobs.a.work."
POISON = {
    "subject not UTF-8": raw_nats.pub(JOB + b"\xff\xfe"),
    "reply not UTF-8": raw_nats.pub(JOB + b"x", reply=b"r.\xff"),
    "no header": raw_nats.hpub(JOB + b"x", b"NATS/1.0\r\n\r\n"),
    "no version line": raw_nats.hpub(JOB + b"x", b"GARBAGE\r\n\r\n"),
    "value not UTF-8": raw_nats.hpub(JOB + b"x", b"NATS/1.0\r\nK: \xff\xfe\r\n\r\n"),
    "status not a number": raw_nats.hpub(JOB + b"x", b"NATS/1.0 \xff\xfe\xfd\r\n\r\n"),
    "inline status 503": raw_nats.hpub(JOB + b"x", b"NATS/1.0 503\r\n\r\n", b""),
    "status 409": raw_nats.hpub(JOB + b"x", b"NATS/1.0\r\nStatus: 409\r\nDescription: Consumer Deleted\r\n\r\n"),
    "status 500": raw_nats.hpub(JOB + b"x", b"NATS/1.0\r\nStatus: 500\r\n\r\n"),
    "one byte of header": raw_nats.hpub(JOB + b"x", b"N"),
}


def job(number: int) -> str:
    return subjects.job("a", Lane.WORK, f"prb-000000000{number}")


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[NatsStack]:
    async with nats_stack(tmp_path, nodes=("a",)) as running:
        yield running


async def node_puller(stack: NatsStack) -> tuple[BusClient, LeasePuller]:
    client = await stack.connect("a")
    puller = LeasePuller(client, subjects.JOBS_STREAM, "a-work")
    await puller.start()
    return client, puller


async def end(controller: BusClient, reply: str) -> None:
    await controller.request(reply, b"+ACK", timeout_s=2)


@pytest.mark.req("D1")
async def test_a_delivery_is_a_lease_until_it_is_acknowledged(stack: NatsStack) -> None:
    controller = await stack.prepare(ack_wait_s=0.5)
    _, puller = await node_puller(stack)
    first_ack = await controller.publish_stored(job(1), b"{}")
    first = await puller.pull(5)
    assert first is not None
    assert (first.subject, first.data, first.num_delivered) == (job(1), b"{}", 1)
    assert first.stream_sequence == first_ack.sequence
    # Nobody acknowledged: the lease runs out and the job is delivered again.
    second = await puller.pull(5)
    assert second is not None
    assert (second.subject, second.num_delivered) == (job(1), 2)
    await end(controller, second.reply)
    assert await puller.pull(0.7) is None
    assert await list_subjects(controller, "MF_JOBS", ">") == {}


@pytest.mark.req("D1")
async def test_a_lease_that_is_renewed_does_not_run_out(stack: NatsStack) -> None:
    controller = await stack.prepare(ack_wait_s=0.6)
    client, puller = await node_puller(stack)
    await controller.publish_stored(job(1), b"{}")
    held = await puller.pull(5)
    assert held is not None
    for _ in range(5):
        await client.request(held.reply, b"+WPI", timeout_s=2)
        assert await puller.pull(0.25) is None
    await end(controller, held.reply)


async def test_one_pull_brings_one_message_and_slots_bound_the_leases(stack: NatsStack) -> None:
    controller = await stack.prepare(slots=2)
    _, puller = await node_puller(stack)
    for number in range(4):
        await controller.publish_stored(job(number), b"{}")
    held = await puller.pull(5)
    assert held is not None
    info = await controller.js("CONSUMER.INFO.MF_JOBS.a-work")
    assert info["num_ack_pending"] == 1
    assert (await puller.pull(5)) is not None
    assert await puller.pull(0.2) is None
    await end(controller, held.reply)
    assert (await puller.pull(5)) is not None


@pytest.mark.parametrize("garbage", POISON.values(), ids=POISON.keys())
async def test_no_stored_message_stops_the_puller(stack: NatsStack, garbage: bytes) -> None:
    controller = await stack.prepare(ack_wait_s=0.5)
    _, puller = await node_puller(stack)
    said = await raw_nats.send(stack.url, stack.credentials("controller"), garbage)
    assert b"-ERR" not in said
    await controller.publish_stored(job(1), b"good")
    seen: list[bytes] = []
    async with asyncio.timeout(8):
        while b"good" not in seen:
            delivered = await puller.pull(2)
            if delivered is not None:
                seen.append(delivered.data)
                await end(controller, delivered.reply)

    # What nobody can read was ended and does not come back; the stream is empty in either case.
    async def is_empty() -> bool:
        return await list_subjects(controller, "MF_JOBS", ">") == {}

    await until(is_empty, "the poison is gone too", 5)
    assert len(seen) <= 2


async def test_a_pull_outlives_the_death_of_the_server(stack: NatsStack) -> None:
    controller = await stack.prepare()
    _, puller = await node_puller(stack)
    back = asyncio.Event()
    controller.on_reconnect(back.set)
    for number in range(2):
        pulling = asyncio.create_task(puller.pull(30))
        await until(lambda: _waiting(controller), "the pull waits at the server")
        back.clear()
        stack.server.kill()
        stack.server.start()
        async with asyncio.timeout(10):
            await back.wait()
        begun = time.monotonic()
        await controller.publish_stored(job(number), b"{}")
        delivered = await pulling
        assert delivered is not None
        assert delivered.subject == job(number)
        # nats-py's fetch would wait out its whole timeout.
        assert time.monotonic() - begun < 5
        await end(controller, delivered.reply)


async def _waiting(controller: BusClient) -> bool:
    return bool((await controller.js("CONSUMER.INFO.MF_JOBS.a-work"))["num_waiting"])


async def test_a_pull_without_a_server_ends_in_time_and_empty(stack: NatsStack) -> None:
    await stack.prepare()
    client, puller = await node_puller(stack)
    stack.server.kill()
    await until(lambda: not client.connected, "the connection is lost")
    begun = time.monotonic()
    assert await puller.pull(0.5) is None
    assert time.monotonic() - begun >= 0.4


async def test_a_message_for_a_cancelled_pull_is_free_at_once(stack: NatsStack) -> None:
    controller = await stack.prepare(ack_wait_s=30)
    _, puller = await node_puller(stack)
    pulling = asyncio.create_task(puller.pull(20))
    await until(lambda: _waiting(controller), "the pull waits at the server")
    pulling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pulling
    await controller.publish_stored(job(1), b"{}")
    await until(lambda: puller.returned == 1, "the delivery that nobody waits for is given back", 5)
    delivered = await puller.pull(5)
    assert delivered is not None
    assert delivered.subject == job(1)


async def test_a_missing_consumer_is_told_at_once_and_used_when_it_is_there(stack: NatsStack) -> None:
    controller = await stack.prepare()
    _, puller = await node_puller(stack)
    pulling = asyncio.create_task(puller.pull(20))
    await until(lambda: _waiting(controller), "the pull waits at the server")
    await controller.js("CONSUMER.DELETE.MF_JOBS.a-work")
    for _ in range(2):
        begun = time.monotonic()
        with pytest.raises(ConsumerGone):
            await pulling
        assert time.monotonic() - begun < 3
        pulling = asyncio.create_task(puller.pull(20))
    with pytest.raises(ConsumerGone):
        await pulling
    await ensure_node_consumers(controller, "a", ack_wait_s=30, slots=2)
    await controller.publish_stored(job(1), b"{}")
    assert (await puller.pull(5)) is not None


async def test_a_message_deleted_while_it_is_leased_does_not_come_back(stack: NatsStack) -> None:
    controller = await stack.prepare(ack_wait_s=0.3)
    _, puller = await node_puller(stack)
    await controller.publish_stored(job(1), b"{}")
    held = await puller.pull(5)
    assert held is not None
    assert await delete_message(controller, "MF_JOBS", held.stream_sequence)
    assert await puller.pull(0.8) is None


async def test_a_pull_that_the_server_drops_is_asked_again(stack: NatsStack) -> None:
    """A full line of pulls is one way: nats-server 2.15.1 drops the request and says nothing."""
    controller = await stack.prepare()
    info = await controller.js("CONSUMER.INFO.MF_JOBS.a-work")
    await controller.js("CONSUMER.DELETE.MF_JOBS.a-work")
    config = {**info["config"], "max_waiting": 1}
    await controller.js("CONSUMER.CREATE.MF_JOBS.a-work", {"stream_name": "MF_JOBS", "config": config})
    _, other = await node_puller(stack)
    puller = LeasePuller(await stack.connect("a"), subjects.JOBS_STREAM, "a-work", heartbeat_s=0.2)
    await puller.start()
    blocking = asyncio.create_task(other.pull(0.6))
    await until(lambda: _waiting(controller), "the line is full")
    pulling = asyncio.create_task(puller.pull(20))
    assert await blocking is None
    await until(lambda: puller.repeated, "the dropped pull was asked again", 5)
    await controller.publish_stored(job(1), b"{}")
    assert (await pulling) is not None


async def test_stopping_lets_go_of_everything(stack: NatsStack) -> None:
    await stack.prepare()
    client, puller = await node_puller(stack)
    await puller.stop()
    await puller.stop()
    assert client.raw.on_malformed == {}
    assert client.raw._subs == {}
