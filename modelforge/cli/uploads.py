"""A payload that is too large for a message: sent in chunks, from where the controller already is."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from bus import verbs
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.artifacts import BlobRef
from bus.messages.blobs import MAX_BLOB_BYTES, MAX_CHUNK_BYTES, BlobPut, BlobState
from modelforge.cli.patience import Patience, patiently

if TYPE_CHECKING:
    from collections.abc import Callable

    from bus.operator import Operator
    from modelforge.cli.output import Progress

# Each answer must bring the upload on; a controller that forgets it starts it over, and only so often.
RESTARTS_MAX: Final = 3


async def upload(
    operator: Operator, data: bytes, progress: Progress, *, told: Callable[[int], None] | None = None
) -> BlobRef:
    """Send `data` and return what to name it by. A chunk that arrives twice changes nothing, so each is sent patiently.

    `told` hears how many bytes the controller has.

    Raises:
        ModelForgeError: INVALID_ARGUMENT when it is too large or empty, BLOB_REFUSED when the controller does not get
            on with it, and what the controller answered.
    """
    if not 0 < len(data) <= MAX_BLOB_BYTES:
        message = f"{len(data)} bytes cannot be sent: a list has at least one and at most {MAX_BLOB_BYTES}"
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, message)
    blob = BlobRef(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))
    patience = Patience(progress)

    async def put(offset: int, piece: bytes) -> BlobState:
        request = BlobPut(blob=blob, offset=offset, data=piece)
        return await patiently(lambda: operator.call(verbs.BLOBS_PUT, request), patience)

    state, restarts = await put(0, b""), 0
    while not state.complete:
        at = state.received_bytes
        if told is not None:
            told(at)
        state = await put(at, data[at : at + MAX_CHUNK_BYTES])
        if not state.complete and state.received_bytes <= at:
            restarts += 1
            if restarts > RESTARTS_MAX:
                message = f"the upload does not get on: {state.received_bytes} of {len(data)} bytes were taken"
                raise ModelForgeError(ErrorCode.BLOB_REFUSED, message)
    return blob
