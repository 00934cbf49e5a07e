"""The people's client and the live picture, against a controller that the test plays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from nats.aio.msg import Msg

from bus import verbs
from bus.client import BusClient
from bus.codec import encode
from bus.errors import ErrorCode, ModelForgeError
from bus.feed import FeedState, ProbeFeed
from bus.ids import now
from bus.messages.api import ById, Failed, Nothing, Ok, Page, ProbePicture, QueueProbeRequest
from bus.messages.events import Event
from bus.messages.gates import ProbeView
from bus.operator import Operator, read_endpoint, resolve_client
from bus.settings import ClientSettings
from bus.states import ProbeState
from tests.support.nats import OPERATOR, VIEWER, NatsStack, nats_stack
from tests.support.views import node_view, probe_view
from tests.support.waiting import until


class FakeController:
    """Answers `probes.list` from a list, refuses `probes.show`, and publishes events."""

    def __init__(self) -> None:
        self.sequence = 0
        self.probes: list[ProbeView] = []
        self.asked = 0
        self.callers: list[str] = []
        self._client: BusClient | None = None

    async def start(self, stack: NatsStack) -> None:
        responder = await stack.connect("responder")
        self._client = await stack.connect("controller")
        await responder.subscribe("mf.api.user.*.>", self._answer)

    async def _answer(self, msg: Msg) -> None:
        self.callers.append(msg.subject)
        if msg.subject.endswith(".probes.list"):
            self.asked += 1
            picture = ProbePicture(
                as_of_sequence=self.sequence, at=now(), probes=tuple(self.probes), nodes=(node_view("a"),)
            )
            await msg.respond(encode(Ok(data=msgspec.Raw(encode(picture)))))
        elif msg.subject.endswith(".probes.show"):
            error = ModelForgeError(ErrorCode.UNKNOWN_ID, "no such probe", id="prb-x")
            await msg.respond(encode(Failed(failure=error.to_failure())))
        else:
            await msg.respond(b"not what anybody asked for")

    async def tell(self, probe: ProbeView, *, lose: bool = False) -> None:
        """Commit a change, and publish its event unless it gets lost."""
        self.sequence += 1
        self.probes = [probe, *(other for other in self.probes if other.id != probe.id)]
        event = Event(
            sequence=self.sequence, at=now(), entity="probe", id=probe.id, what=probe.state, actor="node", probe=probe
        )
        if not lose:
            assert self._client is not None
            await self._client.publish(f"mf.events.probe.{probe.id}.{probe.state}", encode(event))

    async def garbage(self) -> None:
        assert self._client is not None
        await self._client.publish("mf.events.probe.x.y", b"\xff not an event")


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[NatsStack]:
    async with nats_stack(tmp_path) as running:
        yield running


@pytest.fixture
async def controller(stack: NatsStack) -> FakeController:
    fake = FakeController()
    await fake.start(stack)
    return fake


def settings(stack: NatsStack, who: str = "operator") -> ClientSettings:
    user = VIEWER if who == "viewer" else OPERATOR
    return ClientSettings(url=stack.url, user=user, credentials=str(stack.credentials(who)), timeout_s=5)


@pytest.fixture
async def operator(stack: NatsStack) -> AsyncIterator[Operator]:
    async with await Operator.connect(settings(stack)) as connected:
        yield connected


async def test_a_call_is_typed_both_ways(controller: FakeController, operator: Operator) -> None:
    controller.probes = [probe_view("prb-1")]
    picture = await operator.call(verbs.PROBES_LIST, Page())
    assert picture.probes == (probe_view("prb-1"),)
    assert controller.callers == ["mf.api.user.alice.probes.list"]


async def test_a_refusal_comes_back_as_the_error_it_was(controller: FakeController, operator: Operator) -> None:
    with pytest.raises(ModelForgeError) as raised:
        await operator.call(verbs.PROBES_SHOW, ById(id="prb-x"))
    assert (raised.value.code, raised.value.message) == (ErrorCode.UNKNOWN_ID, "no such probe")
    assert raised.value.context == {"id": "prb-x"}


async def test_an_answer_that_nobody_understands_is_typed(controller: FakeController, operator: Operator) -> None:
    with pytest.raises(ModelForgeError) as raised:
        await operator.call(verbs.STATUS, Nothing())
    assert raised.value.code is ErrorCode.MALFORMED_MESSAGE


async def test_a_viewer_is_refused_by_the_server_itself(controller: FakeController, stack: NatsStack) -> None:
    async with await Operator.connect(settings(stack, "viewer")) as viewer:
        assert (await viewer.call(verbs.PROBES_LIST, Page())).probes == ()
        with pytest.raises(ModelForgeError) as raised:
            await viewer.call(verbs.PROBES_QUEUE, QueueProbeRequest(assessment_id="asm-1", request_id="r"))
    assert raised.value.code is ErrorCode.PERMISSION_DENIED
    assert not any("queue" in caller for caller in controller.callers)


async def test_without_a_controller_it_says_so(operator: Operator) -> None:
    with pytest.raises(ModelForgeError) as raised:
        await operator.call(verbs.STATUS, Nothing())
    assert raised.value.code is ErrorCode.NO_CONTROLLER


class Watch:
    """A running feed and the last picture that it told."""

    def __init__(self, operator: Operator) -> None:
        self.states: list[FeedState] = []
        # Longer than the test: nothing is mended by the clock alone.
        self._task = asyncio.create_task(ProbeFeed(operator, refresh_s=60).run(self.states.append))

    @property
    def last(self) -> FeedState:
        return self.states[-1] if self.states else FeedState()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))


@pytest.fixture
async def watch(operator: Operator) -> AsyncIterator[Watch]:
    running = Watch(operator)
    yield running
    await running.stop()


def in_state(watch: Watch, probe_id: str, state: ProbeState) -> bool:
    probe = watch.last.probes.get(probe_id)
    return probe is not None and probe.state is state


async def test_the_picture_follows_the_events(controller: FakeController, watch: Watch) -> None:
    await until(lambda: watch.last.connected, "the first picture")
    for state in (ProbeState.QUEUED, ProbeState.PREPARING, ProbeState.LOADING):
        await controller.tell(probe_view("prb-1", state))
    await until(lambda: in_state(watch, "prb-1", ProbeState.LOADING), "the events")
    assert controller.asked == 1
    assert watch.last.sequence == 3
    assert watch.last.nodes["a"].liveness == "online"


async def test_a_lost_event_is_noticed_and_mended(controller: FakeController, watch: Watch) -> None:
    await until(lambda: watch.last.connected, "the first picture")
    await controller.tell(probe_view("prb-1"), lose=True)
    await controller.tell(probe_view("prb-2"))
    await until(lambda: set(watch.last.probes) == {"prb-1", "prb-2"}, "both probes")
    assert controller.asked == 2


async def test_an_event_that_cannot_be_read_asks_for_a_picture(controller: FakeController, watch: Watch) -> None:
    await until(lambda: watch.last.connected, "the first picture")
    await controller.tell(probe_view("prb-1"), lose=True)
    await controller.garbage()
    await until(lambda: "prb-1" in watch.last.probes, "a new picture")


async def test_the_feed_outlives_the_server(controller: FakeController, watch: Watch, stack: NatsStack) -> None:
    await until(lambda: watch.last.connected, "the first picture")
    stack.server.kill()
    await until(lambda: not watch.last.connected, "the loss is told")
    assert watch.last.last_error is not None
    await controller.tell(probe_view("prb-1"), lose=True)
    stack.server.start()
    await until(lambda: watch.last.connected and "prb-1" in watch.last.probes, "the picture is whole again", 20)
    assert watch.last.last_error is None


async def test_the_feed_waits_for_a_controller(stack: NatsStack, watch: Watch) -> None:
    await until(lambda: watch.last.last_error, "the missing controller is told")
    assert ErrorCode.NO_CONTROLLER in str(watch.last.last_error)
    controller = FakeController()
    await controller.start(stack)
    await until(lambda: watch.last.connected, "the picture")


def test_the_endpoint_of_a_running_stack_fills_what_is_open(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    endpoint = {"url": "nats://127.0.0.1:1", "user": "alice", "credentials": "/keys/alice.nk"}
    (tmp_path / "run" / "endpoint.json").write_text(json.dumps(endpoint))
    assert read_endpoint(tmp_path).url == "nats://127.0.0.1:1"
    filled = resolve_client(ClientSettings(user="bob"), tmp_path)
    assert (filled.url, filled.user, filled.credentials) == ("nats://127.0.0.1:1", "bob", "/keys/alice.nk")
    whole = ClientSettings(url="nats://far", user="carol", credentials="/c.nk")
    assert resolve_client(whole, tmp_path / "nowhere") == whole


def test_nothing_to_connect_to_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ModelForgeError) as raised:
        resolve_client(ClientSettings(), tmp_path)
    assert raised.value.code is ErrorCode.NOT_CONNECTED
    assert "modelforge up" in raised.value.hint
    with pytest.raises(ModelForgeError) as raised:
        resolve_client(ClientSettings(url="nats://far"), tmp_path)
    assert "client.credentials" in raised.value.hint


@pytest.mark.parametrize("content", [b"", b"{", b'{"url": 5}'])
def test_a_damaged_endpoint_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "endpoint.json").write_bytes(content)
    with pytest.raises(ModelForgeError, match=r"endpoint\.json") as raised:
        resolve_client(ClientSettings(), tmp_path)
    assert raised.value.code is ErrorCode.CONFIG_UNREADABLE
