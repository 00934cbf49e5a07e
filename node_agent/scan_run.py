"""One attempt of one scan: let its process read the folder, send what is large ahead, report the set (spec P1)."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import msgspec

from bus.codec import encode
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.artifacts import BlobRef, ScanProgress
from bus.messages.blobs import MAX_INLINE_BYTES
from bus.messages.evidence import ScanFinished
from bus.messages.jobs import ScanJob
from node_agent import blobs
from node_agent.attempt import guarded
from node_agent.claims import Lease
from node_agent.controller_api import ControllerApi
from node_agent.digest_keeper import DigestKeeper
from node_agent.hash_cache import HashCache
from node_agent.reporter import MAX_EVIDENCE_BYTES, Reporter, report_until_s
from node_agent.scan_host import ScanFound, ScanPlace, run_scan
from node_agent.scan_progress import ProgressSender
from node_agent.scrub import Scrub
from node_agent.waiting import monotonic_deadline

# A text in a message: its quotes are escaped, and the head and the counters of the message come beside it.
_HEAD_BYTES: Final = 4 * 1024
# What of a job's time is left for the report to get through: this share, and of a long job no more than these seconds.
_REPORTING: Final = 0.05
_REPORTING_S: Final = 300.0
_log = logging.getLogger(__name__)


class ScanRunner:
    """Runs scans below one artifact root."""

    def __init__(self, api: ControllerApi, place: ScanPlace, cache: HashCache | None = None) -> None:
        self._api = api
        self._place = place
        self._cache = cache
        self._scrub = Scrub({"artifacts": place.root, "scratch": place.scratch})

    async def run(self, job: ScanJob, lease: Lease, reporter: Reporter) -> None:
        """Scan, and report the outcome; nothing is reported once the lease is over.

        Raises:
            ModelForgeError: why the lease was over.
        """
        total_s = monotonic_deadline(job.deadline_at) - asyncio.get_running_loop().time()
        try:
            reading_s = total_s - min(total_s * _REPORTING, _REPORTING_S)
            message = await guarded(self._scan(job, lease, reporter, reading_s), lease, total_s=total_s)
        except ModelForgeError as error:
            if lease.end is not None:
                raise
            message = self._failed(error, reporter)
        await reporter.finish(message, until_s=report_until_s(job.deadline_at))

    async def _scan(self, job: ScanJob, lease: Lease, reporter: Reporter, budget_s: float) -> ScanFinished:
        cache = None if self._cache is None or job.fresh else self._cache.folder
        async with ProgressSender(self._api, lease) as sender:
            # However the scan ends: what was read to the end need not be read again by the next one.
            async with DigestKeeper(self._cache) as keeper:
                found = await run_scan(
                    self._place,
                    job,
                    cache=cache,
                    budget_s=budget_s,
                    progress=sender.offer,
                    remember=keeper.offer,
                )
            total = found.files_hashed + found.files_cached
            sender.offer(ScanProgress(step="reporting", files_done=total, files_total=total))
            parts = {"manifest": found.manifest, "evidence": found.evidence}
            sent = {name: await blobs.put(self._api, lease, parts[name]) for name in too_large_to_inline(parts)}
        return _succeeded(found, sent, reporter)

    def _failed(self, error: ModelForgeError, reporter: Reporter) -> ScanFinished:
        outcome = "cancelled" if error.code is ErrorCode.CANCELLED else "failed"
        _log.info("scan %s: %s", outcome, error)
        return ScanFinished(
            **reporter.head(),
            outcome=outcome,  # type: ignore[arg-type]  # one of two literals
            failure=self._scrub.failure(error.to_failure()),
        )


def too_large_to_inline(parts: dict[str, bytes]) -> list[str]:
    """Which of these texts travel as blobs: each that is large for itself, and then the largest until the rest fits."""
    sizes = {
        name: len(data) if len(data) > MAX_INLINE_BYTES else len(encode(data.decode())) for name, data in parts.items()
    }
    ahead = [name for name, size in sizes.items() if size > MAX_INLINE_BYTES]
    left = sorted((name for name in sizes if name not in ahead), key=lambda name: sizes[name])
    while left and sum(sizes[name] for name in left) > MAX_EVIDENCE_BYTES - _HEAD_BYTES:
        ahead.append(left.pop())
    return ahead


def _succeeded(found: ScanFound, sent: dict[str, BlobRef], reporter: Reporter) -> ScanFinished:
    message = ScanFinished(
        **reporter.head(),
        outcome="succeeded",
        files_hashed=found.files_hashed,
        files_cached=found.files_cached,
    )
    for name, data in (("manifest", found.manifest), ("evidence", found.evidence)):
        blob = sent.get(name)
        fields = {f"{name}_json": data.decode()} if blob is None else {f"{name}_blob": blob}
        message = msgspec.structs.replace(message, **fields)
    return message
