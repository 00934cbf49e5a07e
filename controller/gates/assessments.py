"""The second gate: a static assessment of a set under a profile on a node (spec G1, A1, A2)."""

from __future__ import annotations

import msgspec

from adapters.inspect.registry import inspect
from adapters.inspect.subject import Inspection, NodeFacts, Subject
from bus import ids
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.api import AssessRequest
from bus.messages.artifacts import ArtifactSet
from bus.messages.gates import Assessment, Purpose
from bus.messages.inventory import NodeInventory, NodeView
from bus.messages.profiles import ProfileView
from bus.subjects import Caller
from controller import fingerprint
from controller.fingerprint import Now
from controller.gates.caller import actor_of
from controller.store import approvals, assessments, nodes, profiles, sets
from controller.store.nodes import Silence
from controller.store.tx import Tx


def create(tx: Tx, silence: Silence, caller: Caller, request: AssessRequest) -> Assessment:
    """Assess and store; the verdict, the facts that it rests on and their fingerprint stand together.

    Raises:
        ModelForgeError: UNKNOWN_ID, AMBIGUOUS_ID, NODE_UNKNOWN.
    """
    artifact = sets.get(tx, sets.find(tx, request.set_digest))
    profile = profiles.find(tx, request.profile)
    node = nodes.view(tx, request.node, silence)
    inventory = _inventory(node)
    pickle_approved = approvals.valid(tx, artifact.digest, "pickle") is not None
    inspection = inspect(_subject(tx, artifact, profile, node, inventory, pickle_approved=pickle_approved))
    facts = fingerprint.current_facts(tx, artifact.digest, profile.id, node.name)
    assessment = Assessment(
        id=ids.new_id(ids.ASSESSMENT),
        set_digest=artifact.digest,
        profile_id=profile.id,
        profile_name=profile.profile.name,
        node=node.name,
        environment_id=inventory.environment.digest(),
        adapter=profile.profile.adapter,
        adapter_version=facts["adapter version"],
        fingerprint=fingerprint.fingerprint_of(facts),
        verdict=inspection.verdict,
        findings=inspection.findings,
        estimate=inspection.estimate,
        facts=facts,
        created_at=tx.at,
        created_by=caller.name,
        approvals=approvals.valid_ids(tx, artifact.digest),
    )
    assessments.insert(tx, assessment)
    tx.audit("assessment", assessment.id, "created", actor_of(caller), detail=_detail(assessment, inspection))
    return assessment


def show(tx: Tx, assessment: Assessment, now: Now) -> Assessment:
    """The assessment as it stands now: what made it stale, and the approvals that are valid at this moment."""
    return msgspec.structs.replace(
        assessment,
        stale_because=now.stale_because(assessment),
        approvals=approvals.valid_ids(tx, assessment.set_digest),
    )


def _inventory(node: NodeView) -> NodeInventory:
    if node.inventory is None:
        raise ModelForgeError(ErrorCode.NODE_UNKNOWN, f"the node {node.name} has sent no inventory yet")
    return node.inventory


def _subject(
    tx: Tx,
    artifact: ArtifactSet,
    profile: ProfileView,
    node: NodeView,
    inventory: NodeInventory,
    *,
    pickle_approved: bool,
) -> Subject:
    if artifact.manifest is None or artifact.evidence is None:
        raise ModelForgeError(ErrorCode.INTERNAL, f"the set {artifact.digest} has no manifest or evidence")
    approved: frozenset[Purpose] = frozenset({"pickle"}) if pickle_approved else frozenset()
    return Subject(
        manifest=artifact.manifest,
        evidence=artifact.evidence,
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
        location=sets.location_on(tx, artifact.digest, node.name),
        approved=approved,
    )


def _detail(assessment: Assessment, inspection: Inspection) -> dict[str, object]:
    blockers = [found.code for found in inspection.findings if found.severity == "blocker"]
    return {
        "set": assessment.set_digest,
        "profile": assessment.profile_id,
        "node": assessment.node,
        "fingerprint": assessment.fingerprint,
        "verdict": assessment.verdict,
        "blockers": ", ".join(blockers),
    }
