"""One attempt of one probe: its steps, its end in every case, and the evidence of it (spec P6, P10, P13)."""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import msgspec

from adapters.registry import find, installed_version
from bus.errors import ErrorCode, ModelForgeError
from bus.ids import log_ref
from bus.messages.evidence import Evidence, ProbeFinished
from bus.messages.jobs import ProbeJob
from bus.messages.profiles import RuntimeEnvironment, RuntimeProfile
from bus.proof import what_is_unproven
from bus.states import ProbeState
from node_agent.attempt import fault_of, guarded
from node_agent.blobs import fetch_manifest
from node_agent.claims import Lease
from node_agent.controller_api import ControllerApi
from node_agent.last_words import without_evidence
from node_agent.measure.nvml import Discovery
from node_agent.measure.reclaim import Ending
from node_agent.probe_record import ProbeRecord
from node_agent.probe_sampler import ProbeSampler
from node_agent.probe_steps import Place, ProbeSteps
from node_agent.reporter import Reporter, fitted, report_until_s
from node_agent.scrub import Scrub
from node_agent.waiting import monotonic_deadline
from node_agent.worker import ChildFactory

TERM_GRACE_S: Final = 2.0
Outcome = Literal["completed", "failed", "cancelled"]
_log = logging.getLogger(__name__)


