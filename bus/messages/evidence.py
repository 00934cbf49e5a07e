"""What a node reports: phases, measurements and the end of a job (spec P6-P13).

Every message names lease, attempt and sequence, and carries all phases of its attempt so far. So a lost message
costs nothing: the next one brings what it said (docs/adr/0006).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from bus.errors import Failure
from bus.messages.base import Message, Moment, Record
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

    rss_bytes: int | None = None
    pss_bytes: int | None = None
    peak_rss_bytes: int | None = None
    reason: str | None = None


class GpuProcess(Record, frozen=True, kw_only=True):
    """A process that NVML lists on the card and that is not ours; it is shown, never adopted (spec S6)."""

    pid: int
    used_bytes: int | None = None


class GpuSample(Record, frozen=True, kw_only=True):
    """One reading of one card by UUID; a missing sensor is `None` and named in `unavailable` with the reason."""

    uuid: str
    used_bytes: int | None = None
    free_bytes: int | None = None
    total_bytes: int | None = None
    process_bytes: int | None = None
    utilization_percent: int | None = None
    temperature_celsius: int | None = None
    power_milliwatts: int | None = None
    foreign: tuple[GpuProcess, ...] = ()
    unavailable: dict[str, str] = {}


class Sample(Record, frozen=True, kw_only=True):
    """Host and GPU at one point of the probe."""

    point: SamplePoint
    at: Moment
    host: HostMemory
    gpu: GpuSample | None = None


class MemorySummary(Record, frozen=True, kw_only=True):
    """The four figures an operator asks for, all from one source."""

    source: MemorySource
    before_bytes: int | None = None
    after_load_bytes: int | None = None
    peak_bytes: int | None = None
    after_exit_bytes: int | None = None
    gpu_reason: str | None = None


class Reclaim(Record, frozen=True, kw_only=True):
    """Was the memory given back? The basis says what the verdict rests on (spec P8)."""

    verdict: Literal["reclaimed", "not_reclaimed", "not_applicable", "inconclusive"]
    basis: str
    baseline_bytes: int | None = None
    after_exit_bytes: int | None = None
    tolerance_bytes: int = 0
    waited_ms: int = 0
    process_gone: bool
    exit_status: str


class Layer(Record, frozen=True, kw_only=True):
    """One isolation layer: was it really active, and if not, why."""

    name: str
    active: bool
    detail: str = ""


class Isolation(Record, frozen=True, kw_only=True):
    """What kept the child offline and contained; `none` is said where there was none."""

    layers: tuple[Layer, ...]
    egress_barrier: str
    containment: str
    start_method: Literal["template", "fresh"]
    refused_attempts: tuple[str, ...] = ()


class Output(Record, frozen=True, kw_only=True):
    """The answer to the fixed input. The input itself is kept as a hash only (spec P2)."""

    input_sha256: str
    vector_length: int
    vector_sha256: str
    norm: float
    first_values: tuple[float, ...]
    dtype: str
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
    adapter: str
    adapter_version: str
    device: str
    batch_size: int
    max_sequence_length: int
    timings: Timings
    memory: MemorySummary
    samples: tuple[Sample, ...]
    isolation: Isolation | None
    reclaim: Reclaim | None
    health: Health
    output: Output | None = None
    runtime_facts: dict[str, str] = {}


class PhaseMark(Record, frozen=True, kw_only=True):
    """A state that an attempt entered, and when (the node's clock)."""

    state: ProbeState
    at: Moment
    attempt: int


class Evidence(Message, tag="evidence.v1", frozen=True, kw_only=True):
    """Common head of all evidence: who says it, under which lease, and in which order."""

    node: str
    boot_id: str
    job_id: str
    lease_id: str
    attempt: int
    sequence: int
    at: Moment


class ProbePhase(Evidence, tag="probe.phase.v1", frozen=True, kw_only=True):
    """A probe entered a phase; `timeline` holds every phase of this attempt, this one last."""

    timeline: tuple[PhaseMark, ...]


class ProbeFinished(Evidence, tag="probe.finished.v1", frozen=True, kw_only=True):
    """The attempt is over: the child is gone and reclaim was checked."""

    timeline: tuple[PhaseMark, ...]
    outcome: Literal["completed", "failed", "cancelled"]
    evidence: ProbeEvidence | None
    failure: Failure | None = None
    log_ref: str
    log_text: str = ""
    log_dropped_bytes: int = 0


class ScanFinished(Evidence, tag="scan.finished.v1", frozen=True, kw_only=True):
    """A scan is over. `manifest` and `evidence` are canonical; both are absent after a failure."""

    outcome: Literal["succeeded", "failed", "cancelled"]
    manifest_json: str | None = None
    evidence_json: str | None = None
    failure: Failure | None = None


AnyEvidence = ProbePhase | ProbeFinished | ScanFinished
