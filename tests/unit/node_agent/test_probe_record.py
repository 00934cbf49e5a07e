"""From samples and frames to evidence: pure functions."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from adapters.child.protocol import Checked, Isolated, Loaded, Probed, Unloaded
from bus.errors import ErrorCode
from bus.ids import now
from bus.messages.evidence import (
    GpuSample,
    Health,
    HostMemory,
    Layer,
    MemorySource,
    Output,
    ProbeEvidence,
    Reclaim,
    Sample,
    SamplePoint,
)
from bus.messages.profiles import RuntimeProfile
from bus.proof import what_is_unproven
from node_agent.probe_record import ProbeRecord, memory_summary
from node_agent.scrub import Scrub
from tests.support.proven import INPUT_SHA256, proven_marks

LOADED = Loaded(load_ms=5.0, device="cpu", max_sequence_length=128, allocator_bytes=None, facts={"torch": "2"})
OUTPUT = Output(
    input_sha256=INPUT_SHA256,
    vector_length=3,
    vector_sha256="1" * 64,
    norm=1.0,
    first_values=(1.0, 0.0, 0.0),
    dtype="float32",
    finite=True,
    repeat_identical=True,
)
PROBED = Probed(output=OUTPUT, inference_ms=2.0, repeat_inference_ms=1.0, allocator_peak_bytes=None)
CHECKED = Checked(health=Health(process="healthy", runtime="healthy", model="healthy"))
GUARD, ENVIRONMENT = Layer(name="audit_guard", active=True), Layer(name="scrubbed_environment", active=True)
ISOLATED = Isolated(pid=1, layers=(GUARD, ENVIRONMENT), egress_barrier="seccomp", containment="seccomp")
RECLAIM = Reclaim(verdict="not_applicable", basis="no GPU was used", process_gone=True, exit_status="exit 0")
SCRUB = Scrub({})


def record(**fields: Any) -> ProbeRecord:
    whole: dict[str, Any] = {
        "profile": RuntimeProfile(name="p"),
        "adapter_version": "1",
        "gpu_reason": "cpu",
        "isolated": ISOLATED,
        "loaded": LOADED,
        "probed": PROBED,
        "checked": CHECKED,
        "unloaded": Unloaded(unload_ms=1.0),
        "clean_exit": True,
        "reclaim": RECLAIM,
    }
    return ProbeRecord(**{**whole, **fields})


def sample(point: SamplePoint, *, rss: int | None = None, peak: int | None = None, **gpu: Any) -> Sample:
    host = HostMemory(rss_bytes=rss, peak_rss_bytes=peak)
    return Sample(point=point, at=now(), host=host, gpu=GpuSample(uuid="GPU-1", **gpu) if gpu else None)


def another(**fields: Any) -> Probed:
    return msgspec.structs.replace(PROBED, output=msgspec.structs.replace(OUTPUT, **fields))


@pytest.mark.req("P13")
def test_a_whole_record_proves_the_probe() -> None:
    assert what_is_unproven(record().evidence(SCRUB), proven_marks()) is None


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"isolated": None}, ErrorCode.HEALTHCHECK_FAILED),
        ({"isolated": msgspec.structs.replace(ISOLATED, layers=(GUARD,))}, ErrorCode.HEALTHCHECK_FAILED),
        ({"refused_attempts": ["socket.connect (inet)"]}, ErrorCode.OFFLINE_LOAD_VIOLATION),
        ({"probed": None}, ErrorCode.INVALID_OUTPUT),
        ({"probed": another(norm=0.0)}, ErrorCode.INVALID_OUTPUT),
        ({"probed": another(input_sha256="0" * 64)}, ErrorCode.INVALID_OUTPUT),
        ({"probed": another(repeat_identical=False)}, ErrorCode.INVALID_OUTPUT),
        ({"checked": None}, ErrorCode.HEALTHCHECK_FAILED),
        ({"checked": Checked(health=Health(runtime="healthy", model="unhealthy"))}, ErrorCode.HEALTHCHECK_FAILED),
        ({"clean_exit": False}, ErrorCode.HEALTHCHECK_FAILED),
        ({"reclaim": None}, ErrorCode.HEALTHCHECK_FAILED),
        ({"reclaim": msgspec.structs.replace(RECLAIM, process_gone=False)}, ErrorCode.HEALTHCHECK_FAILED),
        ({"reclaim": msgspec.structs.replace(RECLAIM, verdict="not_reclaimed")}, ErrorCode.GPU_MEMORY_NOT_RECLAIMED),
        ({"reclaim": msgspec.structs.replace(RECLAIM, verdict="inconclusive")}, ErrorCode.GPU_MEMORY_NOT_RECLAIMED),
    ],
)
@pytest.mark.req("P2", "P8", "P11", "P13")
def test_what_is_missing_is_a_failure(fields: dict[str, Any], code: ErrorCode) -> None:
    error = what_is_unproven(record(**fields).evidence(SCRUB), proven_marks())
    assert error is not None
    assert error.code is code


def test_a_refused_process_is_no_use_of_the_network() -> None:
    assert what_is_unproven(record(refused_attempts=["os.fork (process)"]).evidence(SCRUB), proven_marks()) is None


def test_a_process_that_the_child_calls_healthy_is_what_the_parent_saw() -> None:
    assert record(clean_exit=False, died=True).evidence(SCRUB).health.process == "unhealthy"
    assert record(clean_exit=False).evidence(SCRUB).health.process == "unknown"


def test_the_evidence_of_nothing_is_still_evidence() -> None:
    evidence = ProbeRecord(profile=RuntimeProfile(name="p"), adapter_version="1", gpu_reason="cpu").evidence(SCRUB)
    assert isinstance(evidence, ProbeEvidence)
    assert (evidence.isolation, evidence.output, evidence.reclaim, evidence.samples) == (None, None, None, ())
    assert evidence.kind == "measured"


@pytest.mark.req("P7")
def test_the_cpus_figures_are_the_childs_resident_set() -> None:
    samples = [
        sample(SamplePoint.BEFORE_LOAD, rss=10, peak=12),
        sample(SamplePoint.AFTER_LOAD, rss=30, peak=35),
        sample(SamplePoint.AFTER_INFERENCE, rss=31, peak=40),
    ]
    memory = memory_summary(samples, LOADED, PROBED, RECLAIM, "cpu")
    assert memory.source is MemorySource.PROCESS_RSS
    assert (memory.before_bytes, memory.after_load_bytes, memory.peak_bytes, memory.after_exit_bytes) == (10, 30, 40, 0)


@pytest.mark.req("P7")
def test_the_cards_figures_come_from_one_source_and_never_two() -> None:
    points = (SamplePoint.BASELINE, SamplePoint.AFTER_LOAD, SamplePoint.AFTER_INFERENCE, SamplePoint.AFTER_EXIT)
    listed = [sample(point, used_bytes=100 + n, process_bytes=n or None) for n, point in enumerate(points)]
    memory = memory_summary(listed, LOADED, PROBED, RECLAIM, None)
    assert (memory.source, memory.after_load_bytes, memory.peak_bytes) == (MemorySource.NVML_PROCESS, 1, 3)
    unlisted = [sample(point, used_bytes=used) for point, used in zip(points, (100, 150, 170, 101), strict=True)]
    memory = memory_summary(unlisted, LOADED, PROBED, RECLAIM, None)
    assert memory.source is MemorySource.DEVICE_DELTA
    assert (memory.before_bytes, memory.after_load_bytes, memory.peak_bytes, memory.after_exit_bytes) == (
        None,
        50,
        70,
        1,
    )


@pytest.mark.req("P7")
def test_without_nvml_the_allocator_speaks_and_without_both_nobody() -> None:
    blind = [sample(SamplePoint.AFTER_LOAD, unavailable={"nvml": "not found"})]
    loaded = msgspec.structs.replace(LOADED, allocator_bytes=7)
    probed = msgspec.structs.replace(PROBED, allocator_peak_bytes=9)
    memory = memory_summary(blind, loaded, probed, RECLAIM, None)
    assert (memory.source, memory.after_load_bytes, memory.peak_bytes) == (MemorySource.ALLOCATOR, 7, 9)
    memory = memory_summary(blind, LOADED, PROBED, RECLAIM, None)
    assert memory.source is MemorySource.UNAVAILABLE
    assert memory.gpu_reason
