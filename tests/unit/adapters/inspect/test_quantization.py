"""Quantization: asked for, shown, declared and provided for; and the type that weights are stored in (spec A10)."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.quantization_checks import PACKAGES as NEEDED
from adapters.inspect.registry import inspect
from tests.support.ledger import card, hardware, safetensors_bytes
from tests.support.subjects import (
    ENCODER,
    PACKAGES,
    adapter,
    blockers,
    codes,
    doc,
    environment,
    only,
    subject,
    transformers_files,
)

GPTQ = {**ENCODER, "quantization_config": {"quant_method": "gptq", "bits": 4}}


@pytest.mark.req("A10")
@pytest.mark.parametrize(
    ("config", "asked", "expected"),
    [
        (ENCODER, None, []),
        (ENCODER, "gptq", ["QUANTIZATION_NOT_EVIDENCED"]),
        (GPTQ, None, ["QUANTIZED_WEIGHTS"]),
        (GPTQ, "gptq", []),
        (GPTQ, "awq", ["QUANTIZATION_NOT_EVIDENCED"]),
        ({**ENCODER, "text_config": {"quantization_config": {"quant_method": "gptq"}}}, "gptq", []),
        ({**ENCODER, "compression_config": {"quant_method": "gptq"}}, None, ["QUANTIZED_WEIGHTS"]),
        ({**ENCODER, "quantization_config": {"bits": 4}}, None, ["QUANTIZED_WEIGHTS"]),
        ({**ENCODER, "quantization_config": {"bits": 4}}, "gptq", ["QUANTIZATION_NOT_EVIDENCED"]),
        ({**ENCODER, "quantization_config": "odd"}, None, ["QUANTIZED_WEIGHTS"]),
        (
            {**ENCODER, "quantization_config": {"quant_method": "awq"}},
            "awq",
            ["QUANTIZATION_NOT_DECLARED"],
        ),
        (
            {**ENCODER, "quantization_config": {"load_in_4bit": True}},
            "bitsandbytes",
            ["QUANTIZATION_PACKAGE_MISSING"],
        ),
    ],
)
def test_the_quantization_that_is_asked_for_must_be_the_one_shown(
    config: dict[str, Any], asked: str | None, expected: list[str]
) -> None:
    assert blockers(inspect(subject(transformers_files(config), {"quantization": asked}))) == expected


@pytest.mark.req("A10")
def test_an_older_gptq_model_shows_it_in_a_file_of_its_own() -> None:
    files = transformers_files(**{"quantize_config.json": doc({"bits": 4})})
    assert blockers(inspect(subject(files, {"quantization": "gptq"}))) == []
    assert only(inspect(subject(files)), Code.QUANTIZED_WEIGHTS).source == "quantize_config.json"


@pytest.mark.req("A10")
@pytest.mark.parametrize("method", sorted(NEEDED))
def test_a_package_that_a_method_needs_is_named(method: str) -> None:
    config = {**ENCODER, "quantization_config": {"quant_method": method}}
    declares = adapter("transformers", quantizations=(method,))
    bare = environment(declares, packages={"torch": "2", "transformers": "5"})
    profile = {"quantization": method}
    inspection = inspect(subject(transformers_files(config), profile, environment=bare))
    assert blockers(inspection) == ["QUANTIZATION_PACKAGE_MISSING"]
    assert all(name in inspection.findings[0].message for name in NEEDED[method])
    full = environment(declares, packages={**PACKAGES, **dict.fromkeys(NEEDED[method], "1.0")})
    assert blockers(inspect(subject(transformers_files(config), profile, environment=full))) == []


@pytest.mark.req("A10")
def test_vllm_brings_kernels_of_its_own() -> None:
    bare = environment(adapter("vllm"), packages={"vllm": "1"})
    profile = {"adapter": "vllm", "quantization": "gptq"}
    assert blockers(inspect(subject(transformers_files(GPTQ), profile, environment=bare))) == []


@pytest.mark.req("A7", "A10")
@pytest.mark.parametrize(("capability", "expected"), [("8.6", ["GPU_CAPABILITY_TOO_LOW"]), ("8.9", [])])
def test_a_method_may_need_a_newer_card(capability: str, expected: list[str]) -> None:
    config = {**ENCODER, "quantization_config": {"quant_method": "fp8"}}
    runtime = environment(adapter("transformers", quantizations=("fp8",)))
    machine = hardware(gpus=(card(compute_capability=capability),), driver_version="580.1", cuda_version="13.0")
    profile = {"quantization": "fp8", "device": "cuda"}
    assert (
        blockers(inspect(subject(transformers_files(config), profile, environment=runtime, hardware=machine)))
        == expected
    )
    on_cpu = {"quantization": "fp8"}
    assert blockers(inspect(subject(transformers_files(config), on_cpu, environment=runtime))) == []


@pytest.mark.req("A10")
@pytest.mark.parametrize(
    ("stored", "size", "dtype", "severity"),
    [
        ("F32", 4, "float32", None),
        ("F16", 2, "float16", None),
        ("BF16", 2, "bfloat16", None),
        ("F32", 4, "float16", "note"),
        ("F16", 2, "float32", "note"),
        ("BF16", 2, "float16", "warning"),
        ("F8_E4M3", 1, "float32", "warning"),
        ("F64", 8, "float32", "warning"),
        ("I64", 8, "float32", None),
    ],
)
def test_another_type_than_the_stored_one_is_said(stored: str, size: int, dtype: str, severity: str | None) -> None:
    files = transformers_files(**{"model.safetensors": safetensors_bytes(8, stored, size)})
    found = [item for item in inspect(subject(files, {"dtype": dtype})).findings if item.code == "DTYPE_MISMATCH"]
    assert [item.severity for item in found] == ([] if severity is None else [severity])


@pytest.mark.req("A10")
def test_of_quantized_weights_no_type_is_expected() -> None:
    files = transformers_files(GPTQ, **{"model.safetensors": safetensors_bytes(8, "F16", 2)})
    assert "DTYPE_MISMATCH" not in codes(inspect(subject(files, {"quantization": "gptq"})))
