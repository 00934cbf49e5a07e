"""Findings about the node and its environment (spec A5, A6, A8)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.codes import finding
from adapters.inspect.device_checks import version_of
from adapters.inspect.subject import PROBE_CAPABILITY, Subject, normal
from bus.messages.gates import Declared, Finding
from bus.messages.profiles import Task

# What goes into a model for each task, or comes out of it; an adapter must declare every one.
MODALITIES: Final[dict[Task, tuple[str, ...]]] = {
    "embedding": ("text",),
    "reranking": ("text",),
    "text_generation": ("text",),
    "image_to_text": ("image",),
    "image_text_similarity": ("text", "image"),
    "speech_recognition": ("audio",),
    "image_generation": ("image",),
}
_NOT_INSTALLED: Final = "not installed"
# torchvision 0.15 belongs to PyTorch 2.0, and each next one to the next (torchvision's README, table of versions).
_VISION_AHEAD: Final = 15


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


def execution_findings(subject: Subject) -> Iterator[Finding]:
    """Does the node declare the profile's adapter, and can it run it?"""
    name, facts = subject.profile.adapter, subject.adapter
    source = f"node environment: adapter {name}"
    if facts is None:
        message = f"{subject.node.name} declares no adapter {name}"
        yield finding(Code.ADAPTER_NOT_DECLARED, "blocker", message, "node environment: adapters")
    elif facts.inspect_only:
        message = f"this version assesses {name} and runs it nowhere, so nothing can be proven yet"
        yield finding(Code.PROBE_NOT_AVAILABLE, "warning", message, source)
    elif not facts.executable:
        message = f"{name} cannot be executed on {subject.node.name}: {facts.reason or 'no reason given'}"
        yield finding(Code.ADAPTER_NOT_EXECUTABLE, "blocker", message, source)


def adapter_findings(
    subject: Subject, packages: tuple[str, ...], modalities: tuple[str, ...] | None = None
) -> Iterator[Finding]:
    """Can the node execute the profile's adapter, and does its environment declare what the set needs?

    Args:
        subject: profile, node and its environment.
        packages: what the adapter needs installed; the first is the adapter's own, whose version it declares itself.
        modalities: what it must declare; by default what the profile's task needs.
    """
    yield from execution_findings(subject)
    name, facts = subject.profile.adapter, subject.adapter
    if facts is None:
        return
    missing = [package for package in packages if normal(package) not in subject.packages]
    if missing and missing[0] == packages[0] and facts.inspect_only and facts.version != _NOT_INSTALLED:
        # An environment that lists few packages still knows the version of each adapter's own.
        missing = missing[1:]
    if missing:
        message = f"not installed on {subject.node.name}: {', '.join(missing)}"
        yield finding(Code.PACKAGE_MISSING, "blocker", message, "node environment: packages")
    if "torch" in packages:
        yield from _vision_findings(subject)
    source = f"node environment: adapter {name}"
    if subject.profile.task not in facts.tasks:
        yield finding(Code.TASK_NOT_DECLARED, "blocker", f"{name} does not declare {subject.profile.task}", source)
    wanted = MODALITIES[subject.profile.task] if modalities is None else modalities
    absent = [modality for modality in wanted if modality not in facts.modalities]
    if absent:
        message = f"{name} does not declare the modality {' and '.join(absent)}"
        yield finding(Code.MODALITY_NOT_DECLARED, "blocker", message, source)


def _vision_findings(subject: Subject) -> Iterator[Finding]:
    """A torchvision of another PyTorch breaks the import of the libraries that look for it, whatever the model."""
    torch, vision = subject.packages.get("torch"), subject.packages.get("torchvision")
    if torch is None or vision is None:
        return
    numbers, wanted = version_of(torch), version_of(vision)
    apart = numbers is not None and numbers[0] == 2 and wanted != (0, numbers[1] + _VISION_AHEAD)  # noqa: PLR2004 -- the major version of the table
    if apart or ("+cpu" in torch and "+cpu" not in vision):
        message = f"torchvision {vision} does not belong to torch {torch}"
        yield finding(Code.PACKAGE_MISMATCH, "blocker", message, "node environment: packages")


def declared(subject: Subject, model_type: str | None) -> Declared | None:
    """What the environment claims about the profile's adapter, in one record; `None` when it does not declare it.

    Args:
        subject: the environment and the profile.
        model_type: the one that the set's configuration names, if it names one.
    """
    facts = subject.adapter
    if facts is None:
        return None
    return Declared(
        adapter=facts.name,
        version=facts.version,
        executable=facts.executable,
        inspect_only=facts.inspect_only,
        tasks=facts.tasks,
        modalities=facts.modalities,
        formats=facts.formats,
        quantizations=facts.quantizations,
        model_type=model_type,
        model_type_declared=model_type in facts.model_types if model_type and facts.model_types else None,
    )
