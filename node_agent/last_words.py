"""The last word of an attempt that has nothing to show but the reason of its end."""

from __future__ import annotations

from bus.errors import ErrorCode, Failure
from bus.ids import log_ref
from bus.messages.evidence import ProbeFinished, ScanFinished
from bus.messages.jobs import AnyJob, ScanJob
from bus.states import ProbeState
from node_agent.reporter import Reporter


def without_evidence(job: AnyJob, reporter: Reporter, failure: Failure) -> ProbeFinished | ScanFinished:
    """The report of a failed attempt; of a probe it goes through `unloading`, as every end does (spec P8)."""
    if isinstance(job, ScanJob):
        return ScanFinished(**reporter.head(), outcome=_outcome(failure), failure=failure)  # type: ignore[arg-type]  # literals
    reporter.phase(ProbeState.UNLOADING)
    head = reporter.head()
    return ProbeFinished(
        **head,
        timeline=reporter.timeline,
        outcome=_outcome(failure),  # type: ignore[arg-type]  # one of two literals
        evidence=None,
        failure=failure,
        log_ref=log_ref(head["node"], job.job_id, head["attempt"]),
    )


def _outcome(failure: Failure) -> str:
    return "cancelled" if failure.code == ErrorCode.CANCELLED else "failed"
