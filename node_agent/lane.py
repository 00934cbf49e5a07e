"""The work lane: a free slot first, then exactly one message, its claim, and the work under its lease (spec D1)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from bus import subjects, verbs
from bus.client import BusClient
from bus.codec import decode
from bus.errors import ErrorCode, ModelForgeError
from bus.lease_puller import ConsumerGone, Delivered, LeasePuller
from bus.messages.api import RefuseRequest
from bus.messages.jobs import AnyJob, ProbeJob, ScanJob
from node_agent.attempt import fault_of
from node_agent.claims import Claims, Lease
from node_agent.controller_api import ControllerApi
from node_agent.last_words import without_evidence
from node_agent.reporter import Reporter, report_until_s
from node_agent.waiting import Backoff, end_tasks, is_transient

PULL_WAIT_S: Final = 30.0
REFUSE_TIMEOUT_S: Final = 5.0
# How long the ends of interrupted jobs may take: a kill ladder and a look at the memory.
END_LIMIT_S: Final = 30.0
# Leases of jobs whose last word the stream has and the controller has not read yet; beyond it the oldest run out.
MAX_UNREAD: Final = 256
_RETRY_DELAY_S: Final = 2.0
_UNWANTED_DELAY_S: Final = 30.0
_log = logging.getLogger(__name__)


class ScanPort(Protocol):
    """Whoever runs scans."""

    async def run(self, job: ScanJob, lease: Lease, reporter: Reporter) -> None:
        """Run one attempt and report its end; raises why the lease was over."""


class ProbePort(Protocol):
    """Whoever runs probes."""

    async def run(self, job: ProbeJob, lease: Lease, reporter: Reporter) -> None:
        """Run one attempt and report its end; raises why the lease was over."""


class WorkLane:
    """Pulls and runs jobs, at most as many as there are slots.

    Attributes:
        learn: told of every refusal of the controller, because it may be about this process itself.
        changed: called when a job begins or ends.
        scan_claimed: called when a scan was claimed; it returns at once and raises nothing.
    """

    def __init__(
        self, client: BusClient, api: ControllerApi, claims: Claims, scans: ScanPort, probes: ProbePort
    ) -> None:
        self.learn: Callable[[ModelForgeError], None] = lambda _: None
        self.changed: Callable[[], None] = lambda: None
        self.scan_claimed: Callable[[], None] = lambda: None
        self._client = client
        self._api = api
        self._boot = api.boot
        self._claims = claims
        self._scans = scans
        self._probes = probes
        self._tasks: set[asyncio.Task[None]] = set()
        self._claiming: set[asyncio.Task[None]] = set()
        self._unread: dict[asyncio.Task[None], Lease] = {}

    def puller(self) -> LeasePuller:
        """The puller of this node's own consumer."""
        consumer = subjects.lane_consumer(self._boot.node, subjects.Lane.WORK)
        return LeasePuller(self._client, subjects.JOBS_STREAM, consumer)

    async def pull_for_ever(self, puller: LeasePuller, *, slots: int, ack_wait_s: float) -> None:
        """Serve until cancelled; jobs that run then go on, see `end`."""
        free = asyncio.Semaphore(slots)
        backoff = Backoff(0.2, 5.0)
        while True:
            # The slot comes first: a message that waits here for a free hand would lose its lease.
            await free.acquire()
            delivered: Delivered | None = None
            pause_s = 0.0
            try:
                delivered = await puller.pull(PULL_WAIT_S)
                backoff.reset()
            except (ConsumerGone, ModelForgeError) as error:
                pause_s = backoff.next_s()
                _log.warning("no jobs can be pulled, trying again in %.1f s: %s", pause_s, error)
            except Exception:  # noqa: BLE001 -- logged whole; the jobs that run now are worth more than this pull
                pause_s = backoff.next_s()
                _log.exception("a defect of the agent: no jobs can be pulled, trying again in %.1f s", pause_s)
            if delivered is None:
                free.release()
                await asyncio.sleep(pause_s)
            else:
                self._start(delivered, ack_wait_s).add_done_callback(lambda _: free.release())

    async def end(self, grace_s: float) -> None:
        """Give back what is not claimed, let running jobs end within the grace, then end them.

        An ended job reports nothing: its lease runs out, and a successor of this process takes it up.
        """
        for task in tuple(self._claiming):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
        for lease in (*self._claims.active.values(), *self._unread.values()):
            lease.finish(ModelForgeError(ErrorCode.INTERRUPTED, "the agent stops"))
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=END_LIMIT_S)
            for task in late:
                _log.error("a job did not end in %.0f s", END_LIMIT_S)
                task.cancel()
        await end_tasks(*self._unread)

    def _start(self, delivered: Delivered, ack_wait_s: float) -> asyncio.Task[None]:
        task = asyncio.create_task(self._serve(delivered, ack_wait_s))
        for tasks in (self._tasks, self._claiming):
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        task.add_done_callback(_log_defect)
        return task

    async def _serve(self, delivered: Delivered, ack_wait_s: float) -> None:
        lease: Lease | None = None
        try:
            job = read_job(delivered, self._boot.node)
        except ModelForgeError as error:
            await self._refuse(delivered, error)
            return
        try:
            lease = await self._claims.claim(delivered, job.job_id, ack_wait_s=ack_wait_s)
        except ModelForgeError as error:
            _log.warning("job %s was not claimed: %s", job.job_id, error)
            self.learn(error)
            delay_s = _RETRY_DELAY_S if is_transient(error) else _UNWANTED_DELAY_S
            await self._claims.give_back(delivered.reply, delay_s)
        except asyncio.CancelledError:
            await self._claims.give_back(delivered.reply, 0)
            raise
        finally:
            self._claiming.difference_update({asyncio.current_task()})
        if lease is not None:
            await self._work(job, lease)

    async def _work(self, job: AnyJob, lease: Lease) -> None:
        _log.info("job %s begins: attempt %d under lease %s", job.job_id, lease.attempt, lease.id)
        keeper = asyncio.create_task(self._claims.keep(lease))
        reported = False
        self.changed()
        try:
            if lease.older is not None:
                await lease.older.done.wait()
            async with Reporter(self._client, lease, self._boot) as reporter:
                await self._run(job, lease, reporter)
            reported = lease.end is None
        except ModelForgeError as error:
            await self._left(lease, error)
        finally:
            if reported:
                self._keep_until_read(keeper, lease, report_until_s(job.deadline_at))
            else:
                keeper.cancel()
            self._claims.drop(lease)
            self.changed()

    def _keep_until_read(self, keeper: asyncio.Task[None], lease: Lease, until_s: float) -> None:
        """Let `keeper` renew until the controller says that the job has ended, at most until the loop's `until_s`.

        The last word lies in the stream; a controller that is behind by more than one TTL would take the silence for
        a death, and give the finished job out again. The slot is free meanwhile.
        """
        if len(self._unread) >= MAX_UNREAD:
            oldest = next(iter(self._unread))
            oldest.cancel()
            self._unread.pop(oldest)
        self._unread[keeper] = lease
        timer = asyncio.get_running_loop().call_at(until_s, keeper.cancel)
        keeper.add_done_callback(lambda _: timer.cancel())
        keeper.add_done_callback(lambda _: self._unread.pop(keeper, None))

    async def _run(self, job: AnyJob, lease: Lease, reporter: Reporter) -> None:
        """Let the runner do the work; what it fails with ends this job, typed, and nothing else.

        Raises:
            ModelForgeError: why the lease was over.
        """
        try:
            match job:
                case ScanJob():
                    self.scan_claimed()
                    await self._scans.run(job, lease, reporter)
                case ProbeJob():
                    await self._probes.run(job, lease, reporter)
        except Exception as error:
            if error is lease.end:
                raise
            failure = fault_of(error)
            if lease.end is not None:
                raise lease.end from error
            # Silence would burn every attempt that is left, and end as ATTEMPTS_EXHAUSTED: no word of what happened.
            _log.warning("job %s failed on this node: %s", job.job_id, failure)
            message = without_evidence(job, reporter, failure.to_failure())
            await reporter.finish(message, until_s=report_until_s(job.deadline_at))

    async def _left(self, lease: Lease, error: ModelForgeError) -> None:
        _log.warning("job %s was left: %s", lease.job_id, error)
        self.learn(error)
        if error.code is ErrorCode.INTERRUPTED:
            # The row of the lease lives on for the rest of its time; an earlier delivery would be refused.
            await self._claims.give_back(lease.delivery, max(0.0, lease.remaining_s))

    async def _refuse(self, delivered: Delivered, error: ModelForgeError) -> None:
        """Tell the controller that nobody here can do this job, whatever it was meant to be."""
        request = RefuseRequest(
            boot_id=self._boot.id,
            job_id=delivered.subject.rsplit(".", 1)[-1],
            delivery=delivered.reply,
            failure=error.to_failure(),
        )
        try:
            reply = await self._api.call(verbs.REFUSE, request, timeout_s=REFUSE_TIMEOUT_S)
            _log.warning("job %s was refused (%s): %s", request.job_id, reply.state, error)
        except ModelForgeError as problem:
            _log.warning("job %s could not be refused: %s", request.job_id, problem)
            self.learn(problem)
            await self._claims.give_back(delivered.reply, _RETRY_DELAY_S)


def read_job(delivered: Delivered, node: str) -> AnyJob:
    """The job of a delivery; its body must say what its subject says.

    Raises:
        ModelForgeError: MALFORMED_MESSAGE, UNKNOWN_KIND.
    """
    address = subjects.parse_job(delivered.subject)
    job: AnyJob = decode(delivered.data, AnyJob)
    if job.job_id != address.job_id or {job.node, address.node} != {node}:
        raise ModelForgeError(ErrorCode.MALFORMED_MESSAGE, "the job's body names another job or node than its subject")
    return job


def _log_defect(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a defect of the agent ended a job; its lease runs out", exc_info=error)
