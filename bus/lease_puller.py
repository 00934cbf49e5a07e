"""Pull exactly one message at a time from a durable consumer: the delivery is the lease (spec D1).

nats-py's own `fetch` cannot be used for leases: it hands out deliveries whose lease has run out, is stopped by a
stored message that carries a `Status` header, and sits out its whole timeout after a reconnect.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from bus import subjects
from bus.client import BusClient
from bus.errors import ErrorCode, ModelForgeError

_log = logging.getLogger(__name__)
MAX_WAIT_S: Final = 60.0
HEARTBEAT_S: Final = 5.0
_GRACE_S: Final = 0.5
_BACK_OFF_S: Final = 0.2
_MIN_REQUEST_S: Final = 0.01
_HEARTBEAT, _TIMEOUTS, _UNAVAILABLE = "100", ("404", "408"), "503"


class ConsumerGone(Exception):  # noqa: N818 -- an answer that the caller expects: back off and pull again
    """The consumer or its stream is not there (any more), or JetStream does not answer for it."""

    def __init__(self, stream: str, consumer: str, reason: str) -> None:
        super().__init__(f"{stream}/{consumer}: {reason}")
        self.stream = stream
        self.consumer = consumer
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Delivered:
    """One message, leased to whoever pulled it.

    Attributes:
        subject: where it was published.
        reply: the acknowledgement subject; whoever publishes there ends or extends the lease.
        data, headers: as published. A `Status` header here is the publisher's word, not the server's.
        num_delivered: a hint only; the server forgets counts in a crash.
        stream_sequence: the message's number in the stream.
    """

    subject: str
    reply: str
    data: bytes
    headers: dict[str, str]
    num_delivered: int
    stream_sequence: int


@dataclass(frozen=True, slots=True)
class _Status:
    """The server's answer to a pull that brought no message."""

    code: str
    description: str


class _Again:
    """Ask again at once: the request is lost (reconnect, malformed message)."""


_Event = Delivered | _Status | _Again


