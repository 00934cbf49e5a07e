"""The first gate: a folder on a node becomes an exact, immutable set (spec G1, A3, P5)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import PurePosixPath
from typing import Final

from adapters.formats.documents import DocumentProblem
from adapters.formats.evidence import received
from bus import ids
from bus.errors import ErrorCode, Failure, ModelForgeError
from bus.messages.api import ScanRequest
from bus.messages.artifacts import Manifest, ScanView, SetEvidence
from bus.messages.jobs import ScanJob
from bus.subjects import Caller
from bus.text import clean_line
from controller.gates import expectations, quarantine, work
from controller.gates.caller import actor_of, request_key
from controller.gates.expectations import Expected
from controller.settings import MAX_SCAN_FILES, ControllerSettings
from controller.store import nodes, scans, sets
from controller.store.tx import Tx

MAX_PATH_CHARS: Final = 1_024
MAX_PROBLEM_CHARS: Final = 500
NO_FILE: Final = "none named"
# What a probe says of bytes that are no longer those of the set, and a scan of a folder that is no longer there.
CHANGED: Final = frozenset({ErrorCode.ARTIFACT_CHANGED.value})
GONE: Final = frozenset(
    {ErrorCode.PATH_NOT_FOUND.value, ErrorCode.PATH_NOT_A_FOLDER.value, ErrorCode.ARTIFACT_EMPTY.value}
)


def scan(
    tx: Tx, settings: ControllerSettings, caller: Caller, request: ScanRequest, expected: Expected | None = None
) -> ScanView:
    """Queue a scan of a folder below the node's artifact root. A repeated request gives the same scan.

    `expected` is the list that the request names, as it was read. A repeat needs it no more: it was used by then.

    Raises:
        ModelForgeError: NODE_UNKNOWN, PATH_OUTSIDE_ROOT, INVALID_ARGUMENT, BLOB_REFUSED.
    """
    key = request_key(caller, request.request_id)
    path = relative_path(request.path)
    before = work.known(tx, key, "scan")
    if before is not None:
        return _same_scan(scans.view(tx, before), request, path)
    node = nodes.view(tx, request.node)
    scan_id = ids.new_id(ids.SCAN)
    deadline_at = tx.at + timedelta(seconds=settings.scan_deadline_s)
    job = ScanJob(
        job_id=scan_id,
        node=node.name,
        path=path,
        max_files=settings.scan_max_files,
        deadline_at=deadline_at,
        fresh=request.fresh,
    )
    work.put(
        tx,
        work.Order(
            type="scan",
            job=job,
            request_key=key,
            max_attempts=settings.max_attempts,
            deadline_at=deadline_at,
            caller=caller,
        ),
    )
    scans.insert(tx, scan_id, path)
    detail = {"node": node.name, "path": path}
    if expected is not None:
        expectations.require(tx, scan_id, expected, caller.name)
        detail |= {"list": expected.source.source_sha256, "kind": expected.source.kind}
    tx.audit("scan", scan_id, "queued", actor_of(caller), detail=detail)
    return scans.view(tx, scan_id)


def _same_scan(view: ScanView, request: ScanRequest, path: str) -> ScanView:
    required = None if request.expected is None else request.expected.source_sha256
    if (view.node, view.path, view.expected_sha256) != (request.node, path, required):
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, "request_id was used for another scan")
    return view


def relative_path(text: str) -> str:
    """A path below an artifact root, in its one form: no `.`, no `..`, no doubled or final slash.

    The node checks what the path leads to; this only refuses what can never be right.

    Raises:
        ModelForgeError: PATH_OUTSIDE_ROOT for an absolute path or one with `..`; INVALID_ARGUMENT for an empty, a too
            long or an unprintable one.
    """
    if not text or len(text) > MAX_PATH_CHARS or clean_line(text) != text or "\\" in text:
        message = f"a path needs 1 to {MAX_PATH_CHARS} printable characters, with forward slashes"
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, message)
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts:
        raise ModelForgeError(ErrorCode.PATH_OUTSIDE_ROOT, f"{text!r} is not below the artifact root")
    return str(path)


def record_scan(tx: Tx, scan_id: str, node: str, manifest: Manifest, evidence: SetEvidence) -> str:
    """Store what a scan found, in the transaction that ends its job; the set's digest.

    A later scan of the same place that finds another set moves the place to it: what rested on the old one is stale.
    A pickle that would run code is quarantined in this same transaction (spec A4).

    Raises:
        ModelForgeError: UNKNOWN_ID for an unknown scan, EVIDENCE_REFUSED when the scan belongs to another node or the
            manifest is not canonical, or the evidence is larger than a scan makes it.
    """
    view = scans.view(tx, scan_id)
    if view.node != node:
        raise ModelForgeError(ErrorCode.EVIDENCE_REFUSED, f"the scan {scan_id} belongs to {view.node}, not to {node}")
    check_manifest(manifest)
    digest = manifest.digest()
    kept = _received(evidence, manifest)
    is_new = sets.put(tx, digest, manifest, kept)
    before = sets.place(tx, node=node, path=view.path, digest=digest, scan_id=scan_id)
    scans.set_result(tx, scan_id, digest)
    place = {"node": node, "path": view.path, "scan": scan_id}
    actor = f"node:{node}"
    if is_new:
        size = {"files": len(manifest.files), "size_bytes": manifest.size_bytes}
        tx.audit("set", digest, "recorded", actor, detail={**place, **size})
    if before is not None and before != digest:
        changes = _changes(sets.manifest(tx, before), manifest)
        tx.audit("set", before, "replaced", actor, detail={**place, "by": digest, **changes})
    if before != digest:
        tx.audit("set", digest, "located", actor, detail=place)
    quarantine.judge(tx, digest, manifest, kept)
    return digest


def _changes(before: Manifest, after: Manifest) -> dict[str, str]:
    """What of the members differs, by name: the first few of each kind, and how many there are."""
    old = {file.path: file.sha256 for file in before.files}
    new = {file.path: file.sha256 for file in after.files}
    groups = {
        "changed": [path for path, sha256 in new.items() if old.get(path, sha256) != sha256],
        "added": [path for path in new if path not in old],
        "removed": [path for path in old if path not in new],
    }
    return {word: expectations.shown(paths) for word, paths in groups.items() if paths}


def location_lost(tx: Tx, node: str, path: str, failure: Failure, *, job_id: str, digest: str | None = None) -> None:
    """A node found that a place does not hold its set any more: what rests on it is stale from this transaction on.

    A scan whose folder is gone takes the place off the record. A probe that met another byte marks the place as
    corrupt and names the file: it stays on record, and a later scan sets it right.

    Args:
        tx: the transaction that commits the node's word.
        node: whose place it is.
        path: the place, below the node's artifact root.
        failure: what the node found; a code that says nothing about the place changes nothing.
        job_id: the scan or probe that found it.
        digest: the set that the probe looked for; a place that holds another one by now is left as it is.
    """
    detail = {"node": node, "path": path, "code": failure.code, "found_by": job_id}
    actor = f"node:{node}"
    if digest is None:
        lost = sets.lose(tx, node, path) if failure.code in GONE else None
        if lost is not None:
            tx.audit("set", lost, "location-lost", actor, detail=detail)
    elif failure.code in CHANGED and sets.lies_at(tx, digest, node, path):
        file = failure.context.get("file")
        problem = clean_line(failure.message.removeprefix(f"{file}: "), MAX_PROBLEM_CHARS) or failure.code
        sets.corrupt(tx, node, path, file=file, problem=problem, found_by=job_id)
        found = {"file": file or NO_FILE, "problem": problem}
        tx.audit("set", digest, "location-corrupt", actor, detail={**detail, **found})


def _received(evidence: SetEvidence, manifest: Manifest) -> SetEvidence:
    try:
        return received(evidence, {file.path for file in manifest.files})
    except DocumentProblem as problem:
        raise ModelForgeError(
            ErrorCode.EVIDENCE_REFUSED, f"the evidence of the scan is refused: {problem}"
        ) from problem


def check_manifest(manifest: Manifest) -> None:
    """Pass if the manifest has the one form that its digest stands for.

    Raises:
        ModelForgeError: EVIDENCE_REFUSED naming the rule.
    """
    paths = [file.path for file in manifest.files]
    # No setting lets a scan take more: a node that sends more is not read any further.
    if not 0 < len(paths) <= MAX_SCAN_FILES:
        message = f"a manifest names 1 to {MAX_SCAN_FILES} files, not {len(paths)}"
        raise ModelForgeError(ErrorCode.EVIDENCE_REFUSED, message)
    if paths != sorted(set(paths)):
        raise ModelForgeError(ErrorCode.EVIDENCE_REFUSED, "the manifest is not sorted, or names a file twice")
    for path in paths:
        pure = PurePosixPath(path)
        if str(pure) != path or pure.is_absolute() or ".." in pure.parts or path == "." or clean_line(path) != path:
            raise ModelForgeError(ErrorCode.EVIDENCE_REFUSED, "the manifest names a path that is none of a member")
