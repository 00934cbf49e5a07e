"""What one attempt has measured so far, and the evidence that it makes, complete or not (spec P7, P13, A11)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from adapters.child.protocol import Checked, Isolated, Loaded, Probed, Unloaded
from bus.messages.evidence import (
    GpuSample,
    Health,
    Isolation,
    MemorySource,
    MemorySummary,
    ProbeEvidence,
    Reclaim,
    Sample,
    SamplePoint,
    Timings,
)
from bus.messages.gates import StartMethod
from bus.messages.profiles import RuntimeProfile
from node_agent.scrub import Scrub


@dataclass(slots=True, kw_only=True)
class ProbeRecord:
    """Filled step by step. Whatever step was the last, `evidence` says what is known then.

    Attributes:
        profile: what the probe was asked to run.
        adapter_version: of the adapter's package on this node.
        gpu_reason: why there is no GPU figure, when there is none.
        fallback_reason: why the child was not started as the job asks; `None` when it was.
        clean_exit: did the child end by itself with status 0, after it had unloaded?
        died: did the child end by itself in any other way?
    """

    profile: RuntimeProfile
    adapter_version: str
    gpu_reason: str | None = None
    samples: list[Sample] = field(default_factory=list)
    refused_attempts: list[str] = field(default_factory=list)
    verify_ms: float = 0.0
    start_ms: float = 0.0
    total_ms: float = 0.0
    start_method: StartMethod = "fresh"
    fallback_reason: str | None = None
    isolated: Isolated | None = None
    loaded: Loaded | None = None
    probed: Probed | None = None
    checked: Checked | None = None
    unloaded: Unloaded | None = None
    clean_exit: bool = False
    died: bool = False
    reclaim: Reclaim | None = None

    def evidence(self, scrub: Scrub) -> ProbeEvidence:
        """The evidence so far; places of this machine are taken out of it."""
        loaded, profile = self.loaded, self.profile
        return ProbeEvidence(
            adapter=profile.adapter,
            adapter_version=self.adapter_version,
            device=loaded.device if loaded else profile.device,
            batch_size=profile.batch_size,
            max_sequence_length=loaded.max_sequence_length if loaded else profile.max_sequence_length,
            timings=self._timings(),
            memory=memory_summary(self.samples, self.loaded, self.probed, self.reclaim, self.gpu_reason),
            samples=tuple(self.samples),
            isolation=self._isolation(scrub),
            reclaim=self.reclaim,
            health=self._health(),
            output=self.probed.output if self.probed else None,
            runtime_facts=scrub.facts(self._facts()),
        )

    def _facts(self) -> dict[str, str]:
        facts = dict(self.loaded.facts) if self.loaded else {}
        if self.fallback_reason is not None:
            facts["start_method_fallback"] = self.fallback_reason
        return facts

    def _timings(self) -> Timings:
        loaded, probed, unloaded = self.loaded, self.probed, self.unloaded
        return Timings(
            verify_ms=self.verify_ms,
            start_ms=self.start_ms,
            total_ms=self.total_ms,
            load_ms=loaded.load_ms if loaded else None,
            inference_ms=probed.inference_ms if probed else None,
            repeat_inference_ms=probed.repeat_inference_ms if probed else None,
            unload_ms=unloaded.unload_ms if unloaded else None,
        )

    def _isolation(self, scrub: Scrub) -> Isolation | None:
        if self.isolated is None:
            return None
        return Isolation(
            layers=self.isolated.layers,
            egress_barrier=self.isolated.egress_barrier,
            containment=self.isolated.containment,
            start_method=self.start_method,
            refused_attempts=tuple(scrub.line(attempt) for attempt in self.refused_attempts),
        )

    def _health(self) -> Health:
        """The child's own word on runtime and model; the process layer is what the parent saw."""
        told = self.checked.health if self.checked else Health()
        process = "healthy" if self.clean_exit else "unhealthy" if self.died else "unknown"
        return Health(process=process, runtime=told.runtime, model=told.model)  # type: ignore[arg-type]  # literals


def memory_summary(
    samples: Sequence[Sample],
    loaded: Loaded | None,
    probed: Probed | None,
    reclaim: Reclaim | None,
    gpu_reason: str | None,
) -> MemorySummary:
    """The four figures, all from the best source that has them: NVML's process, the device's delta, the allocator.

    A probe on the CPU is measured by its child's resident set.
    """
    points = {sample.point: sample for sample in samples}
    gone = reclaim is not None and reclaim.process_gone
    if gpu_reason is not None:
        return _host_memory(points, samples, gpu_reason, gone=gone)
    gpus = {point: sample.gpu for point, sample in points.items() if sample.gpu is not None}
    after_load = gpus.get(SamplePoint.AFTER_LOAD)
    if after_load is not None and after_load.process_bytes is not None:
        return _process_memory(gpus, gone=gone)
    if after_load is not None and after_load.used_bytes is not None and SamplePoint.BASELINE in gpus:
        return _device_delta(gpus)
    if loaded is not None and loaded.allocator_bytes is not None:
        return MemorySummary(
            source=MemorySource.ALLOCATOR,
            before_bytes=0,
            after_load_bytes=loaded.allocator_bytes,
            peak_bytes=probed.allocator_peak_bytes if probed else None,
            after_exit_bytes=0 if gone else None,
        )
    return MemorySummary(source=MemorySource.UNAVAILABLE, gpu_reason="neither NVML nor the allocator gave a figure")


def _host_memory(
    points: dict[SamplePoint, Sample], samples: Sequence[Sample], gpu_reason: str, *, gone: bool
) -> MemorySummary:
    def rss(point: SamplePoint) -> int | None:
        return points[point].host.rss_bytes if point in points else None

    return MemorySummary(
        source=MemorySource.PROCESS_RSS,
        before_bytes=rss(SamplePoint.BEFORE_LOAD),
        after_load_bytes=rss(SamplePoint.AFTER_LOAD),
        peak_bytes=_most(sample.host.peak_rss_bytes for sample in samples),
        after_exit_bytes=0 if gone else None,
        gpu_reason=gpu_reason,
    )


def _process_memory(gpus: dict[SamplePoint, GpuSample], *, gone: bool) -> MemorySummary:
    def used(point: SamplePoint) -> int | None:
        return gpus[point].process_bytes if point in gpus else None

    return MemorySummary(
        source=MemorySource.NVML_PROCESS,
        before_bytes=used(SamplePoint.BEFORE_LOAD) or 0,
        after_load_bytes=used(SamplePoint.AFTER_LOAD),
        peak_bytes=_most(gpu.process_bytes for gpu in gpus.values()),
        after_exit_bytes=0 if gone else None,
    )


def _device_delta(gpus: dict[SamplePoint, GpuSample]) -> MemorySummary:
    baseline = gpus[SamplePoint.BASELINE].used_bytes or 0

    def delta(point: SamplePoint) -> int | None:
        used = gpus[point].used_bytes if point in gpus else None
        return None if used is None else max(0, used - baseline)

    return MemorySummary(
        source=MemorySource.DEVICE_DELTA,
        before_bytes=delta(SamplePoint.BEFORE_LOAD),
        after_load_bytes=delta(SamplePoint.AFTER_LOAD),
        peak_bytes=_most(delta(point) for point in gpus),
        after_exit_bytes=delta(SamplePoint.AFTER_EXIT),
    )


def _most(figures: Iterable[int | None]) -> int | None:
    known = [figure for figure in figures if figure is not None]
    return max(known, default=None)
