"""Findings about time: can a set of this size be read within the profile's budgets at all?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.codes import finding
from adapters.inspect.subject import Subject
from bus.messages.gates import Finding

# What a good disk gives; SHA-256 and a parser take more. Below it a budget fails on most machines, so this warns late.
READ_BYTES_PER_S: Final = 500_000_000
_GB: Final = 1_000_000_000


def budget_findings(subject: Subject) -> Iterator[Finding]:
    """A probe reads every byte while it prepares, to verify it, and the weights once more while it loads (spec P5)."""
    budgets = subject.profile.budgets
    size = subject.manifest.size_bytes
    weights = sum(sum(facts.bytes_by_dtype.values()) for facts in subject.evidence.weights)
    for phase, bytes_, budget_s in (
        ("preparing", size, budgets.preparing_s),
        ("loading", weights, budgets.loading_s),
        ("total", size + weights, budgets.total_s),
    ):
        needed_s = bytes_ // READ_BYTES_PER_S
        if needed_s > budget_s:
            message = (
                f"{phase}_s is {budget_s}, and reading {bytes_ / _GB:.0f} GB takes some {needed_s} s on a good disk: "
                "a probe would end in TIMEOUT"
            )
            yield finding(Code.BUDGET_TOO_SHORT, "warning", message, f"profile: budgets.{phase}_s")
