"""The controller's large payloads: taken in chunks, kept until they were used, forgotten when they never are.

One thread does all the work on the disk, one call after the other: that is the one writer of the folder. The event
loop only waits, and a caller who stops waiting leaves no half of a change behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from bus.errors import ErrorCode, ModelForgeError
from bus.messages.artifacts import BlobRef
from bus.messages.blobs import BlobState
from bus.subjects import Caller
from controller.blob_files import BlobFiles, BlobLimits, Place
from controller.settings import ControllerSettings

T = TypeVar("T")
MIB: Final = 1024 * 1024
# Two for each scan that a node may work on at once, with room for those of attempts that were lost.
MAX_CALLER_BLOBS: Final = 64
# Where a user's payloads lie; a node's lie under the lease that they are for.
USER_SHELF: Final = "requests"
_log: Final = logging.getLogger("controller.blobs")


def place_of(caller: Caller, lease_id: str | None = None) -> Place:
    """Where a payload of this caller lies: his own folder, which no other caller's words lead to."""
    return Place(f"{caller.role}-{caller.name}", USER_SHELF if lease_id is None else lease_id)


def node_place(node: str, lease_id: str) -> Place:
    """Where a node's payload under this lease lies."""
    return Place(f"node-{node}", lease_id)


class BlobStore:
    """See the module. `close` must be reached, so that the thread ends."""

    def __init__(self, folder: Path, limits: BlobLimits) -> None:
        self._files = BlobFiles(folder, limits)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="blobs")

    @classmethod
    def of(cls, settings: ControllerSettings) -> BlobStore:
        """The store of a controller with these settings."""
        limits = BlobLimits(
            caller_bytes=settings.blob_caller_mib * MIB,
            caller_blobs=MAX_CALLER_BLOBS,
            total_bytes=settings.blob_total_mib * MIB,
        )
        return cls(settings.blobs, limits)

    async def put(self, place: Place, blob: BlobRef, offset: int, data: bytes) -> BlobState:
        """Take one chunk; the reply counts only what is on the disk.

        Raises:
            ModelForgeError: BLOB_REFUSED, STORE_UNAVAILABLE.
        """
        return await self._run(lambda: self._files.put(place, blob, offset, data))

    async def read(self, place: Place, blob: BlobRef) -> bytes:
        """The whole payload, checked against its digest.

        Raises:
            ModelForgeError: BLOB_REFUSED when it is missing, unfinished or broken; STORE_UNAVAILABLE.
        """
        return await self._run(lambda: self._files.read(place, blob))

    async def forget(self, place: Place, blob: BlobRef | None = None) -> None:
        """Remove what was used: all that was sent for this lease, or one payload. What stays by a fault, a sweep takes."""
        try:
            await self._run(lambda: self._files.forget(place, blob))
        except ModelForgeError as error:
            _log.warning("the payloads of %s are removed later: %s", place.owner, error)

    async def sweep(self, keep_s: float) -> int:
        """Remove what nobody touched for `keep_s`, in seconds; how many files that were.

        Raises:
            ModelForgeError: STORE_UNAVAILABLE.
        """
        return await self._run(partial(self._files.sweep, keep_s))

    def close(self) -> None:
        """End the thread after what it does now; a later call is refused."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            future = self._thread.submit(work)
        except RuntimeError as error:
            raise ModelForgeError(ErrorCode.STORE_UNAVAILABLE, "the controller is ending") from error
        return await asyncio.wrap_future(future)
