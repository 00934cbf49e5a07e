"""What an inspection looks at, and what it gives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, Final, Literal

from bus.messages.artifacts import Manifest, Quarantine, SetEvidence
from bus.messages.gates import Declared, Estimate, Finding, Purpose, Verdict
from bus.messages.inventory import HardwareFacts
from bus.messages.profiles import AdapterFacts, RuntimeEnvironment, RuntimeProfile

PROBE_CAPABILITY: Final = "runtime.probe.v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """The node at the moment of the assessment; `liveness` is passed in, it is nobody's stored fact."""

    name: str
    enabled: bool
    lab_eligible: bool
    liveness: Literal["online", "doubtful", "offline"]
    capabilities: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A set, a profile and a node, frozen.

    Attributes:
        location: the set's registered place on the node, if it has one.
        approved: the purposes for which the set has a valid approval.
        quarantined: the quarantines that meet a member of this set; one that is released says by which approval.
        corrupt: what a later read found at `location`, `file: problem`; `None` while nothing speaks against it.
    """

    manifest: Manifest
    evidence: SetEvidence
    profile: RuntimeProfile
    environment: RuntimeEnvironment
    hardware: HardwareFacts
    node: NodeFacts
    location: str | None
    approved: frozenset[Purpose] = frozenset()
    quarantined: tuple[Quarantine, ...] = ()
    corrupt: str | None = None

    @cached_property
    def paths(self) -> frozenset[str]:
        """The members' paths."""
        return frozenset(file.path for file in self.manifest.files)

    @cached_property
    def folders(self) -> frozenset[str]:
        """All folders that hold a member, at any depth; the set's own is `.`."""
        return frozenset(str(parent) for path in self.paths for parent in PurePosixPath(path).parents)

    @property
    def adapter(self) -> AdapterFacts | None:
        """What the node declares about the profile's adapter."""
        return next((facts for facts in self.environment.adapters if facts.name == self.profile.adapter), None)

    def document(self, path: str) -> dict[str, Any] | None:
        """A document that is a JSON object; `None` when it is absent or anything else."""
        value = self.evidence.documents.get(path)
        return value if isinstance(value, dict) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What static analysis says. It never says that a model was loaded (spec A2)."""

    findings: tuple[Finding, ...]
    estimate: Estimate | None
    declared: Declared | None = None
    claims: bool = True

    @property
    def verdict(self) -> Verdict:
        """Blocked by one blocker; without `claims`, a set that nothing blocks is not compatible but to be probed."""
        if any(found.severity == "blocker" for found in self.findings):
            return "blocked"
        return "compatible" if self.claims else "requires_probe"
