"""What a node reports: phases, measurements and the end of a job (spec P6-P13).

Every message names lease, attempt and sequence, and carries all phases of its attempt so far. So a lost message
costs nothing: the next one brings what it said (docs/adr/0006).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta

from bus.errors import Failure
from bus.messages.artifacts import BlobRef
from bus.messages.base import Facts, Integer, Line, Message, Moment, Natural, Positive, Record, Token
from bus.states import ProbeState


class MemorySource(StrEnum):
    """Where a memory figure comes from; never mixed."""

    ALLOCATOR = "allocator"
    NVML_PROCESS = "nvml_process"
    DEVICE_DELTA = "device_delta"
    PROCESS_RSS = "process_rss"
    UNAVAILABLE = "unavailable"


class SamplePoint(StrEnum):
    """When a sample was taken (spec P7)."""

    BASELINE = "baseline"
    BEFORE_LOAD = "before_load"
    AFTER_LOAD = "after_load"
    BEFORE_INFERENCE = "before_inference"
    AFTER_INFERENCE = "after_inference"
    AFTER_EXIT = "after_exit"


class HostMemory(Record, frozen=True, kw_only=True):
    """Memory of the child process as the kernel counts it; `None` with a reason when it cannot be read."""

    rss_bytes: Integer | None = None
    pss_bytes: Integer | None = None
    peak_rss_bytes: Integer | None = None
    reason: Line | None = None


class GpuProcess(Record, frozen=True, kw_only=True):
    """A process that NVML lists on the card and that is not ours; it is shown, never adopted (spec S6)."""

    pid: Natural
    used_bytes: Integer | None = None


class GpuSample(Record, frozen=True, kw_only=True):
    """One reading of one card by UUID; a missing sensor is `None` and named in `unavailable` with the reason."""

    uuid: Line
    used_bytes: Integer | None = None
    free_bytes: Integer | None = None
    total_bytes: Integer | None = None
    process_bytes: Integer | None = None
    utilization_percent: Integer | None = None
    temperature_celsius: Integer | None = None
    power_milliwatts: Integer | None = None
    foreign: Annotated[tuple[GpuProcess, ...], Meta(max_length=256)] = ()
    unavailable: Facts = {}


class Sample(Record, frozen=True, kw_only=True):
    """Host and GPU at one point of the probe."""

    point: SamplePoint
    at: Moment
    host: HostMemory
    gpu: GpuSample | None = None


class MemorySummary(Record, frozen=True, kw_only=True):
    """The four figures an operator asks for, all from one source."""

    source: MemorySource
    before_bytes: Integer | None = None
    after_load_bytes: Integer | None = None
    peak_bytes: Integer | None = None
    after_exit_bytes: Integer | None = None
    gpu_reason: Line | None = None


class Reclaim(Record, frozen=True, kw_only=True):
    """Was the memory given back? The basis says what the verdict rests on (spec P8)."""

    verdict: Literal["reclaimed", "not_reclaimed", "not_applicable", "inconclusive"]
    basis: Line
    baseline_bytes: Integer | None = None
    after_exit_bytes: Integer | None = None
    tolerance_bytes: Natural = 0
    waited_ms: Natural = 0
    process_gone: bool
    exit_status: Line


class Layer(Record, frozen=True, kw_only=True):
    """One isolation layer: was it really active, and if not, why."""

    name: Line
    active: bool
    detail: Line = ""


class Isolation(Record, frozen=True, kw_only=True):
    """What kept the child offline and contained; `none` is said where there was none."""

    layers: Annotated[tuple[Layer, ...], Meta(max_length=256)]
    egress_barrier: Line
    containment: Line
    start_method: Literal["template", "fresh"]
    refused_attempts: Annotated[tuple[Line, ...], Meta(max_length=256)] = ()


class Output(Record, frozen=True, kw_only=True):
    """The answer to the fixed input. The input itself is kept as a hash only (spec P2)."""

    input_sha256: Line
    vector_length: Natural
    vector_sha256: Line
    norm: float
    first_values: Annotated[tuple[float, ...], Meta(max_length=256)]
    dtype: Line
    finite: bool
    repeat_identical: bool


class Timings(Record, frozen=True, kw_only=True):
    """Durations in milliseconds."""

    verify_ms: float = 0.0
    start_ms: float = 0.0
    load_ms: float | None = None
    inference_ms: float | None = None
    repeat_inference_ms: float | None = None
    unload_ms: float | None = None
    total_ms: float = 0.0


class Health(Record, frozen=True, kw_only=True):
    """The four layers (spec P13); capability is not routed in M4 by design."""

    process: Literal["healthy", "unhealthy", "unknown"] = "unknown"
    runtime: Literal["healthy", "unhealthy", "unknown"] = "unknown"
    model: Literal["healthy", "unhealthy", "unknown"] = "unknown"
    capability: Literal["not_routed_in_m4"] = "not_routed_in_m4"


class ProbeEvidence(Record, frozen=True, kw_only=True):
    """All that was measured in one attempt. `kind` is always `measured` (spec A11)."""

    kind: Literal["measured"] = "measured"
    adapter: Line
    adapter_version: Line
    device: Line
    batch_size: Natural
    max_sequence_length: Natural
    timings: Timings
    memory: MemorySummary
    samples: Annotated[tuple[Sample, ...], Meta(max_length=256)]
    isolation: Isolation | None
    reclaim: Reclaim | None
    health: Health
    output: Output | None = None
    runtime_facts: Facts = {}


class PhaseMark(Record, frozen=True, kw_only=True):
    """A state that an attempt entered, and when (the node's clock); attempt 0 is the time in the queue."""

    state: ProbeState
    at: Moment
    attempt: Natural


class Evidence(Message, tag="evidence.v1", frozen=True, kw_only=True):
    """Common head of all evidence: who says it, under which lease, and in which order."""

    node: Token
    boot_id: Token
    job_id: Token
    lease_id: Token
    attempt: Positive
    sequence: Natural
    at: Moment


class ProbePhase(Evidence, tag="probe.phase.v1", frozen=True, kw_only=True):
    """A probe entered a phase; `timeline` holds every phase of this attempt, this one last."""

    timeline: Annotated[tuple[PhaseMark, ...], Meta(max_length=256)]


class ProbeFinished(Evidence, tag="probe.finished.v1", frozen=True, kw_only=True):
    """The attempt is over: the child is gone and reclaim was checked."""

    timeline: Annotated[tuple[PhaseMark, ...], Meta(max_length=256)]
    outcome: Literal["completed", "failed", "cancelled"]
    evidence: ProbeEvidence | None
    failure: Failure | None = None
    log_ref: Line
    log_text: str = ""
    log_dropped_bytes: Natural = 0


class ScanFinished(Evidence, tag="scan.finished.v1", frozen=True, kw_only=True):
    """A scan is over. The manifest is canonical JSON; both parts are absent after a failure.

    A part that is larger than a message may be travels before as a blob (`blob.put`), and is named here.

    Attributes:
        files_hashed, files_cached: how many digests were computed, and how many were known by the file's stamp.
    """

    outcome: Literal["succeeded", "failed", "cancelled"]
    manifest_json: str | None = None
    evidence_json: str | None = None
    manifest_blob: BlobRef | None = None
    evidence_blob: BlobRef | None = None
    files_hashed: Natural = 0
    files_cached: Natural = 0
    failure: Failure | None = None


AnyEvidence = ProbePhase | ProbeFinished | ScanFinished
