"""What proves a pass: one rule, read by the node that claims it and by the controller that decides it (spec P8, P13).

The node asks it before it reports, the controller asks it of every report: a node's "completed" counts only with its
proof, and what is not proven is not passed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from bus.errors import ErrorCode, ModelForgeError
from bus.messages.evidence import Isolation, Output, PhaseMark, ProbeEvidence, Reclaim
from bus.states import ProbeState

# SHA-256 of the sole input of an embedding probe; the text itself is known to the child alone (spec P2).
EMBEDDING_INPUT_SHA256: Final = "4b02d91d7dadba93ab1429b990a482ad004654360dae85da5c92841676fb5ff1"
# A pass was loaded, was checked and was ready before it was unloaded: these phases, in this order.
PROVEN_PATH: Final = (ProbeState.LOADING, ProbeState.HEALTHCHECKING, ProbeState.READY, ProbeState.UNLOADING)
# The layers without which nobody could tell that the runtime stayed offline (spec P11).
OFFLINE_LAYERS: Final = ("audit_guard", "scrubbed_environment")
# How a refused attempt to start a process ends; it is no use of the network. Every other attempt counts as one.
PROCESS_SUFFIX: Final = "(process)"


def what_is_unproven(evidence: ProbeEvidence | None, timeline: Sequence[PhaseMark]) -> ModelForgeError | None:
    """Why a claimed pass proves none, or `None` when every point is there.

    Args:
        evidence: what the attempt measured.
        timeline: every phase of this one attempt.

    Returns:
        The failure to store, not raised: OFFLINE_LOAD_VIOLATION, INVALID_OUTPUT, HEALTHCHECK_FAILED or
        GPU_MEMORY_NOT_RECLAIMED.
    """
    if evidence is None:
        return _unhealthy("completed without evidence")
    return (
        _of_isolation(evidence.isolation)
        or _of_output(evidence.output, evidence.device)
        or _of_health(evidence, timeline)
        or _of_reclaim(evidence.reclaim, evidence.device)
    )


def _of_isolation(isolation: Isolation | None) -> ModelForgeError | None:
    if isolation is None:
        return _unhealthy("there is no evidence of offline isolation")
    used = [attempt for attempt in isolation.refused_attempts if not attempt.endswith(PROCESS_SUFFIX)]
    if used:
        return ModelForgeError(ErrorCode.OFFLINE_LOAD_VIOLATION, f"the runtime tried to use the network: {used[0]}")
    active = {layer.name for layer in isolation.layers if layer.active}
    missing = [name for name in OFFLINE_LAYERS if name not in active]
    return _unhealthy(f"not active: {', '.join(missing)}") if missing else None


def _of_output(output: Output | None, device: str) -> ModelForgeError | None:
    if output is None or not output.finite or output.vector_length < 1 or not math.isfinite(output.norm):
        return _invalid("the output is no finite, non-empty vector")
    if output.norm <= 0.0:
        return _invalid("the vector is zero")
    if output.input_sha256 != EMBEDDING_INPUT_SHA256:
        return _invalid("the output answers another input than the specified one")
    # A card may add in another order; its child compares the two vectors by their angle and fails by itself.
    if device == "cpu" and not output.repeat_identical:
        return _invalid("the same input gave another vector the second time")
    return None


def _of_health(evidence: ProbeEvidence, timeline: Sequence[PhaseMark]) -> ModelForgeError | None:
    health = evidence.health
    layers = {"process": health.process, "runtime": health.runtime, "model": health.model}
    if ill := [f"{name} is {state}" for name, state in layers.items() if state != "healthy"]:
        return _unhealthy(f"not healthy: {', '.join(ill)}")
    story = [mark for mark in timeline if mark.state is not ProbeState.PREPARING]
    path = tuple(mark.state for mark in story)
    if path != PROVEN_PATH or len({mark.attempt for mark in story}) != 1:
        told = ", ".join(path) or "none"
        return _unhealthy(f"the attempt did not go through every phase: {told}")
    return None


def _of_reclaim(reclaim: Reclaim | None, device: str) -> ModelForgeError | None:
    if reclaim is None or not reclaim.process_gone:
        return _unhealthy("the end of the child process was not proven")
    # Without a card there is nothing to give back but the process; with one, its memory must have been measured.
    if reclaim.verdict == "reclaimed" or (reclaim.verdict == "not_applicable" and device == "cpu"):
        return None
    return ModelForgeError(
        ErrorCode.GPU_MEMORY_NOT_RECLAIMED,
        f"reclaim is {reclaim.verdict}: {reclaim.basis}",
        baseline_bytes=reclaim.baseline_bytes,
        after_exit_bytes=reclaim.after_exit_bytes,
    )


def _unhealthy(message: str) -> ModelForgeError:
    return ModelForgeError(ErrorCode.HEALTHCHECK_FAILED, message)


def _invalid(message: str) -> ModelForgeError:
    return ModelForgeError(ErrorCode.INVALID_OUTPUT, message)
