"""Assessments as the controller would tell them, for what is shown of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

from bus.messages.evidence import MemorySource
from bus.messages.gates import Assessment, Declared, Estimate, EstimateError, EstimatePart, Finding, Proof

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
DIGEST = "sha256:" + "ab" * 32
MIB = 2**20

DECLARED = Declared(
    adapter="sentence_transformers",
    version="6.2.0",
    executable=True,
    tasks=("embedding",),
    modalities=("text",),
    formats=("safetensors",),
    model_type="bert",
    model_type_declared=True,
)
PROOF = Proof(
    probe_id="prb-0000000001",
    candidate_id="cnd-0000000001",
    task="embedding",
    fingerprint=DIGEST,
    completed_at=AT,
    load_ms=812.5,
    inference_ms=9.0,
    memory_bytes=440 * MIB,
    memory_source=MemorySource.PROCESS_RSS,
)


def earlier(scope: Any = "same set, profile and node", **changes: Any) -> EstimateError:
    fields: dict[str, Any] = {
        "probe_id": "prb-0000000001",
        "node": "local",
        "scope": scope,
        "estimated_bytes": 551 * MIB,
        "measured_bytes": 492 * MIB,
        "source": MemorySource.PROCESS_RSS,
        "error_percent": 12,
        "at": AT,
    }
    return EstimateError(**{**fields, **changes})


def estimate(*history: EstimateError) -> Estimate:
    parts = (
        EstimatePart(name="weights", size_bytes=87 * MIB, basis="headers: F32"),
        EstimatePart(name="activations", size_bytes=4 * MIB, basis="batch 1, 256 tokens"),
        EstimatePart(name="runtime", size_bytes=460 * MIB, basis="torch on cpu"),
    )
    return Estimate(size_bytes=551 * MIB, parts=parts, history=history)


def finding(
    code: str, severity: Literal["blocker", "warning", "note"] = "blocker", message: str = "m", remedy: str = "r"
) -> Finding:
    return Finding(code=code, severity=severity, message=message, source="config.json", remedy=remedy)


def assessment(**changes: Any) -> Assessment:
    fields: dict[str, Any] = {
        "id": "asm-0000000001",
        "set_digest": DIGEST,
        "profile_id": DIGEST,
        "profile_name": "cpu-small",
        "node": "local",
        "environment_id": DIGEST,
        "adapter": "sentence_transformers",
        "adapter_version": "6.2.0",
        "fingerprint": DIGEST,
        "verdict": "compatible",
        "findings": (),
        "estimate": estimate(),
        "facts": {"driver": "550.1", "python": "3.11.9"},
        "created_at": AT,
        "created_by": "alice",
        "declared": DECLARED,
    }
    return Assessment(**{**fields, **changes})
