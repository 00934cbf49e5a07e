"""What a model will probably need, from its headers and the profile. An estimate, never a measurement (spec A11)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from adapters.inspect.dimensions import Dimensions, dimensions, is_divided, sense_part, sense_tokens, text_part
from adapters.inspect.subject import Subject
from bus.messages.artifacts import WeightFacts
from bus.messages.gates import Estimate, EstimatePart
from bus.messages.profiles import Task

MIB: Final = 1024 * 1024
# What the imported libraries hold before any model is there, measured with torch 2.13 and transformers 5 on Linux.
LIBRARIES_BYTES: Final = 440 * MIB
# A CUDA context with its libraries' kernels on the card.
CUDA_CONTEXT_BYTES: Final = 500 * MIB
# A process of llama.cpp without a model: no Python library is in it.
LLAMA_CPP_BYTES: Final = 64 * MIB
_PROFILE_BYTES: Final = {"float32": 4, "float16": 2, "bfloat16": 2}
_FLOAT_BYTES: Final = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1}
# Vectors of the hidden size that one layer holds at once: its input, query, key, value, attention's output, residual.
_VECTORS_PER_LAYER: Final = 6
_FLOAT32: Final = 4
# llama.cpp keeps its cache in half precision unless told otherwise.
_LLAMA_CACHE: Final = 2
_GENERATES: Final[frozenset[Task]] = frozenset({"text_generation", "image_to_text", "speech_recognition"})
_SENSES: Final[frozenset[Task]] = frozenset({"image_to_text", "image_text_similarity", "speech_recognition"})
_LAYER: Final = (
    "formula: one layer at a time, 6 hidden vectors and an intermediate one a token, and eager attention's scores"
)
_CACHE: Final = "formula: a key and a value for each layer, head and token"


def estimate(
    subject: Subject, weights: Sequence[WeightFacts], config: dict[str, Any], *, quantized: bool = False
) -> Estimate | None:
    """The sum of weights, activations, cache and runtime in bytes; `None` when no header says anything.

    Args:
        subject: profile and device.
        weights: headers of the files that would be loaded.
        config: the model's config.json, or an empty object.
        quantized: the weights stay as they are stored, whatever the profile's number type.
    """
    readable = [facts for facts in weights if facts.problem is None and facts.bytes_by_dtype]
    if not readable:
        return None
    parts = [_weights_part(subject, readable, quantized=quantized)]
    activations, basis = _activations(subject, config)
    if activations:
        parts.append(EstimatePart(name="activations", size_bytes=activations, basis=f"{basis}; {_LAYER}"))
    cache, basis = _cache(subject, config)
    if cache:
        parts.append(EstimatePart(name="kv_cache", size_bytes=cache, basis=f"{basis}; {_CACHE}"))
    parts.append(_runtime_part(subject))
    return _sum(parts)


def gguf_estimate(subject: Subject, weights: Sequence[WeightFacts], size_bytes: int) -> Estimate | None:
    """The same for the files of one GGUF variant, which are held as they are stored.

    Args:
        subject: profile and device.
        weights: headers of the variant's files.
        size_bytes: sum of the files' sizes.
    """
    if not weights or not size_bytes:
        return None
    parts = [
        EstimatePart(name="weights", size_bytes=size_bytes, basis=f"sizes of {len(weights)} GGUF files, as stored")
    ]
    cache = _llama_cache(subject, weights[0].metadata)
    if cache:
        profile = subject.profile
        basis = f"GGUF header, batch {profile.batch_size}, {profile.max_sequence_length} tokens, half precision"
        parts.append(EstimatePart(name="kv_cache", size_bytes=cache, basis=f"{basis}; {_CACHE}"))
    if subject.profile.device == "cuda":
        parts.append(_runtime_part(subject))
    else:
        basis = "constant: a process of llama.cpp without a model"
        parts.append(EstimatePart(name="runtime", size_bytes=LLAMA_CPP_BYTES, basis=basis))
    return _sum(parts)


def _sum(parts: list[EstimatePart]) -> Estimate:
    return Estimate(size_bytes=sum(part.size_bytes for part in parts), parts=tuple(parts))


def _weights_part(subject: Subject, weights: list[WeightFacts], *, quantized: bool) -> EstimatePart:
    dtype = subject.profile.dtype
    if quantized:
        held = sum(sum(facts.bytes_by_dtype.values()) for facts in weights)
        basis = f"headers of {len(weights)} files, as stored: they are quantized"
    else:
        held = sum(_held_bytes(facts, _PROFILE_BYTES[dtype]) for facts in weights)
        basis = f"headers of {len(weights)} files, as {dtype}"
    return EstimatePart(name="weights", size_bytes=held, basis=basis)


def _held_bytes(facts: WeightFacts, profile_bytes: int) -> int:
    """Floating tensors are held in the profile's type, all others as they are."""
    total = 0
    for dtype, size in facts.bytes_by_dtype.items():
        stored = _FLOAT_BYTES.get(dtype)
        total += size if stored is None else size // stored * profile_bytes
    return total


