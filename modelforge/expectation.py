"""What a set is expected to be: a list of digests from outside, read at the operator's side (spec G4).

A plain list and a verified signature end in the same canonical list, which travels as a blob and is compared by the
controller, file by file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from adapters.formats import sha256sums
from bus.errors import ErrorCode, ModelForgeError
from bus.files import read_bounded
from bus.messages.artifacts import ExpectationKind
from bus.messages.blobs import MAX_BLOB_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The files that a set must have, no more and no less.

    Attributes:
        entries: relative POSIX path -> 64 hex digits, sorted by path.
        source_sha256: hex digest of the list or signature file itself; a member with this digest is no surplus.
        key: what the signature was checked with, `sha256:` and the key's fingerprint; `None` for a plain list.
        blob: `entries` as the canonical list, at most `MAX_BLOB_BYTES`.
        ignored: what the signer left out, as the signature says; nothing is known of these files.
    """

    kind: ExpectationKind
    entries: dict[str, str]
    source_sha256: str
    key: str | None = None
    ignored: tuple[str, ...] = ()
    blob: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Render the list once.

        Raises:
            ModelForgeError: INVALID_ARGUMENT when it is larger than a blob may be.
        """
        blob = sha256sums.render(self.entries)
        if len(blob) > MAX_BLOB_BYTES:
            message = f"the list is {len(blob)} bytes, more than the {MAX_BLOB_BYTES} that can be sent"
            raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, message)
        object.__setattr__(self, "blob", blob)


def read_sums(path: Path) -> Expected:
    """The list in a file that `sha256sum` wrote.

    Raises:
        ModelForgeError: INVALID_ARGUMENT, with the number of the line when it is one that is wrong.
    """
    data = read_source(path, sha256sums.MAX_LIST_BYTES)
    try:
        entries = sha256sums.parse(data)
    except sha256sums.SumsProblem as problem:
        where = {} if problem.line is None else {"line": str(problem.line)}
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, f"{path}: {problem}", file=str(path), **where) from problem
    return Expected(kind="sha256sum", entries=entries, source_sha256=sha256(data).hexdigest())


def read_source(path: Path, limit_bytes: int) -> bytes:
    """The contents of a regular file of at most `limit_bytes`.

    Raises:
        ModelForgeError: INVALID_ARGUMENT.
    """
    try:
        return read_bounded(path, limit_bytes)
    except OSError as error:
        message = f"{path}: {error.strerror or error}"
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, message, file=str(path)) from error
