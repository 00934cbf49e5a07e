"""Is what lies on disk exactly what was approved (spec P5, A3)?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from bus.errors import ErrorCode, ModelForgeError
from bus.messages.artifacts import FileEntry, Manifest
from node_agent.artifact_hash import Watch, hash_files
from node_agent.artifact_root import ArtifactRoot, Listing, Member, Stamp, changed

# Enough to name an extra file; a folder with more of them is another folder.
_EXTRA_FILES: Final = 64
_GONE: Final = frozenset(
    {
        ErrorCode.PATH_NOT_FOUND,
        ErrorCode.PATH_NOT_A_FOLDER,
        ErrorCode.ARTIFACT_EMPTY,
        ErrorCode.ARTIFACT_UNSUPPORTED_FILE,
        ErrorCode.SCAN_TOO_LARGE,
    }
)


def verify_manifest(root: Path, folder: str, manifest: Manifest, watch: Watch) -> Listing:
    """Read every file of `folder` again and compare it with `manifest`; blocks.

    Returns the files and folders as they were before they were read, for `still_the_same` after they were used.

    Raises:
        ModelForgeError: ARTIFACT_CHANGED, naming the file that is missing, new or different; ARTIFACT_UNREADABLE,
            PATH_OUTSIDE_ROOT, CANCELLED.
    """
    wanted = {entry.path: entry for entry in manifest.files}
    with ArtifactRoot(root) as artifacts:
        listing = _list(artifacts, folder, len(wanted))
        members = listing.members
        _compare_names(wanted.values(), members)
        # Sizes first: a truncated shard is named at once, not after gigabytes.
        for member in members:
            size, approved = member.stamp.size_bytes, wanted[member.path].size_bytes
            if size != approved:
                raise changed(member.path, f"its size is {size} bytes instead of {approved}")
        for entry in hash_files(artifacts, folder, members, watch).files:
            if entry.sha256 != wanted[entry.path].sha256:
                raise changed(entry.path, "its contents differ from the approved ones")
        return listing


def still_the_same(root: Path, folder: str, before: Listing) -> None:
    """Is every file still the one that was read, and every folder? Compares what the file system says, not contents.

    The folders count because a whole folder can be moved away, another one moved into its place, and back again.

    Raises:
        ModelForgeError: ARTIFACT_CHANGED, naming the first that is not.
    """
    with ArtifactRoot(root) as artifacts:
        compare_stamps(artifacts, folder, before.members)
        after = _list(artifacts, folder, len(before.members))
    _compare_folders(before.folders, after.folders)


def compare_stamps(artifacts: ArtifactRoot, folder: str, members: tuple[Member, ...]) -> None:
    """As `still_the_same`, below a root that is open already."""
    now = _list(artifacts, folder, len(members)).members
    _compare_names(members, now)
    for before, after in zip(members, now, strict=True):
        if before.stamp != after.stamp:
            raise changed(before.path, _what_changed(before.stamp, after.stamp))


def _compare_folders(before: tuple[Member, ...], after: tuple[Member, ...]) -> None:
    now = {folder.path: folder.stamp for folder in after}
    for folder in before:
        if now.get(folder.path) != folder.stamp:
            what = "the folder was moved, or something in it was renamed, while the set was in use"
            raise changed(folder.path, what)


def _what_changed(before: Stamp, after: Stamp) -> str:
    """A new link or permission moves the change time too; whether the contents moved with it cannot be told later."""
    if replace(before, ctime_ns=after.ctime_ns) == after:
        return "its contents, permissions or links changed while the set was in use; nothing else may touch the folder"
    return "it changed while the set was in use"


def _list(artifacts: ArtifactRoot, folder: str, wanted_files: int) -> Listing:
    try:
        return artifacts.listing(folder, max_files=wanted_files + _EXTRA_FILES)
    except ModelForgeError as error:
        raise _as_changed(error, folder) from error


def _as_changed(error: ModelForgeError, folder: str) -> ModelForgeError:
    if error.code not in _GONE:
        return error
    file = error.context.get("file", folder)
    return changed(file, f"the folder is not the approved one any more: {error.message}")


def _compare_names(wanted: Iterable[FileEntry | Member], found: Iterable[Member]) -> None:
    before, after = {entry.path for entry in wanted}, {member.path for member in found}
    if missing := sorted(before - after):
        raise changed(missing[0], "the file is missing")
    if extra := sorted(after - before):
        raise changed(extra[0], "the file is not in the approved set")
