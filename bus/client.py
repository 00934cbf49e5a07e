"""The one connection to NATS that every process of the product uses.

It connects fast or fails typed, reconnects for ever afterwards, keeps its subscriptions, and never tells a caller
that something was sent while the connection was down.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final, NoReturn

from nats import errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from bus.errors import ErrorCode, ModelForgeError
from bus.js_replies import AlreadyQueued, JsError, StoredAck, read_ack, read_reply, too_large
from bus.safe_client import SafeClient, is_authorization_error
from bus.settings import Settings
from bus.text import clean_line

_log = logging.getLogger(__name__)
_CONNECT_TRY_S: Final = 0.05
_RECONNECT_WAIT_S: Final = 0.5
_PING_INTERVAL_S: Final = 10
_MAX_OUTSTANDING_PINGS: Final = 2
_CLOSE_LIMIT_S: Final = 5.0
_ROUND_TRIP_LIMIT_S: Final = 5

__all__ = ["AlreadyQueued", "BusClient", "Connection", "JsError", "StoredAck"]


class Connection(Settings, frozen=True, kw_only=True):
    """How one process reaches the server.

    Attributes:
        url: one server or several, separated by commas.
        credentials: file that holds the NKey seed; read again at every reconnect.
        name: shown by `nats server list`.
        inbox_prefix: where replies arrive; the user must be allowed to subscribe there.
        js_prefix: subject prefix of JetStream's API.
    """

    url: str
    credentials: str
    name: str
    inbox_prefix: str = "_INBOX"
    js_prefix: str = "$JS.API"


class BusClient:
    """See the module. Made by `connect`, ended by `close`; everything happens in one event loop."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._raw = SafeClient()
        self._is_closing = False
        self._reconnected: list[Callable[[], None]] = []
        self._disconnected: list[Callable[[], None]] = []
        self._in_flight: dict[str, list[asyncio.Future[ErrorCode]]] = {}
        self._last_error: Exception | None = None

    @classmethod
    async def connect(
        cls, connection: Connection, *, first_connect_s: float = 5.0, wait_for_server_s: float = 0.0
    ) -> BusClient:
        """Connect, within `first_connect_s` for one attempt.

        A server that is not there, or does not answer, is an error at once, unless `wait_for_server_s` says how long
        to go on trying. A refused key is always an error at once.

        Raises:
            ModelForgeError: NOT_CONNECTED, AUTH_FAILED.
        """
        deadline = asyncio.get_running_loop().time() + wait_for_server_s
        while True:
            client = cls(connection)
            try:
                await client._first_connect(first_connect_s)
            except ModelForgeError as error:
                left_s = deadline - asyncio.get_running_loop().time()
                if error.code is ErrorCode.AUTH_FAILED or left_s <= 0:
                    raise
                await asyncio.sleep(min(_RECONNECT_WAIT_S, left_s))
            else:
                return client

    async def _first_connect(self, limit_s: float) -> None:
        raw = self._raw
        try:
            async with asyncio.timeout(limit_s):
                # nats-py applies its reconnect policy to the first connect too: a wrong key would take two minutes
                # to tell. So the policy is put into force afterwards.
                await raw.connect(
                    [url.strip() for url in self._connection.url.split(",")],
                    name=self._connection.name,
                    nkeys_seed=self._connection.credentials,
                    inbox_prefix=self._connection.inbox_prefix,
                    error_cb=self._on_error,
                    disconnected_cb=self._on_disconnected,
                    reconnected_cb=self._on_reconnected,
                    closed_cb=self._on_closed,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=_CONNECT_TRY_S,  # type: ignore[arg-type]  # seconds; any real number will do
                    ping_interval=_PING_INTERVAL_S,
                    max_outstanding_pings=_MAX_OUTSTANDING_PINGS,
                )
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is the reason why there is no connection
            await raw.abandon()
            self._raise_connect_error(error)
        raw.options["allow_reconnect"] = True
        raw.options["max_reconnect_attempts"] = -1
        # Spread, so that a hundred agents do not come back in the same moment.
        raw.options["reconnect_time_wait"] = _RECONNECT_WAIT_S * random.uniform(1.0, 2.0)  # noqa: S311 -- no secret

    def _raise_connect_error(self, error: Exception) -> NoReturn:
        reason = self._last_error if isinstance(error, errors.NoServersError | TimeoutError) else error
        where = self._connection.url
        if is_authorization_error(reason):
            message = f"the server at {where} refused the key in {self._connection.credentials}"
            raise ModelForgeError(ErrorCode.AUTH_FAILED, message) from error
        if isinstance(reason, errors.Error) and not isinstance(reason, errors.TimeoutError | errors.NoServersError):
            message = f"the server at {where} does not take the connection: {reason}"
            raise ModelForgeError(ErrorCode.NOT_CONNECTED, message, hint="Look into the server's log.") from error
        # A connection that fails names the address; a file that cannot be read names itself.
        if isinstance(reason, OSError) and reason.filename is not None:
            raise ModelForgeError(ErrorCode.AUTH_FAILED, f"{reason.filename}: {reason.strerror}") from error
        if reason is None or isinstance(reason, OSError | errors.Error):
            why = "no answer in time" if reason is None or isinstance(reason, TimeoutError) else str(reason)
            raise ModelForgeError(ErrorCode.NOT_CONNECTED, f"no NATS server at {where}: {why}") from error
        message = f"{self._connection.credentials} does not hold an NKey seed ({type(reason).__name__})"
        raise ModelForgeError(ErrorCode.AUTH_FAILED, message) from error

    @property
    def raw(self) -> SafeClient:
        """The client below, for `nats.micro` alone. It stays the same over reconnects."""
        return self._raw

    @property
    def connected(self) -> bool:
        """Is the connection up, with a living reader? A hint; `round_trip` is the proof."""
        return self._raw.is_reading

    @property
    def js_prefix(self) -> str:
        """Subject prefix of JetStream's API."""
        return self._connection.js_prefix

    @property
    def malformed(self) -> int:
        """How many messages could not be understood and were dropped."""
        return self._raw.malformed

    @property
    def last_error(self) -> Exception | None:
        """Why the connection was lost or cannot be made again; `None` while all is well."""
        return self._last_error

    def on_reconnect(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after every reconnect. Returns what takes it off again."""
        self._reconnected.append(callback)
        return lambda: self._reconnected.remove(callback)

    def on_disconnect(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever the connection is lost. Returns what takes it off again."""
        self._disconnected.append(callback)
        return lambda: self._disconnected.remove(callback)

    async def request(self, subject: str, data: bytes, *, timeout_s: float) -> bytes:
        """Send a request and return the reply's payload.

        Raises:
            ModelForgeError: NOT_CONNECTED (nothing was sent), NO_CONTROLLER (nobody listens there), REQUEST_TIMEOUT
                (the outcome is unknown), PERMISSION_DENIED (the server refused the subject), MESSAGE_TOO_LARGE,
                INVALID_ARGUMENT (no subject to publish to: empty, or with blanks).
        """
        try:
            return await self._exchange(subject, data, None, timeout_s)
        except errors.NoRespondersError as error:
            raise ModelForgeError(ErrorCode.NO_CONTROLLER, f"nobody answers on {subject}") from error

    async def _exchange(self, subject: str, data: bytes, headers: dict[str, str] | None, timeout_s: float) -> bytes:
        """One request; `NoRespondersError` is left to the caller, who knows what it means there."""
        self._require_connection()
        loop = asyncio.get_running_loop()
        broken: asyncio.Future[ErrorCode] = loop.create_future()
        in_flight = self._in_flight.setdefault(subject.lower(), [])
        in_flight.append(broken)
        answer = loop.create_task(self._raw.request(subject, data, timeout=timeout_s, headers=headers))
        try:
            await asyncio.wait((answer, broken), return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result().data
            if broken.result() is ErrorCode.PERMISSION_DENIED:
                raise ModelForgeError(ErrorCode.PERMISSION_DENIED, f"this user may not call {subject}")
            message = f"the connection was lost before {subject} answered"
            raise ModelForgeError(ErrorCode.REQUEST_TIMEOUT, message)
        except errors.TimeoutError as error:
            message = f"no answer on {subject} in {timeout_s:g} s"
            raise ModelForgeError(ErrorCode.REQUEST_TIMEOUT, message) from error
        except errors.MaxPayloadError as error:
            raise too_large(subject, len(data)) from error
        except errors.BadSubjectError as error:
            raise _bad_subject(subject) from error
        except (errors.ConnectionClosedError, errors.ConnectionDrainingError, errors.OutboundBufferLimitError) as error:
            raise self._not_connected() from error
        finally:
            in_flight.remove(broken)
            if not in_flight:
                self._in_flight.pop(subject.lower(), None)
            broken.cancel()
            answer.cancel()

    async def publish(self, subject: str, data: bytes, *, reply: str = "") -> None:
        """Send a core message: nobody confirms it.

        Raises:
            ModelForgeError: NOT_CONNECTED (nothing was sent), MESSAGE_TOO_LARGE, INVALID_ARGUMENT as `request`.
        """
        self._require_connection()
        try:
            await self._raw.publish(subject, data, reply=reply)
        except errors.MaxPayloadError as error:
            raise too_large(subject, len(data)) from error
        except errors.BadSubjectError as error:
            raise _bad_subject(subject) from error
        except (errors.ConnectionClosedError, errors.ConnectionDrainingError, errors.OutboundBufferLimitError) as error:
            raise self._not_connected() from error

    async def publish_stored(
        self,
        subject: str,
        data: bytes,
        *,
        dedupe_id: str | None = None,
        stream: str | None = None,
        timeout_s: float = 5.0,
    ) -> StoredAck:
        """Publish into a stream, once, and wait until the stream has it.

        With a `dedupe_id` the stream stores one message of this id (within its window); a repeat is `duplicate`.
        With `stream`, a message that another stream would take is refused.

        Raises:
            ModelForgeError: REQUEST_TIMEOUT (it may be stored: try again with the same `dedupe_id`), NOT_CONNECTED
                (not stored: no server or no stream), QUEUE_FULL (not stored: a bound is reached), MESSAGE_TOO_LARGE,
                PERMISSION_DENIED, STREAM_DRIFT (another stream listens there).
            AlreadyQueued: a job with this subject is there.
        """
        headers = {}
        if dedupe_id is not None:
            headers["Nats-Msg-Id"] = dedupe_id
        if stream is not None:
            headers["Nats-Expected-Stream"] = stream
        try:
            reply = await self._exchange(subject, data, headers or None, timeout_s)
        except errors.NoRespondersError as error:
            raise ModelForgeError(ErrorCode.NOT_CONNECTED, f"no stream takes {subject}") from error
        return read_ack(reply, subject, len(data))

    async def subscribe(self, subject: str, callback: Callable[[Msg], Awaitable[None]]) -> Subscription:
        """Call `callback` for every message on `subject`, one after the other; kept over reconnects.

        On return the server knows the subscription. An exception of the callback is logged and the next message is
        served.

        Raises:
            ModelForgeError: NOT_CONNECTED.
        """
        self._require_connection()
        subscription = await self._raw.subscribe(subject, cb=callback)
        try:
            await self.round_trip()
        except ModelForgeError:
            await subscription.unsubscribe()
            raise
        return subscription

    async def js(self, api: str, request: dict[str, Any] | None = None, *, timeout_s: float = 5.0) -> dict[str, Any]:
        """Call JetStream's API as it is on the wire, such as `js("STREAM.INFO.MF_JOBS")`.

        The JSON is not put through nats-py's classes: they drop fields that they do not know.

        Raises:
            JsError: JetStream refused.
            ModelForgeError: NOT_CONNECTED, REQUEST_TIMEOUT, PERMISSION_DENIED.
        """
        subject = f"{self._connection.js_prefix}.{api}"
        data = b"" if request is None else json.dumps(request).encode()
        try:
            return read_reply(await self._exchange(subject, data, None, timeout_s))
        except errors.NoRespondersError as error:
            raise ModelForgeError(ErrorCode.NOT_CONNECTED, f"JetStream does not answer on {subject}") from error

    async def round_trip(self) -> float:
        """Go to the server and back through the reader; seconds. The only proof that the connection is alive.

        On return the server has also taken everything that this client sent before.

        Raises:
            ModelForgeError: NOT_CONNECTED.
        """
        self._require_connection()
        # In a task of its own, as every wait for nats-py: before Python 3.12 its `wait_for` may swallow a cancel.
        going = asyncio.get_running_loop().create_task(self._raw.rtt(_ROUND_TRIP_LIMIT_S))
        try:
            await asyncio.wait((going,))
            return float(going.result())
        except errors.Error as error:
            raise self._not_connected() from error
        finally:
            going.cancel()

    async def close(self) -> None:
        """End the connection and every subscription. Harmless when it is closed."""
        self._is_closing = True
        async with asyncio.timeout(_CLOSE_LIMIT_S):
            await self._raw.close()

    def _require_connection(self) -> None:
        # Without this check nats-py would keep the message and send it after the reconnect, long after its caller
        # has been told that it failed.
        if not self._raw.is_reading:
            raise self._not_connected()

    def _not_connected(self) -> ModelForgeError:
        reason = self._last_error
        code = ErrorCode.AUTH_FAILED if is_authorization_error(reason) else ErrorCode.NOT_CONNECTED
        why = f": {reason}" if reason is not None else ""
        return ModelForgeError(code, f"no connection to {self._connection.url}{why}")

    async def _on_error(self, error: Exception) -> None:
        text = str(error)
        if "permissions violation" in text.lower():
            _log.warning("the server refused: %s", text)
            self._deny(text)
        elif isinstance(error, OSError | errors.Error):
            self._last_error = error
            _log.debug("connection: %s", text or type(error).__name__)
        else:
            _log.error("a message's handler failed", exc_info=error)

    def _deny(self, text: str) -> None:
        """The server names a forbidden subject in small letters; whoever waits for an answer from there need not."""
        for subject, waiting in self._in_flight.items():
            if f'publish to "{subject}"' in text.lower():
                _break(waiting, ErrorCode.PERMISSION_DENIED)

    async def _on_disconnected(self) -> None:
        # The answer will not come: a new connection is a new inbox to the server.
        for waiting in self._in_flight.values():
            _break(waiting, ErrorCode.REQUEST_TIMEOUT)
        if not self._is_closing:
            _log.warning("connection to %s lost: %s", self._connection.url, self._last_error or "closed")
            self._tell(self._disconnected)

    async def _on_reconnected(self) -> None:
        self._last_error = None
        _log.info("connection to %s is back", self._connection.url)
        self._tell(self._reconnected)

    async def _on_closed(self) -> None:
        if not self._is_closing:
            _log.critical("connection to %s closed for good: %s", self._connection.url, self._last_error)
            self._tell(self._disconnected)

    def _tell(self, callbacks: list[Callable[[], None]]) -> None:
        for callback in tuple(callbacks):
            try:
                callback()
            except Exception:  # noqa: BLE001 -- logged whole; one listener's defect must not end the connection
                _log.exception("a connection callback failed")


def _bad_subject(subject: str) -> ModelForgeError:
    # nats-py's own class for it is none that a caller looks for: it once ended the controller at every start.
    return ModelForgeError(ErrorCode.INVALID_ARGUMENT, f"{clean_line(subject, 200)!r} is no subject to publish to")


def _break(waiting: list[asyncio.Future[ErrorCode]], code: ErrorCode) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(code)
