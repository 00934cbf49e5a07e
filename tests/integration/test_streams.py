"""Declared streams and consumers against a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bus import subjects
from bus.client import AlreadyQueued, BusClient, JsError
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.jobs import MAX_JOB_BYTES
from bus.streams import (
    STREAMS,
    delete_message,
    ensure_node_consumers,
    ensure_streams,
    last_message,
    list_subjects,
)
from bus.subjects import Lane
from tests.support.nats import NatsStack, nats_stack

JOB = subjects.job("local", Lane.WORK, "prb-0000000000")
NAMES = [stream["name"] for stream in STREAMS]


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[NatsStack]:
    async with nats_stack(tmp_path) as running:
        yield running


async def config(client: BusClient, name: str) -> dict[str, object]:
    found: dict[str, object] = (await client.js(f"STREAM.INFO.{name}"))["config"]
    return found


@pytest.mark.req("D1")
@pytest.mark.req("D4")
async def test_everything_is_made_once_and_says_what_it_is(stack: NatsStack) -> None:
    controller = await stack.connect("controller")
    report = await ensure_streams(controller, {})
    assert report.created == [*NAMES, "MF_EVIDENCE/controller"]
    nodes = await ensure_node_consumers(controller, "local", ack_wait_s=30, slots=2)
    assert nodes.created == [f"MF_JOBS/local-{lane}" for lane in Lane]
    for again in (
        await ensure_streams(controller, dict.fromkeys(NAMES, 500)),
        await ensure_node_consumers(controller, "local", ack_wait_s=30, slots=2),
    ):
        assert (again.created, again.updated, again.drift) == ([], [], [])
    for name in NAMES:
        found = await config(controller, name)
        assert found["description"]
        assert found["allow_direct"] is True
    work = (await controller.js("CONSUMER.INFO.MF_JOBS.local-work"))["config"]
    assert (work["ack_wait"], work["max_ack_pending"], work["max_deliver"]) == (30_000_000_000, 2, -1)
    assert (work["metadata"]["node"], work["metadata"]["lane"]) == ("local", "work")


async def test_a_stream_that_is_made_again_starts_above_what_was_recorded(stack: NatsStack) -> None:
    """An acknowledgement captured before the store was lost names a sequence that no new message may have."""
    controller = await stack.prepare()
    await controller.publish_stored(JOB, b"{}")
    await controller.js("STREAM.DELETE.MF_JOBS")
    report = await ensure_streams(controller, {"MF_JOBS": 1_000_042, "MF_EVIDENCE": 9})
    assert report.created == ["MF_JOBS"]
    assert (await controller.publish_stored(JOB, b"{}")).sequence == 1_000_042
    # An update leaves the beginning as it is.
    await controller.js("STREAM.UPDATE.MF_JOBS", {**await config(controller, "MF_JOBS"), "description": "old"})
    assert (await ensure_streams(controller, {"MF_JOBS": 7})).updated == ["MF_JOBS"]
    assert (await config(controller, "MF_JOBS"))["first_seq"] == 1_000_042


async def test_harmless_differences_are_mended(stack: NatsStack) -> None:
    controller = await stack.prepare()
    changed = {
        **await config(controller, "MF_EVENTS"),
        "max_age": 3_600_000_000_000,
        "description": "?",
        "metadata": {},
    }
    await controller.js("STREAM.UPDATE.MF_EVENTS", changed)
    work = (await controller.js("CONSUMER.INFO.MF_JOBS.local-work"))["config"]
    request = {"stream_name": "MF_JOBS", "action": "update", "config": {**work, "inactive_threshold": 10**12}}
    await controller.js("CONSUMER.CREATE.MF_JOBS.local-work", request)
    assert (await ensure_streams(controller, {})).updated == ["MF_EVENTS"]
    nodes = await ensure_node_consumers(controller, "local", ack_wait_s=30, slots=5)
    assert nodes.updated == ["MF_JOBS/local-work"]
    work = (await controller.js("CONSUMER.INFO.MF_JOBS.local-work"))["config"]
    assert work["max_ack_pending"] == 5
    assert not work.get("inactive_threshold")
    assert (await ensure_streams(controller, {})).updated == []


async def test_drift_that_would_lose_messages_is_told_and_left(stack: NatsStack) -> None:
    controller = await stack.connect("controller")
    declared = dict(STREAMS[0])
    wrong = {**declared, "retention": "limits", "discard_new_per_subject": False, "max_msgs_per_subject": -1}
    await controller.js("STREAM.CREATE.MF_JOBS", wrong)
    await controller.publish_stored(JOB, b"{}")
    report = await ensure_streams(controller, {})
    assert [line.split(" ")[1] for line in report.drift if line.startswith("MF_JOBS:")] == [
        "retention",
        "max_msgs_per_subject",
    ]
    assert "MF_JOBS" not in report.created + report.updated
    assert (await config(controller, "MF_JOBS"))["retention"] == "limits"
    assert await list_subjects(controller, "MF_JOBS", ">") == {JOB: 1}


async def test_a_job_is_in_the_stream_once_until_it_has_ended(stack: NatsStack) -> None:
    controller = await stack.prepare()
    first = await controller.publish_stored(JOB, b"1", stream="MF_JOBS")
    with pytest.raises(AlreadyQueued):
        await controller.publish_stored(JOB, b"2")
    found = await last_message(controller, "MF_JOBS", JOB)
    assert found is not None
    assert (found.subject, found.sequence, found.data) == (JOB, first.sequence, b"1")
    assert found.stored_at.tzinfo is not None
    assert await delete_message(controller, "MF_JOBS", first.sequence)
    assert not await delete_message(controller, "MF_JOBS", first.sequence)
    assert await last_message(controller, "MF_JOBS", JOB) is None
    # No dedupe id: the same job may be published again at once.
    assert not (await controller.publish_stored(JOB, b"1")).duplicate


async def test_sizes_and_foreign_streams_are_refused_typed(stack: NatsStack) -> None:
    controller = await stack.prepare()
    with pytest.raises(ModelForgeError) as raised:
        await controller.publish_stored(JOB, b"x" * (MAX_JOB_BYTES + 1))
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(ModelForgeError) as raised:
        await controller.publish_stored(JOB, b"{}", stream="MF_EVIDENCE")
    assert raised.value.code is ErrorCode.STREAM_DRIFT
    with pytest.raises(JsError) as refused:
        await list_subjects(controller, "NO_SUCH_STREAM", ">")
    assert refused.value.err_code == 10059


async def test_evidence_is_stored_once_for_each_message_id_over_a_crash(stack: NatsStack) -> None:
    await stack.prepare()
    node = await stack.connect("local")
    first = await node.publish_stored("mf.evidence.local", b"{}", dedupe_id="lse-1/1", stream="MF_EVIDENCE")
    again = await node.publish_stored("mf.evidence.local", b"{}", dedupe_id="lse-1/1")
    assert (again.sequence, again.duplicate) == (first.sequence, True)


async def test_the_last_inventory_of_each_node_is_kept(stack: NatsStack) -> None:
    controller = await stack.prepare()
    node = await stack.connect("local")
    for text in (b"1", b"2"):
        await node.publish_stored("mf.inventory.local", text)
    assert await list_subjects(controller, "MF_INVENTORY", "mf.inventory.*") == {"mf.inventory.local": 1}
    found = await last_message(controller, "MF_INVENTORY", "mf.inventory.local")
    assert found is not None
    assert found.data == b"2"


async def test_a_deleted_stream_leaves_an_advisory(stack: NatsStack) -> None:
    controller = await stack.prepare()
    await controller.js("STREAM.DELETE.MF_EVENTS")
    await controller.round_trip()
    found = await list_subjects(controller, "MF_ADVISORIES", ">")
    assert found == {"$JS.EVENT.ADVISORY.STREAM.DELETED.MF_EVENTS": 1}


async def test_many_subjects_are_listed_whole(stack: NatsStack) -> None:
    controller = await stack.prepare()
    names = {subjects.job("local", Lane.WORK, f"prb-{number:010d}") for number in range(300)}
    for name in names:
        await controller.publish_stored(name, b"{}")
    assert set(await list_subjects(controller, "MF_JOBS", "mf.jobs.local.work.*")) == names
    assert await list_subjects(controller, "MF_JOBS", "mf.jobs.other.>") == {}
