"""What every inspection begins and ends with: node and set first; then order, bounds, and what is not claimed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from adapters.inspect import device_checks, node_checks, set_checks
from adapters.inspect.budget_checks import budget_findings
from adapters.inspect.codes import MAX_EQUAL, finding, with_more
from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.subject import Inspection, Subject
from bus.messages.gates import Estimate, Finding

# Adapters that need one of these compute with PyTorch.
_WITH_TORCH: Final = frozenset({"torch", "vllm"})
_ORDER: Final = {"blocker": 0, "warning": 1, "note": 2}


def common_findings(
    subject: Subject, packages: tuple[str, ...], modalities: tuple[str, ...] | None = None
) -> Iterator[Finding]:
    """Node, set, adapter and device: the same for every inspector (A3-A8); arguments as `adapter_findings` has them."""
    yield from node_checks.node_findings(subject)
    yield from set_checks.set_findings(subject)
    yield from node_checks.adapter_findings(subject, packages, modalities)
    yield from device_checks.device_findings(
        subject, uses_torch=not packages or bool(_WITH_TORCH.intersection(packages))
    )


def conclude(
    subject: Subject,
    findings: Iterable[Finding],
    expected: Estimate | None,
    *,
    model_type: str | None = None,
    claims: bool = True,
) -> Inspection:
    """The inspection: whether the budgets can do at all; findings ordered and bounded, a last note on what they do not prove, and what is declared."""
    found = [*findings, *budget_findings(subject)]
    # The record outlives a probe that proves the set: these words must then still be true.
    if not any(item.severity == "blocker" for item in found):
        if claims:
            message = "static analysis loads nothing: what the runtime declares is no proof"
            found.append(finding(Code.DECLARED_NOT_PROVEN, "note", message, "static analysis"))
        else:
            message = f"nothing that was read speaks against it, and for {subject.profile.adapter} that claims nothing"
            found.append(finding(Code.REQUIRES_PROBE, "note", message, "static analysis"))
    return Inspection(
        findings=bounded(found),
        estimate=expected,
        declared=node_checks.declared(subject, model_type),
        claims=claims,
    )


def bounded(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Blockers first, else as they came; each once, and of equal codes no more than an operator reads."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    # Frozen records of strings: equal ones say the same.
    for item in dict.fromkeys(findings):
        groups.setdefault((item.severity, item.code), []).append(item)
    kept = [item for group in groups.values() for item in _folded(group)]
    return tuple(sorted(kept, key=lambda item: _ORDER[item.severity]))


def _folded(group: list[Finding]) -> list[Finding]:
    if len(group) <= MAX_EQUAL:
        return group
    last = group[MAX_EQUAL - 1]
    message = with_more(last.message, len(group) - MAX_EQUAL)
    return [*group[: MAX_EQUAL - 1], finding(Code(last.code), last.severity, message, last.source)]
