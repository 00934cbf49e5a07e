"""What a transaction's closure gets: named queries, one moment, and the two ways to say something to the bus."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from bus import ids, subjects
from bus.codec import encode
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.events import Event
from bus.messages.gates import ProbeView
from bus.messages.inventory import NodeView
from bus.text import clean_line, redact
from controller.store import queries
from controller.store.quota import Quota
from controller.store.rows import Row, bind, json_text, time_text

MAX_DETAIL_CHARS = 2_000
MAX_DETAILS = 32
MAX_ID_CHARS = 128
MAX_WORD_CHARS = 64


class Tx:
    """One transaction on the writer's or reader's thread; never kept after its closure has ended.

    Attributes:
        at: the one moment of this transaction, UTC.
        wrote_outbox: does the bus have to hear of this transaction?
    """

    def __init__(self, connection: sqlite3.Connection, quota: Quota | None = None) -> None:
        self._connection = connection
        self._quota = quota or Quota()
        self.at: datetime = ids.now()
        self.wrote_outbox = False

    def _execute(self, query: str, parameters: Mapping[str, Any]) -> sqlite3.Cursor:
        sql = queries.load().get(query)
        if sql is None:
            raise ModelForgeError(ErrorCode.INTERNAL, f"there is no query named {query!r}")
        return self._connection.execute(sql, bind(parameters))

    def run(self, query: str, **parameters: Any) -> int:
        """Run a statement; the number of rows that it changed."""
        return self._execute(query, parameters).rowcount

    def one(self, query: str, **parameters: Any) -> Row | None:
        """The first row of a query, or `None`."""
        row: Row | None = self._execute(query, parameters).fetchone()
        return row

    def all(self, query: str, **parameters: Any) -> list[Row]:
        """All rows of a query; the query itself bounds their number."""
        return self._execute(query, parameters).fetchall()

    def audit(
        self,
        entity: str,
        entity_id: str,
        what: str,
        actor: str,
        *,
        detail: Mapping[str, object] | None = None,
        probe: ProbeView | None = None,
        node: NodeView | None = None,
    ) -> int:
        """Append one audit row and, in this same transaction, the event that tells the bus of it (spec G6).

        Id and details are bounded and cleaned here, whoever they come from: the trail is never shortened again.

        Returns:
            The audit sequence: it grows by one with every event, without gaps.
        """
        entity_id = clean_line(entity_id, MAX_ID_CHARS)
        facts = {
            clean_line(key, MAX_WORD_CHARS): redact(clean_line(str(value), MAX_DETAIL_CHARS))
            for key, value in list((detail or {}).items())[:MAX_DETAILS]
        }
        cursor = self._execute(
            "audit.insert",
            {
                "at": self.at,
                "entity": entity,
                "id": entity_id,
                "what": what,
                "actor": actor,
                "detail": json_text(facts),
            },
        )
        sequence = cursor.lastrowid
        if sequence is None:
            raise ModelForgeError(ErrorCode.INTERNAL, "the audit row got no sequence")
        event = Event(
            sequence=sequence,
            at=self.at,
            entity=entity,
            id=entity_id,
            what=what,
            actor=actor,
            detail=facts,
            probe=probe,
            node=node,
        )
        self._put("event", subjects.event(entity, entity_id, what), encode(event), dedupe_id=f"audit-{sequence}")
        return sequence

    def audit_refusal(self, entity: str, entity_id: str, what: str, node: str, *, detail: Mapping[str, object]) -> None:
        """Audit what a node was refused, within its quota: a flood of them must not fill the ledger."""
        if self._quota.admit(node, what, self.at):
            self.audit(entity, entity_id, what, f"node:{node}", detail=detail)

    def audit_left_out(self) -> None:
        """Audit how many refusals were left out of the trail, once their window is over."""
        for found in self._quota.due(self.at):
            detail = {"what": found.what, "count": found.count, "since": time_text(found.since)}
            self.audit("node", found.node, "refusals-left-out", "controller", detail=detail)

    def put_job(self, *, node: str, lane: subjects.Lane, job_id: str, payload: bytes) -> None:
        """Put a job into the outbox. No dedupe id: a job that is published again must not be swallowed."""
        self._put("job", subjects.job(node, lane, job_id), payload, job_id=job_id)

    def _put(
        self,
        topic: str,
        subject: str,
        payload: bytes,
        *,
        dedupe_id: str | None = None,
        job_id: str | None = None,
    ) -> None:
        self._execute(
            "outbox.insert",
            {
                "topic": topic,
                "subject": subject,
                "dedupe_id": dedupe_id,
                "job_id": job_id,
                "payload": payload,
                "created_at": self.at,
            },
        )
        self.wrote_outbox = True
