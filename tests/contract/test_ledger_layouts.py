"""What every inspector says of the members of a set, and the rules that only pipelines and GGUF models have."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.registry import inspect
from adapters.inspect.subject import Inspection
from controller.facts import changes
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

EVIL = b"cos\nsystem\n(S'true'\ntR."
PLAIN = b"\x80\x02}."
PAGE = b"<!DOCTYPE html>\n<html></html>"
UNET = "unet/diffusion_pytorch_model"
FOLDERS = {
    "sentence_transformers": model_files(),
    "transformers": transformers_files(),
    "vllm": transformers_files(),
    "llama_cpp": {"m.gguf": gguf_bytes()},
    "diffusers": pipeline_files(),
    "custom": transformers_files(),
}


def seen(name: str, files: dict[str, bytes], profile: dict[str, Any] | None = None, **changes: Any) -> Inspection:
    task = "image_generation" if name == "diffusers" else "embedding"
    return inspect(subject(files, {"adapter": name, "task": task, **(profile or {})}, **changes))


@pytest.mark.req("A3", "A4")
@pytest.mark.parametrize("name", sorted(FOLDERS))
@pytest.mark.parametrize(
    ("path", "data", "code", "severity"),
    [
        ("extra/model.pkl", EVIL, Code.PICKLE_CODE, "warning"),
        ("extra/model.pkl", PLAIN[:-1], Code.PICKLE_UNREADABLE, "blocker"),
        ("extra/modeling.py", b"import os\n", Code.CODE_IN_SET, "warning"),
        ("extra/adapter_config.json", b"{}", Code.ADAPTER_WEIGHTS, "blocker"),
        ("extra/model.safetensors", PAGE, Code.FORMAT_MISMATCH, "blocker"),
        ("extra/model.safetensors", b"", Code.EMPTY_FILE, "blocker"),
        ("start.sh", b"#!/bin/sh\nexit 0\n", Code.EXECUTABLE_IN_SET, "warning"),
    ],
)
def test_every_inspector_says_what_a_member_really_is(
    name: str, path: str, data: bytes, code: Code, severity: str
) -> None:
    assert code not in codes(seen(name, FOLDERS[name]))
    found = only(seen(name, {**FOLDERS[name], path: data}), code)
    # Nobody knows what a custom runner loads: pickle where no Safetensors lie may be it.
    may_load = name == "custom" and code is Code.PICKLE_CODE
    assert found.severity == ("blocker" if may_load else severity)
    assert path in found.message


@pytest.mark.req("A3", "A8")
@pytest.mark.parametrize("name", [name for name in sorted(FOLDERS) if name != "custom"])
def test_every_inspector_asks_whether_the_format_is_declared(name: str) -> None:
    runtime = environment(adapter(name, formats=("onnx",)))
    assert "FORMAT_NOT_DECLARED" in blockers(seen(name, FOLDERS[name], environment=runtime))


@pytest.mark.req("A4", "A16")
@pytest.mark.parametrize(
    ("formats", "approved", "data", "expected"),
    [
        (("safetensors",), (), PLAIN, ["PICKLE_NOT_LOADED"]),
        (("safetensors",), ("pickle",), PLAIN, ["PICKLE_NOT_LOADED"]),
        (("safetensors",), ("pickle",), EVIL, ["PICKLE_NOT_LOADED"]),
        (("safetensors", "pickle"), (), PLAIN, ["PICKLE_NOT_APPROVED"]),
        (("safetensors", "pickle"), ("pickle",), PLAIN, []),
        (("safetensors", "pickle"), ("pickle",), EVIL, ["PICKLE_CODE"]),
    ],
)
def test_a_part_of_a_pipeline_that_is_pickle_is_loaded_under_no_easier_rule(
    formats: tuple[str, ...], approved: tuple[Any, ...], data: bytes, expected: list[str]
) -> None:
    files = pipeline_files(**{f"{UNET}.safetensors": None, f"{UNET}.bin": data})
    runtime = environment(adapter("diffusers", formats=formats))
    assert blockers(seen("diffusers", files, environment=runtime, approved=approved)) == expected


@pytest.mark.req("A4", "A16")
def test_a_pickle_beside_the_safetensors_of_a_part_is_not_loaded() -> None:
    runtime = environment(adapter("diffusers", formats=("safetensors", "pickle")))
    files = pipeline_files(**{f"{UNET}.bin": EVIL})
    found = seen("diffusers", files, environment=runtime, approved=("pickle",))
    assert blockers(found) == []
    assert only(found, Code.PICKLE_CODE).severity == "warning"
    assert only(found, Code.PICKLE_BESIDE_WEIGHTS).severity == "warning"


@pytest.mark.req("A16")
@pytest.mark.parametrize(
    ("data", "words"), [(None, "the set has no model_index.json"), (b"{}", "names no pipeline class")]
)
def test_no_pipeline_is_told_apart_from_a_pipeline_without_a_class(data: bytes | None, words: str) -> None:
    found = only(seen("diffusers", pipeline_files(**{"model_index.json": data})), Code.NO_PIPELINE)
    assert words in found.message


@pytest.mark.req("A3", "A16")
@pytest.mark.parametrize("part", ["unet", "text_encoder"])
def test_the_weights_of_each_part_are_asked_for(part: str) -> None:
    path = next(path for path in pipeline_files() if path.startswith(f"{part}/") and path.endswith(".safetensors"))
    found = seen("diffusers", pipeline_files(**{path: None}))
    assert blockers(found) == ["PIPELINE_COMPONENT_MISSING"]
    cut = seen("diffusers", pipeline_files(**{path: safetensors_bytes()[:-1]}))
    assert "WEIGHTS_CORRUPT" in blockers(cut)
    assert only(cut, Code.WEIGHTS_CORRUPT).message.startswith(path)


@pytest.mark.req("A16")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"modules.json": b"[]"}, ["EMBEDDING_REPOSITORY"]),
        ({"config_sentence_transformers.json": b"{}"}, []),
        ({"config.json": doc({"architectures": ["BertModel"]})}, []),
        ({"model_index.json": None, "config.json": doc({"architectures": ["BertModel"]})}, ["EMBEDDING_REPOSITORY"]),
        ({"model_index.json": None, "1_Pooling/config.json": b"{}"}, ["EMBEDDING_REPOSITORY"]),
        ({"model_index.json": None}, []),
    ],
)
def test_a_folder_is_an_embedding_model_by_its_modules_or_by_what_stands_in_place_of_a_pipeline(
    changes: dict[str, bytes | None], expected: list[str]
) -> None:
    found = blockers(seen("diffusers", pipeline_files(**changes)))
    assert [code for code in found if code == "EMBEDDING_REPOSITORY"] == expected
    assert ("NO_PIPELINE" in found) == ("model_index.json" in changes)


@pytest.mark.req("A4", "A16")
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_index.json": doc({**PIPELINE, "_class_name": ["pipe", "P"]})}, "a pipeline class of the folder's own"),
        (
            {"model_index.json": doc({**PIPELINE, "unet": ["mine", "M"]}), "unet/mine.py": b"import os\n"},
            "unet is a class of the folder's own, mine.M",
        ),
    ],
)
def test_a_pipeline_that_brings_its_own_classes_is_blocked(changes: dict[str, bytes | None], words: str) -> None:
    assert blockers(seen("diffusers", pipeline_files())) == []
    found = only(seen("diffusers", pipeline_files(**changes)), Code.REMOTE_CODE_REQUIRED)
    assert (found.severity, words in found.message) == ("blocker", True)


@pytest.mark.req("A2")
@pytest.mark.parametrize(
    ("name", "files", "model_type"),
    [
        ("llama_cpp", {"m.gguf": gguf_bytes()}, "llama"),
        ("llama_cpp", {"README.md": b"# none\n"}, None),
        ("vllm", transformers_files(), "bert"),
        ("diffusers", pipeline_files(), None),
        ("custom", transformers_files(), None),
    ],
)
def test_what_is_declared_names_the_type_that_the_files_name(
    name: str, files: dict[str, bytes], model_type: str | None
) -> None:
    declared = seen(name, files).declared
    assert declared is not None
    assert (declared.adapter, declared.version, declared.model_type) == (name, "1.0", model_type)
    assert declared.executable is False


@pytest.mark.req("A8", "A15")
def test_a_listed_architecture_is_no_finding_and_an_unlisted_one_is_named() -> None:
    listed = environment(adapter("llama_cpp", model_types=("llama",)))
    assert blockers(seen("llama_cpp", {"m.gguf": gguf_bytes()}, environment=listed)) == []
    other = {"m.gguf": gguf_bytes({"general.architecture": "qwen2", "qwen2.pooling_type": 1})}
    assert "qwen2" in only(seen("llama_cpp", other, environment=listed), Code.MODEL_TYPE_NOT_DECLARED).message
    assert "MODEL_TYPE_NOT_DECLARED" not in codes(seen("llama_cpp", other))


@pytest.mark.req("A3", "A15")
def test_a_whole_variant_is_taken_before_one_that_lacks_a_part() -> None:
    files = {"a-00001-of-00002.gguf": gguf_bytes(), "z.gguf": gguf_bytes(elements=64)}
    found = seen("llama_cpp", files)
    assert blockers(found) == []
    assert found.estimate is not None
    assert found.estimate.parts[0].size_bytes == len(files["z.gguf"])
    assert only(found, Code.DUPLICATE_WEIGHTS).message.startswith("z.gguf is taken")


@pytest.mark.req("A15")
@pytest.mark.parametrize(("wanted", "expected"), [(512, []), (513, ["SEQUENCE_TOO_LONG"])])
def test_the_length_that_a_gguf_was_made_for_is_the_last_that_fits(wanted: int, expected: list[str]) -> None:
    assert blockers(seen("llama_cpp", {"m.gguf": gguf_bytes()}, {"max_sequence_length": wanted})) == expected


@pytest.mark.req("A3", "A15")
def test_the_parts_of_one_split_model_complete_no_other() -> None:
    whole = {f"a-0000{number}-of-00002.gguf": gguf_bytes() for number in (1, 2)}
    assert blockers(seen("llama_cpp", whole)) == []
    for other in ("b-00001-of-00002.gguf", "a-00001-of-00003.gguf"):
        alone = {other: gguf_bytes(), "a-00002-of-00002.gguf": gguf_bytes()}
        lacks = only(seen("llama_cpp", alone), Code.GGUF_SPLIT_INCOMPLETE)
        assert lacks.severity == "blocker"


@pytest.mark.req("A10", "A15")
@pytest.mark.parametrize(("file_type", "words"), [(15, "the set has Q4_K_M"), (None, "the set has of no named type")])
def test_the_types_that_a_set_has_are_named_beside_the_one_that_is_asked_for(file_type: int | None, words: str) -> None:
    found = seen("llama_cpp", {"m.gguf": gguf_bytes(file_type=file_type)}, {"quantization": "Q8_0"})
    assert words in only(found, Code.QUANTIZATION_NOT_EVIDENCED).message


@pytest.mark.req("A15")
def test_what_lies_there_in_place_of_a_gguf_is_named_if_there_is_anything() -> None:
    nothing = only(seen("llama_cpp", {"README.md": b"# none\n"}), Code.NO_GGUF_ARTIFACT_VARIANT).message
    assert nothing == "the set has no readable GGUF model"
    instead = only(seen("llama_cpp", transformers_files()), Code.NO_GGUF_ARTIFACT_VARIANT).message
    assert instead == "the set has no readable GGUF model; it has safetensors, which llama.cpp does not load"


@pytest.mark.req("A16")
def test_a_part_without_a_folder_is_told_apart_from_one_without_its_files() -> None:
    files = {path: data for path, data in pipeline_files().items() if not path.startswith("scheduler/")}
    message = only(seen("diffusers", files), Code.PIPELINE_COMPONENT_MISSING).message
    assert message == "the set has no folder scheduler for PNDMScheduler"


@pytest.mark.req("A2", "A8")
@pytest.mark.parametrize("name", sorted(FOLDERS))
def test_every_inspector_blocks_where_the_node_declares_no_such_adapter(name: str) -> None:
    found = seen(name, FOLDERS[name], environment=environment(adapter("nobody")))
    assert "ADAPTER_NOT_DECLARED" in blockers(found)
    assert found.declared is None


@pytest.mark.req("A18")
def test_a_set_that_moved_to_a_place_that_is_corrupt_says_both() -> None:
    def at(path: str, state: str) -> dict[str, str]:
        return {"fingerprint rules": "2", "set location": path, "set integrity": state}

    assert changes(at("a", "verified"), at("b", "corrupt: x")) == (
        "set location changed from a to b",
        "set integrity changed from verified to corrupt: x",
    )
    assert changes(at("a", "verified"), at("none", "none")) == ("set location changed from a to none",)
