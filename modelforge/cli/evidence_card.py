"""What was measured, on the screen: one card, in the order in which an operator asks.

A figure that was not measured says so with its reason; an estimate never stands here (spec A11).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bus.states import PROBE
from bus.text import clean_line
from modelforge import format as text

if TYPE_CHECKING:
    from bus.messages.evidence import Health, Isolation, MemorySummary, ProbeEvidence, Reclaim, Timings
    from bus.messages.gates import ProbeView

Pairs = list[tuple[str, object]]


def evidence_pairs(evidence: ProbeEvidence) -> Pairs:
    """Names and values of a probe's evidence, output first."""
    timings = evidence.timings
    return [
        *_output_pairs(evidence),
        ("load", text.duration_ms(timings.load_ms)),
        ("inference", _inference_line(timings)),
        ("other times", _times_line(timings)),
        ("memory", memory_line(evidence.memory)),
        ("reclaim", reclaim_line(evidence.reclaim)),
        ("isolation", isolation_lines(evidence.isolation)),
        ("health", _health_line(evidence.health)),
        ("runtime", _runtime_line(evidence)),
        ("facts", "\n".join(f"{key} {value}" for key, value in evidence.runtime_facts.items()) or text.NOTHING),
    ]


def _inference_line(timings: Timings) -> str:
    return f"{text.duration_ms(timings.inference_ms)} (again {text.duration_ms(timings.repeat_inference_ms)})"


def _times_line(timings: Timings) -> str:
    return (
        f"verify {_passed(timings.verify_ms)}, start {_passed(timings.start_ms)}, "
        f"unload {text.duration_ms(timings.unload_ms)}, total {text.duration_ms(timings.total_ms)}"
    )


def _passed(value_ms: float) -> str:
    """These two are plain numbers on the wire; nought says that the attempt did not come so far."""
    return text.duration_ms(value_ms) if value_ms else text.NOTHING


def _health_line(health: Health) -> str:
    return f"process {health.process}, runtime {health.runtime}, model {health.model}, capability {health.capability}"


def _runtime_line(evidence: ProbeEvidence) -> str:
    return (
        f"{evidence.adapter} {evidence.adapter_version} on {evidence.device}, batch {evidence.batch_size}, "
        f"{evidence.max_sequence_length} tokens"
    )


def _output_pairs(evidence: ProbeEvidence) -> Pairs:
    output = evidence.output
    if output is None:
        return [("output", "none")]
    first = ", ".join(f"{value:.5f}" for value in output.first_values)
    finite = "finite" if output.finite else "NOT finite"
    repeat = "repeat identical" if output.repeat_identical else "repeat DIFFERS"
    return [
        ("input SHA-256", output.input_sha256),
        ("vector", f"length {output.vector_length}, norm {output.norm:.6f}, {output.dtype}, {finite}, {repeat}"),
        ("vector SHA-256", output.vector_sha256),
        ("first values", first),
    ]


def memory_line(memory: MemorySummary) -> str:
    """Before, after load, peak and after exit, with the source of all four."""
    line = (
        f"before {text.size(memory.before_bytes)}, after load {text.size(memory.after_load_bytes)}, "
        f"peak {text.size(memory.peak_bytes)}, after exit {text.size(memory.after_exit_bytes)} "
        f"(source {memory.source})"
    )
    return f"{line}\nGPU not measured: {memory.gpu_reason}" if memory.gpu_reason else line


def reclaim_line(reclaim: Reclaim | None) -> str:
    """The verdict, what it rests on, and how the process ended."""
    if reclaim is None:
        return "not checked"
    gone = "process gone" if reclaim.process_gone else "process STILL THERE"
    return f"{reclaim.verdict} ({reclaim.basis}); {gone}, {reclaim.exit_status}"


def isolation_lines(isolation: Isolation | None) -> str:
    """Every layer with whether it was really active; `none` is said where there was none."""
    if isolation is None:
        return "none: the child did not come so far"
    summary = (
        f"egress barrier {isolation.egress_barrier}, containment {isolation.containment}, "
        f"start {isolation.start_method}"
    )
    lines = [summary]
    for layer in isolation.layers:
        mark = "active" if layer.active else "INACTIVE"
        lines.append(f"{layer.name}: {mark}" + (f" ({layer.detail})" if layer.detail else ""))
    if isolation.refused_attempts:
        lines.append(f"refused: {', '.join(isolation.refused_attempts)}")
    return "\n".join(lines)


def outcome(probe: ProbeView) -> str:
    """What came of a probe, in one sentence."""
    word = f"{probe.id} {probe.state.upper()}"
    if probe.failure is not None:
        return f"{word}: {probe.failure.code}: {probe.failure.message}"
    if probe.candidate_id is not None:
        return f"{word}: it made candidate {probe.candidate_id}"
    if PROBE.is_terminal(probe.state):
        return word
    return f"{word} on {probe.node}" + (", cancel requested" if probe.cancel_requested else "")


def probe_card(probe: ProbeView, columns: int | None = None) -> str:
    """A probe on the screen: what came of it, what it is, its timeline and its evidence; at most `columns` wide."""
    said = outcome(probe)
    first = "\n".join(text.wrap(said, columns, rest="  ")) if columns is not None else clean_line(said)
    blocks = [first, text.card(_head_pairs(probe), indent=0, columns=columns)]
    if probe.timeline:
        blocks.append(
            text.table(
                ("TIME", "ATTEMPT", "STATE"),
                [(text.moment(mark.at), mark.attempt, mark.state) for mark in probe.timeline],
            )
        )
    if probe.evidence is not None:
        blocks.append("evidence (measured)\n" + text.card(evidence_pairs(probe.evidence), columns=columns))
    return "\n\n".join(blocks)


def _head_pairs(probe: ProbeView) -> Pairs:
    pairs: Pairs = [
        ("probe", probe.id),
        ("state", probe.state),
        ("node", probe.node),
        ("location", probe.location),
        ("set", probe.set_digest),
        ("profile", f"{probe.profile_name} ({text.short(probe.profile_id)})"),
        ("assessment", probe.assessment_id),
        ("approval", probe.approval_id),
        ("attempt", f"{probe.attempt} of {probe.max_attempts}"),
        ("queued", f"{text.moment(probe.queued_at)} by {probe.queued_by}"),
        ("finished", text.moment(probe.finished_at)),
        ("log", probe.log_ref or text.NOTHING),
        ("candidate", probe.candidate_id or "none"),
    ]
    if probe.cancel_requested:
        pairs.append(("cancel", "requested"))
    return pairs
