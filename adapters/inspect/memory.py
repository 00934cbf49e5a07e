"""What a model will probably need, from its headers and the profile. An estimate, never a measurement (spec A11)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.codes import finding
from adapters.inspect.node_checks import chosen_gpu
from adapters.inspect.subject import Subject
from bus.messages.artifacts import WeightFacts
from bus.messages.gates import Estimate, EstimatePart, Finding

MIB: Final = 1024 * 1024
# What the imported libraries hold before any model is there, measured with torch 2.13 and transformers 5 on Linux.
LIBRARIES_BYTES: Final = 440 * MIB
# A CUDA context with its libraries' kernels on the card.
CUDA_CONTEXT_BYTES: Final = 500 * MIB
_PROFILE_BYTES: Final = {"float32": 4, "float16": 2, "bfloat16": 2}
_FLOAT_BYTES: Final = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1}
_ACTIVATIONS_PER_LAYER: Final = 6
_MAX_DIMENSION: Final = 10_000_000


def estimate(subject: Subject, weights: Sequence[WeightFacts], config: dict[str, Any]) -> Estimate | None:
    """The sum of weights, activations and runtime in bytes; `None` when no header says anything.

    Args:
        subject: profile and device.
        weights: headers of the files that would be loaded.
        config: the model's config.json, or an empty object.
    """
    readable = [facts for facts in weights if facts.problem is None and facts.bytes_by_dtype]
    if not readable:
        return None
    dtype = subject.profile.dtype
    held = sum(_held_bytes(facts, _PROFILE_BYTES[dtype]) for facts in readable)
    parts = [EstimatePart(name="weights", size_bytes=held, basis=f"headers of {len(readable)} files, as {dtype}")]
    activations = _activation_bytes(subject, config)
    if activations:
        profile = subject.profile
        basis = f"config.json, batch {profile.batch_size}, {profile.max_sequence_length} tokens"
        parts.append(EstimatePart(name="activations", size_bytes=activations, basis=basis))
    if subject.profile.device == "cuda":
        runtime, basis = CUDA_CONTEXT_BYTES, "constant: a CUDA context with its kernels"
    else:
        runtime, basis = LIBRARIES_BYTES, "constant: the imported libraries"
    parts.append(EstimatePart(name="runtime", size_bytes=runtime, basis=basis))
    return Estimate(size_bytes=sum(part.size_bytes for part in parts), parts=tuple(parts))


def _held_bytes(facts: WeightFacts, profile_bytes: int) -> int:
    """Floating tensors are held in the profile's type, all others as they are."""
    total = 0
    for dtype, size in facts.bytes_by_dtype.items():
        stored = _FLOAT_BYTES.get(dtype)
        total += size if stored is None else size // stored * profile_bytes
    return total


def _activation_bytes(subject: Subject, config: dict[str, Any]) -> int:
    hidden, heads = _dimension(config, "hidden_size"), _dimension(config, "num_attention_heads")
    profile = subject.profile
    tokens = profile.batch_size * profile.max_sequence_length
    per_token = _ACTIVATIONS_PER_LAYER * hidden + _dimension(config, "intermediate_size")
    attention = tokens * profile.max_sequence_length * heads
    # Inference frees a layer's activations before the next: one layer's worth is the peak.
    return (tokens * per_token + attention) * _PROFILE_BYTES[profile.dtype]


def _dimension(config: dict[str, Any], key: str) -> int:
    value = config.get(key)
    return value if type(value) is int and 0 < value < _MAX_DIMENSION else 0


def memory_findings(subject: Subject, expected: Estimate | None) -> Iterator[Finding]:
    """Does the estimate fit the device, the profile's limit and what is free now?"""
    if expected is None:
        message = "no weight header says how large the model is"
        yield finding(Code.MEMORY_UNKNOWN, "note", message, "weight headers")
        return
    profile, hardware = subject.profile, subject.hardware
    needed = f"about {_mib(expected.size_bytes)} MiB needed (estimated)"
    on_cpu = profile.device == "cpu"
    card = chosen_gpu(subject)
    total = hardware.memory_total_bytes if on_cpu else (card.memory_total_bytes if card else None)
    source = "node hardware: memory" if on_cpu else "node hardware: gpus"
    if total is not None and expected.size_bytes > total:
        message = f"{needed}, the device has {_mib(total)} MiB"
        yield finding(Code.MEMORY_EXCEEDS_DEVICE, "blocker", message, source)
    elif on_cpu and expected.size_bytes > hardware.memory_available_bytes > 0:
        message = f"{needed}, {_mib(hardware.memory_available_bytes)} MiB are free now"
        yield finding(Code.MEMORY_TIGHT, "warning", message, source)
    if on_cpu and expected.size_bytes > profile.memory_limit_mib * MIB:
        message = f"{needed}, the profile allows {profile.memory_limit_mib} MiB"
        yield finding(Code.MEMORY_EXCEEDS_LIMIT, "blocker", message, "profile: memory_limit_mib")


def _mib(size_bytes: int) -> int:
    return -(-size_bytes // MIB)