class LeasePuller:
    """Pulls from one consumer. One inbox for all pulls, a fresh reply subject for each.

    A pull that waits is confirmed by the server every `heartbeat_s`; after two silent ones it is asked again.

    Attributes:
        returned: deliveries that nobody waited for any more and that were given back at once.
        repeated: pulls that were asked again because the server had fallen silent or the connection was new.
    """

    def __init__(self, client: BusClient, stream: str, consumer: str, *, heartbeat_s: float = HEARTBEAT_S) -> None:
        self._client = client
        self._heartbeat_s = heartbeat_s
        self._stream = stream
        self._consumer = consumer
        self._subject = subjects.next_message(stream, consumer, client.js_prefix)
        self._inbox = client.raw.new_inbox()
        self._reply = ""
        self._events: asyncio.Queue[_Event] | None = None
        self._lock = asyncio.Lock()
        self._subscription: Subscription | None = None
        self._unhook: Callable[[], None] | None = None
        self.returned = 0
        self.repeated = 0

    async def start(self) -> None:
        """Subscribe the inbox; kept over reconnects.

        Raises:
            ModelForgeError: NOT_CONNECTED.
        """
        self._subscription = await self._client.subscribe(f"{self._inbox}.*", self._receive)
        raw = self._client.raw
        raw.on_malformed[raw.subscription_id(self._subscription)] = self._ask_again
        self._unhook = self._client.on_reconnect(self._ask_again)

    async def stop(self) -> None:
        """Unsubscribe; the server forgets a pull that waits. Harmless when stopped."""
        if self._unhook is not None:
            self._unhook()
            self._unhook = None
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            self._client.raw.on_malformed.pop(self._client.raw.subscription_id(subscription), None)
            if self._client.connected:
                await subscription.unsubscribe()

    async def pull(self, wait_s: float) -> Delivered | None:
        """One message, or `None` when none came in `wait_s` (at most `MAX_WAIT_S`), connected or not.

        Cancelling is safe: a message that comes later is given back at once and is free for the next pull.

        Raises:
            ConsumerGone: back off and pull again; somebody has to make the consumer.
            ModelForgeError: INTERNAL when the server calls the request bad.
        """
        async with self._lock:
            events: asyncio.Queue[_Event] = asyncio.Queue()
            self._events = events
            try:
                return await self._pull(events, asyncio.get_running_loop().time() + min(wait_s, MAX_WAIT_S))
            finally:
                self._events = None
                while not events.empty():
                    await self._give_back(events.get_nowait())

    async def _pull(self, events: asyncio.Queue[_Event], deadline: float) -> Delivered | None:
        now = asyncio.get_running_loop().time
        while (left_s := deadline - now()) > _MIN_REQUEST_S:
            silence_s = await self._ask(left_s)
            while (event := await _next(events, min(silence_s, deadline - now() + _GRACE_S))) is not None:
                match event:
                    case Delivered():
                        return event
                    case _Again():
                        break
                    case _Status(code) if code == _HEARTBEAT:
                        continue
                    case _Status(code) if code in _TIMEOUTS:
                        return None
                    case _Status():
                        self._raise_final(event)
                        # Something passes (a new leader, a server that shuts down): wait a moment, but for a
                        # reconnect or a message no longer than needed.
                        await _peek(events, _BACK_OFF_S)
                        break
            self.repeated += 1
        return None

    async def _ask(self, left_s: float) -> float:
        """Send the request; how long the server may be silent before the request counts as lost."""
        self._reply = f"{self._inbox}.{secrets.token_hex(8)}"
        request = {"batch": 1, "expires": int(left_s * 1e9)}
        silence_s = left_s + _GRACE_S
        if left_s > 2 * self._heartbeat_s:
            request["idle_heartbeat"] = int(self._heartbeat_s * 1e9)
            silence_s = 2 * self._heartbeat_s + _GRACE_S
        try:
            await self._client.publish(self._subject, json.dumps(request).encode(), reply=self._reply)
        except ModelForgeError as error:
            # No connection: the reconnect wakes the pull.
            _log.debug("pull waits for the connection: %s", error)
        return silence_s

    def _raise_final(self, status: _Status) -> None:
        if status.code == _UNAVAILABLE or "deleted" in status.description.lower():
            reason = status.description or "nobody answers"
            raise ConsumerGone(self._stream, self._consumer, reason)
        if status.code == "400":
            raise ModelForgeError(ErrorCode.INTERNAL, f"the server calls the pull bad: {status.description}")

    async def _receive(self, msg: Msg) -> None:
        """Whatever comes to the inbox. Only a delivery has a reply subject; no header of it is trusted."""
        if not msg.reply:
            if self._events is not None and msg.subject == self._reply:
                headers = msg.headers or {}
                self._events.put_nowait(
                    _Status(headers.get("Status", ""), headers.get("Description", "").partition("\n")[0].strip())
                )
            return
        try:
            delivery = subjects.parse_delivery(msg.reply)
        except ModelForgeError:
            _log.warning("dropped a message that is no delivery")
            return
        if (delivery.stream, delivery.consumer) != (self._stream, self._consumer):
            _log.warning("dropped a delivery of another consumer")
            return
        delivered = Delivered(
            msg.subject, msg.reply, msg.data, dict(msg.headers or {}), delivery.num_delivered, delivery.stream_sequence
        )
        if self._events is not None:
            self._events.put_nowait(delivered)
        else:
            await self._give_back(delivered)

    async def _give_back(self, event: _Event) -> None:
        if not isinstance(event, Delivered):
            return
        self.returned += 1
        try:
            await self._client.publish(event.reply, b"-NAK")
        except ModelForgeError as error:
            _log.debug("a delivery could not be given back; its lease runs out: %s", error)

    def _ask_again(self) -> None:
        if self._events is not None:
            self._events.put_nowait(_Again())


async def _next(events: asyncio.Queue[_Event], wait_s: float) -> _Event | None:
    try:
        async with asyncio.timeout(max(0.0, wait_s)):
            return await events.get()
    except TimeoutError:
        return None


async def _peek(events: asyncio.Queue[_Event], wait_s: float) -> None:
    """Wait until there is an event, or for `wait_s`; the event stays."""
    event = await _next(events, wait_s)
    if event is not None:
        events.put_nowait(event)
