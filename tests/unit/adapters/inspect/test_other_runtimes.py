"""llama.cpp, Diffusers, custom runners and names that nobody knows (spec A15, A16, A17)."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.registry import inspect
from adapters.inspect.subject import Inspection
from tests.support.ledger import model_files, safetensors_bytes
from tests.support.subjects import (
    PIPELINE,
    adapter,
    blockers,
    codes,
    doc,
    environment,
    gguf_bytes,
    only,
    pipeline_files,
    subject,
    transformers_files,
)

LLAMA = {"adapter": "llama_cpp"}
IMAGES = {"adapter": "diffusers", "task": "image_generation"}
# Q4_K_M in llama.cpp's own table of file types.
Q4_K_M, F16 = 15, 1
PARTS = {f"m-0000{number}-of-00003.gguf": gguf_bytes() for number in (1, 2, 3)}


def gguf(files: dict[str, bytes], profile: dict[str, Any] | None = None, **changes: Any) -> Inspection:
    return inspect(subject(files, {**LLAMA, **(profile or {})}, **changes))


@pytest.mark.req("A15")
@pytest.mark.parametrize("files", [{"m.gguf": gguf_bytes()}, PARTS, {"q/m.gguf": gguf_bytes(), "README.md": b"# m\n"}])
def test_a_local_gguf_may_be_probed_and_no_more_is_claimed(files: dict[str, bytes]) -> None:
    inspection = gguf(files)
    assert codes(inspection) == ["PROBE_NOT_AVAILABLE", "REQUIRES_PROBE"]
    assert inspection.verdict == "requires_probe"


@pytest.mark.req("A15")
@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (transformers_files(), ["NO_GGUF_ARTIFACT_VARIANT"]),
        ({"README.md": b"# nothing\n"}, ["NO_GGUF_ARTIFACT_VARIANT"]),
        ({"m.gguf": gguf_bytes()[:-1]}, ["WEIGHTS_CORRUPT", "NO_GGUF_ARTIFACT_VARIANT"]),
        ({"m.gguf": b"<!DOCTYPE html>\n<html></html>"}, ["FORMAT_MISMATCH", "NO_GGUF_ARTIFACT_VARIANT"]),
        ({"mmproj.gguf": gguf_bytes({"general.architecture": "clip"})}, ["NO_GGUF_ARTIFACT_VARIANT"]),
        ({path: data for path, data in PARTS.items() if "2-of" not in path}, ["GGUF_SPLIT_INCOMPLETE"]),
        ({path: data for path, data in PARTS.items() if "1-of" not in path}, ["GGUF_SPLIT_INCOMPLETE"]),
        ({"m.gguf": gguf_bytes({"general.architecture": ""})}, ["CONFIG_UNREADABLE"]),
        ({"m.gguf": gguf_bytes({"llama.context_length": 128})}, ["SEQUENCE_TOO_LONG"]),
    ],
)
def test_what_llama_cpp_lacks_is_named(files: dict[str, bytes], expected: list[str]) -> None:
    assert blockers(gguf(files)) == expected


@pytest.mark.req("A15")
def test_safetensors_alone_are_named_as_what_llama_cpp_does_not_load() -> None:
    assert "safetensors" in only(gguf(transformers_files()), Code.NO_GGUF_ARTIFACT_VARIANT).message
    lacks = only(gguf({path: data for path, data in PARTS.items() if "2-of" not in path}), Code.GGUF_SPLIT_INCOMPLETE)
    assert "m-00002-of-00003.gguf" in lacks.message


@pytest.mark.req("A8", "A15")
def test_an_architecture_is_looked_up_where_there_is_a_list() -> None:
    strange = {"m.gguf": gguf_bytes({"general.architecture": "martian", "martian.pooling_type": 1})}
    inspection = gguf(strange)
    assert only(inspection, Code.MODEL_TYPE_NOT_DECLARED).severity == "warning"
    assert inspection.verdict == "requires_probe"
    listed = environment(adapter("llama_cpp", model_types=("llama",)))
    assert blockers(gguf(strange, environment=listed)) == ["MODEL_TYPE_NOT_DECLARED"]
    assert blockers(gguf({"m.gguf": gguf_bytes()}, environment=listed)) == []


@pytest.mark.req("A15")
@pytest.mark.parametrize(
    ("metadata", "task", "code", "severity"),
    [
        ({}, "embedding", None, None),
        ({"llama.pooling_type": ""}, "embedding", Code.POOLING_MISSING, "warning"),
        ({"llama.pooling_type": 0}, "embedding", Code.POOLING_MISMATCH, "blocker"),
        ({"llama.pooling_type": 4}, "embedding", Code.POOLING_MISMATCH, "blocker"),
        ({"llama.pooling_type": 4}, "reranking", None, None),
        ({"llama.pooling_type": 1}, "reranking", Code.HEAD_MISSING, "blocker"),
        ({"llama.pooling_type": ""}, "reranking", Code.HEAD_MISSING, "warning"),
        ({}, "text_generation", None, None),
        ({"general.architecture": "bert"}, "text_generation", Code.TASK_MISMATCH, "blocker"),
        ({"tokenizer.ggml.model": ""}, "text_generation", Code.TOKENIZER_MISSING, "warning"),
    ],
)
def test_a_gguf_must_be_made_for_the_task(
    metadata: dict[str, str | int], task: str, code: Code | None, severity: str | None
) -> None:
    found = [
        (item.code, item.severity)
        for item in gguf({"m.gguf": gguf_bytes(metadata)}, {"task": task}).findings
        if item.code not in {"PROBE_NOT_AVAILABLE", "REQUIRES_PROBE"}
    ]
    assert found == ([] if code is None else [(code.value, severity)])


@pytest.mark.req("A10", "A15")
def test_the_profile_chooses_the_variant_by_its_quantization() -> None:
    files = {"a-f16.gguf": gguf_bytes(file_type=F16), "b-q4.gguf": gguf_bytes(file_type=Q4_K_M, elements=64)}
    chosen = gguf(files, {"quantization": "Q4_K_M"})
    assert blockers(chosen) == []
    assert "DUPLICATE_WEIGHTS" not in codes(chosen, "blocker")
    assert chosen.estimate is not None
    assert chosen.estimate.parts[0].size_bytes == len(files["b-q4.gguf"])
    assert blockers(gguf(files, {"quantization": "Q8_0"})) == ["QUANTIZATION_NOT_EVIDENCED"]
    unnamed = gguf(files)
    assert "a-f16.gguf is taken" in only(unnamed, Code.DUPLICATE_WEIGHTS).message
    assert "QUANTIZED_WEIGHTS" not in codes(unnamed)
    undeclared = environment(adapter("llama_cpp", quantizations=("Q8_0",)))
    assert blockers(gguf(files, {"quantization": "Q4_K_M"}, environment=undeclared)) == ["QUANTIZATION_NOT_DECLARED"]


@pytest.mark.req("A10")
def test_a_quantized_gguf_under_a_profile_that_names_none_is_said_and_not_refused() -> None:
    inspection = gguf({"m.gguf": gguf_bytes(file_type=Q4_K_M)})
    assert only(inspection, Code.QUANTIZED_WEIGHTS).severity == "warning"
    assert inspection.verdict == "requires_probe"


@pytest.mark.req("A16")
def test_a_whole_pipeline_may_be_probed_and_no_more_is_claimed() -> None:
    inspection = inspect(subject(pipeline_files(), IMAGES))
    assert codes(inspection) == ["PROBE_NOT_AVAILABLE", "REQUIRES_PROBE"]
    assert inspection.verdict == "requires_probe"


@pytest.mark.req("A16")
@pytest.mark.parametrize(
    ("changes", "expected", "said"),
    [
        ({"model_index.json": None}, ["NO_PIPELINE"], "model_index.json"),
        ({"model_index.json": b"[]"}, ["NO_PIPELINE"], "class"),
        ({"model_index.json": doc({"_class_name": "P"})}, ["NO_PIPELINE"], "part"),
        ({"unet/config.json": None}, ["PIPELINE_COMPONENT_MISSING"], "unet/config.json"),
        ({"scheduler/scheduler_config.json": None}, ["PIPELINE_COMPONENT_MISSING"], "scheduler"),
        ({"scheduler/scheduler_config.json": None, "scheduler/x": b"x"}, ["PIPELINE_COMPONENT_MISSING"], "scheduler"),
        ({"scheduler/scheduler_config.json": b"[1]"}, ["CONFIG_UNREADABLE"], "scheduler/scheduler_config.json"),
        ({"scheduler/scheduler_config.json": b'{"a": '}, ["CONFIG_UNREADABLE"], "scheduler/scheduler_config.json"),
        ({"text_encoder/generation_config.json": b"[1]"}, ["CONFIG_UNREADABLE"], "text_encoder/generation_config.json"),
        ({"tokenizer/tokenizer_config.json": b"[1]"}, ["CONFIG_UNREADABLE"], "tokenizer/tokenizer_config.json"),
        ({"tokenizer/tokenizer.json": b"[1]"}, ["TOKENIZER_INCOMPLETE"], "tokenizer/tokenizer.json"),
        ({"tokenizer/vocab.json": None}, ["PIPELINE_COMPONENT_MISSING"], "tokenizer"),
        ({"text_encoder/model.safetensors": None}, ["PIPELINE_COMPONENT_MISSING"], "model.safetensors"),
        ({"unet/diffusion_pytorch_model.safetensors": None}, ["PIPELINE_COMPONENT_MISSING"], "diffusion_pytorch_model"),
        (
            {
                "unet/diffusion_pytorch_model.safetensors": None,
                "unet/diffusion_pytorch_model.fp16.safetensors": safetensors_bytes(),
            },
            ["PIPELINE_COMPONENT_MISSING"],
            "variant",
        ),
        (
            {"unet/diffusion_pytorch_model.safetensors": None, "unet/diffusion_pytorch_model.bin": b"\x80\x02}."},
            ["PICKLE_NOT_LOADED"],
            "pickle",
        ),
        (
            {"model_index.json": doc({**PIPELINE, "vae": ["diffusers", "AutoencoderKL"]})},
            ["PIPELINE_COMPONENT_MISSING"],
            "vae",
        ),
    ],
)
def test_every_part_of_a_pipeline_must_be_there(
    changes: dict[str, bytes | None], expected: list[str], said: str
) -> None:
    inspection = inspect(subject(pipeline_files(**changes), IMAGES))
    assert blockers(inspection) == expected
    assert said in inspection.findings[0].message


@pytest.mark.req("A16")
def test_an_optional_part_may_be_null_and_a_sharded_one_whole() -> None:
    one, two = (
        "diffusion_pytorch_model-00001-of-00002.safetensors",
        "diffusion_pytorch_model-00002-of-00002.safetensors",
    )
    changes = {
        "unet/diffusion_pytorch_model.safetensors": None,
        f"unet/{one}": safetensors_bytes(),
        f"unet/{two}": safetensors_bytes(name="v"),
        "unet/diffusion_pytorch_model.safetensors.index.json": doc({"weight_map": {"w": one, "v": two}}),
    }
    assert blockers(inspect(subject(pipeline_files(**changes), IMAGES))) == []
    assert set(blockers(inspect(subject(pipeline_files(**{**changes, f"unet/{two}": None}), IMAGES)))) == {
        "SHARD_MISSING"
    }


@pytest.mark.req("A16")
@pytest.mark.parametrize("files", [model_files(), transformers_files()])
def test_an_embedding_repository_is_blocked_by_name(files: dict[str, bytes]) -> None:
    assert blockers(inspect(subject(files, IMAGES))) == ["NO_PIPELINE", "EMBEDDING_REPOSITORY"]


@pytest.mark.req("A17")
@pytest.mark.parametrize(
    "files", [transformers_files(), {"any.thing": b"x"}, pipeline_files(), {"m.gguf": gguf_bytes()}]
)
def test_a_custom_runner_never_gets_a_claim_whatever_the_files(files: dict[str, bytes]) -> None:
    inspection = inspect(subject(files, {"adapter": "custom"}))
    assert blockers(inspection) == []
    assert inspection.verdict == "requires_probe"
    assert "DECLARED_NOT_PROVEN" not in codes(inspection)
    assert only(inspection, Code.NO_IMPLICIT_CLAIM).severity == "warning"
    assert inspection.estimate is None
    # Also where an environment declares it with all that can be declared, and executable.
    generous = environment(adapter("custom", executable=True, inspect_only=False, model_types=("bert",)))
    assert inspect(subject(files, {"adapter": "custom"}, environment=generous)).verdict == "requires_probe"


@pytest.mark.req("A17", "P14")
def test_an_adapter_that_nobody_knows_is_blocked() -> None:
    inspection = inspect(subject(transformers_files(), {"adapter": "anything"}))
    assert blockers(inspection) == ["NO_INSPECTOR"]
    assert inspection.estimate is None
    assert "anything" in only(inspection, Code.NO_INSPECTOR).message


@pytest.mark.req("A2", "A14", "A15", "A16", "A17")
@pytest.mark.parametrize("name", ["vllm", "llama_cpp", "diffusers", "custom"])
@pytest.mark.parametrize("files", [transformers_files(), model_files(), pipeline_files(), {"m.gguf": gguf_bytes()}])
def test_four_adapters_are_never_compatible(name: str, files: dict[str, bytes]) -> None:
    task = "image_generation" if name == "diffusers" else "embedding"
    assert inspect(subject(files, {"adapter": name, "task": task})).verdict in {"requires_probe", "blocked"}
