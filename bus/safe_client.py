"""nats-py's client, made fit for strangers' messages.

As it comes (2.16), one message with a subject that is not UTF-8 or a torn header block ends the reader's task for
good while the client goes on saying that it is connected; any `-ERR` of the server closes it for ever, whatever the
reconnect settings say; and a pong that comes late kills the reader too. Each override names what it mends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, Final

from nats import errors
from nats.aio.client import PING_PROTO, Client
from nats.aio.subscription import Subscription

from bus.subjects import ACK_PREFIX

_log = logging.getLogger(__name__)
_HEADER_LINE_BYTES: Final = len(b"NATS/1.0\r\n")
_HEADER_END_BYTES: Final = len(b"\r\n")
_HEADER_GLUE_BYTES: Final = len(b": \r\n")
_PERMISSIONS: Final = "permissions violation"
_AUTHORIZATION: Final = ("authorization violation", "authentication", "authorization")


def message_size_bytes(payload: bytes, headers: dict[str, str] | None) -> int:
    """What the server counts against `max_payload`: the payload and the encoded headers."""
    if headers is None:
        return len(payload)
    lines = (
        len(key.strip().encode()) + len(value.strip().encode()) + _HEADER_GLUE_BYTES for key, value in headers.items()
    )
    return len(payload) + _HEADER_LINE_BYTES + sum(lines) + _HEADER_END_BYTES


def is_authorization_error(error: BaseException | None) -> bool:
    """Did the server refuse the credentials?"""
    return isinstance(error, errors.AuthorizationError) or (
        isinstance(error, errors.Error) and any(mark in str(error).lower() for mark in _AUTHORIZATION)
    )


class SafeClient(Client):
    """A client that survives malformed messages and every `-ERR`.

    Attributes:
        malformed: how many messages could not be understood and were dropped (and ended, when stored).
        on_malformed: per subscription id, told when that subscription lost a message in this way.
    """

    def __init__(self) -> None:
        super().__init__()
        self.malformed = 0
        self.on_malformed: dict[int, Callable[[], None]] = {}

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        """One malformed message is dropped; the reader lives."""
        try:
            await super()._process_msg(sid, subject, reply, data, headers)
        except (ValueError, LookupError, TypeError, AttributeError, errors.Error) as error:
            self.malformed += 1
            _log.warning("dropped a malformed message of %d bytes: %s", len(data), type(error).__name__)
            await self._end_malformed(reply)
            notice = self.on_malformed.get(sid)
            if notice is not None:
                notice()

    async def _end_malformed(self, reply: bytes) -> None:
        """A stored message would come back for ever: tell the stream that nobody can read it."""
        if not reply.startswith(f"{ACK_PREFIX}.".encode()):
            return
        with contextlib.suppress(errors.Error, ValueError):  # best effort; it is dropped again when it comes back
            await self.publish(reply.decode("ascii"), b"+TERM malformed")

    async def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Checks payload *and* headers: the server would answer with an `-ERR` that closes the connection."""
        if message_size_bytes(payload, headers) > self.max_payload:
            raise errors.MaxPayloadError
        await super().publish(subject, payload, reply=reply, headers=headers)

    async def _process_err(self, err_msg: str) -> None:
        """Any `-ERR` but a permission's means a new connection, never the end."""
        if _PERMISSIONS in err_msg:
            await super()._process_err(err_msg)
            return
        refused = any(mark in err_msg for mark in _AUTHORIZATION)
        error = errors.AuthorizationError() if refused else errors.Error(f"nats: {err_msg.strip(chr(39))}")
        self._err = error
        await self._error_cb(error)
        await self._process_op_err(error)

    async def _send_ping(self, future: asyncio.Future[bool] | None = None) -> None:
        """A ping goes behind what was sent before it; it used to overtake it, so that its pong proved nothing."""
        self._pongs.append(asyncio.get_running_loop().create_future() if future is None else future)
        await self._send_command(PING_PROTO)
        await self._flush_pending()

    async def _process_pong(self) -> None:
        """A pong for a ping that nobody waits for any more is no reason to die."""
        if self._pongs and self._pongs[0].done():
            del self._pongs[0]
            self._pings_outstanding = 0
            return
        await super()._process_pong()

    async def _read_loop(self) -> None:
        """A reader that ended for any reason, while we count as connected, means a new connection."""
        await super()._read_loop()
        task = asyncio.current_task()
        is_cancelled = task is not None and task.cancelling() > 0
        if self.is_connected and task is self._reading_task and not is_cancelled:
            await self._process_op_err(errors.UnexpectedEOF())

    async def _attempt_reconnect(self) -> None:
        """Reconnecting goes on after errors that nobody foresaw (a damaged credentials file, for one)."""
        while not self.is_closed:
            try:
                await super()._attempt_reconnect()
            except Exception as error:  # noqa: BLE001 -- recorded, reported and tried again: the loop is the handler
                self._err = errors.Error(f"{type(error).__name__} while reconnecting: {error}")
                await self._error_cb(self._err)
                await asyncio.sleep(self.options["reconnect_time_wait"])
            else:
                return

    @property
    def is_reading(self) -> bool:
        """Is the connection up and its reader alive? `is_connected` alone says yes with a dead reader."""
        return self.is_connected and self._reading_task is not None and not self._reading_task.done()

    async def abandon(self) -> None:
        """Free what a failed first connect left behind."""
        self._status = Client.CLOSED
        for task in (self._reading_task, self._ping_interval_task, self._flusher_task):
            if task is not None:
                task.cancel()
        writer: Any = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def subscription_id(self, subscription: Subscription) -> int:
        """The key of a subscription in `on_malformed`."""
        return subscription._id  # noqa: SLF001 -- nats-py has no public name for it
