"""Ledger against queue, in both directions: at start, on an interval, after a reconnect, when a stream is missing.

Acknowledgements are not fenced, publishes can have unknown outcomes, and the store of the server can be lost. This
loop is what makes "nothing lost, nothing twice" true (design section 4).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from bus import subjects
from bus.client import BusClient
from bus.streams import (
    StreamReport,
    delete_message,
    ensure_node_consumers,
    ensure_streams,
    last_message,
    list_subjects,
)
from controller import jobs
from controller.inventory import usable_slots
from controller.lease_rules import JobSnapshot
from controller.loops import Wake
from controller.settle import Settler, is_cut_off
from controller.store.connection import Store
from controller.store.tx import Tx

# A stream that is made again begins this far above anything ever recorded: also what was published but never
# recorded lies below, so no old acknowledgement can name a new message.
SEQUENCE_GAP: Final = 1_000_000
MAX_OPEN_JOBS: Final = 10_000
MAX_NODES: Final = 2_000
DEFAULT_SLOTS: Final = 2
_log: Final = logging.getLogger("controller.reconcile")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What differs between ledger and queue."""

    republish: tuple[str, ...]  # open jobs whose message is gone
    settle: tuple[str, ...]  # ended jobs whose message is still there
    unknown: tuple[str, ...]  # subjects of messages that belong to no job of the ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What the ledger says, read after the queue was listed: a job is committed before it is ever published."""

    jobs: Mapping[str, JobSnapshot]  # every open job, and every job that a listed subject names
    waiting: frozenset[str]  # jobs that the outbox is going to publish


def plan(listed: Collection[str], ledger: Ledger) -> Plan:
    """Compare the subjects that lie in the stream with the ledger."""
    present: set[str] = set()
    settle: list[str] = []
    unknown: list[str] = []
    for subject in sorted(listed):
        job = ledger.jobs.get(job_id_of(subject))
        if job is None or job.subject != subject:
            unknown.append(subject)
            continue
        present.add(job.id)
        if job.terminal:
            settle.append(job.id)
    republish = sorted(
        job.id for job in ledger.jobs.values()
        if not job.terminal and job.id not in present and job.id not in ledger.waiting
    )  # fmt: skip
    return Plan(republish=tuple(republish), settle=tuple(settle), unknown=tuple(unknown))


def job_id_of(subject: str) -> str:
    """The last token of a job's subject, whatever it looks like."""
    return subject.rsplit(".", 1)[-1]


