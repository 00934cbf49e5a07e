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

from adapters.registry import find, installed_version
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.evidence import ProbeFinished
from bus.messages.gates import RuntimeProfile
from bus.messages.jobs import ProbeJob
from bus.states import ProbeState
from node_agent.attempt import guarded
from node_agent.claims import Lease
from node_agent.measure.nvml import Discovery
from node_agent.measure.reclaim import Ending
from node_agent.probe_record import ProbeRecord, what_failed
from node_agent.probe_sampler import ProbeSampler
from node_agent.probe_steps import Place, ProbeSteps
from node_agent.reporter import Reporter, fitted
from node_agent.scrub import Scrub
from node_agent.waiting import monotonic_deadline
from node_agent.worker import ChildFactory

TERM_GRACE_S: Final = 2.0
# What was measured is worth telling even when the job's own time is just over.
REPORT_GRACE_S: Final = 60.0
Outcome = Literal["completed", "failed", "cancelled"]
_log = logging.getLogger(__name__)


class ProbeRunner:
    """Runs probes with children of one factory, below one artifact root."""

    def __init__(
        self,
        factory: ChildFactory,
        *,
        node: str,
        artifact_root: Path,
        scratch: Path,
        hash_threads: int,
        cards: Callable[[], Discovery],
        test_double: bool = False,
    ) -> None:
        """`cards` may block for a moment; `test_double` as in the factory's settings."""
        self._factory = factory
        self._node = node
        self._artifact_root = artifact_root
        self._scratch = scratch
        self._hash_threads = hash_threads
        self._cards = cards
        self._test_double = test_double

    async def run(self, job: ProbeJob, lease: Lease, reporter: Reporter) -> None:
        """Run every step, end the child, look at the memory, and report; nothing is reported once the lease is over.

        Raises:
            ModelForgeError: why the lease was over.
        """
        scratch = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="probe-", dir=self._scratch))
        try:
            message = await self._attempt(job, lease, reporter, scratch)
        finally:
            await asyncio.to_thread(_remove, scratch)
        loop = asyncio.get_running_loop()
        until_s = max(monotonic_deadline(job.deadline_at), loop.time() + REPORT_GRACE_S)
        await reporter.finish(message, until_s=until_s)

    async def _attempt(self, job: ProbeJob, lease: Lease, reporter: Reporter, scratch: Path) -> ProbeFinished:
        began = time.perf_counter()
        sampler = ProbeSampler(job.profile, await asyncio.to_thread(self._cards))
        record = ProbeRecord(
            profile=job.profile,
            adapter_version=self._adapter_version(job.profile),
            samples=sampler.samples,
            gpu_reason=sampler.gpu_reason,
        )
        place = Place(artifact_root=self._artifact_root, scratch=scratch, hash_threads=self._hash_threads)
        steps = ProbeSteps(job, self._factory, place, record, sampler, reporter.phase)
        try:
            failure = await self._run_steps(steps, job, lease)
            # Also a failure before the load and a cancellation go through here: reclaim is always checked (spec P8, P10).
            reporter.phase(ProbeState.UNLOADING)
            unended = await self._end(steps, sampler, record, job.profile)
        finally:
            # Whatever happened, the child must be gone before the next attempt begins.
            await steps.end_child(0.0)
        if lease.end is not None:
            raise lease.end
        record.total_ms = (time.perf_counter() - began) * 1_000
        return self._message(job, lease, reporter, steps, record, failure or unended)

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
        except ModelForgeError as error:
            return error
        child = steps.child
        if child is not None:
            status = await child.wait(0.0)
            ending = Ending(process_gone=child.gone, exit_status=status.text if status is not None else "still running")
            record.reclaim = await sampler.reclaim(ending, child.pid, wait_s=profile.budgets.unloading_s)
        return None

    def _message(
        self,
        job: ProbeJob,
        lease: Lease,
        reporter: Reporter,
        steps: ProbeSteps,
        record: ProbeRecord,
        failure: ModelForgeError | None,
    ) -> ProbeFinished:
        scrub = Scrub({"artifacts": self._artifact_root, "scratch": self._scratch})
        evidence = record.evidence(scrub)
        failure = failure or what_failed(evidence)
        outcome: Outcome = "completed"
        if failure is not None:
            outcome = "cancelled" if failure.code is ErrorCode.CANCELLED else "failed"
        _log.info("probe %s %s%s", job.job_id, outcome, f": {failure}" if failure else "")
        log = steps.child.log if steps.child is not None else None
        return fitted(
            ProbeFinished(
                **reporter.head(),
                timeline=reporter.timeline,
                outcome=outcome,
                evidence=evidence,
                failure=scrub.failure(failure.to_failure()) if failure else None,
                log_ref=f"runtime-worker://{self._node}/{job.job_id}/attempt/{lease.attempt}",
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


def _remove(scratch: Path) -> None:
    shutil.rmtree(scratch, ignore_errors=True)
    if scratch.exists():
        _log.warning("a scratch folder could not be removed")
