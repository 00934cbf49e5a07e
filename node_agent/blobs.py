"""Payloads that are too large for a message: sent in chunks, fetched by range, under the lease of the job (design 4).

A chunk that was lost, or whose answer was lost, costs one question: the controller says how much it has, and the upload
goes on there, also with a controller that was started again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from bus import verbs
from bus.codec import decode
from bus.digest import PREFIX, sha256_hex
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.artifacts import BlobRef, Manifest
from bus.messages.blobs import MAX_BLOB_BYTES, MAX_CHUNK_BYTES, BlobChunk, BlobState, NodeBlobGet, NodeBlobPut
from bus.messages.jobs import ProbeJob
from node_agent.claims import Lease
from node_agent.controller_api import ControllerApi
from node_agent.waiting import Backoff, happened, is_transient

REQUEST_TIMEOUT_S: Final = 10.0
# In a row, without a byte of progress between them. With the pauses this is about a minute of a controller that is away.
MAX_FAILURES: Final = 20
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0
_log = logging.getLogger(__name__)
T = TypeVar("T")


async def put(api: ControllerApi, lease: Lease, data: bytes) -> BlobRef:
    """Send `data` to the controller under `lease`, and return its name; what is there already is not sent again.

    Raises:
        ModelForgeError: BLOB_REFUSED when it is empty or too large, or when the controller's answers make no sense; what
            the controller refuses with; the last error after `MAX_FAILURES` tries that brought nothing; why the lease
            was over.
    """
    blob = BlobRef(sha256=sha256_hex(data), size_bytes=len(data))
    if not 0 < len(data) <= MAX_BLOB_BYTES:
        raise _refused(f"a payload of {len(data)} bytes is not one of 1 to {MAX_BLOB_BYTES}")
    credentials = lease.credentials(api.boot.id)
    tries = _Tries(lease)

    async def send(offset: int, chunk: bytes) -> BlobState:
        request = NodeBlobPut(**credentials, blob=blob, offset=offset, data=chunk)
        return await api.call(verbs.BLOB_PUT, request, timeout_s=REQUEST_TIMEOUT_S)

    offset: int | None = None
    while True:
        # Without knowing how much is there, nothing is sent: an empty chunk asks.
        at = offset or 0
        chunk = data[at : at + MAX_CHUNK_BYTES] if offset is not None else b""
        state = await tries.one(partial(send, at, chunk))
        if state is None:
            offset = None
            continue
        if state.complete:
            return blob
        if state.received_bytes >= len(data):
            raise _refused(f"the controller has {state.received_bytes} of {len(data)} bytes, and they do not fit")
        if chunk and state.received_bytes > at:
            tries.worked()
        elif chunk:
            await tries.failed(_refused("the controller took no byte of a chunk"))
        offset = state.received_bytes


async def fetch_manifest(api: ControllerApi, lease: Lease, job: ProbeJob) -> Manifest:
    """The manifest of the set that `job` names, by ranges until it has `job.manifest_bytes`.

    Raises:
        ModelForgeError: BLOB_REFUSED when its length or its digest is another than the job says; what the controller
            refuses with; the last error after `MAX_FAILURES` tries that brought nothing; why the lease was over.
    """
    wanted = job.manifest_bytes
    if not 0 < wanted <= MAX_BLOB_BYTES:
        raise _refused(f"the job announces a manifest of {wanted} bytes; it is one of 1 to {MAX_BLOB_BYTES}")
    credentials = lease.credentials(api.boot.id)
    tries = _Tries(lease)
    data = bytearray()

    async def get() -> BlobChunk:
        request = NodeBlobGet(**credentials, digest=job.set_digest, offset=len(data))
        return await api.call(verbs.BLOB_GET, request, timeout_s=REQUEST_TIMEOUT_S)

    while len(data) < wanted:
        chunk = await tries.one(get)
        if chunk is None:
            continue
        if chunk.total_bytes != wanted or len(data) + len(chunk.data) > wanted:
            raise _refused(f"the manifest has {chunk.total_bytes} bytes, and the job announces {wanted}")
        if chunk.data:
            tries.worked()
            data += chunk.data
        else:
            await tries.failed(_refused("the controller sent no byte of the manifest"))
    digest = PREFIX + sha256_hex(bytes(data))
    if digest != job.set_digest:
        raise _refused(f"the manifest that was sent is the one of {digest}, and the job names {job.set_digest}")
    return decode(bytes(data), Manifest)


class _Tries:
    """Counts the tries that brought nothing, and pauses after each; a step forward begins the count again."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._failures = 0
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)

    def worked(self) -> None:
        self._failures = 0
        self._backoff.reset()

    async def one(self, call: Callable[[], Awaitable[T]]) -> T | None:
        """The answer to one call; `None` when it may be asked again. Raises when it may not."""
        if self._lease.end is not None:
            raise self._lease.end
        try:
            return await call()
        except ModelForgeError as error:
            if not is_transient(error):
                raise
            await self.failed(error)
            return None

    async def failed(self, error: ModelForgeError) -> None:
        """Wait before the next try; raises `error` when there were enough of them, or why the lease is over."""
        self._failures += 1
        if self._failures >= MAX_FAILURES:
            raise error
        _log.info("a part of a large payload did not get through, trying again: %s", error)
        if await happened(self._lease.ended, self._backoff.next_s()) and self._lease.end is not None:
            raise self._lease.end


def _refused(what: str) -> ModelForgeError:
    return ModelForgeError(ErrorCode.BLOB_REFUSED, what)
