"""An assessment on the screen: the verdict in words, then every blocker with its remedy, then the rest.

The short card fits a terminal of 80 columns and 24 rows whatever the assessment holds: what a person must read first
is first, and what was left out is counted. The long card leaves nothing out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bus.text import clean_line
from modelforge import format as text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bus.messages.gates import Assessment, Declared, Estimate, EstimateError, Finding, Proof, Verdict

COLUMNS: Final = 80
ROWS: Final = 24
WORDS: Final[dict[Verdict, str]] = {
    "compatible": "COMPATIBLE",
    "requires_probe": "REQUIRES PROBE",
    "blocked": "BLOCKED",
}
# Style of the first line, by `modelforge.cli.output.STYLES`.
STYLE: Final[dict[Verdict, str]] = {"compatible": "ok", "requires_probe": "warn", "blocked": "fail"}
_ORDER: Final = ("blocker", "warning", "note")
# Lines of a finding's message and of its remedy, from roomy to narrow.
_SCALES: Final = (
    {"blocker": (4, 3), "warning": (4, 3)},
    {"blocker": (4, 3), "warning": (2, 1)},
    {"blocker": (4, 3), "warning": (1, 0)},
    {"blocker": (2, 2), "warning": (1, 0)},
    {"blocker": (2, 1), "warning": (1, 0)},
    {"blocker": (1, 1), "warning": (1, 0)},
)
_INDENT: Final = "  "
_SIZE_COLUMNS: Final = 10
_REMEDY: Final = f"{_INDENT}do: "
_UNPROVEN: Final = "nothing: no probe has completed under these facts"


def verdict_line(one: Assessment) -> str:
    """The verdict in words; never more than was shown (spec A2, A17)."""
    word = WORDS[one.verdict]
    if one.stale_because:
        return f"STALE: {text.count(len(one.stale_because), 'fact')} changed since it was {word}; assess again"
    if one.verdict == "blocked":
        return f"{word}: {text.count(number(one, 'blocker'), 'blocker')}; nothing was loaded"
    if one.verdict == "compatible":
        proven = f"proven by {one.proof.probe_id}" if one.proof else "not proven"
        return f"{word} as far as files and facts say; {proven}"
    if one.proof:
        return f"{word}: only a probe can tell; {one.proof.probe_id} passed here"
    if one.declared is not None and one.declared.inspect_only:
        return f"{word}: only a probe can tell, and this version cannot run one"
    return f"{word}: only a probe can tell; nothing was loaded, nothing is proven"


def number(one: Assessment, severity: str) -> int:
    """How many findings weigh so much."""
    return sum(finding.severity == severity for finding in one.findings)


def ranked(one: Assessment) -> list[Finding]:
    """Every finding, blockers first."""
    return sorted(one.findings, key=lambda finding: _ORDER.index(finding.severity))


def short_card(one: Assessment, rows: int = ROWS) -> list[str]:
    """At most `rows` lines of 80 columns: verdict, findings by weight, then what it is about."""
    facts = _short_facts(one)
    room = rows - len(facts) - 2  # the verdict, and a blank before the facts
    return [text.fit(verdict_line(one), COLUMNS), *_short_findings(one, room), "", *facts]


def _short_findings(one: Assessment, room: int) -> list[str]:
    """Whole findings while there is room; then warnings are shortened, then blockers; then what is left is counted."""
    shown = [finding for finding in ranked(one) if finding.severity != "note"]
    notes = len(one.findings) - len(shown)
    blocks: list[list[str]] = []
    for scale in _SCALES:
        blocks = [_block(finding, *scale[finding.severity]) for finding in shown]
        spare = room - sum(len(block) for block in blocks) - bool(notes)
        if spare >= 0:
            lines = [line for block in _roomier(shown, blocks, spare) for line in block]
            return [*lines, *([f"and {text.count(notes, 'note')}: --json"] if notes else [])]
    lines, left = [], len(one.findings)
    for block in blocks:
        if len(lines) + len(block) + 1 > room:
            break
        lines += block
        left -= 1
    return [*lines, f"and {left} more: --json"]


def _roomier(shown: Sequence[Finding], blocks: Sequence[list[str]], spare: int) -> list[list[str]]:
    """The lines that are left over go to the first findings."""
    grown = []
    for finding, block in zip(shown, blocks, strict=True):
        sizes = (_block(finding, *scale[finding.severity]) for scale in _SCALES)
        larger = next((size for size in sizes if len(size) - len(block) <= spare), block)
        spare -= len(larger) - len(block)
        grown.append(larger)
    return grown


def _block(finding: Finding, message_max: int, remedy_max: int) -> list[str]:
    said = f"{finding.severity.upper()} {finding.code}: {finding.message} [{finding.source}]"
    lines = text.wrap(said, COLUMNS, rest=_INDENT, lines_max=message_max)
    if finding.remedy and remedy_max:
        rest = " " * len(_REMEDY)
        lines += text.wrap(finding.remedy, COLUMNS, first=_REMEDY, rest=rest, lines_max=remedy_max)
    return lines


def _short_facts(one: Assessment) -> list[str]:
    """What the assessment is about, at most two lines each."""
    fresh = "" if one.stale_because else "; not stale"
    pairs = [
        ("assessment", f"{one.id}, {text.moment(one.created_at)} by {one.created_by}{fresh}"),
        ("set", f"{text.short(one.set_digest)} for profile {one.profile_name} on node {one.node}"),
        ("estimate", estimate_line(one.estimate)),
        ("declared", declared_line(one.declared) if one.declared else f"{one.adapter} {one.adapter_version}"),
        ("proven", proof_line(one.proof)),
        *([("stale", _stale_line(one.stale_because))] if one.stale_because else []),
    ]
    columns = max(len(name) for name, _ in pairs) + 2
    return [
        line
        for name, value in pairs
        for line in text.wrap(value, COLUMNS, first=name.ljust(columns), rest=" " * columns, lines_max=2)
    ]


def _stale_line(because: Sequence[str]) -> str:
    more = f" (and {len(because) - 1} more)" if len(because) > 1 else ""
    return f"yes{more}: {because[0]}"


def estimate_line(estimate: Estimate | None) -> str:
    """The estimate, its parts, and how far the nearest earlier one was off; it always says what it is (spec A11)."""
    if estimate is None:
        return "none: the files do not say enough"
    parts = " + ".join(f"{part.name} {text.size(part.size_bytes)}" for part in estimate.parts)
    line = f"{text.size(estimate.size_bytes)} (estimated)" + (f": {parts}" if parts else "")
    return f"{line}; {history_line(estimate.history[0])}" if estimate.history else line


def history_line(earlier: EstimateError) -> str:
    """What was measured, where, and by how much the estimate was wrong."""
    where = {
        "same set, profile and node": "here",
        "same set and profile": f"on {earlier.node}",
        "same adapter and node": "here for another set",
    }[earlier.scope]
    measured = text.size(earlier.measured_bytes)
    return f"last measured {where}: {measured}, estimate was {earlier.error_percent:+d} %"


def declared_line(declared: Declared) -> str:
    """What the runtime says of itself, in one line."""
    state = "inspected only" if declared.inspect_only else "executable" if declared.executable else "NOT executable"
    return f"{declared.adapter} {declared.version} {state}, model type {_model_type(declared)}"


def _model_type(declared: Declared) -> str:
    if declared.model_type is None:
        return "not named by the files"
    said = {True: "declared", False: "NOT declared", None: "nothing declared"}[declared.model_type_declared]
    return f"{declared.model_type} ({said})"


def proof_line(proof: Proof | None) -> str:
    """What a probe showed here under exactly these facts."""
    if proof is None:
        return _UNPROVEN
    return (
        f"{proof.task} by {proof.probe_id}: load {text.duration_ms(proof.load_ms)}, inference "
        f"{text.duration_ms(proof.inference_ms)}, peak {text.size(proof.memory_bytes)} (measured)"
    )


def findings_text(one: Assessment) -> str:
    """Every finding, blockers first: code, fact, source, remedy."""
    if not one.findings:
        return "no findings"
    return "\n".join(_finding_text(finding) for finding in ranked(one))


def _finding_text(finding: Finding) -> str:
    said = clean_line(f"{finding.severity}: {finding.code}: {finding.message} [{finding.source}]")
    return f"{said}\n  remedy: {clean_line(finding.remedy)}" if finding.remedy else said


def long_card(one: Assessment, *, facts: bool = False) -> str:
    """Everything: findings, the estimate with its parts and errors, declared and proven apart, and what went stale.

    `facts`: also the snapshot that the fingerprint is made of.
    """
    blocks = [
        verdict_line(one),
        findings_text(one),
        text.card(_head_pairs(one), indent=0),
        f"estimate\n{_estimate_block(one.estimate, one.proof)}",
        f"declared by the runtime (a claim)\n{_declared_block(one)}",
        f"proven here (measured)\n{_proof_block(one.proof)}",
    ]
    if facts:
        blocks.append(f"facts\n{text.card(sorted(one.facts.items()))}")
    return "\n\n".join(blocks)


def _head_pairs(one: Assessment) -> list[tuple[str, object]]:
    return [
        ("assessment", one.id),
        ("verdict", one.verdict),
        ("set", one.set_digest),
        ("profile", f"{one.profile_name} ({text.short(one.profile_id)})"),
        ("node", one.node),
        ("adapter", f"{one.adapter} {one.adapter_version}"),
        ("environment", one.environment_id),
        ("fingerprint", one.fingerprint),
        ("stale", "\n".join(one.stale_because) if one.stale_because else "no"),
        ("approvals", ", ".join(one.approvals) or "none"),
        ("created", f"{text.moment(one.created_at)} by {one.created_by}"),
    ]


def _estimate_block(estimate: Estimate | None, proof: Proof | None) -> str:
    if estimate is None:
        return f"{_INDENT}none: the files do not say enough"
    parts = [(part.name, part.size_bytes, part.basis) for part in estimate.parts]
    rows = [*parts, ("all", estimate.size_bytes, estimate.kind)]
    columns = max(text.width(name) for name, _, _ in rows)
    lines = []
    for name, size_bytes, basis in rows:
        first = f"{_INDENT}{text.pad(name, columns)}  {text.size(size_bytes):>{_SIZE_COLUMNS}}  "
        lines += text.wrap(basis, COLUMNS, first=first, rest=" " * len(first))
    for one in estimate.history:
        said = f"{history_line(one)} ({one.source}, {one.probe_id} on {one.node}, {text.moment(one.at)})"
        lines += text.wrap(said, COLUMNS, first=_INDENT, rest=_INDENT * 2)
    if not estimate.history:
        since = f"; {proof.probe_id} measured {text.size(proof.memory_bytes)} since" if proof else ""
        lines.append(f"{_INDENT}nothing was measured before it{since or ': how far it is off is unknown'}")
    return "\n".join(lines)


def _declared_block(one: Assessment) -> str:
    declared = one.declared
    if declared is None:
        return f"{_INDENT}nothing"
    executable = "yes" if declared.executable else "no"
    return text.card(
        [
            ("adapter", f"{declared.adapter} {declared.version}"),
            ("executable", "no: this version only inspects for it" if declared.inspect_only else executable),
            ("tasks", _listed(declared.tasks)),
            ("modalities", _listed(declared.modalities)),
            ("formats", _listed(declared.formats)),
            ("quantizations", _listed(declared.quantizations)),
            ("model type", _model_type(declared)),
        ]
    )


def _listed(values: Sequence[str]) -> str:
    return ", ".join(values) or "none"


def _proof_block(proof: Proof | None) -> str:
    if proof is None:
        return f"{_INDENT}{_UNPROVEN}"
    return text.card(
        [
            ("probe", proof.probe_id),
            ("candidate", proof.candidate_id or "none"),
            ("task", proof.task),
            ("completed", text.moment(proof.completed_at)),
            ("load", text.duration_ms(proof.load_ms)),
            ("inference", text.duration_ms(proof.inference_ms)),
            ("memory", f"peak {text.size(proof.memory_bytes)} (source {proof.memory_source})"),
            ("fingerprint", proof.fingerprint),
        ]
    )


def stale_text(found: Sequence[Assessment]) -> str:
    """What no longer holds, a block each."""
    return "\n\n".join(_stale_block(one) for one in found) or "no assessment is stale"


def _stale_block(one: Assessment) -> str:
    """One stale assessment: what it was, and each fact that changed since, from what to what."""
    about = f"set {text.short(one.set_digest)}, profile {one.profile_name}, node {one.node}"
    lines = text.wrap(f"{one.id} {one.verdict}: {about}", COLUMNS, rest=_INDENT * 2)
    for sentence in one.stale_because:
        lines += text.wrap(sentence, COLUMNS, first=f"{_INDENT}- ", rest=f"{_INDENT}  ")
    return "\n".join(lines)
