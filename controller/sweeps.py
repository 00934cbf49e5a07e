"""What only time decides: leases that ran out, attempts and deadlines that are used up, nodes that fell silent.

Each sweep is one bounded transaction. The first one runs after every active lease was extended at the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from bus.messages.inventory import NodeView
from bus.states import LeaseState
from controller import jobs, leases
from controller.liveness import Liveness
from controller.settings import ControllerSettings
from controller.store import nodes
from controller.store.connection import Store
from controller.store.nodes import Silence
from controller.store.tx import Tx
from observability.counters import Counters, Operation, Outcome

MAX_SWEEP_ROWS: Final = 200
MAX_NODES: Final = 2_000
_OPERATIONS: Final = {"probe": Operation.PROBE, "scan": Operation.SCAN}


class Sweeper:
    """Runs the sweeps; `on_ended` is called when a job was ended."""

    def __init__(
        self, store: Store, settings: ControllerSettings, counters: Counters, on_ended: Callable[[], None]
    ) -> None:
        self._store = store
        self._settings = settings
        self._counters = counters
        self._on_ended = on_ended
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
        ended = await self._store.write(sweep)
        for job_type, outcome in ended:
            self._counters.count(_OPERATIONS[job_type], outcome)
        if ended:
            self._on_ended()
        await self.watch_nodes()
        await asyncio.sleep(self._settings.sweep_interval_s)

    async def watch_nodes(self) -> None:
        """Tell the bus of every node whose liveness changed since the last look; nothing of it is stored."""
        views = await self._store.read(lambda tx: nodes.list_views(tx, MAX_NODES, self._silence))
        changed = [view for view in views if self._liveness.get(view.name, view.liveness) != view.liveness]
        if changed:
            await self._store.write(lambda tx: _tell_liveness(tx, changed))
        self._liveness = {view.name: view.liveness for view in views}


def sweep(tx: Tx) -> list[tuple[str, Outcome]]:
    """Expire what ran out and end what cannot go on; the type of each job that ended, and how (spec P4, F5)."""
    ended: list[tuple[str, Outcome]] = []
    for row in tx.all("jobs.past_deadline", at=tx.at, limit=MAX_SWEEP_ROWS):
        job = jobs.job_of(row)
        jobs.give_up(tx, job, jobs.deadline_exceeded(job))
        ended.append((job.type, Outcome.EXPIRED))
    for row in tx.all("leases.overdue", at=tx.at, limit=MAX_SWEEP_ROWS):
        lease, job_or_none = jobs.lease_of(row), jobs.find(tx, row["job_id"])
        if job_or_none is None or lease.state is not LeaseState.ACTIVE:
            continue
        jobs.expire_lease(tx, job_or_none, lease)
        if job_or_none.attempt_count >= job_or_none.max_attempts and not job_or_none.terminal:
            jobs.give_up(tx, job_or_none, jobs.attempts_exhausted(job_or_none))
            ended.append((job_or_none.type, Outcome.FAILED))
    return ended


def _tell_liveness(tx: Tx, changed: list[NodeView]) -> None:
    for view in changed:
        tx.audit("node", view.name, view.liveness, jobs.CONTROLLER, node=view)
