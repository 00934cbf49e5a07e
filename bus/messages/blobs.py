"""Payloads larger than a message: sent to the controller in chunks, and fetched from it by range (design section 4).

A blob is named by the SHA-256 of its bytes, so a chunk that arrives twice or an upload that begins again changes
nothing. The controller keeps a blob until it has been used, and forgets an upload that was never finished.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from bus.messages.artifacts import BlobRef, Digest, ScanProgress
from bus.messages.base import Natural, Positive, Record, Token

# Larger payloads leave their message and travel as a blob.
MAX_INLINE_BYTES: Final = 256 * 1024
# JSON carries bytes as base64, a third longer: a chunk with its envelope stays far below the bus's 1 MiB.
MAX_CHUNK_BYTES: Final = 384 * 1024
MAX_BLOB_BYTES: Final = 32 * 1024 * 1024

Chunk = Annotated[bytes, msgspec.Meta(max_length=MAX_CHUNK_BYTES)]


class BlobPut(Record, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One chunk of a blob, at `offset` bytes from its beginning; an empty one asks how much is there."""

    blob: BlobRef
    offset: Natural
    data: Chunk = b""


class BlobState(Record, frozen=True, kw_only=True):
    """How much of a blob the controller has; the next chunk begins there. `complete`: all of it, and its digest fits."""

    received_bytes: Natural
    complete: bool


class NodeBlobPut(Record, frozen=True, kw_only=True):
    """As `BlobPut`, under the lease for which the blob is sent."""

    boot_id: Token
    lease_id: Token
    token: Token
    blob: BlobRef
    offset: Natural
    data: Chunk = b""


class NodeBlobGet(Record, frozen=True, kw_only=True):
    """The manifest of the set that the leased job names, from `offset` on."""

    boot_id: Token
    lease_id: Token
    token: Token
    digest: Digest
    offset: Natural


class BlobChunk(Record, frozen=True, kw_only=True):
    """Some of a blob's bytes, and how many it has in all."""

    data: Chunk
    total_bytes: Positive


class ProgressReport(Record, frozen=True, kw_only=True):
    """How far the leased scan is; sent at most twice a second, and lost without harm."""

    boot_id: Token
    lease_id: Token
    token: Token
    progress: ScanProgress


class Noted(Record, frozen=True, kw_only=True):
    """It was heard."""
