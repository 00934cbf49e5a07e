"""Estimates: each part by its formula, for each kind of task; None where nothing is known (spec A11)."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.inspect import memory
from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.registry import inspect
from bus.messages.gates import Estimate
from tests.support.ledger import MIB, hardware, safetensors_bytes
from tests.support.subjects import (
    ENCODER,
    EXTRACTOR,
    IMAGES,
    SIGLIP,
    TROCR,
    WHISPER,
    WRITER,
    codes,
    doc,
    gguf_bytes,
    only,
    pipeline_files,
    subject,
    transformers_files,
)

HALF = {"dtype": "float16", "device": "cpu"}


def estimated(files: dict[str, bytes], profile: dict[str, Any] | None = None) -> Estimate:
    expected = inspect(subject(files, profile)).estimate
    assert expected is not None
    return expected


def parts(files: dict[str, bytes], profile: dict[str, Any] | None = None) -> dict[str, int]:
    return {part.name: part.size_bytes for part in estimated(files, profile).parts}


def stack(tokens: int, length: int, hidden: int, intermediate: int, heads: int, each: int) -> int:
    return (tokens * (6 * hidden + intermediate) + tokens * length * heads) * each


@pytest.mark.req("A11")
@pytest.mark.parametrize(
    "files",
    [transformers_files(), transformers_files(WRITER), transformers_files(TROCR)],
)
@pytest.mark.parametrize("task", ["embedding", "text_generation", "image_to_text"])
def test_an_estimate_is_called_one_and_each_part_says_what_it_rests_on(files: dict[str, bytes], task: str) -> None:
    expected = estimated(files, {"task": task})
    assert expected.kind == "estimated"
    assert expected.size_bytes == sum(part.size_bytes for part in expected.parts)
    for part in expected.parts:
        assert part.size_bytes > 0
        assert any(word in part.basis for word in ("headers", "formula:", "constant:"))


@pytest.mark.req("A11")
@pytest.mark.parametrize(("batch", "length", "dtype", "each"), [(1, 256, "float32", 4), (4, 64, "float16", 2)])
def test_an_encoder_holds_one_layer_at_a_time(batch: int, length: int, dtype: str, each: int) -> None:
    profile = {"batch_size": batch, "max_sequence_length": length, "dtype": dtype}
    files = transformers_files(**{"model.safetensors": safetensors_bytes(1_000)})
    found = parts(files, profile)
    assert found["weights"] == 1_000 * each
    assert found["activations"] == stack(batch * length, length, 8, 16, 2, each)
    assert found["runtime"] == memory.LIBRARIES_BYTES
    assert "kv_cache" not in found


@pytest.mark.req("A11")
def test_a_writer_keeps_keys_and_values_of_its_fewer_heads() -> None:
    profile = {"task": "text_generation", "batch_size": 3, "max_sequence_length": 100}
    found = parts(transformers_files(WRITER), profile)
    assert found["kv_cache"] == 2 * 3 * 2 * 2 * 100 * 3 * 4  # both, layers, heads, their size, tokens, batch, bytes
    assert found["activations"] == stack(300, 100, 8, 16, 4, 4) + 3 * 2 * 4
    wider = {**WRITER, "num_key_value_heads": 4, "head_dim": 8}
    assert parts(transformers_files(wider), profile)["kv_cache"] == 2 * 3 * 4 * 8 * 100 * 3 * 4


@pytest.mark.req("A11")
def test_a_listener_senses_more_than_it_writes_and_caches_both() -> None:
    files = transformers_files(WHISPER, **{"processor_config.json": doc(EXTRACTOR)})
    found = parts(files, {"task": "speech_recognition", "max_sequence_length": 448})
    assert found["activations"] == stack(1500, 1500, 16, 32, 2, 4)
    assert found["kv_cache"] == 2 * 2 * 2 * 8 * (448 + 1500) * 4


@pytest.mark.req("A11")
def test_nested_configurations_are_read() -> None:
    files = transformers_files(TROCR, **{"preprocessor_config.json": doc(IMAGES)})
    found = parts(files, {"task": "image_to_text", "max_sequence_length": 8})
    image = (64 // 16) ** 2 + 1
    assert found["activations"] == stack(image, image, 32, 128, 2, 4)
    assert found["kv_cache"] == 2 * 2 * 2 * 16 * (8 + image) * 4
    pair = parts(transformers_files(SIGLIP), {"task": "image_text_similarity", "max_sequence_length": 64})
    assert pair["activations"] == stack(64, 64, 16, 64, 2, 4)


@pytest.mark.req("A11")
def test_quantized_weights_stay_as_they_are_stored() -> None:
    config = {**ENCODER, "quantization_config": {"quant_method": "gptq"}}
    weights = {"model.safetensors": safetensors_bytes(1_000, "F16", 2)}
    assert parts(transformers_files(config, **weights))["weights"] == 2_000
    assert parts(transformers_files(**weights))["weights"] == 4_000
    integers = {"model.safetensors": safetensors_bytes(1_000, "I64", 8)}
    assert parts(transformers_files(**integers), HALF)["weights"] == 8_000


@pytest.mark.req("A11")
def test_a_gguf_is_its_file_and_a_cache_in_half_precision() -> None:
    data = gguf_bytes(elements=1_024)
    profile = {"adapter": "llama_cpp", "max_sequence_length": 100, "batch_size": 2}
    found = parts({"m.gguf": data}, profile)
    assert found["weights"] == len(data)
    assert found["kv_cache"] == 2 * 2 * (8 * 2 // 4) * 100 * 2 * 2
    assert found["runtime"] == memory.LLAMA_CPP_BYTES
    split = {f"m-0000{number}-of-00002.gguf": data for number in (1, 2)}
    assert parts(split, profile)["weights"] == 2 * len(data)


@pytest.mark.req("A11")
def test_only_what_would_be_loaded_is_counted() -> None:
    control = estimated(transformers_files())
    beside = {
        "onnx/model.safetensors": safetensors_bytes(5_000),
        "model.fp16.safetensors": safetensors_bytes(5_000),
        "other.safetensors": safetensors_bytes(5_000),
    }
    assert estimated(transformers_files(**beside)) == control
    assert parts(pipeline_files(), {"adapter": "diffusers", "task": "image_generation"})["weights"] == 2 * 8 * 4


@pytest.mark.req("A11")
@pytest.mark.parametrize("adapter", ["transformers", "vllm", "llama_cpp", "diffusers", "sentence_transformers"])
def test_where_no_header_says_anything_nothing_is_estimated(adapter: str) -> None:
    task = "image_generation" if adapter == "diffusers" else "embedding"
    inspection = inspect(subject({"README.md": b"# x\n"}, {"adapter": adapter, "task": task}))
    assert inspection.estimate is None
    assert only(inspection, Code.MEMORY_UNKNOWN).severity == "note"
    assert "MEMORY_UNKNOWN" not in codes(inspect(subject(transformers_files())))


@pytest.mark.req("A7", "A11")
@pytest.mark.parametrize(
    ("machine", "profile", "expected"),
    [
        ({}, {}, None),
        ({"memory_total_bytes": 450 * MIB}, {"memory_margin_mib": 0}, None),
        ({"memory_total_bytes": 450 * MIB}, {"memory_margin_mib": 64}, ("MEMORY_EXCEEDS_DEVICE", "blocker")),
        ({"memory_available_bytes": 500 * MIB}, {"memory_margin_mib": 0}, None),
        ({"memory_available_bytes": 500 * MIB}, {"memory_margin_mib": 256}, ("MEMORY_TIGHT", "warning")),
        ({}, {"memory_limit_mib": 64}, ("MEMORY_EXCEEDS_LIMIT", "blocker")),
    ],
)
def test_estimate_and_margin_must_fit(
    machine: dict[str, Any], profile: dict[str, Any], expected: tuple[str, str] | None
) -> None:
    inspection = inspect(subject(transformers_files(), profile, hardware=hardware(**machine)))
    found = [(item.code, item.severity) for item in inspection.findings if item.code.startswith("MEMORY_")]
    assert found == ([] if expected is None else [expected])


@pytest.mark.parametrize("value", [-1, 0, 10**12, "8", None, 1.5, True, [8], {}])
def test_no_number_of_a_stranger_breaks_the_sum(value: object) -> None:
    keys = ("hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size", "vocab_size", "head_dim")
    for key in keys:
        expected = estimated(transformers_files({**WRITER, key: value}), {"task": "text_generation"})
        assert 0 < expected.size_bytes < 2**63
