"""Claim, renew, expire, claim again: real nats-server, real ledger, an agent written by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg

from bus.errors import ErrorCode, ModelForgeError
from bus.ids import now
from bus.streams import last_message
from controller.lease_rules import token_hash
from controller.store.rows import time_of
from tests.support.controllers import Bench, controller_bench
from tests.support.fake_agent import Delivery, FakeAgent
from tests.support.waiting import until


async def first_claim(bench: Bench, agent: FakeAgent) -> tuple[str, Delivery, dict[str, Any]]:
    """Everything up to attempt 1 of a scan."""
    await agent.hello()
    scan_id = await bench.scan()
    delivery = await agent.pull()
    return scan_id, delivery, await agent.claim(delivery)


@asynccontextmanager
async def acknowledgements(bench: Bench) -> AsyncIterator[list[str]]:
    """The deliveries that are acknowledged for good meanwhile: seen on the wire, since a deletion looks alike later."""
    seen: list[str] = []

    async def note(message: Msg) -> None:
        if message.data == b"+ACK":
            seen.append(message.subject)

    watch = await bench.client.subscribe("$JS.ACK.MF_JOBS.>", note)
    yield seen
    await watch.unsubscribe()


async def state_is(bench: Bench, job_id: str, state: str) -> None:
    async def there() -> bool:
        return bool((await bench.row("jobs.by_id", id=job_id))["state"] == state)

    await until(there, f"{job_id} is {state}")


@pytest.mark.req("P4", "D1")
async def test_a_claim_gives_attempt_and_token_and_only_the_hash_is_stored(tmp_path: Path) -> None:
    async with controller_bench(tmp_path) as bench:
        scan_id, delivery, lease = await first_claim(bench, await bench.agent())
        assert lease["kind"] == "claim.granted.v1"
        assert (lease["attempt"], lease["ttl_s"]) == (1, 30.0)
        row = await bench.row("leases.newest", job_id=scan_id)
        assert row["token_sha256"] == token_hash(lease["token"])
        assert row["delivery"] == delivery.reply
        assert await bench.audits(scan_id) == ["queued", "leased"]
        await bench.controller.outbox.drain()
        await bench.stop()
        token = lease["token"].encode()
        for file in [*(tmp_path / "controller").iterdir(), *(tmp_path / "nats" / "server").rglob("*")]:
            assert not file.is_file() or token not in file.read_bytes(), f"the token lies in {file}"


@pytest.mark.req("P4")
async def test_an_expired_lease_is_claimed_again_with_a_new_token_and_the_old_one_is_dead(tmp_path: Path) -> None:
    async with controller_bench(tmp_path, lease_ttl_s=1.0) as bench:
        agent = await bench.agent()
        scan_id, _, first = await first_claim(bench, agent)
        again = await agent.pull(wait_s=5.0)
        assert again.job_id == scan_id
        await until(lambda: _expired(bench, scan_id), "the sweep ends the lease")
        second = await agent.claim(again)
        assert second["attempt"] == 2
        assert second["token"] != first["token"]
        assert second["lease_id"] != first["lease_id"]
        assert (await agent.renew(first))["kind"] == "renew.fenced.v1"
        assert (await agent.renew(second))["kind"] == "renew.ok.v1"
        assert (await agent.renew({**second, "token": first["token"]}))["kind"] == "renew.fenced.v1"
        audits = await bench.audits(scan_id)
        assert audits[:4] == ["queued", "leased", "lease-expired", "leased"]
        assert "renew-refused" in audits, "a wrong token is on the record"


async def _expired(bench: Bench, job_id: str) -> bool:
    return bool((await bench.row("leases.newest", job_id=job_id))["state"] == "expired")


async def test_a_renewed_lease_does_not_expire(tmp_path: Path) -> None:
    async with controller_bench(tmp_path, lease_ttl_s=0.6) as bench:
        agent = await bench.agent()
        scan_id, _, lease = await first_claim(bench, agent)
        first_end = time_of((await bench.row("leases.newest", job_id=scan_id))["expires_at"])

        async def outlived() -> bool:
            assert (await agent.renew(lease))["kind"] == "renew.ok.v1"
            return now() > first_end + timedelta(seconds=0.3)

        await until(outlived, "the lease outlives its first end")
        assert await bench.audits(scan_id) == ["queued", "leased"]


async def test_a_second_delivery_goes_to_the_holder_and_gets_the_final_acknowledgement(tmp_path: Path) -> None:
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        scan_id, delivery, lease = await first_claim(bench, agent)
        await agent.client.publish(delivery.reply, b"-NAK")
        second = await agent.pull()
        assert second.reply != delivery.reply
        answer = await agent.claim(second)
        assert (answer["kind"], answer["lease_id"], answer["attempt"]) == (
            "claim.already_yours.v1", lease["lease_id"], 1,
        )  # fmt: skip
        assert (await bench.row("leases.newest", job_id=scan_id))["delivery"] == second.reply
        async with acknowledgements(bench) as acks:
            await agent.finish_scan(second, lease)
            await until(lambda: acks, "the controller acknowledges")
        assert acks == [second.reply], "the newest delivery, and no other"
        await bench.in_stream()
        info = await bench.client.js("CONSUMER.INFO.MF_JOBS.local-work")
        assert info["num_ack_pending"] == 0


@pytest.mark.req("P4", "B2")
async def test_another_boot_waits_and_another_node_gets_nothing(tmp_path: Path) -> None:
    async with controller_bench(tmp_path, nodes=("local", "other")) as bench:
        agent = await bench.agent()
        scan_id, delivery, _ = await first_claim(bench, agent)
        successor = await bench.agent()
        await successor.hello()
        answer = await successor.claim(delivery)
        assert answer["kind"] == "claim.retry_after.v1"
        assert 0 < answer["delay_s"] <= 30.0, "the lease of the dead boot is not cut short"
        foreign = await bench.agent("other")
        await foreign.hello()
        refused = await foreign.claim(delivery)
        assert refused["kind"] == "claim.refused.v1"
        assert refused["failure"]["code"] == ErrorCode.PERMISSION_DENIED
        assert await bench.audits(scan_id) == ["queued", "leased", "claim-refused"]


@pytest.mark.req("P4", "B2")
async def test_a_job_of_another_node_is_out_of_reach_also_with_a_delivery_of_ones_own(tmp_path: Path) -> None:
    async with controller_bench(tmp_path, nodes=("local", "other")) as bench:
        agent, foreign = await bench.agent(), await bench.agent("other")
        await agent.hello()
        await foreign.hello()
        wanted = await bench.scan(node="local")
        await bench.scan(node="other")
        own = await foreign.pull()
        answer = await foreign.claim(own, job_id=wanted)
        assert answer["kind"] == "claim.refused.v1"
        assert answer["failure"]["code"] == ErrorCode.PERMISSION_DENIED
        body = {
            "boot_id": foreign.boot, "job_id": wanted, "delivery": own.reply,
            "failure": {"code": "UNKNOWN_KIND", "message": "a lie"},
        }  # fmt: skip
        with pytest.raises(ModelForgeError) as caught:
            await foreign.call("refuse", body)
        assert caught.value.code == ErrorCode.PERMISSION_DENIED
        assert (await bench.row("jobs.by_id", id=wanted))["state"] == "queued"
        assert await bench.audits(wanted) == ["queued", "claim-refused"]
        assert (await agent.claim(await agent.pull()))["kind"] == "claim.granted.v1"


@pytest.mark.req("P4", "D1")
async def test_the_end_of_a_job_never_acknowledges_the_message_of_another(tmp_path: Path) -> None:
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        await agent.hello()
        first, second = await bench.scan("one"), await bench.scan("two")
        mine, other = await agent.pull(), await agent.pull()
        assert (mine.job_id, other.job_id) == (first, second)
        # Its own lane and consumer, but the sequence of another job's message: as after a store that was lost.
        lease = await agent.claim(mine, delivery=other.reply)
        assert lease["kind"] == "claim.granted.v1"
        await agent.finish_scan(mine, lease)
        await state_is(bench, first, "succeeded")
        await bench.in_stream(second)
        stored = await last_message(bench.client, "MF_JOBS", f"mf.jobs.local.work.{second}")
        assert stored is not None
        assert stored.sequence == other.sequence
        assert (await agent.claim(other))["kind"] == "claim.granted.v1"


@pytest.mark.req("B2", "B4")
@pytest.mark.parametrize(
    "reply", ["$JS.API.STREAM.DELETE.MF_JOBS", "$JS.ACK.MF_JOBS.other-work.1.1.1.1.0", "mf.cmd.local"]
)
async def test_no_claim_makes_the_controller_publish_elsewhere(tmp_path: Path, reply: str) -> None:
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        await agent.hello()
        scan_id = await bench.scan()
        delivery = await agent.pull()
        if reply.startswith("$JS.ACK."):
            refused = await agent.claim(delivery, delivery=reply)
            assert refused["kind"] == "claim.refused.v1"
        else:  # no acknowledgement subject at all: the decoder refuses the whole request
            with pytest.raises(ModelForgeError) as caught:
                await agent.claim(delivery, delivery=reply)
            assert caught.value.code == ErrorCode.MALFORMED_MESSAGE
        assert (await bench.row("jobs.by_id", id=scan_id))["state"] == "queued"
        await bench.in_stream(scan_id)


async def test_the_delivery_of_an_ended_job_is_acknowledged_by_the_controller(tmp_path: Path) -> None:
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        await agent.hello()
        await bench.scan()
        async with acknowledgements(bench) as acks:
            lease = await agent.finish_scan(delivery := await agent.pull())
            await state_is(bench, delivery.job_id, "succeeded")
            await bench.in_stream()
            await until(lambda: acks, "the controller acknowledges")
        assert acks == [delivery.reply], "not only deleted"

        async def settled() -> bool:
            return (await bench.row("jobs.by_id", id=delivery.job_id))["stream_sequence"] is None

        await until(settled, "the ledger knows that the message is gone")
        assert (await agent.claim(delivery))["kind"] == "claim.terminal.v1"
        assert (await agent.renew(lease))["failure"]["code"] == ErrorCode.LEASE_FENCED
        # The slot of the consumer is free at once.
        info = await bench.client.js("CONSUMER.INFO.MF_JOBS.local-work")
        assert info["num_ack_pending"] == 0


@pytest.mark.req("P4")
async def test_the_attempt_limit_is_the_controllers(tmp_path: Path) -> None:
    async with controller_bench(tmp_path, lease_ttl_s=0.5, max_attempts=2) as bench:
        agent = await bench.agent()
        scan_id, _, _ = await first_claim(bench, agent)
        await until(lambda: _expired(bench, scan_id), "the first lease ends")
        again = await agent.pull(wait_s=5.0)
        assert (await agent.claim(again))["attempt"] == 2
        await state_is(bench, scan_id, "failed")
        view = await bench.call("scans.show", id=scan_id)
        assert view["failure"]["code"] == ErrorCode.ATTEMPTS_EXHAUSTED
        await bench.in_stream()


async def test_no_queued_job_outlives_its_deadline(tmp_path: Path) -> None:
    async with controller_bench(tmp_path, scan_deadline_s=0.3) as bench:
        agent = await bench.agent()
        await agent.hello()
        scan_id = await bench.scan()
        await state_is(bench, scan_id, "expired")
        assert (await bench.call("scans.show", id=scan_id))["failure"]["code"] == ErrorCode.DEADLINE_EXCEEDED
        await bench.in_stream()


@pytest.mark.req("P4")
async def test_after_a_restart_every_active_lease_has_a_whole_ttl(tmp_path: Path) -> None:
    async with controller_bench(tmp_path, lease_ttl_s=1.0) as bench:
        agent = await bench.agent()
        scan_id, _, lease = await first_claim(bench, agent)
        await bench.stop()
        # Nobody can renew now; the consumer offers the message again when the lease's time is over.
        again = await agent.pull(wait_s=5.0)
        await bench.start()
        assert (await agent.renew(lease))["kind"] == "renew.ok.v1"
        assert (await agent.claim(again))["kind"] == "claim.already_yours.v1"
        assert "lease-expired" not in await bench.audits(scan_id)


@pytest.mark.req("B4")
async def test_a_job_that_a_node_cannot_do_is_failed_typed(tmp_path: Path) -> None:
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        await agent.hello()
        scan_id = await bench.scan()
        delivery = await agent.pull()
        body = {
            "boot_id": agent.boot, "job_id": scan_id, "delivery": delivery.reply,
            "failure": {"code": "UNKNOWN_KIND", "message": "scan.job.v9"},
        }  # fmt: skip
        assert await agent.call("refuse", body) == {"state": "failed"}
        assert await agent.call("refuse", body) == {"state": "terminal"}
        assert (await bench.call("scans.show", id=scan_id))["failure"]["code"] == "UNKNOWN_KIND"
        await bench.in_stream()
        with pytest.raises(ModelForgeError) as caught:
            await agent.call("refuse", {**body, "boot_id": "stranger"})
        assert caught.value.code == ErrorCode.BOOT_CONFLICT
