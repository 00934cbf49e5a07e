"""What to type next, with the real names in it. A hint that cannot be found out is a general one, never an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bus import verbs
from bus.errors import ModelForgeError
from bus.messages.api import AssessmentsRequest, Page
from modelforge import format as text

if TYPE_CHECKING:
    from bus.messages.artifacts import ScanView
    from bus.messages.gates import Approval
    from bus.operator import Operator

_NEWEST: Final = Page(limit=200)
_NEWEST_ASSESSMENTS: Final = AssessmentsRequest(limit=200)


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


async def after_approval(operator: Operator, approval: Approval) -> tuple[str, ...]:
    """A probe of the set's newest assessment that allows one; nothing is executed on an approval for anything else."""
    if approval.purpose != "lab_execution":
        return ()
    try:
        found = (await operator.call(verbs.ASSESSMENTS_LIST, _NEWEST_ASSESSMENTS)).assessments
    except ModelForgeError:
        return ("modelforge probe queue ASSESSMENT --wait",)
    for one in found:
        if one.set_digest == approval.set_digest and one.verdict == "compatible" and not one.stale_because:
            return (f"modelforge probe queue {one.id} --wait",)
    return (f"modelforge assess {text.short(approval.set_digest)} --profile PROFILE",)
