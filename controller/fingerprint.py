"""The canonical fingerprint: the facts that evidence rests on, recomputed at every read (spec A1, A18).

Liveness and free memory are no part of it: they move all the time and are checked when a probe is queued. Staleness
is the difference between the facts on record and the facts now; it is derived, never stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from adapters.inspect.subject import PROBE_CAPABILITY
from bus.digest import digest_of
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.gates import Assessment
from bus.messages.inventory import HardwareFacts, NodeView
from bus.messages.profiles import RuntimeProfile
from bus.text import clean_line
from controller.store import approvals, nodes, profiles, sets
from controller.store.tx import Tx

NONE: Final = "none"
_GIB: Final = 1024**3
MAX_SHOWN_CHARS: Final = 120


def facts_of(
    *,
    set_digest: str,
    set_evidence: str,
    location: str | None,
    pickle_approved: bool,
    profile_id: str,
    profile: RuntimeProfile,
    node: NodeView,
) -> dict[str, str]:
    """The fact map: each fact by its name, as text. Pure; `set_evidence` is the digest of what the scan read.

    Raises:
        ModelForgeError: NODE_UNKNOWN when the node has no inventory yet.
    """
    inventory = node.inventory
    if inventory is None:
        raise ModelForgeError(ErrorCode.NODE_UNKNOWN, f"the node {node.name} has sent no inventory yet")
    declared = next((facts for facts in inventory.environment.adapters if facts.name == profile.adapter), None)
    return {
        "set": set_digest,
        "set evidence": set_evidence,
        "set location": location or NONE,
        "pickle approval": "approved" if pickle_approved else NONE,
        "profile": profile_id,
        "environment": inventory.environment.digest(),
        "node": node.name,
        "node enabled": _word(node.enabled),
        "node lab-eligible": _word(node.lab_eligible),
        "node probes": _word(PROBE_CAPABILITY in inventory.capabilities),
        "adapter": profile.adapter,
        "adapter version": declared.version if declared is not None else NONE,
        **_hardware(inventory.hardware),
    }


def _hardware(hardware: HardwareFacts) -> dict[str, str]:
    cards = [
        f"{card.uuid} {card.name} {card.memory_total_bytes or '?'} B cc {card.compute_capability or '?'}"
        for card in sorted(hardware.gpus, key=lambda card: card.uuid)
    ]
    return {
        "cpu model": hardware.cpu_model,
        # Static analysis compares an estimate with it. In whole GiB: a kernel may keep a little more or less.
        "host memory": f"{round(hardware.memory_total_bytes / _GIB)} GiB",
        "gpus": "; ".join(cards) or NONE,
        "driver": hardware.driver_version or NONE,
        "cuda": hardware.cuda_version or NONE,
    }


def _word(value: bool) -> str:  # noqa: FBT001 -- the value is what is put into words
    return "yes" if value else "no"


def fingerprint_of(facts: Mapping[str, str]) -> str:
    """`sha256:<hex>` of the canonical fact map."""
    return digest_of(dict(facts))


def changes(recorded: Mapping[str, str], current: Mapping[str, str]) -> tuple[str, ...]:
    """Which facts differ, each as one sentence: what changed, from what, to what."""
    names = [*recorded, *(name for name in current if name not in recorded)]
    return tuple(
        f"{name} changed from {_shown(recorded.get(name, NONE))} to {_shown(current.get(name, NONE))}"
        for name in names
        if recorded.get(name, NONE) != current.get(name, NONE)
    )


def _shown(value: str) -> str:
    return clean_line(value, MAX_SHOWN_CHARS)


def current_facts(
    tx: Tx, set_digest: str, profile_id: str, node_name: str, recorded: str | None = None
) -> dict[str, str]:
    """The fact map as the ledger knows it now.

    With the location that an assessment `recorded`, that one counts as long as it holds the set: an identical copy
    that is found elsewhere takes nothing from what was assessed.

    Raises:
        ModelForgeError: UNKNOWN_ID or NODE_UNKNOWN.
    """
    profile = profiles.get(tx, profile_id)
    holds = recorded is not None and sets.lies_at(tx, set_digest, node_name, recorded)
    return facts_of(
        set_digest=set_digest,
        set_evidence=sets.evidence_digest(tx, set_digest),
        location=recorded if holds else sets.location_on(tx, set_digest, node_name),
        pickle_approved=approvals.valid(tx, set_digest, "pickle") is not None,
        profile_id=profile.id,
        profile=profile.profile,
        node=nodes.view(tx, node_name),
    )


def location_of(assessment: Assessment) -> str:
    """Where the assessed set lay, as it is on record; `none` when it lay nowhere."""
    return assessment.facts.get("set location", NONE)


class Now:
    """The facts of one moment, that of a transaction; a list that names one node often asks for it once."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._facts: dict[tuple[str, str, str, str], dict[str, str]] = {}

    def stale_because(self, assessment: Assessment) -> tuple[str, ...]:
        """Why evidence that rests on this assessment no longer holds; empty while it does (spec A18)."""
        key = (assessment.set_digest, assessment.profile_id, assessment.node, location_of(assessment))
        current = self._facts.get(key)
        if current is None:
            current = self._facts[key] = current_facts(self._tx, *key)
        if fingerprint_of(current) == assessment.fingerprint:
            return ()
        found = changes(assessment.facts, current)
        return found or ("the facts on record do not give the fingerprint on record",)
