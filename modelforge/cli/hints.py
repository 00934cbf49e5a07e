"""What to type next, with the real names in it. A hint that cannot be found out is a general one, never an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bus import verbs
from bus.errors import ModelForgeError
from bus.messages.api import AssessmentsRequest, Page
from modelforge import format as text

if TYPE_CHECKING:
    from bus.messages.artifacts import ScanView
    from bus.messages.gates import Approval, Assessment, Purpose
    from bus.operator import Operator

_NEWEST: Final = Page(limit=200)
_NEWEST_ASSESSMENTS: Final = AssessmentsRequest(limit=200)
_SHOWN_MAX: Final = 3
_NO_LONGER: Final[dict[Purpose, str]] = {
    "pickle": "the pickle files block every assessment",
    "quarantine_release": "the quarantined files block every assessment",
    "production": "nothing may be taken into production",
}


async def after_scan(operator: Operator, view: ScanView) -> tuple[str, ...]:
    """A set is assessed for a profile; without one, that comes first."""
    if view.set_digest is None:
        return ()
    try:
        profiles = (await operator.call(verbs.PROFILES_LIST, _NEWEST)).profiles
    except ModelForgeError:
        return (_assess(view.set_digest, "PROFILE", view.node),)
    if not profiles:
        return ("modelforge profile create NAME", _assess(view.set_digest, "NAME", view.node))
    name = profiles[0].profile.name if len(profiles) == 1 else "PROFILE"
    return (_assess(view.set_digest, name, view.node),)


def _assess(digest: str, profile: str, node: str) -> str:
    return f"modelforge assess {text.short(digest)} --profile {profile} --node {node}"


def assess_again(one: Assessment) -> str:
    """The same question once more."""
    return _assess(one.set_digest, one.profile_name, one.node)


def after_assessment(made: Assessment, *, can_ask: bool) -> tuple[str, ...]:
    """Read and mend what is blocked; approve what is not, and probe it where a probe can run.

    `can_ask`: a person can type the confirmation that the beginning of a digest needs; a script names all of it.
    """
    if made.verdict == "blocked":
        return (f"modelforge assess show {made.id}",)
    if made.declared is not None and made.declared.inspect_only:
        return ()
    approve = f"modelforge approve add {text.short(made.set_digest) if can_ask else made.set_digest} --reason WHY"
    probe = f"modelforge probe queue {made.id} --wait"
    return (probe,) if made.approvals else (approve, probe)


async def after_approval(operator: Operator, approval: Approval) -> tuple[str, ...]:
    """What the approval lets through: a probe of the newest assessment that allows one, or another assessment."""
    if approval.purpose == "production":
        return ()
    try:
        found = (await operator.call(verbs.ASSESSMENTS_LIST, _NEWEST_ASSESSMENTS)).assessments
    except ModelForgeError:
        lab = approval.purpose == "lab_execution"
        return ("modelforge probe queue ASSESSMENT --wait",) if lab else (_assess_somewhere(approval.set_digest),)
    of_set = [one for one in found if one.set_digest == approval.set_digest]
    if approval.purpose == "lab_execution":
        for one in of_set:
            if one.verdict != "blocked" and not one.stale_because:
                return (f"modelforge probe queue {one.id} --wait",)
    return (assess_again(of_set[0]) if of_set else _assess_somewhere(approval.set_digest),)


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
        ready = [one.id for one in of_set if one.verdict != "blocked" and not one.stale_because]
        blocked = f": {_listed(ready)} cannot be queued" if ready else ""
        lost = (f"no probe of set {digest} is queued any more{blocked}", "a probe that is under way goes on")
        return lost, (f"modelforge approve add {approval.set_digest} --reason WHY",)
    stale = [one for one in of_set if one.stale_because]
    said = [f"{_NO_LONGER[approval.purpose]} of set {digest}"]
    if stale:
        said.append(f"stale now: {_listed([one.id for one in stale])}")
    return tuple(said), tuple(assess_again(one) for one in stale[:1])


def _listed(ids: list[str]) -> str:
    shown = ", ".join(ids[:_SHOWN_MAX])
    return f"{shown} and {len(ids) - _SHOWN_MAX} more" if len(ids) > _SHOWN_MAX else shown


def _assess_somewhere(digest: str) -> str:
    return f"modelforge assess {text.short(digest)} --profile PROFILE"
