"""Inspectors by adapter name. An adapter without one gets an honest blocker, never an implicit claim (spec A17)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from adapters.inspect import memory, node_checks, sentence_transformers
from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.codes import finding
from adapters.inspect.subject import Inspection, Subject
from adapters.names import TEST_DOUBLE


def inspect(subject: Subject) -> Inspection:
    """What static analysis says about this subject; nothing is loaded, nothing is executed (spec A2)."""
    inspector = _INSPECTORS.get(subject.profile.adapter)
    return _without_inspector(subject) if inspector is None else inspector(subject)


def _without_inspector(subject: Subject) -> Inspection:
    message = f"this version has no inspector and no executable adapter for {subject.profile.adapter}"
    return Inspection(
        findings=(
            finding(Code.NO_INSPECTOR, "blocker", message, "profile: adapter"),
            *node_checks.node_findings(subject),
            *node_checks.device_findings(subject),
        ),
        estimate=None,
    )


def _test_double(subject: Subject) -> Inspection:
    """The double loads nothing, so its files are not looked at; node and device are."""
    expected = memory.estimate(subject, subject.evidence.weights, {})
    return Inspection(
        findings=(
            *node_checks.node_findings(subject),
            *node_checks.adapter_findings(subject, (), sentence_transformers.MODALITY),
            *node_checks.device_findings(subject),
        ),
        estimate=expected,
    )


_INSPECTORS: Final[dict[str, Callable[[Subject], Inspection]]] = {
    sentence_transformers.NAME: sentence_transformers.inspect,
    TEST_DOUBLE: _test_double,
}