class ProbeRunner:
    """Runs probes with children of one factory, below one artifact root."""

    def __init__(
        self,
        factory: ChildFactory,
        *,
        api: ControllerApi,
        artifact_root: Path,
        scratch: Path,
        hash_threads: int,
        cards: Callable[[], Discovery],
        environment: Callable[[], RuntimeEnvironment],
        test_double: bool = False,
    ) -> None:
        """`cards` and `environment` may block for a moment; `test_double` as in the factory's settings."""
        self._factory = factory
        self._api = api
        self._artifact_root = artifact_root
        self._scratch = scratch
        self._hash_threads = hash_threads
        self._cards = cards
        self._environment = environment
        self._scrub = Scrub({"artifacts": artifact_root, "scratch": scratch})
        self._test_double = test_double

    async def run(self, job: ProbeJob, lease: Lease, reporter: Reporter) -> None:
        """Run every step, end the child, look at the memory, and report; nothing is reported once the lease is over.

        A fault of the node, before, in or after the steps, is reported too: typed, as the end of this attempt.

        Raises:
            ModelForgeError: why the lease was over.
        """
        try:
            message: Evidence = await self._in_scratch(job, lease, reporter)
        except Exception as error:
            if lease.end is not None:
                raise
            message = without_evidence(job, reporter, self._scrub.failure(fault_of(error).to_failure()))
        await reporter.finish(message, until_s=report_until_s(job.deadline_at))

    async def _in_scratch(self, job: ProbeJob, lease: Lease, reporter: Reporter) -> ProbeFinished:
        scratch = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="probe-", dir=self._scratch))
        try:
            return await self._attempt(job, lease, reporter, scratch)
        finally:
            await asyncio.to_thread(_remove, scratch)

    async def _attempt(self, job: ProbeJob, lease: Lease, reporter: Reporter, scratch: Path) -> ProbeFinished:
        began = time.perf_counter()
        sampler = ProbeSampler(job.profile, await asyncio.to_thread(self._cards))
        record = ProbeRecord(
            profile=job.profile,
            adapter_version=self._adapter_version(job.profile),
            samples=sampler.samples,
            gpu_reason=sampler.gpu_reason,
        )
        place = Place(
            artifact_root=self._artifact_root,
            scratch=scratch,
            hash_threads=self._hash_threads,
            environment=self._environment,
        )
        steps = ProbeSteps(
            job,
            self._factory,
            place,
            record,
            sampler,
            reporter.phase,
            lambda: fetch_manifest(self._api, lease, job),
        )
        try:
            failure = await self._run_steps(steps, job, lease)
            # Also a failure before the load and a cancellation go through here: reclaim is always checked (spec P8, P10).
            reporter.phase(ProbeState.UNLOADING)
            unended = await self._end(steps, sampler, record, job.profile)
        except BaseException:
            # Whatever happened, the child must be gone before the next attempt begins.
            await _end_silently(steps)
            raise
        if lease.end is not None:
            raise lease.end
        record.total_ms = (time.perf_counter() - began) * 1_000
        return self._message(job, reporter, steps, record, failure or unended)

    async def _run_steps(self, steps: ProbeSteps, job: ProbeJob, lease: Lease) -> ModelForgeError | None:
        """All steps, within the probe's whole time; the failure, or `None`. Raises why the lease is over."""
        left_s = monotonic_deadline(job.deadline_at) - asyncio.get_running_loop().time()
        try:
            await guarded(steps.run(), lease, total_s=min(job.profile.budgets.total_s, left_s))
        except ModelForgeError as error:
            if lease.end is not None:
                raise
            return error
        return None

    async def _end(
        self, steps: ProbeSteps, sampler: ProbeSampler, record: ProbeRecord, profile: RuntimeProfile
    ) -> ModelForgeError | None:
        """End the child and look whether everything came back; why that could not be done, or `None`."""
        try:
            await steps.end_child(TERM_GRACE_S)
            child = steps.child
            if child is not None:
                status = await child.wait(0.0)
                how = status.text if status is not None else "still running"
                ending = Ending(process_gone=child.gone, exit_status=how)
                record.reclaim = await sampler.reclaim(ending, child.pid, wait_s=profile.budgets.unloading_s)
        except Exception as error:  # noqa: BLE001 -- what was measured before is still reported, with this as the failure
            return fault_of(error)
        return None

    def _message(
        self,
        job: ProbeJob,
        reporter: Reporter,
        steps: ProbeSteps,
        record: ProbeRecord,
        failure: ModelForgeError | None,
    ) -> ProbeFinished:
        scrub = self._scrub
        evidence = record.evidence(scrub)
        failure = failure or what_is_unproven(evidence, reporter.timeline)
        outcome: Outcome = "completed"
        if failure is not None:
            outcome = "cancelled" if failure.code is ErrorCode.CANCELLED else "failed"
        _log.info("probe %s %s%s", job.job_id, outcome, f": {failure}" if failure else "")
        log = steps.child.log if steps.child is not None else None
        head = reporter.head()
        return whole_or_reason(
            ProbeFinished(
                **head,
                timeline=reporter.timeline,
                outcome=outcome,
                evidence=evidence,
                failure=scrub.failure(failure.to_failure()) if failure else None,
                log_ref=log_ref(head["node"], job.job_id, head["attempt"]),
                log_text=scrub.text(log.text()) if log else "",
                log_dropped_bytes=log.dropped_bytes if log else 0,
            )
        )

    def _adapter_version(self, profile: RuntimeProfile) -> str:
        try:
            entry = find(profile.adapter, test_double=self._test_double)
        except ModelForgeError:  # the step that starts the child says so, typed
            return "not installed"
        return installed_version(entry.distribution) or "not installed"


def whole_or_reason(message: ProbeFinished) -> ProbeFinished:
    """`message`, made to fit the bus; evidence that is too large even without a log is left out, and that is said."""
    try:
        return fitted(message)
    except ModelForgeError as error:
        _log.error("the evidence of probe %s does not fit: %s", message.job_id, error)
        outcome: Outcome = "failed" if message.outcome == "completed" else message.outcome
        failure = message.failure or error.to_failure()
        return fitted(msgspec.structs.replace(message, evidence=None, outcome=outcome, failure=failure))


async def _end_silently(steps: ProbeSteps) -> None:
    """End the child of an attempt that is over already: why it is over must not be lost to a second trouble."""
    try:
        await steps.end_child(0.0)
    except ModelForgeError as error:
        _log.error("a child may be left: %s", error)


def _remove(scratch: Path) -> None:
    shutil.rmtree(scratch, ignore_errors=True)
    if scratch.exists():
        _log.warning("a scratch folder could not be removed")
