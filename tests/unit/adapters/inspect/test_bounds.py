"""The closed list, order and number of findings, and that no document of a stranger breaks an inspector."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import adapters.inspect.codes as module
from adapters.inspect.codes import CODES, MAX_EQUAL, MAX_MESSAGE_CHARS, FindingCode, finding
from adapters.inspect.conclusion import bounded
from adapters.inspect.registry import inspect
from adapters.inspect.subject import Subject, folder_of, member
from bus.digest import sha256_hex
from bus.messages.artifacts import FileEntry, Manifest
from tests.support.ledger import model_files
from tests.support.subjects import (
    SIGLIP,
    TROCR,
    WHISPER,
    WRITER,
    codes,
    gguf_bytes,
    pipeline_files,
    subject,
    transformers_files,
)

ADAPTERS = ("sentence_transformers", "transformers", "vllm", "llama_cpp", "diffusers", "custom", "nobody", "faulty")
TASKS = (
    "embedding", "reranking", "text_generation", "image_to_text", "image_text_similarity", "speech_recognition",
    "image_generation",
)  # fmt: skip
ROOM = Path(module.__file__).parent


def test_every_code_has_its_texts_and_is_given_by_some_rule() -> None:
    assert set(CODES) == set(FindingCode)
    source = "\n".join(path.read_text() for path in ROOM.glob("*.py") if not path.name.startswith("code"))
    source += (ROOM / "code_checks.py").read_text()
    given_codes = set(re.findall(r"Code\.([A-Z_]+)", source))
    assert given_codes == set(FindingCode.__members__)
    for info in CODES.values():
        assert info.meaning.endswith(".")
        assert info.remedy.endswith(".")


def test_no_inspector_reads_a_file_or_imports_a_model_library() -> None:
    for path in ROOM.glob("*.py"):
        assert not re.search(r"\bopen\(|read_text|read_bytes|^import (?!re$)", path.read_text(), re.MULTILINE), path


def test_blockers_come_first_and_equal_findings_are_folded() -> None:
    many = [finding(FindingCode.NO_WEIGHTS, "blocker", f"folder {number}", "manifest") for number in range(50)]
    note = finding(FindingCode.MEMORY_UNKNOWN, "note", "x" * 5_000, "y" * 5_000)
    found = bounded([note, *many, note])
    assert [item.severity for item in found] == ["blocker"] * MAX_EQUAL + ["note"]
    assert found[MAX_EQUAL - 1].message == f"folder {MAX_EQUAL - 1} and {50 - MAX_EQUAL} more like it"
    assert len(found[-1].message) <= MAX_MESSAGE_CHARS


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize(
    ("name", "data", "most"),
    [
        ("d{}/model.safetensors", b"<!DOCTYPE html>", 20),
        ("d{}/model.safetensors", b"", 20),
        ("d{}/x.pkl", b"cos\nsystem\n(S'true'\ntR.", 20),
        ("d{}/model.safetensors.index.json", b"{}", 20),
        ("d{}/adapter_config.json", b"{}", 20),
        ("d{}.py", b"import os\n", 20),
    ],
)
def test_a_set_with_much_wrong_gives_few_findings(adapter: str, name: str, data: bytes, most: int) -> None:
    files = {**transformers_files(), **{name.format(number): data for number in range(300)}}
    inspection = inspect(subject(files, {"adapter": adapter}))
    assert len(inspection.findings) <= most
    assert all(len(item.message) <= MAX_MESSAGE_CHARS for item in inspection.findings)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_the_same_subject_gives_the_same_findings_whatever_the_order_of_its_parts(adapter: str) -> None:
    files = {
        **model_files(),
        **pipeline_files(),
        "a.gguf": gguf_bytes(),
        "b.gguf": gguf_bytes(),
        "z.zip": b"PK\x05\x06",
    }
    first = subject(files, {"adapter": adapter})
    turned = msgspec.structs.replace(
        first.evidence,
        documents=dict(reversed(first.evidence.documents.items())),
        weights=tuple(reversed(first.evidence.weights)),
        formats=dict(reversed(first.evidence.formats.items())),
        pickles=tuple(reversed(first.evidence.pickles)),
    )
    second = subject(files, {"adapter": adapter}, evidence=msgspec.structs.asdict(turned))
    assert inspect(first) == inspect(second)
    assert codes(inspect(first)) == codes(inspect(first))


@pytest.mark.parametrize(
    ("path", "folder"), [("config.json", "."), ("a/b.json", "a"), ("a/b/c", "a/b"), ("x y/\n", "x y")]
)
def test_paths_are_taken_apart_and_put_together_as_text(path: str, folder: str) -> None:
    assert folder_of(path) == folder
    assert member(folder, path.rpartition("/")[2]) == path
    entry = FileEntry(path=path, size_bytes=1, sha256=sha256_hex(b""))
    indexed = subject({}, manifest=Manifest(files=(entry,)))
    assert indexed.in_folder(folder) == {path.rpartition("/")[2]}
    parts = folder.split("/") if folder != "." else []
    assert indexed.folders == {".", *("/".join(parts[:count]) for count in range(1, len(parts) + 1))}
    assert all(indexed.has_folder(one) for one in indexed.folders)
    assert not indexed.has_folder(path)


def test_members_are_found_by_folder_and_by_ending_among_neighbours_of_like_names() -> None:
    paths = (
        "a",
        "a-b/x.json",
        "a.d/no",
        "a/b/y.json",
        "a/x.json",
        "a0/z.txt",
        "a9.txt",
        "x.tar.json",
        ".json",
        "z.txt",
    )
    entries = tuple(FileEntry(path=path, size_bytes=1, sha256=sha256_hex(b"")) for path in paths)
    indexed = subject({}, manifest=Manifest(files=entries))
    assert indexed.in_folder("a") == {"x.json"}
    assert indexed.in_folder(".") == {"a", "a9.txt", "x.tar.json", ".json", "z.txt"}
    assert indexed.in_folder("a/b/y.json") == set()
    assert [indexed.has_folder(name) for name in ("a", "a/b", "a.d", "z", "a/x")] == [True, True, True, False, False]
    assert indexed.ending_with(".json") == [".json", "a-b/x.json", "a/b/y.json", "a/x.json", "x.tar.json"]
    assert indexed.ending_with("", ".txt") == ["a", "a.d/no", "a0/z.txt", "a9.txt", "z.txt"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=8) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
DOCUMENTS = {
    "config.json": (
        "model_type", "architectures", "auto_map", "quantization_config", "text_config", "vision_config", "encoder",
        "decoder", "hidden_size", "d_model", "num_hidden_layers", "image_size", "id2label", "num_labels",
        "max_position_embeddings", "pad_token_id", "vocab_size", "is_encoder_decoder", "max_source_positions",
    ),
    "generation_config.json": ("lang_to_id", "is_multilingual"),
    "model.safetensors.index.json": ("files", "problem", "mismatch"),
    "model_index.json": ("_class_name", "unet", "vae", "scheduler"),
    "modules.json": ("0", "type", "path"),
    "preprocessor_config.json": ("size", "crop_size", "do_center_crop", "do_resize", "sampling_rate"),
    "processor_config.json": ("image_processor", "feature_extractor", "auto_map"),
    "quantize_config.json": ("quant_method",),
    "sentence_bert_config.json": ("max_seq_length",),
    "tokenizer.json": ("problem", "vocab_size", "model_type"),
    "tokenizer_config.json": ("tokenizer_class", "auto_map"),
}  # fmt: skip
KNOWN = {"config.json": (WRITER, WHISPER, TROCR, SIGLIP), "model_index.json": ({"_class_name": "P"},)}


def _documents() -> st.SearchStrategy[dict[str, Any]]:
    def of(name: str) -> st.SearchStrategy[Any]:
        changes = st.dictionaries(st.sampled_from(DOCUMENTS[name]), json_values, max_size=4)
        bases = st.sampled_from(KNOWN.get(name, ({},)))
        return json_values | st.builds(lambda base, change: {**base, **change}, bases, changes)

    return st.fixed_dictionaries({}, optional={name: of(name) for name in DOCUMENTS})


BASE: dict[str, Subject] = {
    adapter: subject(
        {**transformers_files(), **pipeline_files(), **dict.fromkeys(DOCUMENTS, b"{}"), "m.gguf": gguf_bytes()},
        {"adapter": adapter},
    )
    for adapter in ADAPTERS
}


@given(_documents(), st.sampled_from(ADAPTERS), st.sampled_from(TASKS))
@settings(max_examples=250, deadline=2_000, suppress_health_check=[HealthCheck.too_slow])
def test_no_document_breaks_an_inspector(documents: dict[str, Any], adapter: str, task: str) -> None:
    base = BASE[adapter]
    evidence = msgspec.structs.replace(base.evidence, documents=documents)
    profile = msgspec.structs.replace(base.profile, task=task)
    values = {name: getattr(base, name) for name in ("manifest", "environment", "hardware", "node", "location")}
    inspection = inspect(Subject(**values, evidence=evidence, profile=profile))
    assert inspection.verdict in {"compatible", "requires_probe", "blocked"}
    if adapter in {"vllm", "llama_cpp", "diffusers", "custom", "nobody"}:
        assert inspection.verdict != "compatible"
    for item in inspection.findings:
        assert FindingCode(item.code)
        assert item.source


@given(st.dictionaries(st.text(max_size=12), st.text(max_size=12) | st.sampled_from(["0", "9" * 40, "-1"]), max_size=6))
@settings(max_examples=60, deadline=2_000)
def test_no_gguf_fact_breaks_an_inspector(metadata: dict[str, str]) -> None:
    base = BASE["llama_cpp"]
    keys = (
        "architecture",
        "quantization",
        "context_length",
        "block_count",
        "embedding_length",
        "head_count",
        "pooling_type",
    )
    facts = {**metadata, **dict(zip(keys, metadata.values(), strict=False))}
    weights = tuple(msgspec.structs.replace(item, metadata=facts) for item in base.evidence.weights)
    values = {
        name: getattr(base, name) for name in ("manifest", "environment", "hardware", "node", "location", "profile")
    }
    inspection = inspect(Subject(**values, evidence=msgspec.structs.replace(base.evidence, weights=weights)))
    assert inspection.verdict in {"requires_probe", "blocked"}
