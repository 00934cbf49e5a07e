"""The inspector of custom runners: what is wrong with the set is said, and nothing is ever claimed (spec A17)."""

from __future__ import annotations

from typing import Final

from adapters.inspect import code_checks, device_checks, node_checks, pickle_checks, set_checks, weight_checks
from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.codes import finding
from adapters.inspect.conclusion import conclude
from adapters.inspect.content_checks import Loads, content_findings
from adapters.inspect.subject import ROOT, Inspection, Subject
from bus.messages.gates import Finding

NAME: Final = "custom"


def inspect(subject: Subject) -> Inspection:
    """Node, set, device and content; nobody knows which files such a runner opens, so no estimate is made."""
    message = "a custom runner is no known runtime: no finding and no absence of findings says that it can run the set"
    found: list[Finding] = [
        *node_checks.node_findings(subject),
        *set_checks.set_findings(subject),
        *node_checks.execution_findings(subject),
        *device_checks.device_findings(subject, uses_torch=False),
        *content_findings(subject, Loads(frozenset(), ())),
        *weight_checks.corrupt_findings(subject),
        *pickle_checks.unknown_runner_findings(subject),
        *code_checks.remote_code_findings(subject, ROOT, native=False),
        *code_checks.code_findings(subject),
        finding(Code.NO_IMPLICIT_CLAIM, "warning", message, "profile: adapter"),
    ]
    return conclude(subject, found, None, claims=False)
