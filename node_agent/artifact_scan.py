"""One folder of the artifact root, read completely: its manifest and what its headers and documents say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from adapters.formats.evidence import EvidenceCollector
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.artifacts import FileEntry, Manifest, SetEvidence
from node_agent.artifact_hash import Watch, hash_files
from node_agent.artifact_root import ArtifactRoot, Member
from node_agent.artifact_verify import compare_stamps

# As long as a real digest.
_NO_DIGEST: Final = "0" * 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """What a scan found."""

    manifest: Manifest
    evidence: SetEvidence


def scan_folder(
    root: Path, folder: str, *, max_files: int, watch: Watch, accept: Callable[[Scanned], None] = lambda _: None
) -> Scanned:
    """Hash every file of `folder` (relative to `root`) and read its evidence; blocks, in `watch.threads` threads.

    `accept` is given the result, as long as it will be but without digests, before anything is hashed; it may raise.

    Raises:
        ModelForgeError: the codes of `ArtifactRoot.files`; ARTIFACT_CHANGED when anything in the folder changed between
            the beginning and the end, so that digests and evidence belong to one and the same set; CANCELLED.
    """
    with ArtifactRoot(root) as artifacts:
        members = artifacts.files(folder, max_files=max_files)
        evidence = _read_evidence(artifacts, folder, members, watch)
        accept(Scanned(manifest=_unhashed(members), evidence=evidence))
        manifest = hash_files(artifacts, folder, members, watch)
        compare_stamps(artifacts, folder, members)
    return Scanned(manifest=manifest, evidence=evidence)


def _unhashed(members: tuple[Member, ...]) -> Manifest:
    return Manifest(
        files=tuple(
            FileEntry(path=member.path, size_bytes=member.stamp.size_bytes, sha256=_NO_DIGEST) for member in members
        )
    )


def _read_evidence(artifacts: ArtifactRoot, folder: str, members: tuple[Member, ...], watch: Watch) -> SetEvidence:
    collector = EvidenceCollector()
    for member in members:
        watch.check()
        with artifacts.open_member(folder, member) as fd, open(fd, "rb", closefd=False) as file:
            try:
                collector.add(member.path, file, member.stamp.size_bytes)
            except OSError as error:
                message = f"{member.path}: {error.strerror or 'cannot be read'}"
                raise ModelForgeError(ErrorCode.ARTIFACT_UNREADABLE, message, file=member.path) from error
    return collector.result()
