"""A hand-made world for the screens: every kind of probe at one frozen moment, and a desk that answers from memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

from bus.errors import Failure, ModelForgeError
from bus.feed import FeedState
from bus.messages.api import LogView
from bus.messages.evidence import (
    GpuProcess,
    GpuSample,
    Health,
    HostMemory,
    Isolation,
    Layer,
    MemorySource,
    MemorySummary,
    Output,
    PhaseMark,
    ProbeEvidence,
    Reclaim,
    Sample,
    SamplePoint,
    Timings,
)
from bus.messages.gates import ProbeView
from bus.messages.inventory import NodeView
from bus.messages.profiles import Budgets
from bus.states import ProbeState
from tui.model import Picture

NOW = datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC)
MIB = 1_024 * 1_024
S = ProbeState


def ago(seconds: float) -> datetime:
    """A moment before the frozen one."""
    return NOW - timedelta(seconds=seconds)


def digest(character: str) -> str:
    """A digest that is easy to tell from another."""
    return f"sha256:{character * 64}"


def marks(attempt: int, *entered: tuple[ProbeState, float]) -> tuple[PhaseMark, ...]:
    """Phases of an attempt, by how long ago each was entered."""
    return tuple(PhaseMark(state=state, at=ago(seconds), attempt=attempt) for state, seconds in entered)


def probe(letters: str, state: ProbeState, queued_ago_s: float, state_ago_s: float, **changes: Any) -> ProbeView:
    """A probe with plain values for whatever a test does not care about."""
    view = ProbeView(
        id=f"prb-{letters}", state=state, node="atlas", location="models/all-minilm-l6-v2", set_digest=digest("a"),
        profile_id=digest("b"), profile_name="minilm-cpu", assessment_id="asm-4qk9w2m7xt", approval_id="apv-8r3n6v1c5z",
        attempt=1, max_attempts=3, queued_at=ago(queued_ago_s), queued_by="ada", state_at=ago(state_ago_s),
        start_method="template", budgets=Budgets(),
    )  # fmt: skip
    ended = state in (S.COMPLETED, S.FAILED, S.CANCELLED)
    changes.setdefault("finished_at", view.state_at if ended else None)
    # As the ledger has it: the queue is marked too, before any attempt.
    changes["timeline"] = (*marks(0, (S.QUEUED, queued_ago_s)), *changes.get("timeline", ()))
    return msgspec.structs.replace(view, **changes)


def cpu_evidence() -> ProbeEvidence:
    """What a good probe on a machine without a card reports."""
    return ProbeEvidence(
        adapter="sentence_transformers", adapter_version="5.6.0", device="cpu", batch_size=1, max_sequence_length=256,
        timings=Timings(
            verify_ms=183.2, start_ms=402.7, load_ms=612.4, inference_ms=21.6, repeat_inference_ms=9.1, unload_ms=3.2,
            total_ms=1_384.0),
        memory=MemorySummary(
            source=MemorySource.PROCESS_RSS, before_bytes=311 * MIB, after_load_bytes=402 * MIB,
            peak_bytes=437 * MIB, after_exit_bytes=0, gpu_reason="no NVIDIA driver on this node"),
        samples=(Sample(point=SamplePoint.BASELINE, at=ago(50), host=HostMemory(rss_bytes=311 * MIB)),),
        isolation=Isolation(
            layers=(
                Layer(name="offline variables", active=True), Layer(name="audit guard", active=True),
                Layer(name="network namespace", active=False, detail="unshare refused"),
                Layer(name="seccomp sockets", active=True), Layer(name="seccomp processes", active=True)),
            egress_barrier="seccomp", containment="seccomp", start_method="template"),
        reclaim=Reclaim(
            verdict="not_applicable", basis="no GPU; the process is gone", process_gone=True, exit_status="exit 0"),
        health=Health(process="healthy", runtime="healthy", model="healthy"),
        output=Output(
            input_sha256="5c1d" * 16, vector_length=384, vector_sha256="9f02" * 16, norm=1.0,
            first_values=(0.0123, -0.0456, 0.0789), dtype="float32", finite=True, repeat_identical=True),
        runtime_facts={"sentence_transformers": "5.6.0", "torch": "2.13.0"},
    )  # fmt: skip


def gpu_evidence() -> ProbeEvidence:
    """What a probe reports whose memory did not come back."""
    card = GpuSample(
        uuid="GPU-5f3c", used_bytes=9_200 * MIB, free_bytes=6_900 * MIB, total_bytes=16_376 * MIB,
        process_bytes=8_811 * MIB, utilization_percent=98, temperature_celsius=71,
        foreign=(GpuProcess(pid=4_711, used_bytes=310 * MIB),), unavailable={"power_milliwatts": "not supported"},
    )  # fmt: skip
    after = msgspec.structs.replace(card, used_bytes=1_240 * MIB, process_bytes=None, utilization_percent=0)
    after = msgspec.structs.replace(after, unavailable={**card.unavailable, "process_bytes": "process gone"})
    base = cpu_evidence()
    return msgspec.structs.replace(
        base, device="cuda:0",
        memory=MemorySummary(
            source=MemorySource.NVML_PROCESS, before_bytes=0, after_load_bytes=8_120 * MIB, peak_bytes=8_811 * MIB),
        samples=(
            Sample(point=SamplePoint.AFTER_LOAD, at=ago(80), host=HostMemory(), gpu=card),
            Sample(point=SamplePoint.AFTER_EXIT, at=ago(60), host=HostMemory(reason="process gone"), gpu=after)),
        reclaim=Reclaim(
            verdict="not_reclaimed", basis="device memory above baseline plus tolerance", baseline_bytes=420 * MIB,
            after_exit_bytes=1_240 * MIB, tolerance_bytes=64 * MIB, waited_ms=5_000, process_gone=True,
            exit_status="exit 0"),
    )  # fmt: skip


def node(name: str, liveness: Literal["online", "doubtful", "offline"], seen_ago_s: float) -> NodeView:
    """A node without its inventory."""
    return NodeView(name=name, enabled=True, lab_eligible=True, liveness=liveness, last_seen_at=ago(seen_ago_s))


def nodes() -> dict[str, NodeView]:
    """Three nodes, one of them gone."""
    views = (node("atlas", "online", 2), node("gpu-1", "online", 4), node("gpu-2", "offline", 190))
    return {view.name: view for view in views}


def probes() -> dict[str, ProbeView]:
    """One probe of every kind that an operator has to tell apart, evidence and all."""
    on_gpu = {"node": "gpu-1", "location": "models/bge-large-en", "profile_name": "bge-cuda-fp16",
              "set_digest": digest("c"), "profile_id": digest("d")}  # fmt: skip
    views = (
        probe("7k3m9q2xta", S.LOADING, 17, 12, timeline=marks(1, (S.PREPARING, 15), (S.LOADING, 12))),
        probe("2v8c5n1wze", S.HEALTHCHECKING, 431, 74, attempt=2, **on_gpu, timeline=(
            *marks(1, (S.PREPARING, 429), (S.LOADING, 425)),
            *marks(2, (S.PREPARING, 181), (S.LOADING, 178), (S.HEALTHCHECKING, 74)))),
        probe("5t0p4h6yrb", S.QUEUED, 189, 189, attempt=0, **{**on_gpu, "node": "gpu-2"}),
        probe("9d1f3g7jks", S.LOADING, 44, 31, cancel_requested=True,
              timeline=marks(1, (S.PREPARING, 40), (S.LOADING, 31))),
        probe("0a2b4c6d8e", S.COMPLETED, 62, 51, candidate_id="cnd-6w2x9r4t1m", log_ref="runtime-worker://atlas/prb-0a2b4c6d8e/attempt/1",
              evidence=cpu_evidence(), timeline=marks(
                  1, (S.PREPARING, 60), (S.LOADING, 57.8), (S.HEALTHCHECKING, 53.1), (S.READY, 52.4),
                  (S.UNLOADING, 51.6))),
        probe("3h5j7k9m1n", S.FAILED, 900, 610, **on_gpu, log_ref="runtime-worker://gpu-1/prb-3h5j7k9m1n/attempt/1",
              failure=Failure(code="GPU_MEMORY_NOT_RECLAIMED",
                              message="1.21 GiB are still held 5 s after the child had ended",
                              context={"tolerance": "64 MiB", "gpu": "GPU-5f3c"}),
              evidence=gpu_evidence(), timeline=marks(
                  1, (S.PREPARING, 899), (S.LOADING, 880), (S.HEALTHCHECKING, 640), (S.READY, 630),
                  (S.UNLOADING, 628))),
        probe("4m6n8p0q2r", S.FAILED, 1_900, 1_870, log_ref="runtime-worker://atlas/prb-4m6n8p0q2r/attempt/1",
              failure=Failure(code="OFFLINE_LOAD_VIOLATION",
                              message="the runtime tried to resolve a name 3 times while loading",
                              context={"call": "socket.getaddrinfo", "phase": "loading"}),
              timeline=marks(1, (S.PREPARING, 1_899), (S.LOADING, 1_897), (S.UNLOADING, 1_871))),
        probe("8s1t3v5w7x", S.CANCELLED, 4_000, 3_950,
              failure=Failure(code="CANCELLED", message="ada cancelled the probe"),
              timeline=marks(1, (S.PREPARING, 3_990), (S.UNLOADING, 3_951))),
        probe("6y8z0a2c4e", S.FAILED, 9_000, 8_200, attempt=3, **on_gpu, failure=Failure(
            code="ATTEMPTS_EXHAUSTED", message="3 of 3 attempts lost their lease before they finished"),
              timeline=(*marks(1, (S.PREPARING, 8_990)), *marks(2, (S.PREPARING, 8_700)),
                        *marks(3, (S.PREPARING, 8_400), (S.LOADING, 8_380)))),
    )  # fmt: skip
    return {view.id: view for view in views}


def picture(**changes: Any) -> FeedState:
    """The world as the feed gives it: lists carry no evidence."""
    lean = {key: msgspec.structs.replace(view, evidence=None) for key, view in probes().items()}
    values: dict[str, Any] = {
        "probes": lean, "nodes": nodes(), "sequence": 1_842, "connected": True, "as_of": NOW, **changes
    }  # fmt: skip
    return FeedState(**values)


@dataclass
class FakeDesk:
    """Answers from memory, and notes what it was asked."""

    states: list[Picture] = field(default_factory=lambda: [picture()])
    views: Mapping[str, ProbeView] = field(default_factory=probes)
    log_text: str = "loading weights\n"
    refuse: ModelForgeError | None = None
    end: ModelForgeError | None = None
    cancelled: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    context: str = "ada @ 127.0.0.1:4222"
    on_change: Callable[[Picture], None] | None = None

    async def watch(self, on_change: Callable[[Picture], None]) -> None:
        """Give the pictures at hand, then whatever a test passes to `on_change` itself."""
        self.on_change = on_change
        for state in self.states:
            on_change(state)
        if self.end is not None:
            raise self.end
        await asyncio.Event().wait()

    def send(self, state: Picture) -> None:
        """A later picture."""
        assert self.on_change is not None
        self.on_change(state)

    async def show(self, probe_id: str) -> ProbeView:
        """The probe with its evidence."""
        return self.views[probe_id]

    async def log(self, probe_id: str, attempt: int | None) -> LogView:
        """The log at hand."""
        if self.refuse is not None:
            raise self.refuse
        return LogView(
            ref=f"runtime-worker://atlas/{probe_id}/attempt/{attempt}", attempt=attempt or 1, text=self.log_text,
            dropped_bytes=0, at=ago(51))  # fmt: skip

    async def cancel(self, probe_id: str, reason: str) -> ProbeView:
        """Note it, or refuse."""
        if self.refuse is not None:
            raise self.refuse
        self.cancelled.append(probe_id)
        self.reasons.append(reason)
        return self.views[probe_id]

    async def close(self) -> None:
        """Nothing to let go."""
