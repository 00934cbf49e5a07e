"""Files as they were read: members, sets, what a scan kept of their headers, and where a set lies (spec A3-A5, G4)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec

from bus.digest import digest_of
from bus.errors import Failure
from bus.messages.base import Line, Moment, Natural, Record
from bus.states import JobState

Sha256 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
Digest = Annotated[str, msgspec.Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]
Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9-]{0,23}\Z")]
ExpectationKind = Literal["sha256sum", "openssf_signature"]


class FileFormat(StrEnum):
    """What a member is by its own bytes; its name is not asked."""

    EMPTY = "empty"
    SAFETENSORS = "safetensors"
    GGUF = "gguf"
    PICKLE = "pickle"
    TORCH_ZIP = "torch_zip"
    ONNX = "onnx"
    HDF5 = "hdf5"
    NUMPY = "numpy"
    TFLITE = "tflite"
    CTRANSLATE2 = "ctranslate2"
    LFS_POINTER = "lfs_pointer"
    JSON = "json"
    HTML = "html"
    PYTHON = "python"
    SCRIPT = "script"
    TEXT = "text"
    ZIP = "zip"
    TAR = "tar"
    GZIP = "gzip"
    BZIP2 = "bzip2"
    XZ = "xz"
    ZSTD = "zstd"
    SEVEN_ZIP = "seven_zip"
    RAR = "rar"
    ELF = "elf"
    PE = "pe"
    MACH_O = "mach_o"
    WASM = "wasm"
    IMAGE = "image"
    AUDIO = "audio"
    PDF = "pdf"
    BINARY = "binary"


class FileEntry(Record, frozen=True, kw_only=True):
    """One member of a set: its path relative to the set's folder (POSIX, UTF-8), its size and its SHA-256."""

    path: str
    size_bytes: Natural
    sha256: Sha256


class Manifest(Record, frozen=True, kw_only=True):
    """The exact files of a set, sorted by path. Its digest is the set's identity (spec A3, G4)."""

    files: tuple[FileEntry, ...]

    def digest(self) -> str:
        """`sha256:<hex>` of the canonical JSON of this manifest."""
        return digest_of(self)

    @property
    def size_bytes(self) -> int:
        """Sum of all member sizes."""
        return sum(file.size_bytes for file in self.files)


class WeightFacts(Record, frozen=True, kw_only=True):
    """What the header of one weight file says, read without loading it.

    Attributes:
        names_sha256: hex digest of the sorted tensor names, one a line: two files of the same model have the same.
        metadata: a few plain facts of the header. GGUF: `architecture`, `quantization` (such as `Q4_K_M`),
            `context_length`, `block_count`, `embedding_length`, `tokenizer`; Safetensors: `format`, and the layers of
            each numbered stack (`stacks`, `stack N`) and the shapes of a few landmarks (`tensor NAME`).
    """

    path: str
    format: Literal["safetensors", "gguf", "pickle", "unknown"]
    tensors: Natural = 0
    parameters: Natural = 0
    bytes_by_dtype: dict[str, int] = {}
    problem: str | None = None
    names_sha256: Sha256 | None = None
    metadata: dict[str, str] = {}


class Opinion(Record, frozen=True, kw_only=True):
    """What another scanner thinks of a pickle. It is shown, and decides nothing."""

    tool: Line
    version: Line
    verdict: Literal["clean", "suspicious", "dangerous", "unavailable"]
    detail: Line = ""


class PickleFacts(Record, frozen=True, kw_only=True):
    """One pickle stream, read opcode by opcode and never loaded (spec A4).

    Attributes:
        path: the member of the set.
        member: the entry inside a zip container; empty for a plain pickle.
        verdict: `tensors`: it can only rebuild tensors and plain containers. `plain`: plain values only. `code`: it
            names or calls something that is on no list. `unreadable`: it cannot be read to its end.
        reason: the first thing that decided the verdict.
        imports: every name that it would import, `module.name`, each once.
    """

    path: str
    member: str = ""
    verdict: Literal["tensors", "plain", "code", "unreadable"]
    reason: str
    imports: tuple[str, ...] = ()
    opinions: tuple[Opinion, ...] = ()


class SetEvidence(Record, frozen=True, kw_only=True):
    """What the scan read besides the bytes' digests: small JSON documents, weight headers, formats, pickles.

    Attributes:
        formats: `FileFormat` of every member by its bytes.
        scanner: which rules made this evidence; empty for a version before 2.
        problems: members of which something is not known, by path: `unreadable` (a document that is none), `cut`,
            `too_large`, `left_out` (there was no room), `pickle_left_out`. The notes say it in words, and are bounded.
    """

    documents: dict[str, Any] = {}
    weights: tuple[WeightFacts, ...] = ()
    notes: tuple[str, ...] = ()
    formats: dict[str, str] = {}
    pickles: tuple[PickleFacts, ...] = ()
    scanner: str = ""
    problems: dict[str, str] = {}


class SetLocation(Record, frozen=True, kw_only=True):
    """Where a set lies: a node, and a path relative to that node's artifact root.

    A place where a later read found another byte is `corrupt`: `file` and `problem` say what, until a scan says better.
    """

    node: Name
    path: str
    scanned_at: Moment
    state: Literal["present", "corrupt"] = "present"
    file: str | None = None
    problem: str | None = None
    found_at: Moment | None = None
    found_by: str | None = None


class Quarantine(Record, frozen=True, kw_only=True):
    """A file that nothing may be done with: it counts for every set that has a member of these bytes.

    Attributes:
        set_digest, path: where it was found first.
        released_by: the approval of the asked set that lets it through; derived when it is read, for one set.
    """

    id: str
    sha256: Sha256
    set_digest: Digest
    path: str
    reason: str
    quarantined_by: str
    quarantined_at: Moment
    released_by: str | None = None


class Expectation(Record, frozen=True, kw_only=True):
    """A list of digests from outside that the set was compared with, file by file, and equals.

    Attributes:
        sha256: of the list or signature file itself.
        key: what its signature was checked with; `None` for a plain list.
    """

    kind: ExpectationKind
    sha256: Sha256
    key: str | None = None
    required_by: str
    scan_id: str
    at: Moment


class ArtifactSet(Record, frozen=True, kw_only=True):
    """An immutable set of files and the places where it was seen.

    `manifest` is left out where it does not fit one message; `artifacts.files` gives it page by page.
    """

    digest: Digest
    file_count: Natural
    size_bytes: Natural
    created_at: Moment
    locations: tuple[SetLocation, ...] = ()
    manifest: Manifest | None = None
    evidence: SetEvidence | None = None
    quarantined: tuple[Quarantine, ...] = ()
    expectations: tuple[Expectation, ...] = ()


class BlobRef(Record, frozen=True, kw_only=True):
    """A payload that is too large for a message: named by its SHA-256, sent in chunks (`bus.messages.blobs`)."""

    sha256: Sha256
    size_bytes: Natural


class ScanProgress(Record, frozen=True, kw_only=True):
    """How far a scan is. Telemetry: it is kept in memory and lost without harm."""

    step: Literal["listing", "headers", "hashing", "reporting"]
    files_done: Natural = 0
    files_total: Natural = 0
    bytes_done: Natural = 0
    bytes_total: Natural = 0


class ScanView(Record, frozen=True, kw_only=True):
    """A scan job, as an operator sees it."""

    id: str
    node: Name
    path: str
    state: JobState
    queued_at: Moment
    attempt: Natural = 0
    finished_at: Moment | None = None
    set_digest: str | None = None
    failure: Failure | None = None
    progress: ScanProgress | None = None
    expected_sha256: str | None = None
