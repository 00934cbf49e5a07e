"""Findings about the device of the profile: card, compute capability, driver and CUDA (spec A7)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.codes import finding
from adapters.inspect.subject import Subject
from bus.messages.gates import Finding
from bus.messages.inventory import GpuFacts

Version = tuple[int, int]
_HALF: Final = frozenset({"float16", "bfloat16"})
# From these compute capabilities on a card computes in the type itself (NVIDIA's CUDA C++ guide: arithmetic throughput).
DTYPE_CAPABILITY: Final[dict[str, Version]] = {"float16": (5, 3), "bfloat16": (8, 0)}
# The oldest driver branch for the CUDA of a major version (NVIDIA's CUDA Compatibility guide, table of minor version
# compatibility).
DRIVER_BY_CUDA_MAJOR: Final = {11: 450, 12: 525, 13: 580}
# The oldest card for which PyTorch's builds of a CUDA version carry kernels, from that CUDA version on (PyTorch's
# RELEASE.md, "CUDA support matrix").
CAPABILITY_BY_CUDA: Final[tuple[tuple[Version, Version], ...]] = (
    ((13, 0), (7, 5)),
    ((12, 8), (7, 0)),
    ((11, 0), (5, 0)),
)
# Packages that carry the CUDA of a PyTorch whose version does not name it, and are versioned like it.
_RUNTIME_PACKAGES: Final = (
    "nvidia-cuda-runtime",
    "nvidia-cuda-runtime-cu13",
    "nvidia-cuda-runtime-cu12",
    "nvidia-cuda-runtime-cu11",
)
_LOCAL_CUDA: Final = re.compile(r"\+cu(\d{2})(\d)(?:\D|\Z)")
_VERSION: Final = re.compile(r"(\d{1,4})(?:\.(\d{1,4}))?")


@dataclass(frozen=True, slots=True)
class BuildCuda:
    """The CUDA that the node's PyTorch was built for, and which fact says so."""

    version: Version
    source: str


def device_findings(subject: Subject, *, uses_torch: bool = True) -> Iterator[Finding]:
    """Is the device of the profile there? A CUDA profile is blocked without a card, never run on a CPU.

    `uses_torch`: the adapter computes with PyTorch, so that the CUDA of its build counts.
    """
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
        yield from _card_findings(subject, card, build_cuda(subject) if uses_torch else None)
    if hardware.driver_version is None or hardware.cuda_version is None:
        message = "the driver's or CUDA's version is unknown"
        yield finding(Code.GPU_DRIVER_UNKNOWN, "blocker", message, "node hardware: driver")
    if uses_torch:
        yield from _build_findings(subject)


def _card_findings(subject: Subject, card: GpuFacts, build: BuildCuda | None) -> Iterator[Finding]:
    source = "node hardware: compute capability"
    dtype = subject.profile.dtype
    needed = DTYPE_CAPABILITY.get(dtype)
    has = version_of(card.compute_capability)
    if has is None:
        if needed is not None:
            message = f"nobody knows whether {card.name} computes in {dtype}: its compute capability is unknown"
            yield finding(Code.GPU_DTYPE_UNSUPPORTED, "warning", message, source)
        return
    if needed is not None and has < needed:
        message = f"{card.name} has compute capability {dotted(has)}, {dtype} needs {dotted(needed)}"
        yield finding(Code.GPU_DTYPE_UNSUPPORTED, "blocker", message, source)
    oldest = _oldest_card(build)
    if build is not None and oldest is not None and has < oldest:
        message = (
            f"{card.name} has compute capability {dotted(has)}; PyTorch's build for CUDA {dotted(build.version)}"
            f" has kernels from {dotted(oldest)} on"
        )
        yield finding(Code.GPU_CAPABILITY_TOO_LOW, "blocker", message, f"{source}; {build.source}")


def _build_findings(subject: Subject) -> Iterator[Finding]:
    hardware = subject.hardware
    if "+cpu" in subject.packages.get("torch", ""):
        message = "the node's PyTorch is a CPU build"
        yield finding(Code.RUNTIME_WITHOUT_CUDA, "blocker", message, "node environment: torch")
    build = build_cuda(subject)
    driver, driver_cuda = version_of(hardware.driver_version), version_of(hardware.cuda_version)
    if build is None:
        return
    needed = DRIVER_BY_CUDA_MAJOR.get(build.version[0])
    wanted = f"PyTorch is built for CUDA {dotted(build.version)}"
    if driver is not None and needed is not None and driver[0] < needed:
        message = f"the driver is {hardware.driver_version}; {wanted}, which needs {needed} or newer"
        yield finding(Code.CUDA_DRIVER_TOO_OLD, "blocker", message, f"node hardware: driver; {build.source}")
    elif driver_cuda is not None and driver_cuda[0] < build.version[0]:
        message = f"the driver speaks CUDA {hardware.cuda_version}; {wanted}"
        yield finding(Code.CUDA_DRIVER_TOO_OLD, "blocker", message, f"node hardware: cuda; {build.source}")


def capability_findings(subject: Subject, needed: Version, what: str) -> Iterator[Finding]:
    """Has the card of a CUDA profile the compute capability that `what` needs? An unknown one is no finding."""
    card = chosen_gpu(subject) if subject.profile.device == "cuda" else None
    has = version_of(card.compute_capability) if card is not None else None
    if card is not None and has is not None and has < needed:
        message = f"{card.name} has compute capability {dotted(has)}, {what} needs {dotted(needed)}"
        yield finding(Code.GPU_CAPABILITY_TOO_LOW, "blocker", message, f"node hardware: compute capability; {what}")


def build_cuda(subject: Subject) -> BuildCuda | None:
    """From torch's local version (`2.8.0+cu126`), else from the CUDA runtime package beside it; `None` when unknown."""
    local = _LOCAL_CUDA.search(subject.packages.get("torch", ""))
    if local is not None:
        return BuildCuda((int(local[1]), int(local[2])), "node environment: torch")
    for package in _RUNTIME_PACKAGES:
        version = version_of(subject.packages.get(package))
        if version is not None:
            return BuildCuda(version, f"node environment: {package}")
    return None


def _oldest_card(build: BuildCuda | None) -> Version | None:
    if build is None:
        return None
    return next((oldest for since, oldest in CAPABILITY_BY_CUDA if build.version >= since), None)


def chosen_gpu(subject: Subject) -> GpuFacts | None:
    """The card that the profile names, or the only one that there is."""
    cards = subject.hardware.gpus
    if subject.profile.gpu_uuid is None:
        return cards[0] if len(cards) == 1 else None
    return next((card for card in cards if card.uuid == subject.profile.gpu_uuid), None)


def version_of(text: str | None) -> Version | None:
    """The first two numbers of a version; `None` when it does not begin with a number."""
    match = _VERSION.match(text or "")
    return None if match is None else (int(match[1]), int(match[2] or 0))


def dotted(version: Version) -> str:
    """A version as it is written."""
    return f"{version[0]}.{version[1]}"
