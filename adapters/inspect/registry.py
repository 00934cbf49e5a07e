"""Inspectors by adapter name. An adapter without one gets an honest blocker, never an implicit claim (spec A17)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from adapters.inspect import (
    custom,
    device_checks,
    diffusers,
    llama_cpp,
    memory,
    node_checks,
    sentence_transformers,
    set_checks,
    transformers,
    vllm,
)
from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.codes import finding
from adapters.inspect.conclusion import common_findings, conclude
from adapters.inspect.subject import Inspection, Subject
from adapters.names import TEST_DOUBLE


def inspect(subject: Subject) -> Inspection:
    """What static analysis says about this subject; nothing is loaded, nothing is executed (spec A2)."""
    inspector = _INSPECTORS.get(subject.profile.adapter)
    return _without_inspector(subject) if inspector is None else inspector(subject)


def _without_inspector(subject: Subject) -> Inspection:
    message = f"this version knows no adapter {subject.profile.adapter}, so it can inspect nothing for it"
    found = [
        finding(Code.NO_INSPECTOR, "blocker", message, "profile: adapter"),
        *node_checks.node_findings(subject),
        *set_checks.set_findings(subject),
        *device_checks.device_findings(subject, uses_torch=False),
    ]
    return conclude(subject, found, None, claims=False)


def _test_double(subject: Subject) -> Inspection:
    """The double loads nothing, so its files are not looked at; set, node and device are."""
    expected = memory.estimate(subject, subject.evidence.weights, {})
    return conclude(subject, common_findings(subject, (), ("text",)), expected)


_INSPECTORS: Final[dict[str, Callable[[Subject], Inspection]]] = {
    sentence_transformers.NAME: sentence_transformers.inspect,
    transformers.NAME: transformers.inspect,
    vllm.NAME: vllm.inspect,
    llama_cpp.NAME: llama_cpp.inspect,
    diffusers.NAME: diffusers.inspect,
    custom.NAME: custom.inspect,
    TEST_DOUBLE: _test_double,
}
