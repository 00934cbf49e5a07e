"""Evidence of a pass that proves every point: what a good probe on a machine without a card reports."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

from bus.messages.evidence import (
    Health,
    Isolation,
    Layer,
    MemorySource,
    MemorySummary,
    Output,
    PhaseMark,
    ProbeEvidence,
    Reclaim,
    Timings,
)
from bus.states import ProbeState

# Computed from the specification's own words, not from the product's constant.
INPUT_SHA256 = hashlib.sha256(b"ModelForge runtime compatibility probe").hexdigest()
LIFE = (ProbeState.LOADING, ProbeState.HEALTHCHECKING, ProbeState.READY, ProbeState.UNLOADING)
AT = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def proven_marks(*states: ProbeState, attempt: int = 1) -> tuple[PhaseMark, ...]:
    """The phases of one attempt; without states, of one that passed."""
    return tuple(PhaseMark(state=state, at=AT, attempt=attempt) for state in states or LIFE)


def proven_evidence() -> ProbeEvidence:
    """Evidence that passes; a test takes one point away."""
    return ProbeEvidence(
        adapter="sentence_transformers", adapter_version="5", device="cpu", batch_size=1, max_sequence_length=256,
        timings=Timings(), memory=MemorySummary(source=MemorySource.PROCESS_RSS), samples=(),
        isolation=Isolation(
            layers=(Layer(name="audit_guard", active=True), Layer(name="scrubbed_environment", active=True)),
            egress_barrier="seccomp", containment="none", start_method="fresh"),
        reclaim=Reclaim(verdict="not_applicable", basis="no gpu", process_gone=True, exit_status="exit 0"),
        health=Health(process="healthy", runtime="healthy", model="healthy"),
        output=Output(
            input_sha256=INPUT_SHA256, vector_length=384, vector_sha256="0" * 64, norm=1.0, first_values=(0.1,),
            dtype="float32", finite=True, repeat_identical=True),
    )  # fmt: skip