def _runtime_part(subject: Subject) -> EstimatePart:
    if subject.profile.device == "cuda":
        size, basis = CUDA_CONTEXT_BYTES, "constant: a CUDA context with its kernels"
    else:
        size, basis = LIBRARIES_BYTES, "constant: the imported libraries"
    return EstimatePart(name="runtime", size_bytes=size, basis=basis)


def _activations(subject: Subject, config: dict[str, Any]) -> tuple[int, str]:
    """The larger of what senses and what reads or writes: the first is done before the second begins."""
    profile = subject.profile
    each = _PROFILE_BYTES[profile.dtype]
    text = dimensions(text_part(config), "decoder" if is_divided(config) else "whole")
    found = [_stack_bytes(text, profile.batch_size, profile.max_sequence_length, each)]
    named = f"config.json, batch {profile.batch_size}, {profile.max_sequence_length} tokens"
    if profile.task in _GENERATES and text.vocabulary:
        found[0] += profile.batch_size * text.vocabulary * _FLOAT32
        named += ", one row of scores for the vocabulary"
    senses = sense_part(config)
    if profile.task in _SENSES:
        source = config if senses is None else senses
        tokens = sense_tokens(source)
        what = "sound" if profile.task == "speech_recognition" else "image"
        found.append(_stack_bytes(dimensions(source, "encoder"), profile.batch_size, tokens, each))
        named += f"; {tokens} vectors for one {what}, the larger of the two"
    return max(found), named


def _stack_bytes(sizes: Dimensions, batch: int, length: int, each: int) -> int:
    if not sizes.known:
        return 0
    tokens = batch * length
    per_token = _VECTORS_PER_LAYER * sizes.hidden + sizes.intermediate
    # Inference frees a layer's activations before the next: one layer's worth is the peak.
    return (tokens * per_token + tokens * length * sizes.heads) * each


def _cache(subject: Subject, config: dict[str, Any]) -> tuple[int, str]:
    profile = subject.profile
    if profile.task not in _GENERATES:
        return 0, ""
    divided = is_divided(config) or config.get("model_type") == "vision-encoder-decoder"
    sizes = dimensions(text_part(config), "decoder" if divided else "whole")
    senses = sense_part(config)
    sensed = sense_tokens(config if senses is None else senses) if profile.task in _SENSES else 0
    if divided and not sensed:
        # A text encoder hands the decoder as many vectors as the input has tokens.
        sensed = profile.max_sequence_length
    tokens = profile.max_sequence_length + sensed
    size = 2 * sizes.layers * sizes.kv_heads * sizes.head_size * tokens * profile.batch_size
    named = f"config.json, batch {profile.batch_size}, {profile.max_sequence_length} tokens"
    if sensed:
        named += f" and {sensed} vectors of the input"
    return size * _PROFILE_BYTES[profile.dtype], named


def _llama_cache(subject: Subject, metadata: dict[str, str]) -> int:
    profile = subject.profile
    blocks, width = _whole(metadata, "block_count"), _whole(metadata, "embedding_length")
    heads, kv_heads = _whole(metadata, "head_count"), _whole(metadata, "head_count_kv")
    if heads and kv_heads:
        width = width * kv_heads // heads
    return 2 * blocks * width * profile.max_sequence_length * profile.batch_size * _LLAMA_CACHE


def _whole(metadata: dict[str, str], key: str) -> int:
    value = metadata.get(key, "")
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 8 else 0  # noqa: PLR2004 -- no model has ten million of anything
