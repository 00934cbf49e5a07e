"""What was measured, as lines: every figure with its unit and source, every missing one with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bus.messages.evidence import Isolation, MemorySummary, Output, ProbeEvidence, Reclaim, Sample
from tui.format import milliseconds, na, size
from tui.lines import Line, Span, Tone, cell, line, paragraph, span
from tui.rows import gauge

LABEL_CELLS: Final = 10
_FIGURE_CELLS: Final = 11
_POINT_CELLS: Final = 16  # `before inference`
_VERDICTS: Final = {
    "reclaimed": ("✓", Tone.GOOD),
    "not_applicable": ("-", Tone.DIM),
    "inconclusive": ("?", Tone.WARN),
    "not_reclaimed": ("✗", Tone.BAD),
}
_HEALTH: Final = {"healthy": ("✓", Tone.GOOD), "unhealthy": ("✗", Tone.BAD), "unknown": ("?", Tone.WARN)}


def evidence_lines(evidence: ProbeEvidence, width: int) -> Iterator[Line]:
    """The evidence card: verdicts first, then figures."""
    head = f"on {evidence.device} by {evidence.adapter} {evidence.adapter_version}"
    shape = f"batch {evidence.batch_size}, at most {evidence.max_sequence_length} tokens"
    yield from paragraph(evidence.kind, f"{head} · {shape}", width)
    yield from _health(evidence, width)
    yield from _reclaim(evidence.reclaim, width)
    yield from _isolation(evidence.isolation, width)
    yield from _output(evidence.output, width)
    yield from _timings(evidence, width)
    yield from _memory(evidence.memory)
    yield from _gpu(evidence.samples, evidence.memory, width)
    if evidence.runtime_facts:
        facts = " · ".join(f"{key} {value}" for key, value in sorted(evidence.runtime_facts.items()))
        yield from paragraph("runtime", facts, width)


def _label(text: str) -> Span:
    return cell(text, LABEL_CELLS, Tone.LABEL)


def _health(evidence: ProbeEvidence, width: int) -> Iterator[Line]:
    health = evidence.health
    parts: list[Line] = []
    for name, state in (("process", health.process), ("runtime", health.runtime), ("model", health.model)):
        glyph, tone = _HEALTH[state]
        parts.append(line(Span(f"{glyph} ", tone), span(f"{name} {state}", tone if state != "healthy" else Tone.TEXT)))
    parts.append(line(span(f"- capability {health.capability}", Tone.DIM)))
    yield from _flow("health", parts, width)


def _reclaim(reclaim: Reclaim | None, width: int) -> Iterator[Line]:
    if reclaim is None:
        yield line(_label("reclaim"), span(na("the child was never started"), Tone.WARN))
        return
    glyph, tone = _VERDICTS[reclaim.verdict]
    gone = "process gone" if reclaim.process_gone else "PROCESS STILL THERE"
    text = f"{glyph} {reclaim.verdict} · {gone}, {reclaim.exit_status} · {reclaim.basis}"
    yield from paragraph("reclaim", text, width, tone)
    if reclaim.baseline_bytes is not None or reclaim.after_exit_bytes is not None:
        baseline, after = size(reclaim.baseline_bytes) or na(None), size(reclaim.after_exit_bytes) or na(None)
        figures = f"baseline {baseline}, after exit {after}, tolerance {size(reclaim.tolerance_bytes)}"
        yield from paragraph("", f"{figures}, waited {milliseconds(reclaim.waited_ms)}", width)


def _isolation(isolation: Isolation | None, width: int) -> Iterator[Line]:
    if isolation is None:
        yield line(_label("isolation"), span(na("the child never reported its layers"), Tone.WARN))
        return
    parts: list[Line] = []
    for layer in isolation.layers:
        glyph, tone = ("✓", Tone.GOOD) if layer.active else ("✗", Tone.WARN)
        why = f" ({layer.detail})" if layer.detail and not layer.active else ""
        parts.append(line(Span(f"{glyph} ", tone), span(f"{layer.name}{why}")))
    yield from _flow("isolation", parts or [line(span("none", Tone.BAD))], width)
    barrier = f"barrier {isolation.egress_barrier} · containment {isolation.containment}"
    bad = "none" in (isolation.egress_barrier, isolation.containment)
    yield from paragraph("", f"{barrier} · started by {isolation.start_method}", width, Tone.WARN if bad else Tone.TEXT)
    if isolation.refused_attempts:
        yield from paragraph("refused", " · ".join(isolation.refused_attempts), width, Tone.BAD)


def _flow(label: str, parts: list[Line], width: int) -> Iterator[Line]:
    """Parts beside each other, going on in the next line when one is full."""
    row: list[Span] = []
    used = 0
    for part in parts:
        cells = sum(len(piece.text) for piece in part) + 2
        if row and used + cells > width - LABEL_CELLS:
            yield (_label(label), *row)
            label, row, used = "", [], 0
        row.extend((*part, Span("  ", Tone.DIM)))
        used += cells
    yield (_label(label), *row)


def _output(output: Output | None, width: int) -> Iterator[Line]:
    if output is None:
        yield line(_label("output"), span(na("no inference was finished"), Tone.WARN))
        return
    good = output.finite and output.repeat_identical
    finite = "finite" if output.finite else "NOT FINITE"
    repeat = "repeat identical" if output.repeat_identical else "REPEAT DIFFERS"
    shape = f"{output.vector_length} values {output.dtype}, norm {output.norm:.6f}"
    text = f"{'✓' if good else '✗'} {shape} · {finite} · {repeat}"
    yield from paragraph("output", text, width, Tone.TEXT if good else Tone.BAD)
    yield from paragraph("sha256", output.vector_sha256, width)
    if output.first_values:
        yield from paragraph("first", ", ".join(f"{value:.6f}" for value in output.first_values), width)
    yield from paragraph("input sha", output.input_sha256, width, Tone.DIM)


def _timings(evidence: ProbeEvidence, width: int) -> Iterator[Line]:
    timings = evidence.timings
    named = (
        ("verify", timings.verify_ms), ("start", timings.start_ms), ("load", timings.load_ms),
        ("inference", timings.inference_ms), ("again", timings.repeat_inference_ms),
        ("unload", timings.unload_ms), ("total", timings.total_ms),
    )  # fmt: skip
    parts: list[Line] = []
    for name, value in named:
        shown = milliseconds(value)
        tone = Tone.STRONG if shown else Tone.DIM
        parts.append(line(Span(f"{name} ", Tone.DIM), span(shown or na("not reached"), tone)))
    yield from _flow("time", parts, width)


def _memory(memory: MemorySummary) -> Iterator[Line]:
    figures = (
        ("before", memory.before_bytes), ("after load", memory.after_load_bytes),
        ("peak", memory.peak_bytes), ("after exit", memory.after_exit_bytes),
    )  # fmt: skip
    top = max((value for _, value in figures if value is not None), default=0)
    for number, (name, value) in enumerate(figures):
        label = _label("memory" if number == 0 else "")
        shown = size(value)
        if value is None or shown is None:
            yield line(label, span(name.ljust(_FIGURE_CELLS), Tone.DIM), span(na("not sampled"), Tone.DIM))
            continue
        bar = gauge(value / top if top else 0.0, 16)
        source = f"  from {memory.source.value}" if number == 0 else ""
        yield line(
            label, span(name.ljust(_FIGURE_CELLS), Tone.DIM), cell(shown, _FIGURE_CELLS, Tone.STRONG, right=True),
            Span(f"  {bar}", Tone.ACTIVE), span(source, Tone.DIM),
        )  # fmt: skip


def _gpu(samples: tuple[Sample, ...], memory: MemorySummary, width: int) -> Iterator[Line]:
    cards = [(sample.point.value, sample.gpu) for sample in samples if sample.gpu is not None]
    if not cards:
        yield from paragraph("gpu", na(memory.gpu_reason or "no card was sampled"), width, Tone.DIM)
        return
    for number, (point, gpu) in enumerate(cards):
        missing = gpu.unavailable
        watts = None if gpu.power_milliwatts is None else f"{gpu.power_milliwatts / 1_000:.0f} W"
        heat = None if gpu.temperature_celsius is None else f"{gpu.temperature_celsius} °C"
        busy = None if gpu.utilization_percent is None else f"{gpu.utilization_percent} % busy"
        parts = (
            f"{point.replace('_', ' ').ljust(_POINT_CELLS)} used {size(gpu.used_bytes) or na(missing.get('used_bytes'))}",
            f"ours {size(gpu.process_bytes) or na(missing.get('process_bytes'))}",
            busy or f"busy {na(missing.get('utilization_percent'))}",
            heat or f"heat {na(missing.get('temperature_celsius'))}",
            watts or f"power {na(missing.get('power_milliwatts'))}",
        )
        yield from paragraph("gpu" if number == 0 else "", " · ".join(parts), width)
    foreign = {process.pid: process for _, gpu in cards for process in gpu.foreign}
    for process in foreign.values():
        used = size(process.used_bytes) or na("not reported")
        yield from paragraph("", f"foreign process {process.pid} holds {used}", width, Tone.WARN)
