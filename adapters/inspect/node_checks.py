"""Findings about the node, its environment and its devices (spec A5-A8)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.codes import finding
from adapters.inspect.subject import PROBE_CAPABILITY, Subject
from bus.messages.gates import Finding
from bus.messages.inventory import GpuFacts

# Cards from this compute capability on compute bfloat16 themselves.
BFLOAT16_MAJOR: Final = 8
_HALF: Final = frozenset({"float16", "bfloat16"})


def node_findings(subject: Subject) -> Iterator[Finding]:
    """Is the set there, and may and can this node probe it now?"""
    node = subject.node
    if subject.location is None:
        yield finding(Code.SET_NOT_ON_NODE, "blocker", f"no scan found this set on {node.name}", "set locations")
    if node.liveness == "offline":
        yield finding(Code.NODE_OFFLINE, "blocker", f"{node.name} has not been heard of lately", "node liveness")
    if node.liveness == "doubtful":
        yield finding(Code.NODE_DOUBTFUL, "warning", f"{node.name} is late with its inventory", "node liveness")
    if not node.enabled:
        yield finding(Code.NODE_DISABLED, "blocker", f"{node.name} is disabled", "node record")
    if not node.lab_eligible:
        yield finding(Code.NODE_NOT_LAB_ELIGIBLE, "blocker", f"{node.name} is not lab-eligible", "node record")
    if PROBE_CAPABILITY not in node.capabilities:
        message = f"{node.name} does not advertise {PROBE_CAPABILITY}"
        yield finding(Code.NODE_CANNOT_PROBE, "blocker", message, "node inventory: capabilities")


def adapter_findings(subject: Subject, packages: tuple[str, ...], modality: str) -> Iterator[Finding]:
    """Can the node execute the profile's adapter, and does its environment declare what the set needs?"""
    name, facts = subject.profile.adapter, subject.adapter
    source = f"node environment: adapter {name}"
    if facts is None:
        message = f"{subject.node.name} declares no adapter {name}"
        yield finding(Code.ADAPTER_NOT_DECLARED, "blocker", message, "node environment: adapters")
        return
    if not facts.executable:
        message = f"{name} cannot be executed on {subject.node.name}: {facts.reason or 'no reason given'}"
        yield finding(Code.ADAPTER_NOT_EXECUTABLE, "blocker", message, source)
    missing = [package for package in packages if package not in subject.environment.packages]
    if missing:
        message = f"not installed on {subject.node.name}: {', '.join(missing)}"
        yield finding(Code.PACKAGE_MISSING, "blocker", message, "node environment: packages")
    if subject.profile.task not in facts.tasks:
        yield finding(Code.TASK_NOT_DECLARED, "blocker", f"{name} does not declare {subject.profile.task}", source)
    if modality not in facts.modalities:
        yield finding(Code.MODALITY_NOT_DECLARED, "blocker", f"{name} does not declare the modality {modality}", source)


def device_findings(subject: Subject) -> Iterator[Finding]:
    """Is the device of the profile there? A CUDA profile is blocked without a card, never run on a CPU (spec A7)."""
    profile, hardware = subject.profile, subject.hardware
    if profile.device == "cpu":
        if profile.dtype in _HALF:
            message = f"{profile.dtype} is slow or inexact on many CPUs"
            yield finding(Code.HALF_PRECISION_ON_CPU, "warning", message, "profile: dtype")
        return
    if not hardware.gpus:
        reason = hardware.gpu_reason or "the node reports none"
        yield finding(Code.NO_GPU, "blocker", f"no GPU on {subject.node.name}: {reason}", "node hardware: gpus")
        return
    card = chosen_gpu(subject)
    if card is None and profile.gpu_uuid is not None:
        message = f"{subject.node.name} has no GPU {profile.gpu_uuid}"
        yield finding(Code.GPU_NOT_FOUND, "blocker", message, "node hardware: gpus")
    elif card is None:
        message = f"{subject.node.name} has {len(hardware.gpus)} GPUs and the profile names none"
        yield finding(Code.GPU_NOT_CHOSEN, "blocker", message, "profile: gpu_uuid")
    else:
        yield from _card_findings(subject, card)
    if hardware.driver_version is None or hardware.cuda_version is None:
        message = "the driver's or CUDA's version is unknown"
        yield finding(Code.GPU_DRIVER_UNKNOWN, "blocker", message, "node hardware: driver")
    if "+cpu" in subject.environment.packages.get("torch", ""):
        message = "the node's PyTorch is a CPU build"
        yield finding(Code.RUNTIME_WITHOUT_CUDA, "blocker", message, "node environment: torch")


def _card_findings(subject: Subject, card: GpuFacts) -> Iterator[Finding]:
    major = (card.compute_capability or "").partition(".")[0]
    if subject.profile.dtype == "bfloat16" and major.isdecimal() and int(major) < BFLOAT16_MAJOR:
        message = f"{card.name} has compute capability {card.compute_capability}, bfloat16 needs {BFLOAT16_MAJOR}.0"
        yield finding(Code.GPU_DTYPE_UNSUPPORTED, "blocker", message, "node hardware: compute capability")


def chosen_gpu(subject: Subject) -> GpuFacts | None:
    """The card that the profile names, or the only one that there is."""
    cards = subject.hardware.gpus
    if subject.profile.gpu_uuid is None:
        return cards[0] if len(cards) == 1 else None
    return next((card for card in cards if card.uuid == subject.profile.gpu_uuid), None)
