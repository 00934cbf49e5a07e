"""What each inspector must not leave out: corrupt members, packages, weights of any name, card, claims."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.registry import inspect
from adapters.inspect.subject import Inspection
from bus.messages.inventory import HardwareFacts
from tests.support.ledger import card, hardware, model_files, safetensors_bytes
from tests.support.subjects import (
    ENCODER,
    PACKAGES,
    WHOLE,
    adapter,
    blockers,
    codes,
    environment,
    gguf_bytes,
    only,
    pipeline_files,
    subject,
    transformers_files,
)

CUT = safetensors_bytes()[:-1]
WHOLE_FOLDERS = {
    "sentence_transformers": model_files(),
    "transformers": transformers_files(),
    "vllm": transformers_files(),
    "llama_cpp": {"m.gguf": gguf_bytes()},
    "diffusers": pipeline_files(),
    "custom": {"any.thing": b"x", **transformers_files()},
}
ADAPTERS = sorted(WHOLE_FOLDERS)


def seen(name: str, files: dict[str, bytes], profile: dict[str, Any] | None = None, **changes: Any) -> Inspection:
    task = "image_generation" if name == "diffusers" else "embedding"
    return inspect(subject(files, {"adapter": name, "task": task, **(profile or {})}, **changes))


def gpu(**changes: Any) -> HardwareFacts:
    return hardware(**{"gpus": (card(),), "driver_version": "580.65.06", "cuda_version": "13.0", **changes})


@pytest.mark.req("A3")
@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize("path", ["spare/model.safetensors", "spare/m.gguf"])
def test_every_inspector_names_a_corrupt_member_wherever_it_lies(name: str, path: str) -> None:
    """Not only what would be loaded: a set with one corrupt file is not the set that was published."""
    data = {"spare/model.safetensors": CUT, "spare/m.gguf": gguf_bytes()[:-1]}[path]
    files = WHOLE_FOLDERS[name]
    assert "WEIGHTS_CORRUPT" not in codes(seen(name, files))
    found = seen(name, {**files, path: data})
    assert found.verdict == "blocked"
    corrupt = only(found, Code.WEIGHTS_CORRUPT)
    assert (corrupt.severity, corrupt.source) == ("blocker", f"header of {path}")
    assert corrupt.message.startswith(f"{path}: ")


@pytest.mark.req("A3")
@pytest.mark.parametrize("name", ADAPTERS)
def test_every_inspector_says_which_file_of_the_place_is_corrupt(name: str) -> None:
    found = seen(name, WHOLE_FOLDERS[name], corrupt="config.json: other bytes")
    said = only(found, Code.SET_CORRUPT)
    assert (found.verdict, said.severity) == ("blocked", "blocker")
    assert "config.json: other bytes" in said.message


@pytest.mark.req("A3")
@pytest.mark.parametrize("name", ADAPTERS)
def test_no_inspector_is_silent_on_weights_of_which_nothing_is_known(name: str) -> None:
    """The scan kept no record of them: they may be corrupt."""
    files = WHOLE_FOLDERS[name]
    found = seen(name, files, evidence={"weights": ()})
    assert any("nothing is known" in one.message for one in found.findings if one.severity == "blocker")
    assert not any("nothing is known" in one.message for one in seen(name, files).findings)


@pytest.mark.req("A10", "A14")
@pytest.mark.parametrize(("method", "package"), [("bitsandbytes", "bitsandbytes"), ("torchao", "torchao")])
def test_vllm_brings_no_kernels_for_these(method: str, package: str) -> None:
    config = {**ENCODER, "quantization_config": {"quant_method": method}}
    declares = adapter("vllm", quantizations=(method,))
    profile = {"quantization": method}
    bare = environment(declares, packages={"vllm": "1"})
    missing = seen("vllm", transformers_files(config), profile, environment=bare)
    assert blockers(missing) == ["QUANTIZATION_PACKAGE_MISSING"]
    assert package in only(missing, Code.QUANTIZATION_PACKAGE_MISSING).message
    full = environment(declares, packages={"vllm": "1", package: "1"})
    assert blockers(seen("vllm", transformers_files(config), profile, environment=full)) == []


@pytest.mark.req("A14")
@pytest.mark.parametrize("path", ["weights.safetensors", "consolidated.safetensors", "model-a.safetensors"])
def test_vllm_loads_safetensors_of_any_name_and_transformers_does_not(path: str) -> None:
    files = transformers_files(**{"model.safetensors": None, path: safetensors_bytes(WHOLE)})
    found = seen("vllm", files)
    assert (blockers(found), found.verdict) == ([], "requires_probe")
    assert found.estimate is not None, "they are counted, too"
    assert found.estimate.parts[0].size_bytes == 4 * WHOLE
    assert blockers(seen("transformers", files)) == ["SHARD_UNINDEXED"]


@pytest.mark.req("A14")
def test_vllm_itself_must_be_installed_and_not_what_transformers_needs() -> None:
    without = environment(adapter("vllm", version="not installed"), packages={"torch": "2", "transformers": "5"})
    found = seen("vllm", transformers_files(), environment=without)
    assert blockers(found) == ["PACKAGE_MISSING"]
    assert "vllm" in only(found, Code.PACKAGE_MISSING).message
    alone = environment(adapter("vllm"), packages={"vllm": "1"})
    assert blockers(seen("vllm", transformers_files(), environment=alone)) == []


@pytest.mark.req("A7")
@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize(
    ("unknown", "expected"),
    [
        ({}, []),
        ({"driver_version": None}, ["GPU_DRIVER_UNKNOWN"]),
        ({"cuda_version": None}, ["GPU_DRIVER_UNKNOWN"]),
        ({"driver_version": None, "cuda_version": None}, ["GPU_DRIVER_UNKNOWN"]),
    ],
)
def test_a_card_whose_driver_or_cuda_nobody_knows_is_no_card_to_rely_on(
    name: str, unknown: dict[str, None], expected: list[str]
) -> None:
    runtime = environment(packages={**PACKAGES, "torch": "2.13.0+cu130"})
    found = seen(name, WHOLE_FOLDERS[name], {"device": "cuda"}, hardware=gpu(**unknown), environment=runtime)
    assert [code for code in blockers(found) if code.startswith("GPU_")] == expected
    on_cpu = seen(name, WHOLE_FOLDERS[name], hardware=gpu(**unknown), environment=runtime)
    assert "GPU_DRIVER_UNKNOWN" not in codes(on_cpu)


@pytest.mark.req("A7")
@pytest.mark.parametrize("name", ADAPTERS)
def test_every_inspector_asks_which_card(name: str) -> None:
    two = gpu(gpus=(card(), card(uuid="GPU-2")))
    files = WHOLE_FOLDERS[name]
    assert "GPU_NOT_CHOSEN" in blockers(seen(name, files, {"device": "cuda"}, hardware=two))
    assert "GPU_NOT_FOUND" in blockers(seen(name, files, {"device": "cuda", "gpu_uuid": "GPU-3"}, hardware=two))
    chosen = seen(name, files, {"device": "cuda", "gpu_uuid": "GPU-2"}, hardware=two)
    assert [code for code in blockers(chosen) if code.startswith("GPU_NOT")] == []


@pytest.mark.req("A7")
@pytest.mark.parametrize(("name", "expected"), [("custom", []), ("llama_cpp", []), ("vllm", ["RUNTIME_WITHOUT_CUDA"])])
def test_a_pytorch_without_cuda_stops_only_what_computes_with_it(name: str, expected: list[str]) -> None:
    runtime = environment(packages={**PACKAGES, "torch": "2.13.0+cpu"})
    found = seen(name, WHOLE_FOLDERS[name], {"device": "cuda"}, hardware=gpu(), environment=runtime)
    assert blockers(found) == expected


@pytest.mark.req("A17")
@pytest.mark.parametrize("kind", ["pickle", "unapproved pickle", "code", "adapter", "format", "executable"])
def test_what_is_wrong_with_a_set_is_said_of_a_custom_runner_too(kind: str) -> None:
    files, expected = {
        "pickle": ({"model.bin": b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R."}, "PICKLE_CODE"),
        "unapproved pickle": ({"model.bin": b"\x80\x02}."}, "PICKLE_NOT_APPROVED"),
        "code": ({"modeling.py": b"import os\n"}, "CODE_IN_SET"),
        "adapter": ({"lora/adapter_config.json": b"{}"}, "ADAPTER_WEIGHTS"),
        "executable": ({"start.sh": b"#!/bin/sh\nexit 0\n"}, "EXECUTABLE_IN_SET"),
        "format": ({"model.safetensors": b"<!DOCTYPE html>\n<html></html>"}, "FORMAT_MISMATCH"),
    }[kind]
    found = seen("custom", files)
    assert expected in codes(found)
    assert only(found, Code.NO_IMPLICIT_CLAIM).severity == "warning", "said beside whatever else is found"
    assert found.verdict != "compatible"
    assert found.estimate is None


@pytest.mark.req("A17", "A2")
@pytest.mark.parametrize("declared", [True, False])
def test_a_custom_runner_that_a_node_does_not_declare_is_blocked(declared: bool) -> None:
    names = ("custom",) if declared else ("transformers",)
    runtime = environment(*(adapter(name) for name in names))
    found = seen("custom", transformers_files(), environment=runtime)
    assert blockers(found) == ([] if declared else ["ADAPTER_NOT_DECLARED"])
    assert (found.declared is not None) == declared


@pytest.mark.req("A2")
@pytest.mark.parametrize("name", ADAPTERS)
def test_every_result_says_last_what_it_does_not_prove(name: str) -> None:
    claims = name in {"sentence_transformers", "transformers"}
    found = seen(name, WHOLE_FOLDERS[name])
    assert found.findings[-1].code == ("DECLARED_NOT_PROVEN" if claims else "REQUIRES_PROBE")
    assert found.verdict == ("compatible" if claims else "requires_probe")
    blocked = seen(name, WHOLE_FOLDERS[name], location=None)
    assert not {"DECLARED_NOT_PROVEN", "REQUIRES_PROBE"} & set(codes(blocked))


@pytest.mark.req("A11")
@pytest.mark.parametrize("name", [name for name in ADAPTERS if name != "custom"])
def test_every_estimate_is_an_estimate_and_is_compared_with_the_memory_that_there_is(name: str) -> None:
    found = seen(name, WHOLE_FOLDERS[name])
    assert found.estimate is not None
    assert (found.estimate.kind, found.estimate.history) == ("estimated", ())
    assert found.estimate.size_bytes == sum(part.size_bytes for part in found.estimate.parts) > 0
    small = seen(name, WHOLE_FOLDERS[name], hardware=hardware(memory_total_bytes=1))
    assert [code for code in blockers(small) if "MEMORY" in code] == ["MEMORY_EXCEEDS_DEVICE"]


@pytest.mark.req("A11")
def test_the_weights_of_every_part_of_a_pipeline_are_counted() -> None:
    larger = pipeline_files(**{"text_encoder/model.safetensors": safetensors_bytes(1_008)})
    least, most = seen("diffusers", pipeline_files()).estimate, seen("diffusers", larger).estimate
    assert least is not None
    assert most is not None
    assert most.parts[0].size_bytes - least.parts[0].size_bytes == 4_000


@pytest.mark.req("A11")
def test_all_parts_of_a_split_gguf_are_counted_and_no_other_variant() -> None:
    parts = {f"m-0000{number}-of-00003.gguf": gguf_bytes(elements=32 * number) for number in (1, 2, 3)}
    found = seen("llama_cpp", {**parts, "z-other.gguf": gguf_bytes(elements=320)})
    assert found.estimate is not None
    assert found.estimate.parts[0].size_bytes == sum(map(len, parts.values()))
