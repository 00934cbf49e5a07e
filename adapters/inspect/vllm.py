"""The vLLM inspector: a folder as Transformers writes it, and never more than `requires_probe` (spec A14)."""

from __future__ import annotations

from typing import Final

from adapters.inspect import device_checks, quantization_checks, transformers
from adapters.inspect.subject import Inspection, Subject

NAME: Final = "vllm"
PACKAGES: Final = ("vllm",)
# The oldest card that it has kernels for (vLLM's installation guide, NVIDIA CUDA).
CAPABILITY: Final = (7, 0)


def inspect(subject: Subject) -> Inspection:
    """What speaks against the set. What vLLM can do with a model type for a task is known to vLLM alone."""
    return transformers.inspect_layout(
        subject,
        PACKAGES,
        quantization_checks.VLLM_PACKAGES,
        device_checks.capability_findings(subject, CAPABILITY, NAME),
        any_name=True,
        claims=False,
    )
