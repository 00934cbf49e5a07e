"""What each identity can and cannot do on a real server, under the rendered accounts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import nats.micro
import pytest
from nats.aio.msg import Msg
from nats.micro.request import Request

from bus import subjects
from bus.client import BusClient
from bus.errors import ErrorCode, ModelForgeError
from bus.lease_puller import ConsumerGone, LeasePuller
from bus.streams import list_subjects
from bus.subjects import Lane
from tests.support.nats import NatsStack, nats_stack
from tests.support.waiting import until

JOB_A = subjects.job("a", Lane.WORK, "prb-0000000000")
JOB_B = subjects.job("b", Lane.WORK, "prb-0000000001")
SPY = b'{"stream_name":"MF_JOBS","config":{"name":"spy","durable_name":"spy","ack_policy":"explicit"}}'
DEPUTY_TARGETS = (
    "$JS.API.STREAM.DELETE.MF_JOBS",
    "$JS.API.CONSUMER.DELETE.MF_JOBS.b-work",
    "$JS.API.CONSUMER.MSG.NEXT.MF_JOBS.b-work",
    "mf.evidence.b",
    "mf.inventory.b",
    subjects.job("b", Lane.WORK, "prb-spoofed000"),
)


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[NatsStack]:
    async with nats_stack(tmp_path, nodes=("a", "b")) as running:
        yield running


async def puller(client: BusClient, consumer: str) -> LeasePuller:
    made = LeasePuller(client, subjects.JOBS_STREAM, consumer)
    await made.start()
    return made


async def denied(client: BusClient, subject: str, data: bytes = b"{}") -> ErrorCode | None:
    """The code with which the request failed, `None` when it was answered with anything but an error."""
    try:
        reply = json.loads(await client.request(subject, data, timeout_s=2.0))
    except ModelForgeError as error:
        return error.code
    return ErrorCode.NOT_CONNECTED if reply.get("error", {}).get("err_code") == 10039 else None


@pytest.mark.req("D1")
@pytest.mark.req("B2")
async def test_two_nodes_each_get_their_own_jobs(stack: NatsStack) -> None:
    controller = await stack.prepare()
    await controller.publish_stored(JOB_A, b"for a")
    await controller.publish_stored(JOB_B, b"for b")
    for node in ("a", "b"):
        client = await stack.connect(node)
        own = await puller(client, f"{node}-work")
        delivered = await own.pull(5)
        assert delivered is not None
        assert delivered.data == f"for {node}".encode()
        assert await own.pull(0.1) is None
        # The lease is extended by a request, and ended by the controller from its own account.
        assert await client.request(delivered.reply, b"+WPI", timeout_s=2) == b""
        await controller.request(delivered.reply, b"+ACK", timeout_s=2)
    assert await list_subjects(controller, "MF_JOBS", ">") == {}


@pytest.mark.req("B2")
async def test_a_node_cannot_read_acknowledge_or_publish_as_another(stack: NatsStack) -> None:
    controller = await stack.prepare()
    await controller.publish_stored(JOB_B, b"for b")
    node_b = await puller(await stack.connect("b"), "b-work")
    held = await node_b.pull(5)
    assert held is not None
    node_a = await stack.connect("a")
    with pytest.raises(ConsumerGone):
        await (await puller(node_a, "b-work")).pull(2)
    for subject in (
        held.reply,
        "mf.evidence.b",
        "mf.inventory.b",
        "mf.api.node.b.claim",
        "mf.api.user.alice.status",
        JOB_B,
        "mf.events.probe.x.queued",
        "$JS.API.STREAM.INFO.MF_JOBS",
        "$JS.API.STREAM.DELETE.MF_JOBS",
        "$JS.API.STREAM.MSG.GET.MF_JOBS",
        "$JS.API.DIRECT.GET.MF_JOBS",
        "$JS.API.CONSUMER.CREATE.MF_JOBS.spy",
        "$JS.API.CONSUMER.INFO.MF_JOBS.b-work",
    ):
        data = {held.reply: b"+ACK", "$JS.API.CONSUMER.CREATE.MF_JOBS.spy": SPY}.get(subject, b"")
        assert await denied(node_a, subject, data) in {
            ErrorCode.NO_CONTROLLER,
            ErrorCode.NOT_CONNECTED,
            ErrorCode.PERMISSION_DENIED,
        }, subject
    assert await list_subjects(controller, "MF_JOBS", ">") == {JOB_B: 1}
    assert (await controller.js("CONSUMER.INFO.MF_JOBS.b-work"))["num_ack_pending"] == 1
    assert len((await controller.js("CONSUMER.NAMES.MF_JOBS"))["consumers"]) == 6


@pytest.mark.req("B2")
async def test_a_node_hears_its_own_commands_only(stack: NatsStack) -> None:
    controller = await stack.prepare()
    node_a = await stack.connect("a")
    heard: list[str] = []

    async def hear(msg: Msg) -> None:
        heard.append(msg.subject)

    for subject in (">", "mf.cmd.*", "mf.evidence.*", "mf.events.>"):
        await node_a.subscribe(subject, hear)
    await node_a.round_trip()
    for subject in ("mf.cmd.b", "mf.evidence.b", "mf.events.probe.x.queued", "mf.cmd.a"):
        await controller.publish(subject, b"{}")
    await controller.round_trip()
    await until(lambda: len(heard) >= 2, "both messages", 5)
    assert heard == ["mf.cmd.a", "mf.cmd.a"]  # once for each of the two subscriptions that match it


@pytest.mark.req("B2")
async def test_nobody_publishes_on_a_nodes_behalf(stack: NatsStack) -> None:
    """The reply subject of a request is not permission-checked: a privileged responder would publish there."""
    controller = await stack.prepare()
    await controller.publish_stored(JOB_B, b"for b")
    responder, node_a = await stack.connect("responder"), await stack.connect("a")
    replies: list[str] = []

    async def refuse(request: Request) -> None:
        replies.append(request._msg.reply)
        await request.respond_error("500", "no", data=b"")

    service = await nats.micro.add_service(responder.raw, name="modelforge", version="1.0.0")
    await service.add_endpoint(name="claim", subject="mf.api.node.*.claim", handler=refuse)
    await responder.round_trip()
    for target in DEPUTY_TARGETS:
        await node_a.publish("mf.api.node.a.claim", b"garbage", reply=target)
        await node_a.publish("mf.evidence.a", b"{}", reply=target)
        await node_a.publish("$JS.API.CONSUMER.MSG.NEXT.MF_JOBS.a-work", b'{"batch":1,"no_wait":true}', reply=target)
    stored = {"mf.evidence.a": len(DEPUTY_TARGETS)}
    await until(lambda: len(replies) >= len(DEPUTY_TARGETS), "the responder has answered all")

    async def all_stored() -> bool:
        return await list_subjects(controller, "MF_EVIDENCE", ">") == stored

    await until(all_stored, "the evidence of a, and nothing else")
    assert all(reply.startswith("_R_.") for reply in replies)
    assert await list_subjects(controller, "MF_JOBS", ">") == {JOB_B: 1}
    assert (await controller.js("CONSUMER.INFO.MF_JOBS.b-work"))["delivered"]["consumer_seq"] == 0
    await service.stop()


async def test_an_operator_cannot_use_the_responder_as_a_deputy(stack: NatsStack) -> None:
    controller = await stack.prepare()
    responder, viewer = await stack.connect("responder"), await stack.connect("viewer")

    async def answer(msg: Msg) -> None:
        await msg.respond(b"")

    await responder.subscribe("mf.api.>", answer)
    await responder.round_trip()
    await viewer.publish("mf.api.user.victor.status", b"", reply="$JS.API.STREAM.DELETE.MF_JOBS")
    assert await viewer.request("mf.api.user.victor.status", b"", timeout_s=2) == b""
    await responder.round_trip()
    assert (await controller.js("STREAM.INFO.MF_JOBS"))["config"]["name"] == "MF_JOBS"


async def test_the_responder_reaches_neither_jetstream_nor_a_node(stack: NatsStack) -> None:
    await stack.prepare()
    responder = await stack.connect("responder")
    for subject in ("$JS.API.STREAM.DELETE.MF_JOBS", JOB_A, "mf.cmd.a", "mf.events.probe.x.queued"):
        assert await denied(responder, subject) is ErrorCode.PERMISSION_DENIED


@pytest.mark.parametrize(
    ("who", "name", "command"), [("viewer", "victor", False), ("operator", "alice", True)], ids=["viewer", "operator"]
)
async def test_a_viewer_calls_queries_and_an_operator_calls_all(
    stack: NatsStack, who: str, name: str, command: bool
) -> None:
    client = await stack.connect(who)
    # Nobody answers: what is refused never gets so far.
    nobody, refused = ErrorCode.NO_CONTROLLER, ErrorCode.PERMISSION_DENIED
    assert await denied(client, f"mf.api.user.{name}.probes.list") is nobody
    assert await denied(client, f"mf.api.user.{name}.probes.queue") is (nobody if command else refused)
    assert await denied(client, f"mf.api.user.{name}.approvals.add") is (nobody if command else refused)
    # Nobody speaks under another's name or as a node.
    assert await denied(client, "mf.api.user.carol.probes.list") is refused
    assert await denied(client, "mf.api.node.a.claim") is refused


@pytest.mark.req("D4")
@pytest.mark.parametrize("who", ["operator", "viewer"])
async def test_people_inspect_everything_and_change_nothing(stack: NatsStack, who: str) -> None:
    """The requests that the `nats` command line sends, as a person's key allows them."""
    controller = await stack.prepare()
    await controller.publish_stored(JOB_A, b'{"kind":"probe.job.v1"}')
    person = await stack.connect(who)
    names = (await person.js("STREAM.NAMES"))["streams"]
    assert {"MF_JOBS", "MF_EVIDENCE", "MF_INVENTORY", "MF_EVENTS", "MF_ADVISORIES"} <= set(names)
    for stream in (await person.js("STREAM.LIST"))["streams"]:
        assert stream["config"]["description"]
        assert stream["config"]["metadata"]["product"] == "modelforge"
    consumers = (await person.js("CONSUMER.LIST.MF_JOBS"))["consumers"]
    assert len(consumers) == 6
    for consumer in consumers:
        assert consumer["config"]["description"]
        assert consumer["config"]["metadata"]["lane"] in {"work", "control", "invoke"}
    direct = await person.request(
        "$JS.API.DIRECT.GET.MF_JOBS", json.dumps({"last_by_subj": JOB_A}).encode(), timeout_s=2
    )
    assert direct == b'{"kind":"probe.job.v1"}'
    assert (await person.js("STREAM.MSG.GET.MF_JOBS", {"last_by_subj": JOB_A}))["message"]["subject"] == JOB_A
    for api in (
        "STREAM.DELETE.MF_JOBS",
        "STREAM.PURGE.MF_JOBS",
        "STREAM.MSG.DELETE.MF_JOBS",
        "STREAM.UPDATE.MF_JOBS",
        "CONSUMER.CREATE.MF_JOBS.spy",
        "CONSUMER.DELETE.MF_JOBS.a-work",
        "CONSUMER.MSG.NEXT.MF_JOBS.a-work",
        "CONSUMER.PAUSE.MF_JOBS.a-work",
    ):
        assert await denied(person, f"$JS.API.{api}") is ErrorCode.PERMISSION_DENIED, api


