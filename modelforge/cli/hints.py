"""What to type next, with the real names in it. A hint that cannot be found out is a general one, never an error.

A hint is a promise: a probe is suggested only where one can run, an approval only where one is missing, and what is
proven already is shown instead of proven again.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from bus import verbs
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.api import AssessmentsRequest, ById, Page
from bus.states import PROBE
from modelforge import format as text
from modelforge.cli.names import versioned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bus.messages.artifacts import ArtifactSet, ScanView
    from bus.messages.gates import Approval, Assessment, ProbeView, Purpose
    from bus.messages.profiles import ProfileView
    from bus.operator import Operator

_NEWEST: Final = Page(limit=200)
_NEWEST_ASSESSMENTS: Final = AssessmentsRequest(limit=200)
_SHOWN_MAX: Final = 3
_NO_LONGER: Final[dict[Purpose, str]] = {
    "pickle": "the pickle files block every assessment",
    "quarantine_release": "the quarantined files block every assessment",
    "production": "nothing may be taken into production",
}
# Gates that an assessment is held up at, and what is done there.
_GATES: Final[dict[ErrorCode, str]] = {
    ErrorCode.NOT_APPROVED: "Review the assessment, then approve the set",
    ErrorCode.ASSESSMENT_BLOCKED: "Read the blockers and fix each",
    ErrorCode.ASSESSMENT_STALE: "Mend what changed",
}
_LOOK: Final = "modelforge assess list"
# Failures after which the same probe may simply be queued again.
_AGAIN: Final = frozenset({ErrorCode.CANCELLED, ErrorCode.ATTEMPTS_EXHAUSTED, ErrorCode.DEADLINE_EXCEEDED})


def can_probe(one: Assessment) -> bool:
    """Could a probe of it run at all, in this version and on its node?"""
    if any(finding.code == "PROBE_NOT_AVAILABLE" for finding in one.findings):
        return False
    return one.declared is None or (one.declared.executable and not one.declared.inspect_only)


def _holds(one: Assessment) -> bool:
    return one.verdict != "blocked" and not one.stale_because


async def after_scan(operator: Operator, view: ScanView, found: ArtifactSet | None = None) -> tuple[str, ...]:
    """A set is assessed for a profile; without one, that comes first."""
    if view.set_digest is None:
        return ()
    here = [] if found is None else [place for place in found.locations if place.node == view.node]
    path = view.path if len(here) > 1 else None
    try:
        profiles = (await operator.call(verbs.PROFILES_LIST, _NEWEST)).profiles
    except ModelForgeError:
        return (_assess(view.set_digest, "PROFILE", view.node, path),)
    if not profiles:
        return ("modelforge profile create NAME", _assess(view.set_digest, "NAME", view.node, path))
    newest = _assess(view.set_digest, f"{profiles[0].profile.name}@{profiles[0].version}", view.node, path)
    return (newest, "modelforge profile list") if len(profiles) > 1 else (newest,)


async def after_profile(operator: Operator, view: ProfileView) -> tuple[str, ...]:
    """The newest set is assessed for it, where that lies; without any set, a folder is scanned."""
    try:
        sets = (await operator.call(verbs.ARTIFACTS_LIST, Page(limit=2))).sets
    except ModelForgeError:
        return ("modelforge artifact list",)
    lies = [one for one in sets if one.locations]
    if not lies:
        return ("modelforge artifact scan PATH",)
    first = _assess(lies[0].digest, f"{view.profile.name}@{view.version}", lies[0].locations[0].node)
    return (first, "modelforge artifact list") if len(sets) > 1 else (first,)


def _assess(digest: str, profile: str, node: str, path: str | None = None) -> str:
    place = f" --path {shlex.quote(path)}" if path is not None else ""
    return f"modelforge assess {text.short(digest)} --profile {profile} --node {node}{place}"


def scan_again(path: str, node: str) -> str:
    """Read a place once more."""
    return f"modelforge artifact scan {shlex.quote(path)} --node {node}"


def assess_again(one: Assessment) -> str:
    """The same question once more, about the same place unless the set lies there no longer."""
    moved = any(said.startswith("set location changed") for said in one.stale_because)
    return _assess(one.set_digest, versioned(one), one.node, None if moved else one.location)


def mend(one: Assessment) -> str:
    """What makes a stale assessment hold again: another one, or a scan first where the place was found corrupt."""
    corrupt = any(said.startswith("set integrity changed") and " to corrupt" in said for said in one.stale_because)
    return scan_again(one.location, one.node) if corrupt and one.location is not None else assess_again(one)


def _approve(digest: str, *, can_ask: bool) -> str:
    return f"modelforge approve add {text.short(digest) if can_ask else digest} --reason WHY"


def _probe(one: Assessment) -> str:
    return f"modelforge probe queue {one.id} --wait"


def _proven(one: Assessment) -> str:
    """What the proof of an assessment became."""
    if one.proof is None or one.proof.candidate_id is None:
        return f"modelforge assess show {one.id}"
    return f"modelforge candidate show {one.proof.candidate_id}"


async def lab_approved(operator: Operator, one: Assessment) -> bool:
    """Is one of its approvals the one that a probe needs? `False` when that cannot be found out."""
    if not one.approvals:
        return False
    try:
        known = (await operator.call(verbs.APPROVALS_LIST, _NEWEST)).approvals
    except ModelForgeError:
        return False
    return any(found.id in one.approvals and found.purpose == "lab_execution" for found in known)


def after_assessment(made: Assessment, *, can_ask: bool, lab: bool) -> tuple[str, ...]:
    """Read and mend what is blocked; show what is proven; approve what is not approved, and probe what can be probed.

    `can_ask`: a person can type the confirmation that the beginning of a digest needs; a script names all of it.
    `lab`: it has the approval that a probe needs.
    """
    if made.verdict == "blocked":
        return (f"modelforge assess show {made.id}",)
    if made.proof is not None:
        return (_proven(made),)
    if not can_probe(made):
        return ()
    return (_probe(made),) if lab else (_approve(made.set_digest, can_ask=can_ask), _probe(made))


async def after_approval(operator: Operator, approval: Approval, *, can_ask: bool = False) -> tuple[str, ...]:
    """What the approval lets through, and what must come before a probe that it does not let through."""
    if approval.purpose == "production":
        return ()
    try:
        found = (await operator.call(verbs.ASSESSMENTS_LIST, _NEWEST_ASSESSMENTS)).assessments
    except ModelForgeError:
        return (_LOOK,)
    of_set = [one for one in found if one.set_digest == approval.set_digest]
    if not of_set:
        return (await _assess_somewhere(operator, approval.set_digest),)
    if approval.purpose == "lab_execution":
        return _after_lab(of_set)
    newest = of_set[0]
    if not _holds(newest):
        return (mend(newest),)
    return after_assessment(newest, can_ask=can_ask, lab=await lab_approved(operator, newest))


def _after_lab(of_set: Sequence[Assessment]) -> tuple[str, ...]:
    """A probe of the newest assessment that allows one; else another assessment, where what was assessed changed."""
    current = [one for one in of_set if _holds(one)]
    for one in current:
        if can_probe(one) and one.proof is None:
            return (_probe(one),)
    proven = next((one for one in current if one.proof is not None), None)
    if current:
        return (_proven(proven),) if proven is not None else ()
    newest = next((one for one in of_set if one.stale_because), of_set[0])
    return (mend(newest) if newest.stale_because else f"modelforge assess show {newest.id}",)


async def _assess_somewhere(operator: Operator, digest: str) -> str:
    """The first assessment of a set: for the newest profile, where the set lies; general words for what is unknown."""
    profile, node = "PROFILE", "NODE"
    try:
        profiles = (await operator.call(verbs.PROFILES_LIST, _NEWEST)).profiles
        if profiles:
            profile = f"{profiles[0].profile.name}@{profiles[0].version}"
        places = (await operator.call(verbs.ARTIFACTS_SHOW, ById(id=digest))).locations
        node = places[0].node if places else node
    except ModelForgeError:
        return _assess(digest, profile, node)
    return _assess(digest, profile, node)


async def after_revocation(operator: Operator, approval: Approval) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a revoked approval no longer lets through, in sentences; and the commands that make sense now."""
    digest = text.short(approval.set_digest)
    try:
        found = (await operator.call(verbs.ASSESSMENTS_LIST, _NEWEST_ASSESSMENTS)).assessments
        approvals = (await operator.call(verbs.APPROVALS_LIST, _NEWEST)).approvals
    except ModelForgeError:
        return (), ()
    same = (approval.set_digest, approval.purpose)
    others = [one.id for one in approvals if (one.set_digest, one.purpose) == same and one.revoked_at is None]
    if others:
        return (f"{others[0]} still approves the same set for the same purpose: nothing is blocked",), ()
    of_set = [one for one in found if one.set_digest == approval.set_digest]
    if approval.purpose == "lab_execution":
        ready = [one.id for one in of_set if _holds(one) and can_probe(one)]
        blocked = f": {_listed(ready)} cannot be queued" if ready else ""
        lost = (f"no probe of set {digest} is queued any more{blocked}", "a probe that is under way goes on")
        return lost, ((_approve(approval.set_digest, can_ask=False),) if ready else ())
    stale = [one for one in of_set if one.stale_because]
    said = [f"{_NO_LONGER[approval.purpose]} of set {digest}"] if stale or approval.purpose == "production" else []
    if stale:
        said.append(f"stale now: {_listed([one.id for one in stale])}")
    return tuple(said), tuple(mend(one) for one in stale[:1])


