"""The records of the gates: assessment, approval, probe, candidate (spec G1)."""

from __future__ import annotations

from typing import Literal

from bus.errors import Failure
from bus.messages.artifacts import Digest, Name
from bus.messages.base import Integer, Moment, Natural, Positive, Record
from bus.messages.evidence import MemorySource, PhaseMark, ProbeEvidence
from bus.messages.inventory import HardwareFacts
from bus.messages.profiles import Budgets, Task
from bus.states import ProbeState

Purpose = Literal["lab_execution", "pickle", "production", "quarantine_release"]
StartMethod = Literal["template", "fresh"]
# `compatible`: nothing that was read speaks against it. `requires_probe`: the same, but static analysis makes no claim
# for this adapter at all; only a probe can. Neither says that a model was loaded (spec A2, A14, A17).
Verdict = Literal["compatible", "requires_probe", "blocked"]


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


class EstimateError(Record, frozen=True, kw_only=True):
    """How far an earlier estimate was from what a probe then measured.

    Attributes:
        scope: what that probe has in common with the assessment that shows it.
        source: what the measured figure is; an estimate is compared with the same kind only.
        error_percent: (estimated - measured) / measured, in whole percent; positive when too much was estimated.
    """

    probe_id: str
    node: Name
    scope: Literal["same set, profile and node", "same set and profile", "same adapter and node"]
    estimated_bytes: Natural
    measured_bytes: Natural
    source: MemorySource
    error_percent: Integer
    at: Moment


class Estimate(Record, frozen=True, kw_only=True):
    """Memory that the model will probably need. Never a measurement (spec A11).

    Attributes:
        history: the errors of earlier estimates, the nearest relative first; empty before anything was measured.
    """

    kind: Literal["estimated"] = "estimated"
    size_bytes: Natural
    parts: tuple[EstimatePart, ...] = ()
    history: tuple[EstimateError, ...] = ()


class Declared(Record, frozen=True, kw_only=True):
    """What the node's runtime declares about the adapter. It is a claim, never a proof (spec A2).

    Attributes:
        model_type: the one that the set's configuration names.
        model_type_declared: is that one among those declared? `None` where the adapter declares no list, or the set
            names none.
    """

    adapter: str
    version: str
    executable: bool
    inspect_only: bool = False
    tasks: tuple[str, ...] = ()
    modalities: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    quantizations: tuple[str, ...] = ()
    model_type: str | None = None
    model_type_declared: bool | None = None


class Proof(Record, frozen=True, kw_only=True):
    """What a completed probe proved here, under exactly the facts that hold now. Derived at every read, never stored.

    Attributes:
        memory_bytes: the peak that the probe measured, from `memory_source`.
    """

    kind: Literal["measured"] = "measured"
    probe_id: str
    candidate_id: str | None
    task: Task
    fingerprint: Digest
    completed_at: Moment
    load_ms: float | None = None
    inference_ms: float | None = None
    memory_bytes: Natural | None = None
    memory_source: MemorySource = MemorySource.UNAVAILABLE


class Assessment(Record, frozen=True, kw_only=True):
    """A compatibility assessment (spec A1).

    `stale_because`, `approvals` and `proof` are derived at every read, never stored (A18).

    Attributes:
        profile_version: which contents of that name; `NAME@VERSION` addresses exactly them.
        location: the place below the node's artifact root that was assessed, and that a probe loads from.
        facts: the snapshot that the fingerprint is made of, each fact by its name.
        hardware: the node's hardware as it was.
        declared, proof: what the runtime says of itself, and what was proven here (A2).
    """

    id: str
    set_digest: Digest
    profile_id: Digest
    profile_name: str
    profile_version: Positive = 1
    location: str | None = None
    node: Name
    environment_id: Digest
    adapter: str
    adapter_version: str
    fingerprint: Digest
    verdict: Verdict
    findings: tuple[Finding, ...]
    estimate: Estimate | None
    facts: dict[str, str]
    created_at: Moment
    created_by: str
    hardware: HardwareFacts | None = None
    declared: Declared | None = None
    proof: Proof | None = None
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
