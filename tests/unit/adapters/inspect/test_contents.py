"""What files are by their bytes, what pickles would do, and who asks for code."""

from __future__ import annotations

import io
import json
import pickle  # noqa: TID251 -- pickles are made here, none is loaded
import struct
import zipfile
from typing import Any

import pytest

from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.registry import inspect
from tests.support.ledger import safetensors_bytes
from tests.support.subjects import (
    ENCODER,
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

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 12345\n"
PAGE = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body></body></html>\n"
ELF = b"\x7fELF\x02\x01\x01" + bytes(64)
PLAIN = pickle.dumps({"epoch": 3}, protocol=2)
EVIL = b"cos\nsystem\n(S'true'\ntR."
CUT = pickle.dumps(list(range(50)), protocol=2)[:-3]


def zipped(name: str = "x.txt", data: bytes = b"x") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, data)
    return buffer.getvalue()


@pytest.mark.req("A4", "A9")
@pytest.mark.parametrize(
    ("changes", "code", "severity"),
    [
        ({"model.safetensors": EVIL}, Code.FORMAT_MISMATCH, "blocker"),
        ({"model.safetensors": PAGE}, Code.FORMAT_MISMATCH, "blocker"),
        ({"model.safetensors": gguf_bytes()}, Code.FORMAT_MISMATCH, "blocker"),
        ({"onnx/model.safetensors": PAGE}, Code.FORMAT_MISMATCH, "blocker"),
        ({"tokenizer.json": PAGE}, Code.FORMAT_MISMATCH, "blocker"),
        ({"extra/notes.json": EVIL}, Code.FORMAT_MISMATCH, "blocker"),
        ({"extra/notes.json": PAGE}, Code.FORMAT_MISMATCH, "warning"),
        ({"pytorch_model.bin": safetensors_bytes()}, Code.FORMAT_MISMATCH, "warning"),
        ({"model.safetensors": POINTER}, Code.LFS_POINTER, "blocker"),
        ({"tokenizer.json": POINTER}, Code.LFS_POINTER, "blocker"),
        ({"onnx/model.onnx": POINTER}, Code.LFS_POINTER, "warning"),
        ({"model.safetensors": b""}, Code.EMPTY_FILE, "blocker"),
        ({"tokenizer.json": b""}, Code.EMPTY_FILE, "blocker"),
        ({"onnx/model.onnx": b""}, Code.EMPTY_FILE, "warning"),
        ({"all.zip": zipped()}, Code.ARCHIVE_IN_SET, "warning"),
        ({"lib/run.so": ELF}, Code.EXECUTABLE_IN_SET, "warning"),
        ({"start.sh": b"#!/bin/sh\nexit 0\n"}, Code.EXECUTABLE_IN_SET, "warning"),
        ({"modeling.py": b"import os\n"}, Code.CODE_IN_SET, "warning"),
        ({"model.bin.part2": b"x"}, Code.PARTIAL_DOWNLOAD, "warning"),
        ({"model.safetensors.incomplete": b"x"}, Code.PARTIAL_DOWNLOAD, "warning"),
        ({"training_args.bin": EVIL}, Code.PICKLE_CODE, "warning"),
        ({"x/model.pkl": EVIL}, Code.PICKLE_CODE, "warning"),
        ({"x/model.pkl": CUT}, Code.PICKLE_UNREADABLE, "blocker"),
    ],
)
def test_what_a_file_really_is_decides(changes: dict[str, bytes], code: Code, severity: str) -> None:
    assert code not in codes(inspect(subject(transformers_files())))
    found = only(inspect(subject(transformers_files(**changes))), code)
    assert found.severity == severity
    assert next(iter(changes)) in found.message


@pytest.mark.req("A4")
@pytest.mark.parametrize(
    "changes",
    [
        {"pytorch_model.bin": zipped("archive/data.pkl", PLAIN)},
        {"optimizer.pt": PLAIN},
        {".gitkeep": b"", "x/__init__.txt": b""},
        {"vocab.txt": b"[UNK]\nword\n"},
        {"README.md": b"# A model\n"},
    ],
)
def test_what_is_what_its_name_says_is_no_finding(changes: dict[str, bytes]) -> None:
    found = codes(inspect(subject(transformers_files(**changes))), "blocker", "warning")
    assert set(found) <= {"PROBE_NOT_AVAILABLE", "PICKLE_BESIDE_WEIGHTS"}


def test_what_the_bytes_explain_is_not_called_a_corrupt_header_too() -> None:
    assert blockers(inspect(subject(transformers_files(**{"model.safetensors": PAGE})))) == [
        "FORMAT_MISMATCH",
        "NO_WEIGHTS",
    ]
    cut = inspect(subject(transformers_files(**{"model.safetensors": safetensors_bytes()[:-1]})))
    assert blockers(cut) == ["WEIGHTS_CORRUPT", "NO_WEIGHTS"]


LOADS = environment(adapter("transformers", formats=("safetensors", "pickle")), adapter("custom"))


@pytest.mark.req("A4")
@pytest.mark.parametrize(
    ("data", "approved", "expected"),
    [
        (PLAIN, False, ["PICKLE_NOT_APPROVED"]),
        (PLAIN, True, []),
        (EVIL, True, ["PICKLE_CODE"]),
        (EVIL, False, ["PICKLE_NOT_APPROVED", "PICKLE_CODE"]),
        (zipped("archive/data.pkl", EVIL), True, ["PICKLE_CODE"]),
        (zipped("archive/data.pkl", CUT), True, ["PICKLE_UNREADABLE"]),
    ],
)
@pytest.mark.parametrize("name", ["transformers", "custom"])
def test_a_pickle_that_would_be_loaded_is_approved_and_harmless(
    name: str, data: bytes, approved: bool, expected: list[str]
) -> None:
    files = transformers_files(**{"model.safetensors": None, "pytorch_model.bin": data})
    inspection = inspect(subject(files, {"adapter": name}, approved=["pickle"] if approved else [], environment=LOADS))
    assert blockers(inspection) == expected
    assert ("PICKLE_APPROVED" in codes(inspection)) is approved


