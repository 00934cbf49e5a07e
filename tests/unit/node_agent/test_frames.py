"""The agent's end of a child's channel, against bytes that a child might send."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import pytest

from adapters.child.protocol import HEADER, MAX_FRAME_BYTES, Prepared, Proceed, UpFrame
from bus.codec import encode
from bus.errors import ErrorCode, ModelForgeError
from node_agent.frames import ChildGone, FrameStream


def framed(body: bytes) -> bytes:
    return HEADER.pack(len(body)) + body


@pytest.fixture
async def ends() -> AsyncIterator[tuple[FrameStream[UpFrame], socket.socket]]:
    ours, theirs = socket.socketpair()
    stream: FrameStream[UpFrame] = await FrameStream.open(ours, UpFrame)
    with theirs:
        yield stream, theirs
        await stream.close()


async def test_frames_arrive_in_order_then_the_end(ends: tuple[FrameStream[UpFrame], socket.socket]) -> None:
    stream, child = ends
    for number in (1.0, 2.0):
        child.sendall(framed(encode(Prepared(import_ms=number))))
    child.close()
    assert await stream.receive(1) == Prepared(import_ms=1.0)
    assert await stream.receive(1) == Prepared(import_ms=2.0)
    for _ in range(2):
        with pytest.raises(ChildGone):
            await stream.receive(1)


async def test_a_timeout_in_the_middle_of_a_frame_loses_nothing(
    ends: tuple[FrameStream[UpFrame], socket.socket],
) -> None:
    stream, child = ends
    whole = framed(encode(Prepared(import_ms=3.0)))
    child.sendall(whole[:9])
    with pytest.raises(TimeoutError):
        await stream.receive(0.05)
    child.sendall(whole[9:])
    assert await stream.receive(1) == Prepared(import_ms=3.0)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (HEADER.pack(MAX_FRAME_BYTES + 1), ErrorCode.MESSAGE_TOO_LARGE),
        (framed(b"{"), ErrorCode.MALFORMED_MESSAGE),
        (framed(b'{"kind":"child.surprise.v1"}'), ErrorCode.UNKNOWN_KIND),
        (framed(encode(Proceed())), ErrorCode.UNKNOWN_KIND),
    ],
)
async def test_a_child_that_breaks_the_protocol_is_a_typed_end(
    ends: tuple[FrameStream[UpFrame], socket.socket], sent: bytes, code: ErrorCode
) -> None:
    stream, child = ends
    child.sendall(sent)
    for _ in range(2):
        with pytest.raises(ModelForgeError) as caught:
            await stream.receive(1)
        assert caught.value.code == code


async def test_sending_to_a_child_that_is_gone(ends: tuple[FrameStream[UpFrame], socket.socket]) -> None:
    stream, child = ends
    child.close()
    with pytest.raises(ChildGone):
        await stream.receive(1)
    with pytest.raises(ChildGone):
        await _send_many(stream)


async def _send_many(stream: FrameStream[UpFrame]) -> None:
    """The first may still be taken by the kernel."""
    for _ in range(10):
        await stream.send(Proceed())
