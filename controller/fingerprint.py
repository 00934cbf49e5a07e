"""The canonical fingerprint as the ledger gives it now, recomputed at every read (spec A1, A18).

The facts themselves are `controller.facts`; this reads their snapshots. Staleness is the difference between the facts
on record and the facts now; it is derived, never stored.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from bus.messages.artifacts import Quarantine, SetLocation
from bus.messages.gates import Assessment
from bus.messages.inventory import NodeView
from bus.messages.profiles import ProfileView, RuntimeEnvironment
from controller import environment_changes, facts
from controller.facts import LOCATION, NONE, SetSnapshot, changes, fingerprint_of
from controller.store import approvals, environments, nodes, profiles, quarantines, sets
from controller.store.tx import Tx

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _SetParts:
    evidence: dict[str, str]
    quarantined: tuple[Quarantine, ...]
    pickle_approved: bool


@dataclass(frozen=True, slots=True)
class Current:
    """The facts of one moment and their fingerprint."""

    facts: dict[str, str]
    fingerprint: str


class Now:
    """The facts of one moment, that of a transaction. What many assessments share is read once."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._known: dict[Hashable, object] = {}

    def _once(self, key: Hashable, read: Callable[[], T]) -> T:
        if key not in self._known:
            self._known[key] = read()
        found: T = self._known[key]  # type: ignore[assignment]  # one key is of one kind: its first word says which
        return found

    def current(self, set_digest: str, profile_id: str, node: str, recorded: str | None = None) -> Current:
        """The fact map as the ledger knows it now.

        With the location that an assessment `recorded`, that one counts as long as it holds the set: an identical
        copy that is found elsewhere takes nothing from what was assessed, and gives nothing to it.

        Raises:
            ModelForgeError: UNKNOWN_ID or NODE_UNKNOWN.
        """
        key = ("facts", set_digest, profile_id, node, recorded)
        return self._once(key, lambda: self._read(set_digest, profile_id, node, recorded))

    def _read(self, set_digest: str, profile_id: str, node: str, recorded: str | None) -> Current:
        adapter = self.profile(profile_id).profile.adapter
        shared = self._set(set_digest)
        found = facts.facts_of(
            SetSnapshot(
                digest=set_digest,
                evidence=shared.evidence,
                place=self._place(set_digest, node, recorded),
                quarantined=shared.quarantined,
                pickle_approved=shared.pickle_approved,
            ),
            profile_id,
            self._once(("node facts", node), lambda: facts.node_facts_of(self.node(node))),
            self._once(("adapter facts", node, adapter), lambda: self._adapter(node, adapter)),
        )
        return Current(found, fingerprint_of(found))

    def stale_because(self, assessment: Assessment) -> tuple[str, ...]:
        """Why evidence that rests on this assessment no longer holds; empty while it does (spec A18)."""
        current = self.of(assessment)
        if current.fingerprint == assessment.fingerprint:
            return ()
        found = changes(assessment.facts, current.facts, partial(self._detail, assessment))
        return found or ("the facts on record do not give the fingerprint on record",)

    def of(self, assessment: Assessment) -> Current:
        """The facts now of what was assessed."""
        return self.current(assessment.set_digest, assessment.profile_id, assessment.node, location_of(assessment))

    def node(self, name: str) -> NodeView:
        """The node, without a word on its liveness that anything may rest on."""
        return self._once(("node", name), lambda: nodes.view(self._tx, name))

    def profile(self, profile_id: str) -> ProfileView:
        """The profile."""
        return self._once(("profile", profile_id), lambda: profiles.get(self._tx, profile_id))

    def approvals(self, set_digest: str) -> tuple[str, ...]:
        """All valid approvals of exactly this set."""
        return self._once(("approvals", set_digest), lambda: approvals.valid_ids(self._tx, set_digest))

    def _set(self, digest: str) -> _SetParts:
        def read() -> _SetParts:
            return _SetParts(
                evidence=facts.evidence_facts(sets.evidence_text(self._tx, digest)),
                quarantined=quarantines.of_set(self._tx, digest),
                pickle_approved=approvals.valid(self._tx, digest, "pickle") is not None,
            )

        return self._once(("set", digest), read)

    def _place(self, digest: str, node: str, recorded: str | None) -> SetLocation | None:
        held = None if recorded is None else sets.place_on(self._tx, digest, node, recorded)
        return held or sets.place_on(self._tx, digest, node)

    def _adapter(self, node: str, name: str) -> dict[str, str]:
        return facts.adapter_facts_of(facts.inventory_of(self.node(node)).environment, name)

    def _detail(self, assessment: Assessment, fact: str) -> str:
        """What came and went in a declaration that the fact map holds as a digest only."""
        now = facts.inventory_of(self.node(assessment.node)).environment
        return environment_changes.of_fact(fact, self._environment(assessment.environment_id), now, assessment.adapter)

    def _environment(self, environment_id: str) -> RuntimeEnvironment:
        return self._once(
            ("environment", environment_id), lambda: environments.get(self._tx, environment_id).environment
        )


def location_of(assessment: Assessment) -> str | None:
    """Where the assessed set lay, as it is on record; `None` when it lay nowhere."""
    return facts.path_of(assessment.facts.get(LOCATION, NONE))