@pytest.mark.req("A4")
def test_without_safetensors_no_approval_makes_an_adapter_load_pickle() -> None:
    files = transformers_files(**{"model.safetensors": None, "pytorch_model.bin": PLAIN})
    assert blockers(inspect(subject(files, approved=["pickle"]))) == ["PICKLE_NOT_LOADED"]
    # What training left behind is no model.
    files = transformers_files(**{"model.safetensors": None, "training_args.bin": PLAIN})
    assert blockers(inspect(subject(files, approved=["pickle"]))) == ["NO_WEIGHTS"]


@pytest.mark.req("A4")
@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("config.json", {**ENCODER, "auto_map": {"AutoModel": "org/repo--modeling.M"}}),
        ("config.json", {**ENCODER, "custom_pipelines": {"p": {"impl": "pipe.P"}}}),
        ("config.json", {**ENCODER, "trust_remote_code": True}),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["tok.T", None]}}),
        ("processor_config.json", {"auto_map": {"AutoProcessor": "proc.P"}}),
        ("preprocessor_config.json", {"auto_map": {"AutoImageProcessor": "proc.P"}}),
        ("generation_config.json", {"custom_generate": "org/repo"}),
    ],
)
def test_who_asks_for_code_is_ignored_or_refused(name: str, document: dict[str, Any]) -> None:
    native = inspect(subject(transformers_files(**{name: doc(document)})))
    assert only(native, Code.REMOTE_CODE_REQUIRED).severity == "warning"
    assert "ignored" in only(native, Code.REMOTE_CODE_REQUIRED).message
    unknown = environment(adapter("transformers", model_types=("t5",)))
    refused = inspect(subject(transformers_files(**{name: doc(document)}), environment=unknown))
    assert only(refused, Code.REMOTE_CODE_REQUIRED).severity == "blocker"
    clean = {key: value for key, value in document.items() if key in ENCODER}
    assert "REMOTE_CODE_REQUIRED" not in codes(
        inspect(subject(transformers_files(**{name: doc(clean)}), environment=unknown))
    )


def test_code_of_another_repository_is_named() -> None:
    document = {**ENCODER, "auto_map": {"AutoModel": "org/repo--modeling.M"}}
    found = only(inspect(subject(transformers_files(document))), Code.REMOTE_CODE_REQUIRED)
    assert "org/repo" in found.message
    assert found.source == "config.json: auto_map"


@pytest.mark.req("A4")
def test_a_pipeline_class_of_the_folders_own_is_refused() -> None:
    custom = pipeline_files({"_class_name": ["pipe", "P"], "unet": ["net", "N"]}, **{"unet/net.py": b"import os\n"})
    inspection = inspect(subject(custom, {"adapter": "diffusers", "task": "image_generation"}))
    assert [found.severity for found in inspection.findings if found.code == "REMOTE_CODE_REQUIRED"] == ["blocker"] * 2


def test_names_and_words_of_foreign_files_are_cleaned() -> None:
    evil = "a\x1b[2Jb\nc.zip"
    inspection = inspect(subject(transformers_files(**{evil: zipped()})))
    text = json.dumps([found.message for found in inspection.findings])
    assert "\\u001b" not in text
    assert "ab" in only(inspection, Code.ARCHIVE_IN_SET).message


def test_a_header_that_claims_too_much_is_corrupt_and_no_crash() -> None:
    huge = struct.pack("<Q", 10 * 2**30) + b"{" + bytes(64)
    assert blockers(inspect(subject(transformers_files(**{"model.safetensors": huge})))) == [
        "WEIGHTS_CORRUPT",
        "NO_WEIGHTS",
    ]


@pytest.mark.req("A3", "A9")
@pytest.mark.parametrize("name", ["sentence_transformers", "transformers", "vllm", "llama_cpp", "diffusers", "custom"])
@pytest.mark.parametrize(
    "files",
    [
        {"more/model.safetensors": safetensors_bytes()},
        {"more/m.gguf": gguf_bytes()},
        {"more/old.bin": PLAIN},
        {"more/new.bin": zipped("archive/data.pkl", PLAIN)},
        {
            "more/model.safetensors.index.json": json.dumps({"weight_map": {"w": "part"}}).encode(),
            "more/part": b"no weights at all",
        },
    ],
)
def test_weights_of_which_no_header_is_known_are_never_passed(name: str, files: dict[str, bytes]) -> None:
    """A record may be left out when the evidence is full, or by a node that says less than it read."""
    said = {"weights": (), "notes": ()}
    found = only(inspect(subject(files, {"adapter": name}, evidence=said)), Code.EVIDENCE_INCOMPLETE)
    assert found.severity == "blocker"
    assert max(files, key=len).replace("model.safetensors.index.json", "part") in found.message


def test_the_same_tensors_under_another_name_are_a_copy_and_other_tensors_a_stray() -> None:
    files = transformers_files(**{"other.safetensors": safetensors_bytes(name="v")})
    files["copy.safetensors"] = files["model.safetensors"]
    inspection = inspect(subject(files))
    copy, stray = only(inspection, Code.DUPLICATE_WEIGHTS), only(inspection, Code.SHARD_UNINDEXED)
    assert copy.message == "model.safetensors is loaded; the same weights beside it are not: copy.safetensors"
    assert stray.message == "model.safetensors is loaded; not loaded: other.safetensors"