def _listed(ids: list[str]) -> str:
    shown = ", ".join(ids[:_SHOWN_MAX])
    return f"{shown} and {len(ids) - _SHOWN_MAX} more" if len(ids) > _SHOWN_MAX else shown


async def refused(operator: Operator, error: ModelForgeError, assessment: str) -> ModelForgeError:
    """Why a probe was not queued, with the command that mends it in place of the table's general one."""
    if error.code not in _GATES:
        return error
    try:
        one = await operator.call(verbs.ASSESSMENTS_SHOW, ById(id=assessment))
    except ModelForgeError:
        return error
    command = {
        ErrorCode.NOT_APPROVED: _approve(one.set_digest, can_ask=False),
        ErrorCode.ASSESSMENT_BLOCKED: f"modelforge assess show {one.id}",
        ErrorCode.ASSESSMENT_STALE: mend(one),
    }[error.code]
    hint = f"{_GATES[error.code]}: `{command}`."
    return ModelForgeError(error.code, error.message, hint=hint, **error.context)


def after_probe(view: ProbeView) -> tuple[str, ...]:
    """A candidate is shown; a failure is read and mended where it lies; what still runs is watched."""
    if not PROBE.is_terminal(view.state):
        return (f"modelforge probe watch {view.id}",)
    if view.candidate_id is not None:
        return (f"modelforge candidate show {view.candidate_id}",)
    if view.failure is None:
        return ()
    assess = _assess(view.set_digest, view.profile_name, view.node)
    log = (f"modelforge probe log {view.id}",) if view.log_ref is not None else ()
    code = view.failure.code
    if code == ErrorCode.ARTIFACT_CHANGED:
        return (scan_again(view.location, view.node), assess)
    if code in _AGAIN:
        return (f"modelforge probe queue {view.assessment_id} --wait",)
    if code == ErrorCode.RUNTIME_INCOMPATIBLE:
        return (f"modelforge environment show {view.node}", assess, *log)
    if code == ErrorCode.NODE_FAULT:
        return ("modelforge doctor", *log)
    return log or (f"modelforge probe show {view.id}",)
