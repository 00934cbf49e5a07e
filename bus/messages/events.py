"""What the controller tells everybody: one event for each committed change."""

from __future__ import annotations

from bus.messages.base import Message, Moment, Record
from bus.messages.gates import ProbeView
from bus.messages.inventory import NodeView


class Event(Message, tag="event.v1", frozen=True, kw_only=True):
    """A committed change.

    `sequence` is the audit number in the ledger: it grows by one with every event, so that a reader sees a gap
    and asks for a fresh picture. `probe` or `node` carry the whole picture of the thing after the change.
    """

    sequence: int
    at: Moment
    entity: str
    id: str
    what: str
    actor: str
    detail: dict[str, str] = {}
    probe: ProbeView | None = None
    node: NodeView | None = None


class AuditEntry(Record, frozen=True, kw_only=True):
    """One line of the append-only audit trail (spec G6)."""

    sequence: int
    at: Moment
    entity: str
    id: str
    what: str
    actor: str
    detail: dict[str, str] = {}
