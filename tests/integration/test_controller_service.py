"""The controller as strangers see it: a NATS micro service, readable streams, and who may speak for a node."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from bus.errors import ErrorCode, ModelForgeError
from bus.settings import ClientSettings
from bus.verbs import VERBS
from controller.app import serve
from controller.store.tx import Tx
from observability.counters import Operation, Outcome
from observability.vitals import Loop
from tests.support.controllers import Bench, controller_bench, reply_data
from tests.support.fake_agent import HARDWARE, FakeAgent
from tests.support.waiting import until


@pytest.mark.req("D4")
async def test_a_stranger_lists_the_service_and_reads_the_streams(tmp_path: Path) -> None:
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        await agent.hello()
        scan_id = await bench.scan()
        await bench.in_stream(scan_id)
        viewer = await bench.stack.connect("viewer")
        info = json.loads(await viewer.request("$SRV.INFO.modelforge", b"", timeout_s=5))
        assert info["name"] == "modelforge"
        assert info["description"]
        assert info["metadata"]["boot_id"] == bench.controller.boot_id
        found = {endpoint["subject"]: endpoint for endpoint in info["endpoints"]}
        assert set(found) == {f"mf.api.{verb.role}.*.{verb.name}" for verb in VERBS}
        assert all(endpoint["metadata"]["description"] for endpoint in found.values())
        job = await bench.client.js("STREAM.MSG.GET.MF_JOBS", {"last_by_subj": f"mf.jobs.local.work.{scan_id}"})
        assert _document(job)["kind"] == "scan.job.v1"
        event = await _event(bench, f"mf.events.scan.{scan_id}.queued")
        assert (event["kind"], event["actor"]) == ("event.v1", "user:alice")
        stats = json.loads(await viewer.request("$SRV.STATS.modelforge", b"", timeout_s=5))
        assert any(endpoint["num_requests"] > 0 for endpoint in stats["endpoints"])


def _document(reply: dict[str, Any]) -> dict[str, Any]:
    import base64  # noqa: PLC0415 -- JetStream's API wraps a message in base64; the message itself is JSON

    document: dict[str, Any] = json.loads(base64.b64decode(reply["message"]["data"]))
    return document


async def _event(bench: Bench, subject: str) -> dict[str, Any]:
    async def stored() -> dict[str, Any] | None:
        try:
            return _document(await bench.client.js("STREAM.MSG.GET.MF_EVENTS", {"last_by_subj": subject}))
        except ModelForgeError:
            return None

    event: dict[str, Any] = await until(stored, f"{subject} is published")
    return event


async def test_the_status_reply_says_what_doctor_asks(tmp_path: Path) -> None:
    async with controller_bench(tmp_path) as bench:
        status = await bench.call("status")
        assert status["boot_id"] == bench.controller.boot_id
        assert set(status["streams"].values()) == {"ok"}
        assert status["metrics_url"].startswith("http://127.0.0.1:")
        assert (status["open_jobs"], status["outbox_waiting"]) == (0, 0)
        assert set(status["faults"]) == {loop.value for loop in Loop}
        assert status["bus_events"] == {"malformed": 0, "returned": 0, "repeated": 0}


async def test_faults_and_lost_messages_are_told(tmp_path: Path) -> None:
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        await agent.hello()
        await agent.client.publish("mf.inventory.local", b"{")
        # A header block without an end: the client drops such a message, and says so here.
        await bench.controller._opened.client.raw._process_msg(0, b"x", b"", b"", b"NATS/1.0 x")
        bench.controller._opened.puller.repeated += 1

        async def told() -> bool:
            status = await bench.call("status")
            return (status["faults"]["inventory"], status["bus_events"]["repeated"]) == (1, 1)

        await until(told, "the status reply counts the poisoned inventory")
        with urllib.request.urlopen(bench.controller.metrics_url or "", timeout=5) as response:  # noqa: S310, ASYNC210 -- our own address
            scraped = response.read().decode()
        assert 'modelforge_controller_faults_total{loop="inventory"} 1.0' in scraped
        assert 'modelforge_bus_events_total{event="repeated"} 1.0' in scraped


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"id":1}', b'{"id":"a","id2":"b"}', b"\xff"])
async def test_a_malformed_request_gets_a_typed_answer(tmp_path: Path, body: bytes) -> None:
    async with controller_bench(tmp_path) as bench:
        with pytest.raises(ModelForgeError) as caught:
            reply_data(await bench.operator.request("mf.api.user.alice.probes.show", body, timeout_s=5))
        assert caught.value.code is ErrorCode.MALFORMED_MESSAGE


async def test_no_exception_text_leaves_the_process(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with controller_bench(tmp_path) as bench:

        async def broken(_caller: object, _request: object) -> object:
            raise ValueError("the secret of the house")

        bench.controller.service._handlers["nodes.list"] = broken  # type: ignore[index]
        with pytest.raises(ModelForgeError) as caught:
            await bench.call("nodes.list")
        assert caught.value.code is ErrorCode.INTERNAL
        assert "secret" not in caught.value.message
        reference = caught.value.message.rsplit(" ", 1)[-1]
        assert any(reference in record.getMessage() for record in caplog.records), "the log can be found by it"
        assert (await bench.call("status"))["boot_id"], "the service goes on"


async def test_requests_of_one_endpoint_run_side_by_side_and_are_finished_at_the_end(tmp_path: Path) -> None:
    async with controller_bench(tmp_path) as bench:
        inside, release = asyncio.Semaphore(0), asyncio.Event()

        async def slow(_caller: object, _request: object) -> dict[str, bool]:
            inside.release()
            await release.wait()
            return {"done": True}

        bench.controller.service._handlers["nodes.list"] = slow  # type: ignore[index]
        calls = [asyncio.create_task(bench.call("nodes.list")) for _ in range(3)]
        async with asyncio.timeout(5):
            for _ in calls:
                await inside.acquire()
        ending = asyncio.create_task(bench.stop())
        release.set()
        assert await asyncio.gather(*calls) == [{"done": True}] * 3
        await ending


async def test_without_a_controller_a_caller_is_told_at_once(tmp_path: Path) -> None:
    async with controller_bench(tmp_path) as bench:
        await bench.stop()
        with pytest.raises(ModelForgeError) as caught:
            await bench.call("status")
        assert caught.value.code is ErrorCode.NO_CONTROLLER


async def answer_proofs(agent: FakeAgent) -> asyncio.Task[None]:
    """Say hello again whenever the controller asks this boot to prove that it lives."""
    commands = await agent.client.raw.subscribe(f"mf.cmd.{agent.node}")
    await agent.client.raw.flush()

    async def watch() -> None:
        async for message in commands.messages:
            command = json.loads(message.data)
            if command["kind"] == "command.prove.v1" and command["boot_id"] == agent.boot:
                await agent.hello()

    return asyncio.create_task(watch())


@pytest.mark.req("B2")
async def test_a_second_boot_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    async with controller_bench(tmp_path, prove_wait_s=2.0) as bench:
        first, second = await bench.agent(), await bench.agent()
        await first.hello()
        watching = await answer_proofs(first)
        with pytest.raises(ModelForgeError) as caught:
            await second.hello()
        assert caught.value.code == ErrorCode.BOOT_CONFLICT
        assert (await first.hello())["lease_ttl_s"] == 30.0
        watching.cancel()


@pytest.mark.req("B2")
async def test_the_successor_of_a_silent_boot_is_admitted_and_the_dead_one_is_never_heard_again(tmp_path: Path) -> None:
    async with controller_bench(tmp_path) as bench:
        first, second = await bench.agent(), await bench.agent()
        await first.hello()
        scan_id = await bench.scan()
        delivery = await first.pull()
        lease = await first.claim(delivery)
        await second.hello()
        with pytest.raises(ModelForgeError) as caught:
            await first.hello()
        assert caught.value.code == ErrorCode.BOOT_SUPERSEDED
        assert (await first.claim(delivery))["failure"]["code"] == ErrorCode.BOOT_SUPERSEDED
        assert (await first.renew(lease))["failure"]["code"] == ErrorCode.BOOT_SUPERSEDED
        await first.say(hardware={**HARDWARE, "cpu_model": "a liar's"})
        await first.finish_scan(delivery, lease)

        async def refused() -> bool:
            told = await bench.audits(scan_id)
            return "refused" in told and "inventory-refused" in await bench.audits("local")

        await until(refused, "the dead boot's words are audited")
        node = await bench.call("nodes.show", id="local")
        assert node["boot_id"] == second.boot
        assert node["inventory"]["hardware"]["cpu_model"] == HARDWARE["cpu_model"]
        assert (await bench.row("leases.newest", job_id=scan_id))["state"] == "active", "its time decides"


@pytest.mark.req("A18")
async def test_inventory_keeps_the_node_online_and_tells_of_changes_only(tmp_path: Path) -> None:
    async with controller_bench(tmp_path, doubtful_after_s=0.4, offline_after_s=0.8) as bench:
        agent = await bench.agent()
        await agent.hello()
        await agent.say()
        await agent.say(hardware={**HARDWARE, "driver_version": "600.1"})

        async def told(*words: str) -> bool:
            return await bench.audits("local") == list(words)

        await until(lambda: told("admitted", "changed"), "the driver is noticed")
        await until(lambda: told("admitted", "changed", "doubtful", "offline"), "silence is noticed")
        await agent.say()
        await until(lambda: told("admitted", "changed", "doubtful", "offline", "changed", "online"), "it is back")


@pytest.mark.req("B2")
async def test_a_node_speaks_for_itself_only(tmp_path: Path) -> None:
    async with controller_bench(tmp_path, nodes=("local", "other")) as bench:
        agent = await bench.agent()
        with pytest.raises(ModelForgeError) as caught:
            await agent.hello(node="other")
        assert caught.value.code == ErrorCode.PERMISSION_DENIED
        with pytest.raises(ModelForgeError) as caught:
            await agent.call("hello", {"inventory": agent.inventory(node="other")}, node="other")
        assert caught.value.code == ErrorCode.NO_CONTROLLER, "the other node's part of the API does not exist for it"


async def test_a_full_ledger_disk_commits_nothing_and_the_loops_live(tmp_path: Path) -> None:
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        await agent.hello()
        await bench.scan()
        delivery = await agent.pull()
        lease = await agent.claim(delivery)
        write = bench.store.write
        failures = 0

        async def full(_change: object) -> object:
            nonlocal failures
            failures += 1
            raise ModelForgeError(ErrorCode.STORE_UNAVAILABLE, "the disk is full")

        bench.store.write = full  # type: ignore[method-assign,assignment]
        await agent.finish_scan(delivery, lease)
        await until(lambda: failures > 3, "the loops keep trying")
        with pytest.raises(ModelForgeError) as caught:
            await agent.renew(lease)
        assert caught.value.code == ErrorCode.STORE_UNAVAILABLE
        bench.store.write = write  # type: ignore[method-assign]
        await bench.in_stream()
        assert await bench.store.read(_states) == ["succeeded"]


def _states(tx: Tx) -> list[str]:
    return [row["state"] for row in tx.all("jobs.unsettled", after_at="", after_id="", limit=10)] or [
        row["what"] for row in tx.all("audit.list", limit=1_000) if row["entity"] == "scan" and row["what"] != "queued"
    ][:1]


async def test_a_ledger_has_one_controller(tmp_path: Path) -> None:
    async with controller_bench(tmp_path) as bench:
        with pytest.raises(ModelForgeError) as caught:
            await serve(bench.settings, ClientSettings(url=bench.stack.url), asyncio.Event())
        assert caught.value.code is ErrorCode.STATE_LOCKED
        assert (await bench.call("status"))["boot_id"] == bench.controller.boot_id


@pytest.mark.req("O1")
async def test_what_the_controller_did_is_counted(tmp_path: Path) -> None:
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        await agent.hello()
        await bench.scan()
        lease = await agent.finish_scan(await agent.pull())
        await agent.renew({**lease, "token": "wrong"})
        wanted = {
            (Operation.SCAN, Outcome.SUCCEEDED): 1, (Operation.CLAIM, Outcome.SUCCEEDED): 1,
            (Operation.EVIDENCE, Outcome.SUCCEEDED): 1, (Operation.RENEW, Outcome.REFUSED): 1,
        }  # fmt: skip

        def counted() -> bool:
            totals = bench.controller.counters.snapshot()
            return all(totals[series] == count for series, count in wanted.items())

        await until(counted, "everything is counted")


async def test_a_lost_counter_file_hurts_nobody(tmp_path: Path) -> None:
    (tmp_path / "controller" / "observability.db").mkdir(parents=True)  # a folder in its place: it cannot be opened
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        await agent.hello()
        scan_id = await bench.scan()
        await agent.finish_scan(await agent.pull())

        async def ended() -> bool:
            return bool((await bench.call("scans.show", id=scan_id))["state"] == "succeeded")

        await until(ended, "the scan ends")
        assert bench.controller._opened.counter_store.health.snapshot().failures > 0
