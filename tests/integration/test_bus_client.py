"""The connection, against a real server that dies, refuses and passes on garbage."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from bus.client import BusClient, Connection
from bus.errors import ErrorCode, ModelForgeError
from modelforge.keys import ensure_key
from tests.support import raw_nats
from tests.support.nats import NatsStack, nats_stack
from tests.support.waiting import until

HOSTILE = {
    "subject not UTF-8": raw_nats.pub(b"mf.cmd.\xff\xfe"),
    "reply not UTF-8": raw_nats.pub(b"mf.cmd.a", reply=b"r.\xff"),
    "no header": raw_nats.hpub(b"mf.cmd.a", b"NATS/1.0\r\n\r\n"),
    "no version line": raw_nats.hpub(b"mf.cmd.a", b"GARBAGE\r\n\r\n"),
    "value not UTF-8": raw_nats.hpub(b"mf.cmd.a", b"NATS/1.0\r\nK: \xff\xfe\r\n\r\n"),
    "no colon": raw_nats.hpub(b"mf.cmd.a", b"NATS/1.0\r\nnocolon\r\n\r\n"),
    "status not a number": raw_nats.hpub(b"mf.cmd.a", b"NATS/1.0 \xff\xfe\xfd\r\n\r\n"),
    "one byte": raw_nats.hpub(b"mf.cmd.a", b"N"),
}


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[NatsStack]:
    async with nats_stack(tmp_path, nodes=("a",)) as running:
        yield running


async def failed_connect(connection: Connection, *, first_connect_s: float = 5.0) -> ModelForgeError:
    begun = time.monotonic()
    with pytest.raises(ModelForgeError) as raised:
        await BusClient.connect(connection, first_connect_s=first_connect_s)
    assert time.monotonic() - begun < 3
    return raised.value


async def test_a_wrong_key_is_told_in_moments(stack: NatsStack, tmp_path: Path) -> None:
    ensure_key(tmp_path / "stranger.nk")
    connection = msgspec.structs.replace(stack.connection("a"), credentials=str(tmp_path / "stranger.nk"))
    error = await failed_connect(connection)
    assert error.code is ErrorCode.AUTH_FAILED
    assert "stranger.nk" in error.message


async def test_a_missing_or_damaged_key_is_named(stack: NatsStack, tmp_path: Path) -> None:
    (tmp_path / "damaged.nk").write_text("nothing of the kind")
    for name in ("missing.nk", "damaged.nk"):
        connection = msgspec.structs.replace(stack.connection("a"), credentials=str(tmp_path / name))
        error = await failed_connect(connection)
        assert error.code is ErrorCode.AUTH_FAILED
        assert name in error.message


async def test_no_server_is_told_in_moments(stack: NatsStack) -> None:
    connection = stack.connection("a")
    stack.server.stop()
    error = await failed_connect(connection)
    assert error.code is ErrorCode.NOT_CONNECTED
    assert connection.url in error.message


async def test_a_server_that_says_nothing_is_told_in_time(stack: NatsStack) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"nats://127.0.0.1:{silent.getsockname()[1]}"
        connection = msgspec.structs.replace(stack.connection("a"), url=url)
        assert (await failed_connect(connection, first_connect_s=0.3)).code is ErrorCode.NOT_CONNECTED


async def test_an_agent_may_start_before_its_server(stack: NatsStack) -> None:
    connection = stack.connection("a")
    stack.server.stop()
    connecting = asyncio.create_task(BusClient.connect(connection, wait_for_server_s=20))
    await asyncio.sleep(0)
    stack.server.start()
    client = await connecting
    assert await client.round_trip() > 0
    await client.close()


async def test_requests_fail_typed(stack: NatsStack) -> None:
    controller, node = await stack.connect("controller"), await stack.connect("a")

    async def ignore(_: Msg) -> None:
        return

    with pytest.raises(ModelForgeError) as raised:
        await node.request("mf.api.node.a.hello", b"{}", timeout_s=1)
    assert raised.value.code is ErrorCode.NO_CONTROLLER
    await controller.subscribe("mf.api.>", ignore)
    await controller.round_trip()
    with pytest.raises(ModelForgeError) as raised:
        await node.request("mf.api.node.a.hello", b"{}", timeout_s=0.2)
    assert raised.value.code is ErrorCode.REQUEST_TIMEOUT
    with pytest.raises(ModelForgeError) as raised:
        await node.publish_stored("mf.evidence.a", b"{}", timeout_s=1)
    assert raised.value.code is ErrorCode.NOT_CONNECTED


async def test_an_oversized_message_is_refused_before_it_costs_the_connection(stack: NatsStack) -> None:
    node = await stack.connect("a")
    limit = node.raw.max_payload
    for data, dedupe_id in ((b"x" * (limit + 1), None), (b"x" * (limit - 10), "an id that no longer fits")):
        with pytest.raises(ModelForgeError) as raised:
            await node.publish_stored("mf.evidence.a", data, dedupe_id=dedupe_id)
        assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert await node.round_trip() > 0


async def test_an_error_of_the_server_means_a_new_connection_not_the_end(stack: NatsStack) -> None:
    """nats-py closes for good at `-ERR 'Maximum Payload Violation'`, whatever its reconnect settings say."""
    controller, node = await stack.connect("controller"), await stack.connect("a")
    heard, reconnected = asyncio.Event(), asyncio.Event()

    async def hear(_: Msg) -> None:
        heard.set()

    await node.subscribe("mf.cmd.a", hear)
    node.on_reconnect(reconnected.set)
    await Client.publish(node.raw, "mf.evidence.a", b"x" * node.raw.max_payload, headers={"K": "v"})
    async with asyncio.timeout(10):
        await reconnected.wait()
        await node.round_trip()
        await controller.publish("mf.cmd.a", b"{}")
        await heard.wait()


@pytest.mark.parametrize("garbage", HOSTILE.values(), ids=HOSTILE.keys())
async def test_no_message_kills_the_connection(stack: NatsStack, garbage: bytes) -> None:
    controller = await stack.connect("controller")
    heard: list[bytes] = []

    async def hear(msg: Msg) -> None:
        heard.append(msg.data)

    await controller.subscribe("mf.cmd.>", hear)
    await controller.round_trip()
    said = await raw_nats.send(stack.url, stack.credentials("controller"), garbage + raw_nats.pub(b"mf.cmd.a", b"good"))
    assert b"-ERR" not in said
    await until(lambda: b"good" in heard, "the good message after the bad one", 5)
    assert await controller.round_trip() > 0
    assert controller.malformed + len(heard) == 2


async def test_a_failing_handler_does_not_end_its_subscription(
    stack: NatsStack, caplog: pytest.LogCaptureFixture
) -> None:
    controller = await stack.connect("controller")
    heard: list[bytes] = []

    async def fail(msg: Msg) -> None:
        heard.append(msg.data)
        message = "a defect"
        raise KeyError(message)

    await controller.subscribe("mf.cmd.>", fail)
    for number in (b"1", b"2"):
        await controller.publish("mf.cmd.a", number)
    await until(lambda: heard == [b"1", b"2"], "both messages", 5)
    await until(lambda: caplog.text.count("a defect") >= 2, "both defects in the log", 5)


async def test_a_killed_server_loses_nothing_and_nothing_is_sent_behind_the_callers_back(stack: NatsStack) -> None:
    controller = await stack.prepare()
    node = await stack.connect("a")
    lost, back, heard = asyncio.Event(), asyncio.Event(), asyncio.Event()
    node.on_disconnect(lost.set)
    node.on_reconnect(back.set)

    async def hear(_: Msg) -> None:
        heard.set()

    await node.subscribe("mf.cmd.a", hear)
    first = await node.publish_stored("mf.evidence.a", b"before", dedupe_id="1")
    stack.server.kill()
    async with asyncio.timeout(5):
        await lost.wait()
    assert not node.connected
    for attempt in (
        node.publish("mf.inventory.a", b"{}"),
        node.publish_stored("mf.evidence.a", b"while away"),
        node.request("mf.api.node.a.hello", b"{}", timeout_s=1),
        node.round_trip(),
    ):
        with pytest.raises(ModelForgeError) as raised:
            await attempt
        assert raised.value.code is ErrorCode.NOT_CONNECTED
    stack.server.start()
    async with asyncio.timeout(10):
        await back.wait()
        await until(lambda: controller.connected, "the controller is back too")
    again = await node.publish_stored("mf.evidence.a", b"before", dedupe_id="1")
    assert (again.sequence, again.duplicate) == (first.sequence, True)
    assert (await controller.js("STREAM.INFO.MF_EVIDENCE"))["state"]["messages"] == 1
    await controller.publish("mf.cmd.a", b"{}")
    async with asyncio.timeout(5):
        await heard.wait()
    assert node.last_error is None


async def test_a_request_in_flight_is_given_up_when_the_server_dies(stack: NatsStack) -> None:
    controller, node = await stack.connect("controller"), await stack.connect("a")
    asked = asyncio.Event()

    async def ignore(_: Msg) -> None:
        asked.set()

    await controller.subscribe("mf.api.>", ignore)
    asking = asyncio.create_task(node.request("mf.api.node.a.hello", b"{}", timeout_s=30))
    async with asyncio.timeout(5):
        await asked.wait()
        stack.server.kill()
        with pytest.raises(ModelForgeError) as raised:
            await asking
    assert raised.value.code is ErrorCode.REQUEST_TIMEOUT


async def test_a_removed_node_is_cut_off_and_comes_back_when_it_is_added_again(stack: NatsStack) -> None:
    controller, node = await stack.connect("controller"), await stack.connect("a")
    identities = stack.identities
    stack.server.reload(identities.users, ())
    await until(lambda: isinstance(node.last_error, Exception) and not node.connected, "the node is cut off")
    with pytest.raises(ModelForgeError) as raised:
        await until(node.round_trip, "never: the key is refused", 0.1)
    assert raised.value.code in {ErrorCode.AUTH_FAILED, ErrorCode.NOT_CONNECTED}
    assert await controller.round_trip() > 0
    stack.server.reload(identities.users, identities.nodes)
    await until(lambda: node.connected, "the node is back")

    async def answer(msg: Msg) -> None:
        await msg.respond(b"welcome")

    # The imports of the account work too: one reload would not be enough.
    await controller.subscribe("mf.api.>", answer)
    await controller.round_trip()
    assert await node.request("mf.api.node.a.hello", b"{}", timeout_s=2) == b"welcome"


async def test_a_third_connection_under_one_key_is_told_why(stack: NatsStack) -> None:
    for _ in range(2):
        await stack.connect("a")
    error = await failed_connect(stack.connection("a"))
    assert error.code is ErrorCode.NOT_CONNECTED
    assert "connections exceeded" in error.message


async def test_a_key_that_is_damaged_and_mended_does_not_end_the_reconnecting(stack: NatsStack) -> None:
    node = await stack.connect("a")
    path = stack.credentials("a")
    seed = path.read_bytes()
    stack.server.kill()
    path.write_bytes(b"damaged")
    stack.server.start()
    await until(lambda: "ErrInvalidSeed" in str(node.last_error), "the damage is noticed")
    with pytest.raises(ModelForgeError):
        await node.round_trip()
    path.write_bytes(seed)
    await until(lambda: node.connected, "the connection is back")
    assert await node.round_trip() > 0


async def test_a_late_pong_does_not_kill_the_reader(stack: NatsStack) -> None:
    client = await stack.connect("controller")
    given_up: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    given_up.cancel()
    await client.raw._send_ping(given_up)
    assert await client.round_trip() > 0
    assert client.connected


async def test_a_dead_reader_is_noticed_and_replaced(stack: NatsStack) -> None:
    client = await stack.connect("controller")
    back = asyncio.Event()
    client.on_reconnect(back.set)
    client.raw._ps.parse = None  # type: ignore[method-assign, assignment]  # any defect inside the reader
    await client.publish("mf.cmd.a", b"{}")
    await client.raw._send_ping()
    async with asyncio.timeout(10):
        await until(lambda: not client.connected, "the reader is dead")
        del client.raw._ps.parse
        await back.wait()
    assert await client.round_trip() > 0


@pytest.mark.parametrize("subject", ["mf.cmd.a b", "", "mf.cmd.a\tb"])
async def test_a_subject_that_is_none_is_a_typed_error(stack: NatsStack, subject: str) -> None:
    client = await stack.connect("controller")
    with pytest.raises(ModelForgeError) as published:
        await client.publish(subject, b"")
    with pytest.raises(ModelForgeError) as requested:
        await client.request(subject, b"", timeout_s=1.0)
    assert {published.value.code, requested.value.code} == {ErrorCode.INVALID_ARGUMENT}
    assert await client.round_trip() > 0
