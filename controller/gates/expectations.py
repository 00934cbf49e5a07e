"""Lists of digests from outside: taken with a scan, compared at its end, file by file (spec A3, G4)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from adapters.formats import sha256sums
from adapters.formats.documents import DocumentProblem
from bus.digest import sha256_hex
from bus.errors import ErrorCode, Failure, ModelForgeError
from bus.messages.api import ExpectedManifest
from bus.messages.artifacts import Manifest
from bus.text import clean_line
from controller.store import expectations, sets
from controller.store.tx import Tx

MAX_SHOWN_FILES: Final = 5
MAX_SHOWN_CHARS: Final = 120
MAX_KEY_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class Expected:
    """What a scan was asked to find, as it was read: path -> 64 hex digits, or why it cannot be read."""

    source: ExpectedManifest
    entries: Mapping[str, str] = field(default_factory=dict)
    problem: ModelForgeError | None = None


def read(source: ExpectedManifest, data: bytes, max_files: int) -> Expected:
    """The list's entries; what is wrong with the list is kept for the one who has to say it."""
    try:
        entries = sha256sums.parse(data)
    except DocumentProblem as problem:
        message = f"the list of digests cannot be read: {problem}"
        return Expected(source, problem=ModelForgeError(ErrorCode.INVALID_ARGUMENT, message))
    if len(entries) > max_files:
        message = f"the list names {len(entries)} files, and no scan takes more than {max_files}"
        return Expected(source, problem=ModelForgeError(ErrorCode.INVALID_ARGUMENT, message))
    return Expected(source, entries)


def again(tx: Tx, source: ExpectedManifest, required_by: str) -> Expected | None:
    """The very list, from a scan that this caller required it of before: it went into the ledger, and its payload is gone.

    So whoever sends one list for two scans at the same moment is not told that the second one's was never sent.
    """
    entries = expectations.last_list(tx, source.source_sha256, required_by)
    if entries is None or sha256_hex(sha256sums.render(entries)) != source.blob.sha256:
        return None
    return Expected(source, entries)


def require(tx: Tx, scan_id: str, expected: Expected, required_by: str) -> None:
    """The scan that is queued in this transaction has to find these files.

    Raises:
        ModelForgeError: INVALID_ARGUMENT or BLOB_REFUSED, whatever kept the list from being read; INVALID_ARGUMENT for
            a key without a signature, or the reverse.
    """
    if expected.problem is not None:
        raise expected.problem
    source = expected.source
    if (source.kind == "openssf_signature") != (source.key is not None):
        message = "a signature is named with the key that it was checked with, a plain list with none"
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, message)
    if source.key is not None and (clean_line(source.key, MAX_KEY_CHARS) != source.key or not source.key):
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, f"a key has 1 to {MAX_KEY_CHARS} printable characters")
    expectations.require(tx, scan_id, source, expected.entries, required_by)


def mismatch(tx: Tx, scan_id: str, manifest: Manifest) -> Failure | None:
    """Why the scan's files are not the required ones; `None` when they are, or when nothing is required."""
    required = expectations.entries_of(tx, scan_id)
    if required is None:
        return None
    entries, source_sha256 = required
    found = {file.path: file.sha256 for file in manifest.files}
    groups = {
        "different": [path for path, sha256 in entries.items() if found.get(path, sha256) != sha256],
        "missing": [path for path in entries if path not in found],
        "surplus": _surplus(entries, source_sha256, found),
    }
    if not any(groups.values()):
        return None
    words = "; ".join(f"{len(paths)} {word}: {shown(paths)}" for word, paths in groups.items() if paths)
    context: dict[str, Any] = {word: len(paths) for word, paths in groups.items()}
    # The message has more of the names already; a program that reads the context wants one to look at.
    context |= {f"first_{word}": shown(paths[:1]) for word, paths in groups.items() if paths}
    message = f"the folder does not hold what the list names; {_one_level_off(entries, found)}{words}"
    return ModelForgeError(ErrorCode.EXPECTED_MANIFEST_MISMATCH, message, **context).to_failure()


def _surplus(entries: Mapping[str, str], source_sha256: str, found: Mapping[str, str]) -> list[str]:
    """Members that the list does not name. One copy of the list itself is none of them: it cannot name itself."""
    unnamed = [path for path in found if path not in entries]
    own = next((path for path in unnamed if found[path] == source_sha256), None)
    return [path for path in unnamed if path != own]


def _one_level_off(entries: Collection[str], found: Collection[str]) -> str:
    """What explains a list of which nothing is found: it was made one folder above the one that was scanned, or below."""
    if any(path in found for path in entries):
        return ""
    if folder := _shared_folder(entries, found):
        return f"the list's paths begin with {folder}: make it inside the folder; "
    folder = _shared_folder([path for path in found if "/" in path], entries)
    return f"the files of the list lie in {folder}: scan that folder; " if folder else ""


def _shared_folder(paths: Collection[str], others: Collection[str]) -> str:
    """The folder, as `NAME/`, that all these paths begin with, and behind which they name some of the others."""
    first = next(iter(paths), "")
    for end in (at for at, character in enumerate(first, start=1) if character == "/"):
        folder = first[:end]
        if not all(path.startswith(folder) for path in paths):
            break
        if any(path.removeprefix(folder) in others for path in paths):
            return clean_line(folder, MAX_SHOWN_CHARS)
    return ""


def lose_other(tx: Tx, node: str, path: str, digest: str, failure: Failure, *, job_id: str) -> None:
    """A scan found files there that are not the required ones: a set that the place held before is not there any more."""
    place = sets.at_place(tx, node, path)
    if place is None or place == digest:
        return
    sets.lose(tx, node, path)
    detail = {"node": node, "path": path, "code": failure.code, "found_by": job_id}
    tx.audit("set", place, "location-lost", f"node:{node}", detail=detail)


def meet(tx: Tx, scan_id: str, digest: str, node: str) -> None:
    """The set that the scan found is the required one: it says so from now on."""
    if expectations.meet(tx, scan_id, digest):
        newest = next(one for one in expectations.of_set(tx, digest) if one.scan_id == scan_id)
        detail = {"scan": scan_id, "kind": newest.kind, "list": newest.sha256, "required_by": newest.required_by}
        tx.audit("set", digest, "expectation-met", f"node:{node}", detail=detail)


def shown(paths: list[str]) -> str:
    """The first few of them, and how many more there are."""
    names = ", ".join(clean_line(path, MAX_SHOWN_CHARS) for path in paths[:MAX_SHOWN_FILES])
    more = len(paths) - MAX_SHOWN_FILES
    return f"{names} and {more} more" if more > 0 else names
