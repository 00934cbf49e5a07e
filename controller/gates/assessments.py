"""The second gate: a static assessment of a set under a profile on a node (spec G1, A1, A2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from adapters.inspect.registry import inspect
from adapters.inspect.subject import Inspection, NodeFacts, Subject
from bus import ids
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.api import AssessRequest
from bus.messages.artifacts import SetLocation
from bus.messages.gates import Assessment, Estimate, Purpose
from bus.messages.inventory import NodeView
from bus.messages.profiles import ProfileView
from bus.subjects import Caller
from controller import facts
from controller.fingerprint import Now, location_of
from controller.gates.artifact_sets import relative_path
from controller.gates.caller import actor_of
from controller.gates.expectations import shown
from controller.store import approvals, assessments, estimates, nodes, probes, profiles, quarantines, sets
from controller.store.nodes import Silence
from controller.store.tx import Tx

# What an inspector may ask for; the gate itself looks at the others.
PURPOSES: Final[tuple[Purpose, ...]] = ("pickle", "quarantine_release")


def create(tx: Tx, silence: Silence, caller: Caller, request: AssessRequest) -> Assessment:
    """Assess and store; the verdict, the facts that it rests on and their fingerprint stand together.

    All of it is about one place of the set on the node: that at `request.location`, else the first by name that is
    not corrupt, else the first. A probe of this assessment loads from there and from nowhere else (spec P5).

    Raises:
        ModelForgeError: UNKNOWN_ID, AMBIGUOUS_ID, NODE_UNKNOWN; PATH_NOT_FOUND when the set does not lie at the place
            that was asked for; PATH_OUTSIDE_ROOT or INVALID_ARGUMENT when no set can.
    """
    digest = sets.find(tx, request.set_digest)
    profile = profiles.find(tx, request.profile)
    node = nodes.view(tx, request.node, silence)
    inventory = facts.inventory_of(node)
    place = _place(tx, digest, node.name, request.location)
    inspection = inspect(_subject(tx, digest, profile, node, place))
    now = Now(tx)
    current = now.current(digest, profile.id, node.name, None if place is None else place.path)
    assessment = Assessment(
        id=ids.new_id(ids.ASSESSMENT),
        set_digest=digest,
        profile_id=profile.id,
        profile_name=profile.profile.name,
        profile_version=profile.version,
        location=None if place is None else place.path,
        node=node.name,
        environment_id=current.facts[facts.ENVIRONMENT],
        adapter=profile.profile.adapter,
        adapter_version=current.facts["adapter version"],
        fingerprint=current.fingerprint,
        verdict=inspection.verdict,
        findings=inspection.findings,
        estimate=_with_history(tx, inspection.estimate, digest, profile, node.name),
        facts=current.facts,
        created_at=tx.at,
        created_by=caller.name,
        hardware=inventory.hardware,
        declared=inspection.declared,
        approvals=approvals.valid_ids(tx, digest),
    )
    assessments.insert(tx, assessment)
    tx.audit("assessment", assessment.id, "created", actor_of(caller), detail=_detail(assessment, inspection))
    return with_proofs(tx, (assessment,), now)[0]


def show(assessment: Assessment, now: Now) -> Assessment:
    """The assessment as it stands now: what made it stale, and the approvals that are valid at this moment.

    Version and place are said from the ledger: assessments on record that are older than these fields have them, too.
    """
    return msgspec.structs.replace(
        assessment,
        profile_version=now.profile(assessment.profile_id).version,
        location=location_of(assessment),
        stale_because=now.stale_because(assessment),
        approvals=now.approvals(assessment.set_digest),
    )


def with_proofs(tx: Tx, listed: Iterable[Assessment], now: Now) -> tuple[Assessment, ...]:
    """The assessments, each with what a completed probe proved under exactly the facts that hold now (spec A2).

    The proof stands beside the verdict and does not change it: the verdict is what static analysis said.
    """
    found = [(assessment, now.of(assessment).fingerprint) for assessment in listed]
    proven = probes.proofs(tx, {fingerprint for _, fingerprint in found})
    return tuple(
        msgspec.structs.replace(assessment, proof=proven.get(fingerprint)) for assessment, fingerprint in found
    )


def brief(assessment: Assessment) -> Assessment:
    """As a list shows it: without the snapshots and the notes, with which 200 would not fit one message."""
    weighty = tuple(found for found in assessment.findings if found.severity != "note")
    return msgspec.structs.replace(assessment, facts={}, hardware=None, declared=None, findings=weighty)


def _place(tx: Tx, digest: str, node: str, wanted: str | None) -> SetLocation | None:
    """The place to assess; `None` when the set lies nowhere on the node and no place was asked for."""
    path = None if wanted is None else relative_path(wanted)
    place = sets.place_on(tx, digest, node, path)
    if place is not None or path is None:
        return place
    known = [one.path for one in sets.locations(tx, digest) if one.node == node]
    where = f"on record there: {shown(known)}" if known else "it is on record nowhere there; scan the folder first"
    message = f"the set {digest} does not lie at {path} on {node}; {where}"
    raise ModelForgeError(ErrorCode.PATH_NOT_FOUND, message, set=digest, node=node, path=path)


def _subject(tx: Tx, digest: str, profile: ProfileView, node: NodeView, place: SetLocation | None) -> Subject:
    manifest, evidence = assessments.material(tx, digest)
    inventory = facts.inventory_of(node)
    return Subject(
        manifest=manifest,
        evidence=evidence,
        profile=profile.profile,
        environment=inventory.environment,
        hardware=inventory.hardware,
        node=NodeFacts(
            name=node.name,
            enabled=node.enabled,
            lab_eligible=node.lab_eligible,
            liveness=node.liveness,
            capabilities=inventory.capabilities,
        ),
        location=place.path if place is not None else None,
        approved=frozenset(purpose for purpose in PURPOSES if approvals.valid(tx, digest, purpose)),
        quarantined=quarantines.of_set(tx, digest),
        corrupt=facts.corruption(place) if place is not None and place.state == "corrupt" else None,
    )


def _with_history(
    tx: Tx, estimate: Estimate | None, set_digest: str, profile: ProfileView, node: str
) -> Estimate | None:
    if estimate is None:
        return None
    return msgspec.structs.replace(estimate, history=estimates.history(tx, set_digest, profile, node))


def _detail(assessment: Assessment, inspection: Inspection) -> dict[str, object]:
    blockers = [found.code for found in inspection.findings if found.severity == "blocker"]
    return {
        "set": assessment.set_digest,
        "profile": assessment.profile_id,
        "node": assessment.node,
        "location": assessment.location or facts.NONE,
        "fingerprint": assessment.fingerprint,
        "verdict": assessment.verdict,
        "blockers": ", ".join(blockers),
    }
