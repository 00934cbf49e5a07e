"""Findings about memory: does the estimate fit the device, the profile's limit, and what is free now (spec A7, A11)?"""

from __future__ import annotations

from collections.abc import Iterator

from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.codes import finding
from adapters.inspect.device_checks import chosen_gpu
from adapters.inspect.memory import MIB
from adapters.inspect.subject import Subject
from bus.messages.gates import Estimate, Finding


def memory_findings(subject: Subject, expected: Estimate | None) -> Iterator[Finding]:
    """The profile's margin stays free on the device beside the estimate; the child's own limit holds without it."""
    if expected is None:
        message = "no weight header says how large the model is"
        yield finding(Code.MEMORY_UNKNOWN, "note", message, "weight headers")
        return
    profile, hardware = subject.profile, subject.hardware
    needed = f"about {_mib(expected.size_bytes)} MiB needed (estimated)"
    wanted = f"{needed} and {profile.memory_margin_mib} MiB to stay free"
    size = expected.size_bytes + profile.memory_margin_mib * MIB
    on_cpu = profile.device == "cpu"
    card = chosen_gpu(subject)
    total = hardware.memory_total_bytes if on_cpu else (card.memory_total_bytes if card else None)
    source = "node hardware: memory" if on_cpu else "node hardware: gpus"
    if total is not None and size > total:
        message = f"{wanted}, the device has {_mib(total)} MiB"
        yield finding(Code.MEMORY_EXCEEDS_DEVICE, "blocker", message, f"{source}; profile: memory_margin_mib")
    elif on_cpu and size > hardware.memory_available_bytes > 0:
        message = f"{wanted}, {_mib(hardware.memory_available_bytes)} MiB are free now"
        yield finding(Code.MEMORY_TIGHT, "warning", message, source)
    elif not on_cpu and card is not None and total is None:
        message = f"{needed}; the memory of {card.name} is unknown"
        yield finding(Code.MEMORY_UNKNOWN, "note", message, source)
    if on_cpu and expected.size_bytes > profile.memory_limit_mib * MIB:
        message = f"{needed}, the profile allows {profile.memory_limit_mib} MiB"
        yield finding(Code.MEMORY_EXCEEDS_LIMIT, "blocker", message, "profile: memory_limit_mib")


def _mib(size_bytes: int) -> int:
    return -(-size_bytes // MIB)
