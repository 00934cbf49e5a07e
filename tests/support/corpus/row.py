"""One row of the corpus: a folder, a profile, a node, and what an assessment of them must and must not say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from adapters.inspect.registry import inspect
from adapters.inspect.subject import Inspection, Subject
from bus.messages.artifacts import Quarantine, SetEvidence
from bus.messages.gates import Verdict
from bus.messages.profiles import RuntimeProfile
from node_agent.artifact_scan import Scanned, ScanWatch, scan_folder
from tests.support.corpus import machines
from tests.support.corpus.folders import Files

FOLDER: Final = "model"
MAX_FILES: Final = 1_000


@dataclass(frozen=True, kw_only=True)
class Row:
    """A control with at most one change.

    Attributes:
        blockers: codes that must be there as blockers.
        one_of: at least one of these must be there as a blocker, where the specification does not say which.
        codes: codes that must be there, at any severity.
        absent: codes that must not be there: the wrong reason sends an operator the wrong way.
        subject: fields of the `Subject` that differ from a healthy CPU node with the set in its place.
        evidence: fields of the evidence that differ from what the scan read.
        released_by: the approval that releases what the controller quarantined by itself.
    """

    name: str
    files: Files
    verdict: Verdict
    profile: Mapping[str, Any] = field(default_factory=dict)
    blockers: tuple[str, ...] = ()
    one_of: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    subject: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)
    released_by: str | None = None


def changed(files: Files, changes: Mapping[str, bytes | None]) -> Files:
    """`files` with some replaced, added or, by `None`, taken away."""
    merged: dict[str, bytes | None] = {**files, **changes}
    return {path: data for path, data in merged.items() if data is not None}


def without(files: Files, *prefixes: str) -> Files:
    """`files` without those that begin with a prefix."""
    return {path: data for path, data in files.items() if not path.startswith(prefixes)}


def write(files: Files, folder: Path) -> None:
    """Put the files on disk."""
    for path, data in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def scan(root: Path) -> Scanned:
    """The real scan of `root/model`."""
    return scan_folder(root, FOLDER, max_files=MAX_FILES, watch=ScanWatch())


def subject_of(scanned: Scanned, profile: Mapping[str, Any], changes: Mapping[str, Any]) -> Subject:
    """The set on a healthy node, with `changes`."""
    values: dict[str, Any] = {
        "manifest": scanned.manifest,
        "evidence": scanned.evidence,
        "profile": RuntimeProfile(**{"name": "row", **profile}),
        "environment": machines.environment(),
        "hardware": machines.machine(),
        "node": machines.node(),
        "location": FOLDER,
    }
    return Subject(**{**values, **changes})


def run(row: Row, root: Path) -> Inspection:
    """Write the folder, scan it, inspect what the scan gave."""
    write(row.files, root / FOLDER)
    scanned = scan(root)
    evidence: SetEvidence = msgspec.structs.replace(scanned.evidence, **row.evidence)
    on_record = {"quarantined": quarantines(scanned, row.released_by), **row.subject}
    return inspect(subject_of(Scanned(manifest=scanned.manifest, evidence=evidence), row.profile, on_record))


def quarantines(scanned: Scanned, released_by: str | None) -> tuple[Quarantine, ...]:
    """What a controller puts on record by itself when it takes the set in: every member that holds a pickle with code."""
    with_code = {facts.path: facts for facts in scanned.evidence.pickles if facts.verdict == "code"}
    return tuple(
        Quarantine(
            id=f"quarantine-{number}",
            sha256=file.sha256,
            set_digest=scanned.manifest.digest(),
            path=file.path,
            reason=with_code[file.path].reason,
            quarantined_by="controller",
            quarantined_at=datetime(2026, 1, 1, tzinfo=UTC),
            released_by=released_by,
        )
        for number, file in enumerate(scanned.manifest.files)
        if file.path in with_code
    )


def complaints(row: Row, found: Inspection) -> list[str]:
    """Where the inspection is not what the row demands; empty when it is."""
    codes = {finding.code for finding in found.findings}
    blockers = {finding.code for finding in found.findings if finding.severity == "blocker"}
    wrong = [f"no blocker {code}" for code in row.blockers if code not in blockers]
    wrong += [f"no {code}" for code in row.codes if code not in codes]
    wrong += [f"there is {code}" for code in row.absent if code in codes]
    if row.one_of and not blockers & set(row.one_of):
        wrong.append(f"none of {', '.join(row.one_of)} as a blocker")
    if found.verdict != row.verdict:
        wrong.append(f"the verdict is {found.verdict} and not {row.verdict}")
    return wrong