class Reconciler:
    """Keeps streams, consumers, queue and ledger together; `streams` is its newest word on each stream."""

    def __init__(
        self, store: Store, client: BusClient, settler: Settler, *, interval_s: float, lease_ttl_s: float,
    ) -> None:  # fmt: skip
        self._store = store
        self._client = client
        self._settler = settler
        self._interval_s = interval_s
        self._lease_ttl_s = lease_ttl_s
        self._wake = Wake()
        self.streams: dict[str, str] = {}

    def request(self) -> None:
        """Something hints that ledger and queue differ: compare soon."""
        self._wake.set()

    async def step(self) -> None:
        """Wait for the interval or a request, then compare.

        Raises:
            ModelForgeError: NOT_CONNECTED, REQUEST_TIMEOUT, STORE_UNAVAILABLE; the next step begins anew.
        """
        await self._wake.wait(self._interval_s)
        try:
            faults = await self.run()
        except Exception:
            # What asked for this pass is not satisfied: the next step must not wait for the whole interval.
            self._wake.set()
            raise
        if faults:
            self._wake.set()
            raise faults[0]

    async def run(self) -> tuple[Exception, ...]:
        """One comparison and its repairs; what kept a single node or job from being repaired, after all were tried.

        Raises:
            ModelForgeError: NOT_CONNECTED, REQUEST_TIMEOUT, STORE_UNAVAILABLE: what concerns all of them.
        """
        faults = await self.ensure()
        listed = await list_subjects(self._client, subjects.JOBS_STREAM, subjects.JOBS_ALL)
        ledger = await self._store.read(lambda tx: _ledger(tx, listed))
        found = plan(listed, ledger)
        missing = await self._missing(ledger, found.republish)
        if missing:
            await self._store.write(lambda tx: _republish(tx, missing))
        for subject in (*found.unknown, *(ledger.jobs[job_id].subject for job_id in found.settle)):
            try:
                await self._take_away(subject, ledger)
            except Exception as error:
                if is_cut_off(error):
                    raise
                # Each is tried: one message that cannot be taken away holds up no other, nor the start.
                _log.warning("%s was not taken out of the stream: %s", subject, error)
                faults.append(error)
        return tuple(faults)

    async def ensure(self) -> list[Exception]:
        """Make and mend streams and every node's consumers; a stream that is made again begins above its mark.

        What one node's consumers failed with is noted as drift and returned; the other nodes get theirs.
        """
        marks = await self._store.read(_marks)
        above = {stream: mark + SEQUENCE_GAP for stream, mark in marks.items()}
        report = await ensure_streams(self._client, above)
        firsts = {name: above.get(name, 1) for name in report.created if "/" not in name}
        if firsts:
            _log.warning("made streams, beginning at these sequences: %s", firsts)
            # Also what is published but not yet recorded when the store is lost again lies below the next beginning.
            await self._store.write(lambda tx: _mark(tx, firsts))
        faults: list[Exception] = []
        for node, slots in await self._store.read(_nodes):
            try:
                lanes = await ensure_node_consumers(self._client, node, ack_wait_s=self._lease_ttl_s, slots=slots)
                report.drift += lanes.drift
            except Exception as error:
                if is_cut_off(error):
                    raise
                report.drift.append(f"{subjects.JOBS_STREAM}/{node}: its consumers cannot be made: {error}")
                faults.append(error)
        for drift in report.drift:
            _log.error("stream drift: %s", drift)
        self.streams = stream_words(report)
        return faults

    async def _missing(self, ledger: Ledger, job_ids: Collection[str]) -> list[str]:
        """Those whose message is really gone: the outbox may have published one since the queue was listed."""
        return [
            job_id
            for job_id in job_ids
            if await last_message(self._client, subjects.JOBS_STREAM, ledger.jobs[job_id].subject) is None
        ]

    async def _take_away(self, subject: str, ledger: Ledger) -> None:
        job = ledger.jobs.get(job_id_of(subject))
        if job is None or job.subject != subject:
            await self._delete_unknown(subject)
            return
        lease = await self._store.read(lambda tx: jobs.newest_lease(tx, job.id))
        await self._settler.settle(job, None if lease is None else lease.delivery)

    async def _delete_unknown(self, subject: str) -> None:
        stored = await last_message(self._client, subjects.JOBS_STREAM, subject)
        if stored is None:
            return
        detail = {"subject": subject, "sequence": str(stored.sequence)}
        await self._store.write(lambda tx: tx.audit("job", job_id_of(subject), "unknown-message-deleted",
                                                    jobs.CONTROLLER, detail=detail))  # fmt: skip
        await delete_message(self._client, subjects.JOBS_STREAM, stored.sequence)
        _log.error("deleted the message %s: the ledger knows no such job", subject)


def stream_words(report: StreamReport) -> dict[str, str]:
    """One word per stream for the status reply: `ok`, or how it differs."""
    words = dict.fromkeys(
        (subjects.JOBS_STREAM, subjects.EVIDENCE_STREAM, subjects.INVENTORY_STREAM, subjects.EVENTS_STREAM,
         subjects.ADVISORIES_STREAM), "ok",
    )  # fmt: skip
    for drift in report.drift:
        name = next((stream for stream in words if drift.startswith(stream)), drift)
        words[name] = f"drift: {drift}"
    return words


def _marks(tx: Tx) -> dict[str, int]:
    return {row["stream"]: row["max_sequence"] for row in tx.all("streams.marks")}


def _mark(tx: Tx, sequences: Mapping[str, int]) -> None:
    for stream, sequence in sequences.items():
        tx.run("streams.mark", stream=stream, sequence=sequence)


def _nodes(tx: Tx) -> list[tuple[str, int]]:
    found = []
    for row in tx.all("boots.all", limit=MAX_NODES):
        inventory = json.loads(row["inventory"]) if row["inventory"] else {}
        found.append((row["name"], usable_slots(inventory.get("slots", DEFAULT_SLOTS))))
    return found


def _ledger(tx: Tx, listed: Collection[str]) -> Ledger:
    known = {job.id: job for job in (jobs.job_of(row) for row in tx.all("jobs.open", limit=MAX_OPEN_JOBS))}
    for subject in listed:
        job = jobs.find(tx, job_id_of(subject))
        if job is not None:
            known[job.id] = job
    waiting = frozenset(row["job_id"] for row in tx.all("reconcile.waiting_jobs", limit=MAX_OPEN_JOBS))
    return Ledger(jobs=known, waiting=waiting)


def _republish(tx: Tx, job_ids: Collection[str]) -> None:
    """Put the jobs back into the outbox, unless they ended meanwhile."""
    for job_id in job_ids:
        job = jobs.find(tx, job_id)
        row = tx.one("jobs.by_id", id=job_id)
        if job is None or row is None or job.terminal:
            continue
        tx.put_job(node=job.node, lane=job.lane, job_id=job.id, payload=row["payload"].encode())
        jobs.tell(tx, job, "republished", jobs.CONTROLLER, attempt=job.attempt_count)
        _log.warning("the message of %s was gone: published again", job_id)
