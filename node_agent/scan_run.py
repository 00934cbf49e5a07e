"""One attempt of one scan: read the folder, report the set (spec P1)."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from bus.codec import encode
from bus.digest import canonical_json
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.evidence import ScanFinished
from bus.messages.jobs import ScanJob
from node_agent.artifact_hash import Watch
from node_agent.artifact_root import too_large
from node_agent.artifact_scan import Scanned, scan_folder
from node_agent.attempt import guarded, in_thread
from node_agent.claims import Lease
from node_agent.reporter import MAX_EVIDENCE_BYTES, Reporter, report_until_s
from node_agent.scrub import Scrub
from node_agent.waiting import monotonic_deadline

_log = logging.getLogger(__name__)


class ScanRunner:
    """Runs scans below one artifact root."""

    def __init__(self, root: Path, *, threads: int) -> None:
        self._root = root
        self._threads = threads
        self._scrub = Scrub({"artifacts": root})

    async def run(self, job: ScanJob, lease: Lease, reporter: Reporter) -> None:
        """Scan, and report the outcome; nothing is reported once the lease is over.

        Raises:
            ModelForgeError: why the lease was over.
        """
        total_s = monotonic_deadline(job.deadline_at) - asyncio.get_running_loop().time()
        try:
            scanned = await guarded(self._scan(job), lease, total_s=total_s)
            message = _succeeded(scanned, reporter)
        except ModelForgeError as error:
            if lease.end is not None:
                raise
            message = self._failed(error, reporter)
        await reporter.finish(message, until_s=report_until_s(job.deadline_at))

    async def _scan(self, job: ScanJob) -> Scanned:
        watch = Watch(threads=self._threads)
        return await in_thread(
            watch,
            lambda: scan_folder(self._root, job.path, max_files=job.max_files, watch=watch, accept=refuse_too_large),
        )

    def _failed(self, error: ModelForgeError, reporter: Reporter) -> ScanFinished:
        outcome = "cancelled" if error.code is ErrorCode.CANCELLED else "failed"
        _log.info("scan %s: %s", outcome, error)
        return ScanFinished(
            **reporter.head(),
            outcome=outcome,  # type: ignore[arg-type]  # one of two literals
            failure=self._scrub.failure(error.to_failure()),
        )


def _succeeded(scanned: Scanned, reporter: Reporter) -> ScanFinished:
    """The set as it is reported.

    Raises:
        ModelForgeError: SCAN_TOO_LARGE when it does not fit into one message.
    """
    message = ScanFinished(
        **reporter.head(),
        outcome="succeeded",
        manifest_json=canonical_json(scanned.manifest).decode(),
        evidence_json=encode(scanned.evidence).decode(),
    )
    _check_size(scanned, len(encode(message)))
    return message


def refuse_too_large(scanned: Scanned) -> None:
    """Will the report of `scanned` fit into one message? Asked before the files are hashed, which may take minutes.

    Raises:
        ModelForgeError: SCAN_TOO_LARGE when it will not.
    """
    texts = (canonical_json(scanned.manifest).decode(), encode(scanned.evidence).decode())
    _check_size(scanned, len(encode(texts)))


def _check_size(scanned: Scanned, size_bytes: int) -> None:
    if size_bytes > MAX_EVIDENCE_BYTES:
        raise too_large(
            f"{len(scanned.manifest.files)} files make a report of {size_bytes} bytes, more than {MAX_EVIDENCE_BYTES}"
        )
