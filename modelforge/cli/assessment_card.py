"""An assessment on the screen: the verdict in words, then every blocker with its remedy, then the rest.

The short card fits a terminal of 80 columns and 24 rows whatever the assessment holds: what a person must read first
is first, and what was left out is counted. The long card leaves nothing out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bus.text import clean_line
from modelforge import format as text
from modelforge.cli.hints import can_probe
from modelforge.cli.names import adapter_label, versioned

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
# Lines of a finding's message and of its remedy, from roomy to narrow: whole words of few findings say more than
# beginnings of many.
_SIZES: Final = ((6, 4), (3, 4), (2, 2), (1, 1))
# So many lines are for findings before the facts below them are cut to one line each.
_FINDINGS_ROWS_MIN: Final = 6
# What a proof answers: once a probe has passed, these only say that one is missing.
_ANSWERED: Final = frozenset({"DECLARED_NOT_PROVEN", "REQUIRES_PROBE"})
_INDENT: Final = "  "
_SIZE_COLUMNS: Final = 10
_REMEDY: Final = f"{_INDENT}do: "
# The longest name of a short card's facts, and the blanks behind it.
_NAMES_COLUMNS: Final = 12
# What wrapping at whole words may cost.
_LOST_COLUMNS: Final = 16
# The verdict, and a blank before the facts.
_FRAME_ROWS: Final = 2
_UNPROVEN: Final = "nothing: no probe has completed under these facts"


def verdict_line(one: Assessment) -> str:
    """The verdict in words; never more than was shown (spec A2, A17)."""
    word = WORDS[one.verdict]
    if one.stale_because:
        return f"STALE: {text.count(len(one.stale_because), 'fact')} changed since it was {word}; assess again"
    if one.verdict == "blocked":
        return f"{word}: {text.count(number(one, 'blocker'), 'blocker')}; nothing was loaded"
    if one.verdict == "compatible":
        return f"{word} as far as files and facts say; {_standing(one)}"
    if one.proof:
        return f"{word}: only a probe can tell; {one.proof.probe_id} passed here"
    if not can_probe(one):
        return f"{word}: only a probe can tell, and this version cannot run one"
    return f"{word}: only a probe can tell; nothing was loaded, nothing is proven"


def _standing(one: Assessment) -> str:
    """What became of the claim."""
    if one.proof:
        return f"proven by {one.proof.probe_id}"
    return "not proven" if can_probe(one) else "this version cannot probe it"


def number(one: Assessment, severity: str) -> int:
    """How many findings weigh so much."""
    return sum(finding.severity == severity for finding in one.findings)


def ranked(one: Assessment) -> list[Finding]:
    """Every finding that still says something, blockers first; what a proof has answered is left to `--json`."""
    told = (found for found in one.findings if one.proof is None or found.code not in _ANSWERED)
    return sorted(told, key=lambda finding: _ORDER.index(finding.severity))


def short_card(one: Assessment, rows: int = ROWS, *, more: str | None = None) -> list[str]:
    """At most `rows` lines of 80 columns: verdict, findings by weight, then what it is about.

    `more`: the command that shows what did not fit.
    """
    command = more if more is not None else f"modelforge assess show {one.id}"
    findings = ranked(one)
    facts = _short_facts(one, 2)
    if findings and rows - len(facts) - _FRAME_ROWS < _FINDINGS_ROWS_MIN:
        facts = _short_facts(one, 1)
    room = rows - len(facts) - _FRAME_ROWS
    return [text.fit(verdict_line(one), COLUMNS), *_short_findings(findings, room, command), "", *facts]


def _short_findings(findings: Sequence[Finding], room: int, command: str) -> list[str]:
    """As many findings as fit, the first ones whole; what is left is counted, and `command` shows it."""
    shown = [finding for finding in findings if finding.severity != "note"]
    notes = len(findings) - len(shown)
    lines: list[str] = []
    for number_, finding in enumerate(shown):
        is_last = number_ + 1 == len(shown) and not notes
        tail = [] if is_last else text.wrap(f"and {len(findings)} more: {command}", COLUMNS)
        block = _fitting(finding, room - len(lines) - len(tail))
        if block is None:
            return [*lines, *text.wrap(f"and {len(findings) - number_} more: {command}", COLUMNS)]
        lines += block
    return [*lines, *(text.wrap(f"and {text.count(notes, 'note')}: {command}", COLUMNS) if notes else [])]


def _fitting(finding: Finding, room: int) -> list[str] | None:
    """The roomiest form of a finding in `room` lines; `None` when even the narrowest is longer."""
    return next((block for size in _SIZES if len(block := _block(finding, *size)) <= room), None)


def _block(finding: Finding, message_max: int, remedy_max: int) -> list[str]:
    head = f"{finding.severity.upper()} {finding.code}: {finding.message}"
    whole = text.wrap(f"{head} [{finding.source}]", COLUMNS, rest=_INDENT)
    # Where a message rests is said in full or not at all.
    lines = whole if len(whole) <= message_max else text.wrap(head, COLUMNS, rest=_INDENT, lines_max=message_max)
    if finding.remedy:
        rest = " " * len(_REMEDY)
        lines += text.wrap(finding.remedy, COLUMNS, first=_REMEDY, rest=rest, lines_max=remedy_max)
    return lines


def _short_facts(one: Assessment, lines_max: int) -> list[str]:
    """What the assessment is about, at most `lines_max` lines each."""
    fresh = "" if one.stale_because else "; not stale"
    place = f"at {one.node}:{one.location}" if one.location is not None else f"on node {one.node}"
    estimate = estimate_line(one.estimate)
    room = (COLUMNS - _NAMES_COLUMNS) * lines_max
    if len(estimate) > room - _LOST_COLUMNS:
        estimate = estimate_line(one.estimate, parts=False)
    pairs = [
        ("assessment", f"{one.id}, {text.moment(one.created_at)} by {one.created_by}{fresh}"),
        ("set", f"{text.short(one.set_digest)} {place}, profile {versioned(one)}"),
        ("estimate", estimate),
        ("declared", declared_line(one.declared) if one.declared else f"{one.adapter} {one.adapter_version}"),
        ("proven", proof_line(one.proof)),
        *([("stale", _stale_line(one.stale_because))] if one.stale_because else []),
    ]
    return [
        line
        for name, value in pairs
        for line in text.wrap(
            value, COLUMNS, first=name.ljust(_NAMES_COLUMNS), rest=" " * _NAMES_COLUMNS, lines_max=lines_max
        )
    ]


def _stale_line(because: Sequence[str]) -> str:
    more = f" (and {len(because) - 1} more)" if len(because) > 1 else ""
    return f"yes{more}: {because[0]}"


def estimate_line(estimate: Estimate | None, *, parts: bool = True) -> str:
    """The estimate, how far the nearest earlier one was off, and its parts; it always says what it is (spec A11)."""
    if estimate is None:
        return "none: the files do not say enough"
    line = f"{text.size(estimate.size_bytes)} (estimated)"
    if estimate.history:
        line = f"{line}; {history_line(estimate.history[0])}"
    if not parts or not estimate.parts:
        return line
    added = " + ".join(f"{part.name} {text.size(part.size_bytes)}" for part in estimate.parts)
    return f"{line}; {added}" if estimate.history else f"{line}: {added}"


def history_line(earlier: EstimateError) -> str:
    """What was measured, where, and by how much the estimate was wrong."""
    where = {
        "same set, profile and node": "here",
        "same set and profile": f"on {earlier.node}",
        "same adapter and node": "here for another set or profile",
    }[earlier.scope]
    measured = text.size(earlier.measured_bytes)
    return f"an earlier estimate was {earlier.error_percent:+d} % off: {measured} measured {where}"


def declared_line(declared: Declared) -> str:
    """What the runtime says of itself, in one line."""
    named = adapter_label(declared.adapter, declared.version)
    if declared.inspect_only:
        state = "can be inspected only"
    else:
        state = "executable" if declared.executable else "NOT executable"
    return f"{named}; {state}; model type {_model_type(declared)}"


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
    findings = ranked(one)
    return "\n".join(_finding_text(finding) for finding in findings) if findings else "no findings"


def _finding_text(finding: Finding) -> str:
    said = clean_line(f"{finding.severity}: {finding.code}: {finding.message} [{finding.source}]")
    return f"{said}\n  remedy: {clean_line(finding.remedy)}" if finding.remedy else said


def long_card(one: Assessment, *, facts: bool = False, columns: int = COLUMNS) -> str:
    """Everything: what went stale, findings, the estimate with its parts and errors, declared and proven apart.

    `facts`: also the snapshot that the fingerprint is made of. No line is wider than `columns`; words stay whole.
    """
    head = [verdict_line(one)]
    for sentence in one.stale_because:
        head += text.wrap(sentence, columns, first=f"{_INDENT}- ", rest=_INDENT * 2)
    blocks = [
        "\n".join(head),
        "\n".join(_long_findings(one, columns)),
        text.card(_head_pairs(one), indent=0, columns=columns),
        f"estimate\n{_estimate_block(one.estimate, one.proof, columns)}",
        f"declared by the runtime (a claim)\n{_declared_block(one, columns)}",
        f"proven here (measured)\n{_proof_block(one.proof, columns)}",
    ]
    if facts:
        blocks.append(f"facts\n{text.card(sorted(one.facts.items()), columns=columns)}")
    return "\n\n".join(blocks)


def _long_findings(one: Assessment, columns: int) -> list[str]:
    return [
        piece
        for line in findings_text(one).splitlines()
        for piece in text.wrap(
            line, columns, first=_INDENT if line.startswith(" ") else "", rest=_INDENT * (1 + line.startswith(" "))
        )
    ]


def _head_pairs(one: Assessment) -> list[tuple[str, object]]:
    return [
        ("assessment", one.id),
        ("verdict", one.verdict),
        ("set", one.set_digest),
        ("profile", f"{versioned(one)} ({text.short(one.profile_id)})"),
        ("node", one.node),
        ("location", one.location if one.location is not None else text.NOTHING),
        ("adapter", f"{one.adapter} {one.adapter_version}"),
        ("environment", one.environment_id),
        ("fingerprint", one.fingerprint),
        ("stale", "yes: see above" if one.stale_because else "no"),
        ("approvals", ", ".join(one.approvals) or "none"),
        ("created", f"{text.moment(one.created_at)} by {one.created_by}"),
    ]


def _estimate_block(estimate: Estimate | None, proof: Proof | None, wide: int) -> str:
    if estimate is None:
        return f"{_INDENT}none: the files do not say enough"
    parts = [(part.name, part.size_bytes, part.basis) for part in estimate.parts]
    rows = [*parts, ("all", estimate.size_bytes, estimate.kind)]
    columns = max(text.width(name) for name, _, _ in rows)
    lines = []
    for name, size_bytes, basis in rows:
        first = f"{_INDENT}{text.pad(name, columns)}  {text.size(size_bytes):>{_SIZE_COLUMNS}}  "
        lines += text.wrap(basis, wide, first=first, rest=" " * len(first))
    for one in estimate.history:
        said = f"{history_line(one)} ({one.source}, {one.probe_id} on {one.node}, {text.moment(one.at)})"
        lines += text.wrap(said, wide, first=_INDENT, rest=_INDENT * 2)
    if not estimate.history:
        since = f"; {proof.probe_id} measured {text.size(proof.memory_bytes)} since" if proof else ""
        lines.append(f"{_INDENT}nothing was measured before it{since or ': how far it is off is unknown'}")
    return "\n".join(lines)


def _declared_block(one: Assessment, columns: int) -> str:
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
        ],
        columns=columns,
    )


def _listed(values: Sequence[str]) -> str:
    return ", ".join(values) or "none"


def _proof_block(proof: Proof | None, columns: int) -> str:
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
        ],
        columns=columns,
    )
