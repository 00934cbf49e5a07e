"""What all handlers of the service share: the process around them, and how much of a list one message may hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

from bus.codec import encode
from bus.messages import api
from bus.messages.jobs import AnyCommand
from bus.subjects import Caller
from controller.blobs import BlobStore
from controller.progress import ProgressBoard
from controller.settings import ControllerSettings
from controller.store.connection import Store

T = TypeVar("T")
MAX_LIST_ITEMS: Final = 1_000
# A reply must fit one message of the bus (1 MiB) with its envelope.
MAX_LIST_BYTES: Final = 768 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class BusStatus:
    """What the controller knows of the bus and of itself, see `bus.messages.api.Status`."""

    streams: dict[str, str] = field(default_factory=dict)
    metrics_url: str | None = None
    faults: dict[str, int] = field(default_factory=dict)
    bus_events: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiContext:
    """What the handlers need of the process around them.

    Attributes:
        publish_command: sends a hint to a node; may be lost, so it never carries the truth.
        status: the bus as the controller sees it now.
        blobs, progress: large payloads that wait to be used, and how far the running scans are.
    """

    store: Store
    settings: ControllerSettings
    boot_id: str
    started_at: datetime
    publish_command: Callable[[str, AnyCommand], Awaitable[None]]
    status: Callable[[], BusStatus]
    blobs: BlobStore
    progress: ProgressBoard


Handler = Callable[[ApiContext, Caller, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """What of a list fits the request's limit and one message; what is left out is the oldest, and it is said."""

    items: tuple[T, ...]
    truncated: bool


def bounded(items: Iterable[T], limit: int, max_bytes: int = MAX_LIST_BYTES) -> Part[T]:
    """As many items as `limit` allows and `max_bytes` hold, the newest first. Give one more than `limit` to be told."""
    kept: list[T] = []
    size = 0
    for item in items:
        size += len(encode(item)) + 1
        if size > max_bytes or len(kept) >= limit:
            return Part(tuple(kept), truncated=True)
        kept.append(item)
    return Part(tuple(kept), truncated=False)


def limit_of(page: api.Page | api.AuditRequest | api.AssessmentsRequest) -> int:
    """How many items a list may have at most."""
    return min(page.limit, MAX_LIST_ITEMS)