@pytest.mark.req("D4")
async def test_people_see_the_controllers_service(stack: NatsStack) -> None:
    responder, viewer = await stack.connect("responder"), await stack.connect("viewer")
    service = await nats.micro.add_service(responder.raw, name="modelforge", version="1.0.0", description="text")
    await responder.round_trip()
    for verb in ("PING", "INFO", "STATS"):
        assert json.loads(await viewer.request(f"$SRV.{verb}.modelforge", b"", timeout_s=2))["name"] == "modelforge"
    await service.stop()


async def test_one_flooding_node_does_not_shut_out_another(stack: NatsStack) -> None:
    controller = await stack.prepare()
    info = await controller.js("STREAM.INFO.MF_EVIDENCE")
    await controller.js("STREAM.UPDATE.MF_EVIDENCE", {**info["config"], "max_msgs_per_subject": 3})
    node_a, node_b = await stack.connect("a"), await stack.connect("b")
    for _ in range(3):
        await node_a.publish_stored("mf.evidence.a", b"flood")
    with pytest.raises(ModelForgeError) as raised:
        await node_a.publish_stored("mf.evidence.a", b"flood")
    assert raised.value.code is ErrorCode.QUEUE_FULL
    assert (await node_b.publish_stored("mf.evidence.b", b"{}")).stream == "MF_EVIDENCE"
