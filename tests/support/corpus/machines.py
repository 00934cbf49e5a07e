"""Nodes as they describe themselves: a machine without a card, machines with one, and what runs there."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from adapters.inspect.subject import NodeFacts
from bus.messages.inventory import GpuFacts, HardwareFacts
from bus.messages.profiles import AdapterFacts, RuntimeEnvironment

MIB: Final = 1024 * 1024
GIB: Final = 1024 * MIB
_TYPES: Final = (
    "bert", "llama", "qwen2", "roberta", "siglip", "siglip2", "trocr", "vision-encoder-decoder", "vit", "whisper",
)  # fmt: skip
_METHODS: Final = ("awq", "bitsandbytes", "compressed-tensors", "fp8", "gptq")
PACKAGES: Final = {
    "accelerate": "1.12.0",
    "diffusers": "0.36.0",
    "huggingface-hub": "2.4.0",
    "llama-cpp-python": "0.3.16",
    "modelforge": "0.1.0",
    "numpy": "2.4.6",
    "safetensors": "0.8.0",
    "sentence-transformers": "6.2.0",
    "tokenizers": "0.23.3",
    "torch": "2.13.0+cpu",
    "transformers": "5.24.0",
    "vllm": "0.14.0",
}
# What the libraries ask for before they load weights of a method, as their own errors say.
QUANTIZERS: Final = {
    "autoawq": "0.2.9",
    "bitsandbytes": "0.49.0",
    "compressed-tensors": "0.13.0",
    "gptqmodel": "5.6.0",
    "optimum": "2.1.0",
}


def _adapter(name: str, version: str, tasks: tuple[str, ...], modalities: tuple[str, ...], **more: Any) -> AdapterFacts:
    values = {"executable": False, "inspect_only": True, "formats": ("safetensors",), **more}
    return AdapterFacts(name=name, version=version, tasks=tasks, modalities=modalities, **values)


ADAPTERS: Final = (
    _adapter(
        "sentence_transformers", "6.2.0", ("embedding",), ("text",),
        executable=True, inspect_only=False, model_types=("bert", "roberta"),
    ),
    _adapter(
        "transformers", "5.24.0",
        ("embedding", "reranking", "text_generation", "image_to_text", "image_text_similarity", "speech_recognition"),
        ("text", "image", "audio"), model_types=_TYPES, quantizations=_METHODS,
    ),
    _adapter(
        "vllm", "0.14.0", ("embedding", "reranking", "text_generation"), ("text",),
        model_types=_TYPES, quantizations=_METHODS,
    ),
    _adapter(
        "llama_cpp", "0.3.16", ("embedding", "text_generation"), ("text",),
        formats=("gguf",), quantizations=("Q4_K_M", "Q8_0"),
    ),
    _adapter("diffusers", "0.36.0", ("image_generation",), ("text", "image")),
    _adapter(
        "custom", "1", ("embedding", "text_generation"), ("text",), formats=("safetensors", "gguf", "pickle"),
    ),
)  # fmt: skip

# The package whose version is the adapter's, as a node declares it.
_DISTRIBUTIONS: Final = {
    "sentence_transformers": "sentence-transformers",
    "transformers": "transformers",
    "vllm": "vllm",
    "llama_cpp": "llama-cpp-python",
    "diffusers": "diffusers",
    "custom": "modelforge",
}


def environment(**packages: str | None) -> RuntimeEnvironment:
    """An interpreter with every runtime; a package by keyword (`_` for `-`) is added, changed or, by `None`, absent."""
    changes = {name.replace("_", "-"): version for name, version in packages.items()}
    found = {name: version for name, version in (PACKAGES | changes).items() if version is not None}
    adapters = tuple(
        msgspec.structs.replace(facts, version=found.get(_DISTRIBUTIONS[facts.name], "not installed"))
        for facts in ADAPTERS
    )
    return RuntimeEnvironment(python="3.11.7", platform="linux-x86_64", packages=found, adapters=adapters)


def declaring(name: str, base: RuntimeEnvironment | None = None, **changes: Any) -> RuntimeEnvironment:
    """The environment in which one adapter declares something else; no changes at all: in which it is absent."""
    runtime = base or environment()
    adapters = tuple(
        msgspec.structs.replace(facts, **changes) if facts.name == name else facts
        for facts in runtime.adapters
        if changes or facts.name != name
    )
    return msgspec.structs.replace(runtime, adapters=adapters)


def machine(**changes: Any) -> HardwareFacts:
    """A machine without a card."""
    values: dict[str, Any] = {
        "cpu_model": "Test CPU",
        "cpu_count": 8,
        "memory_total_bytes": 64 * GIB,
        "memory_available_bytes": 60 * GIB,
        "gpu_reason": "no NVIDIA driver",
    }
    return HardwareFacts(**{**values, **changes})


def card(number: int = 1, *, capability: str = "9.0", memory_bytes: int = 80 * GIB) -> GpuFacts:
    """One card."""
    return GpuFacts(
        uuid=f"GPU-{number:08d}", name="Test card", memory_total_bytes=memory_bytes, compute_capability=capability
    )


def cuda_machine(*cards: GpuFacts, driver: str | None = "580.65.06", cuda: str | None = "13.0") -> HardwareFacts:
    """A machine with cards, by default one that can do everything."""
    return machine(gpus=cards or (card(),), driver_version=driver, cuda_version=cuda, gpu_reason=None)


def cuda_environment(torch: str = "2.13.0+cu130", **packages: str | None) -> RuntimeEnvironment:
    """The environment with a CUDA build of PyTorch."""
    return environment(torch=torch, **packages)


def node(**changes: Any) -> NodeFacts:
    """A node that may probe."""
    values: dict[str, Any] = {
        "name": "lab",
        "enabled": True,
        "lab_eligible": True,
        "liveness": "online",
        "capabilities": ("runtime.probe.v1",),
    }
    return NodeFacts(**{**values, **changes})
