"""What only time decides: leases that ran out, attempts and deadlines that are used up, nodes that fell silent.

Each sweep is one bounded transaction. The first one runs after every active lease was extended at the start.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from controller import jobs, leases
from controller.blobs import BlobStore
from controller.liveness import Liveness, classify
from controller.settings import ControllerSettings
from controller.store import nodes
from controller.store.connection import Store
from controller.store.nodes import Silence
from controller.store.rows import optional_time
from controller.store.tx import Tx

MAX_SWEEP_ROWS: Final = 200
MAX_NODES: Final = 2_000
_log: Final = logging.getLogger("controller.sweeps")


class Sweeper:
    """Runs the sweeps."""

    def __init__(self, store: Store, settings: ControllerSettings, blobs: BlobStore) -> None:
        self._blobs = blobs
        self._blobs_at_s = 0.0
        self._store = store
        self._settings = settings
        self._silence = Silence(doubtful_after_s=settings.doubtful_after_s, offline_after_s=settings.offline_after_s)
        self._liveness: dict[str, Liveness] = {}

    async def extend(self) -> int:
        """Once, at the start: nobody could renew while the controller was away. How many leases were extended."""
        return await self._store.write(lambda tx: leases.extend_all(tx, self._settings.lease_ttl_s))

    async def step(self) -> None:
        """Sweep once, then wait for the interval.

        Raises:
            ModelForgeError: STORE_UNAVAILABLE; the next sweep finds the same.
        """
        await self._store.write(sweep)
        await self.watch_nodes()
        await self.sweep_blobs()
        await asyncio.sleep(self._settings.sweep_interval_s)

    async def watch_nodes(self) -> None:
        """Audit and tell every change of a node's liveness since the last look; the liveness itself is stored nowhere."""
        words = await self._store.read(self._words)
        changed = [name for name, word in words.items() if self._liveness.get(name, word) != word]
        if changed:
            await self._store.write(lambda tx: _tell_liveness(tx, changed, self._silence))
        self._liveness = words

    async def sweep_blobs(self) -> None:
        """Now and then, remove payloads that were never used, or were used just before a crash.

        Raises:
            ModelForgeError: STORE_UNAVAILABLE.
        """
        if time.monotonic() >= self._blobs_at_s:
            removed = await self._blobs.sweep(self._settings.blob_keep_s)
            self._blobs_at_s = time.monotonic() + self._settings.blob_sweep_s
            if removed:
                _log.info("%d payloads that nobody used were removed", removed)

    def _words(self, tx: Tx) -> dict[str, Liveness]:
        silence = self._silence
        return {
            row["name"]: classify(
                optional_time(row["last_seen_at"]),
                tx.at,
                doubtful_after_s=silence.doubtful_after_s,
                offline_after_s=silence.offline_after_s,
            )
            for row in tx.all("boots.last_seen", limit=MAX_NODES)
        }


def sweep(tx: Tx) -> list[str]:
    """Expire what ran out and end what cannot go on; the ids of the jobs that ended (spec P4, F5)."""
    tx.audit_left_out()
    ended: list[str] = []
    for row in tx.all("jobs.past_deadline", at=tx.at, limit=MAX_SWEEP_ROWS):
        job = jobs.job_of(row)
        jobs.give_up(tx, job, jobs.deadline_exceeded(job))
        ended.append(job.id)
    for row in tx.all("leases.overdue", at=tx.at, limit=MAX_SWEEP_ROWS):
        held = jobs.find(tx, row["job_id"])
        if held is None:
            continue
        jobs.expire_lease(tx, held, jobs.lease_of(row))
        if held.attempt_count >= held.max_attempts and not held.terminal:
            jobs.give_up(tx, held, jobs.attempts_exhausted(held))
            ended.append(held.id)
    return ended


def _tell_liveness(tx: Tx, names: list[str], silence: Silence) -> None:
    for name in names:
        view = nodes.view(tx, name, silence)
        tx.audit("node", name, view.liveness, jobs.CONTROLLER, node=view)
