"""What an inspection looks at, and what it gives."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

from bus.messages.artifacts import FileFormat, Manifest, PickleFacts, Quarantine, SetEvidence, WeightFacts
from bus.messages.gates import Declared, Estimate, Finding, Purpose, Verdict
from bus.messages.inventory import HardwareFacts
from bus.messages.profiles import AdapterFacts, RuntimeEnvironment, RuntimeProfile

PROBE_CAPABILITY: Final = "runtime.probe.v1"
# The set's own folder.
ROOT: Final = "."
_AFTER_SLASH: Final = chr(ord("/") + 1)


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
    """A set, a profile and a node, frozen. What is asked often is indexed once: a set may have very many members.

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
    def worked_out(self) -> dict[Hashable, Any]:
        """What a check worked out about this subject and others ask for again; each check has keys of its own."""
        return {}

    @cached_property
    def paths(self) -> frozenset[str]:
        """The members' paths."""
        return frozenset(self._ordered)

    @cached_property
    def _ordered(self) -> list[str]:
        """The paths sorted, as a manifest has them already; what lies below one folder lies together."""
        return sorted([file.path for file in self.manifest.files])

    @cached_property
    def by_ending(self) -> dict[str, tuple[str, ...]]:
        """The members by the ending of their names, such as `.json`, sorted; a name without a dot has an empty one."""
        found: dict[str, list[str]] = {}
        ending, here = "", found.setdefault("", [])
        for path in self._ordered:
            # Neighbours mostly end alike, and to see that is much less work.
            if not ending or not path.endswith(ending):
                _, dot, after = path.rpartition(".")
                ending = dot + after if "/" not in after and dot else ""
                here = found.setdefault(ending, [])
            here.append(path)
        return {ending: tuple(paths) for ending, paths in found.items()}

    @cached_property
    def folders(self) -> frozenset[str]:
        """All folders that hold a member, at any depth; the set's own is `.`. To ask for one, `has_folder` is faster."""
        found = {ROOT}
        for path in self._ordered:
            folder = folder_of(path)
            while folder not in found:
                found.add(folder)
                folder = folder_of(folder)
        return frozenset(found)

    @cached_property
    def weights(self) -> dict[str, tuple[WeightFacts, ...]]:
        """The weight headers by folder, each folder's in the order of their paths."""
        found: dict[str, list[WeightFacts]] = {}
        for facts in sorted(self.evidence.weights, key=lambda facts: facts.path):
            found.setdefault(folder_of(facts.path), []).append(facts)
        return {folder: tuple(facts) for folder, facts in found.items()}

    @cached_property
    def by_format(self) -> dict[str, tuple[str, ...]]:
        """The members by what their bytes are (`FileFormat`), sorted by path."""
        found: dict[str, list[str]] = {}
        last, here = "", found.setdefault("", [])
        for path, format_ in self.evidence.formats.items():
            if format_ != last:
                last, here = format_, found.setdefault(format_, [])
            here.append(path)
        return {format_: tuple(sorted(paths)) for format_, paths in found.items() if paths}

    @cached_property
    def pickles(self) -> dict[str, tuple[PickleFacts, ...]]:
        """The pickle streams by the member that holds them."""
        found: dict[str, list[PickleFacts]] = {}
        for facts in self.evidence.pickles:
            found.setdefault(facts.path, []).append(facts)
        return {path: tuple(facts) for path, facts in found.items()}

    @cached_property
    def adapter(self) -> AdapterFacts | None:
        """What the node declares about the profile's adapter."""
        return next((facts for facts in self.environment.adapters if facts.name == self.profile.adapter), None)

    @cached_property
    def packages(self) -> dict[str, str]:
        """Installed packages and their versions, by the normalised name: lower case, `-` for `_` and `.`."""
        return {normal(name): version for name, version in self.environment.packages.items()}

    def document(self, path: str) -> dict[str, Any] | None:
        """A document that is a JSON object; `None` when it is absent or anything else."""
        value = self.evidence.documents.get(path)
        return value if isinstance(value, dict) else None

    def in_folder(self, folder: str) -> frozenset[str]:
        """Names of the members that lie directly in `folder`."""
        key = (Subject.in_folder, folder)
        if key not in self.worked_out:
            names = self._below(folder)
            if folder != ROOT:
                names = [path[len(folder) + 1 :] for path in names]
            self.worked_out[key] = frozenset([name for name in names if "/" not in name])
        found: frozenset[str] = self.worked_out[key]
        return found

    def has_folder(self, folder: str) -> bool:
        """Is there a member in `folder`, at any depth? The set's own, `.`, is always there."""
        return folder == ROOT or bool(self._below(folder))

    def _below(self, folder: str) -> list[str]:
        """The members below `folder`: neighbours in the order of the paths, so few are looked at."""
        if folder == ROOT:
            return self._ordered
        begin, end = (bisect_left(self._ordered, folder + next_to) for next_to in ("/", _AFTER_SLASH))
        return self._ordered[begin:end]

    def format_of(self, path: str) -> str | None:
        """What the bytes of a member are; `None` when the scan did not look."""
        return self.evidence.formats.get(path)

    def ending_with(self, *endings: str) -> list[str]:
        """The members of these endings of names, sorted."""
        return sorted(path for ending in endings for path in self.by_ending.get(ending, ()))

    def of_format(self, *formats: FileFormat) -> list[str]:
        """The members of these formats, sorted."""
        return sorted(path for format_ in formats for path in self.by_format.get(format_, ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What static analysis says. It never says that a model was loaded (spec A2).

    Attributes:
        claims: may nothing but the absence of blockers make the set compatible? Not for every adapter (A14, A17).
    """

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


def normal(package: str) -> str:
    """A package's name as indexes compare it."""
    return package.lower().replace("_", "-").replace(".", "-")


def folder_of(path: str) -> str:
    """The folder of a member; the set's own is `.`."""
    return path.rpartition("/")[0] or ROOT


def member(folder: str, name: str) -> str:
    """The path of a member of `folder`; the set's own folder is `.`."""
    return name if folder == ROOT else f"{folder}/{name}"


def shown(names: Sequence[str], most: int = 5) -> str:
    """At most `most` names, and how many more there are."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
