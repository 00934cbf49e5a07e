"""The records of the gates: set, environment, profile, assessment, approval, probe, candidate (spec G1)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from bus.digest import digest_of
from bus.errors import Failure
from bus.messages.base import Line, Moment, Natural, Positive, Record
from bus.messages.evidence import PhaseMark, ProbeEvidence
from bus.states import JobState, ProbeState

Sha256 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
Digest = Annotated[str, msgspec.Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]
Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9-]{0,23}\Z")]
Purpose = Literal["lab_execution", "pickle", "production"]
StartMethod = Literal["template", "fresh"]


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
    """What the header of one weight file says, read without loading it."""

    path: str
    format: Literal["safetensors", "gguf", "pickle", "unknown"]
    tensors: Natural = 0
    parameters: Natural = 0
    bytes_by_dtype: dict[str, int] = {}
    problem: str | None = None


class SetEvidence(Record, frozen=True, kw_only=True):
    """What the scan read besides the bytes' digests: small JSON documents and weight headers."""

    documents: dict[str, Any] = {}
    weights: tuple[WeightFacts, ...] = ()
    notes: tuple[str, ...] = ()


class SetLocation(Record, frozen=True, kw_only=True):
    """Where a set lies: a node, and a path relative to that node's artifact root."""

    node: Name
    path: str
    scanned_at: Moment


class ArtifactSet(Record, frozen=True, kw_only=True):
    """An immutable set of files and the places where it was seen."""

    digest: Digest
    file_count: Natural
    size_bytes: Natural
    created_at: Moment
    locations: tuple[SetLocation, ...] = ()
    manifest: Manifest | None = None
    evidence: SetEvidence | None = None


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


class AdapterFacts(Record, frozen=True, kw_only=True):
    """One adapter as a node declares it. Declared support is never proven support (spec A2)."""

    name: Line
    version: Line
    executable: bool
    reason: Line | None = None
    tasks: tuple[Line, ...] = ()
    modalities: tuple[Line, ...] = ()
    model_types: tuple[Line, ...] = ()
    formats: tuple[Line, ...] = ()


class RuntimeEnvironment(Record, frozen=True, kw_only=True):
    """The interpreter and packages in which a node's child processes run; its digest is its identity."""

    python: Line
    platform: Line
    packages: Annotated[dict[Line, Line], msgspec.Meta(max_length=2_000)]
    adapters: tuple[AdapterFacts, ...]

    def digest(self) -> str:
        """`sha256:<hex>` of the canonical JSON of this environment."""
        return digest_of(self)


class Budgets(Record, frozen=True, kw_only=True):
    """Time budgets of a probe's phases, and of all of them together."""

    preparing_s: Positive = 300
    loading_s: Positive = 300
    healthchecking_s: Positive = 60
    unloading_s: Positive = 30
    total_s: Positive = 900


class RuntimeProfile(Record, frozen=True, kw_only=True):
    """How a set is to be run. Immutable: another value is another profile (spec G1)."""

    name: Name
    adapter: str = "sentence_transformers"
    task: Literal["embedding"] = "embedding"
    device: Literal["cpu", "cuda"] = "cpu"
    gpu_uuid: str | None = None
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    batch_size: Positive = 1
    max_sequence_length: Positive = 256
    normalize: bool = True
    threads: Positive = 1
    memory_limit_mib: Positive = 8_192
    reclaim_tolerance_mib: Natural = 64
    budgets: Budgets = Budgets()

    def digest(self) -> str:
        """`sha256:<hex>` of the canonical JSON of this profile."""
        return digest_of(self)


class ProfileView(Record, frozen=True, kw_only=True):
    """A stored profile."""

    id: Digest
    profile: RuntimeProfile
    created_at: Moment
    created_by: str


class Finding(Record, frozen=True, kw_only=True):
    """One finding of an assessment: a closed code, the fact it rests on, and what to do."""

    code: str
    severity: Literal["blocker", "warning", "note"]
    message: str
    source: str
    remedy: str


class EstimatePart(Record, frozen=True, kw_only=True):
    """One addend of an estimate."""

    name: str
    size_bytes: Natural
    basis: str


class Estimate(Record, frozen=True, kw_only=True):
    """Memory that the model will probably need. Never a measurement (spec A11)."""

    kind: Literal["estimated"] = "estimated"
    size_bytes: Natural
    parts: tuple[EstimatePart, ...] = ()


class Assessment(Record, frozen=True, kw_only=True):
    """A compatibility assessment (spec A1). `stale_because` is derived at every read, never stored (A18)."""

    id: str
    set_digest: Digest
    profile_id: Digest
    profile_name: str
    node: Name
    environment_id: Digest
    adapter: str
    adapter_version: str
    fingerprint: Digest
    verdict: Literal["compatible", "blocked"]
    findings: tuple[Finding, ...]
    estimate: Estimate | None
    facts: dict[str, str]
    created_at: Moment
    created_by: str
    stale_because: tuple[str, ...] = ()
    approvals: tuple[str, ...] = ()


class Approval(Record, frozen=True, kw_only=True):
    """An operator's word that one exact set may be used for one purpose (spec G4)."""

    id: str
    set_digest: Digest
    purpose: Purpose
    approved_by: str
    reason: str
    approved_at: Moment
    revoked_by: str | None = None
    revoked_at: Moment | None = None
    revoke_reason: str | None = None


class ProbeView(Record, frozen=True, kw_only=True):
    """A probe, as an operator sees it; `evidence` comes with `show` and with the last event only."""

    id: str
    state: ProbeState
    node: Name
    location: str
    set_digest: Digest
    profile_id: Digest
    profile_name: str
    assessment_id: str
    approval_id: str
    attempt: Natural
    max_attempts: Positive
    queued_at: Moment
    queued_by: str
    state_at: Moment
    start_method: StartMethod
    budgets: Budgets
    timeline: tuple[PhaseMark, ...] = ()
    finished_at: Moment | None = None
    cancel_requested: bool = False
    failure: Failure | None = None
    log_ref: str | None = None
    candidate_id: str | None = None
    evidence: ProbeEvidence | None = None


class Candidate(Record, frozen=True, kw_only=True):
    """The end of M4: lab ready, never production (spec G2)."""

    id: str
    probe_id: str
    set_digest: Digest
    profile_id: Digest
    profile_name: str
    node: Name
    environment_id: Digest
    fingerprint: Digest
    created_at: Moment
    status: Literal["lab_ready"] = "lab_ready"
    production: Literal[False] = False
    stale_because: tuple[str, ...] = ()
