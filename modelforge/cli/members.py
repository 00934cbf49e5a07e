"""All members of a set, however many: a manifest that does not fit one message comes page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from bus import verbs
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.api import ById, FilesRequest
from bus.messages.artifacts import ArtifactSet, FileEntry, Manifest

if TYPE_CHECKING:
    from bus.operator import Operator

PAGE_FILES: Final = 2_000


async def read_set(
    operator: Operator, named: str, *, files_max: int | None
) -> tuple[ArtifactSet, tuple[FileEntry, ...]]:
    """A set, and `files_max` of its members; with `None` all of them, and then the set's own manifest is whole.

    Raises:
        ModelForgeError: UNKNOWN_ID, AMBIGUOUS_ID, INTERNAL when the pages do not make up the set.
    """
    found = await operator.call(verbs.ARTIFACTS_SHOW, ById(id=named))
    if found.manifest is not None:
        return found, found.manifest.files[:files_max]
    wanted = found.file_count if files_max is None else min(files_max, found.file_count)
    files = await _pages(operator, found, wanted)
    if files_max is not None:
        return found, files
    manifest = Manifest(files=files)
    if manifest.digest() != found.digest:
        raise ModelForgeError(ErrorCode.INTERNAL, f"the pages of {found.digest} are not its manifest")
    return msgspec.structs.replace(found, manifest=manifest), files


async def _pages(operator: Operator, found: ArtifactSet, wanted: int) -> tuple[FileEntry, ...]:
    files: list[FileEntry] = []
    while len(files) < wanted:
        limit = min(PAGE_FILES, wanted - len(files))
        request = FilesRequest(id=found.digest, offset=len(files), limit=limit)
        page = await operator.call(verbs.ARTIFACTS_FILES, request)
        if not page.files:
            message = f"{found.digest} has {found.file_count} files, and no page after {len(files)}"
            raise ModelForgeError(ErrorCode.INTERNAL, message)
        files += page.files
    return tuple(files[:wanted])
