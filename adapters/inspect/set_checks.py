"""Findings about the set as a whole: is it what was scanned, and may its members be used (spec A3, A4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from adapters.formats.evidence import CUT, LEFT_OUT, PICKLE_LEFT_OUT, TOO_LARGE
from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.codes import finding
from adapters.inspect.subject import Subject, folder_of, member, shown
from bus.messages.artifacts import FileFormat
from bus.messages.gates import Finding

_WEIGHTS: Final = (FileFormat.SAFETENSORS, FileFormat.GGUF, FileFormat.PICKLE, FileFormat.TORCH_ZIP)
# Read as a document by its name, whatever it is; that it is none is a finding of its own.
_DOCUMENT: Final = ".json"
_INDEX: Final = ".index.json"
# Vocabularies of some models are larger than any document; of them, presence is what counts.
_TOKENIZER: Final = "tokenizer.json"
_UNKNOWN: Final = {
    CUT: "not all of a document is known, and what is missing may decide",
    TOO_LARGE: "a document is too large to be read, and may decide",
    LEFT_OUT: "there was no room to keep what was read of",
    PICKLE_LEFT_OUT: "there was no room to keep what the pickle does of",
}


def set_findings(subject: Subject) -> Iterator[Finding]:
    """The place is not corrupt, the evidence is of today's rules, and no member is in quarantine."""
    if subject.corrupt is not None:
        message = f"the set's place on {subject.node.name} changed since its scan: {subject.corrupt}"
        yield finding(Code.SET_CORRUPT, "blocker", message, "set location")
    if not subject.evidence.scanner:
        message = "the scan that made the evidence looked neither at the files' formats nor into pickles"
        yield finding(Code.EVIDENCE_OUTDATED, "blocker", message, "scan evidence: scanner")
    yield from _quarantine_findings(subject)
    for note in subject.evidence.notes:
        yield finding(Code.EVIDENCE_INCOMPLETE, "warning", note, "scan notes")
    yield from _problem_findings(subject)
    unknown = _unread_weights(subject)
    if unknown:
        message = f"nothing is known of the headers of weights, which may be corrupt: {shown(unknown)}"
        yield finding(Code.EVIDENCE_INCOMPLETE, "blocker", message, "weight headers")


def _problem_findings(subject: Subject) -> Iterator[Finding]:
    """What the scan could not keep may be the very thing that decides: nothing is claimed of such a set (spec A4, A9)."""
    for problem, words in _UNKNOWN.items():
        paths = sorted(
            path
            for path, found in subject.evidence.problems.items()
            if found == problem and not (problem == TOO_LARGE and path.endswith(_TOKENIZER))
        )
        if paths:
            yield finding(Code.EVIDENCE_INCOMPLETE, "blocker", f"{words}: {shown(paths)}", "scan evidence: problems")


def _unread_weights(subject: Subject) -> list[str]:
    """Members that are weights by their bytes, or shards by an index, and of which the evidence has no record."""
    wanted = {path for path in subject.of_format(*_WEIGHTS) if not path.lower().endswith(_DOCUMENT)}
    for path in subject.ending_with(_DOCUMENT):
        files = (subject.document(path) or {}).get("files") if path.endswith(_INDEX) else None
        if isinstance(files, list):
            folder = folder_of(path)
            wanted.update(member(folder, name) for name in files if isinstance(name, str))
    return sorted((wanted & subject.paths) - {facts.path for facts in subject.evidence.weights})


def _quarantine_findings(subject: Subject) -> Iterator[Finding]:
    if not subject.quarantined:
        return
    met = {quarantine.sha256 for quarantine in subject.quarantined}
    paths: dict[str, list[str]] = {}
    for file in subject.manifest.files:
        if file.sha256 in met:
            paths.setdefault(file.sha256, []).append(file.path)
    for quarantine in sorted(subject.quarantined, key=lambda found: (found.path, found.id)):
        # Its own path is of another set when the same bytes were found there first.
        where = shown(sorted(paths.get(quarantine.sha256, [quarantine.path])), 3)
        if quarantine.released_by is None:
            message = f"{where}: {quarantine.reason} ({quarantine.quarantined_by})"
            yield finding(Code.MEMBER_QUARANTINED, "blocker", message, f"quarantine {quarantine.id}")
        else:
            message = f"{where}: released for this exact set although: {quarantine.reason}"
            yield finding(Code.QUARANTINE_RELEASED, "warning", message, f"approval {quarantine.released_by}")
