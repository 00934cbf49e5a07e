"""What a scan keeps of a folder: by content, bounded, cleaned, and the same after a journey."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any, BinaryIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.formats import evidence as module
from adapters.formats.documents import DocumentProblem
from adapters.formats.evidence import EvidenceCollector, Opinions, no_opinions, received
from bus.codec import encode
from bus.messages.artifacts import FileFormat, Opinion, PickleFacts, SetEvidence, WeightFacts
from tests.support import model_files as files

# For one example, on a machine that does other things too.
BOUNDED = settings(deadline=2_000)

TENSORS = files.bert_tensors()


def collect(members: Mapping[str, bytes], opinions: Opinions = no_opinions) -> SetEvidence:
    collector = EvidenceCollector(opinions=opinions)
    for path, data in sorted(members.items()):
        collector.add(path, io.BytesIO(data), len(data))
    return collector.result()


def shards(names_of_second: Mapping[str, Any]) -> dict[str, bytes]:
    first = dict(list(TENSORS.items())[:5])
    mapped = {name: "m-1.safetensors" if name in first else "m-2.safetensors" for name in TENSORS}
    return {
        "m-1.safetensors": files.safetensors(first),
        "m-2.safetensors": files.safetensors(names_of_second),
        "m.safetensors.index.json": json.dumps({"weight_map": mapped}).encode(),
    }


def test_documents_headers_and_formats_are_kept() -> None:
    evidence = collect(
        {
            "config.json": b'{"model_type": "bert\\u001b[31m", "eps": 1e-12}',
            "1_Pooling/config.json": b"{broken",
            "model.safetensors": files.safetensors(TENSORS, metadata={"format": "pt"}),
            "model.gguf": files.llama_gguf(),
            "tokenizer.json": b'{"model": {"type": "BPE", "vocab": {"a": 0}}}',
            "vocab.txt": b"[PAD]\n",
            "README.md": b"# Title\n",
        }
    )

    assert evidence.documents == {
        "config.json": {"model_type": "bert", "eps": 1e-12},
        "tokenizer.json": {"model_type": "BPE", "vocab_size": 1, "added_tokens": 0},
    }
    assert [(facts.path, facts.format, facts.problem) for facts in evidence.weights] == [
        ("model.gguf", "gguf", None),
        ("model.safetensors", "safetensors", None),
    ]
    assert evidence.formats == {
        "1_Pooling/config.json": "text",
        "README.md": "text",
        "config.json": "json",
        "model.gguf": "gguf",
        "model.safetensors": "safetensors",
        "tokenizer.json": "json",
        "vocab.txt": "text",
    }
    assert evidence.notes == (
        "1_Pooling/config.json: not read, it is not valid UTF-8 JSON",
        "config.json: not all of it was kept, an object in it has too many or unclean keys",
    )
    assert evidence.scanner == "scan.2"


@pytest.mark.parametrize(
    "name",
    [
        "video_preprocessor_config.json",
        "quant_config.json",
        "params.json",
        "scheduler/scheduler_config.json",
        "unet/config.json",
        "adapter_config.json",
    ],
)
def test_the_documents_that_inspectors_read_are_kept(name: str) -> None:
    assert collect({name: b'{"a": 1}'}).documents == {name: {"a": 1}}


@pytest.mark.parametrize(
    ("path", "data", "expected"),
    [
        ("model.safetensors", files.lfs_pointer(), "Git LFS pointer"),
        ("model.safetensors", b"", "empty"),
        ("model.safetensors", files.HTML_PAGE, "HTML page"),
        ("model.safetensors", bytes(100), "does not begin with a header of safetensors"),
        ("model.safetensors", files.llama_gguf()[:100], "ends inside"),
        ("model.safetensors", files.safetensors(TENSORS)[:-1], "the file holds"),
        ("model.gguf", files.lfs_pointer(), "Git LFS pointer"),
        ("model.gguf", files.llama_gguf()[:-1], "cut off"),
        ("pytorch_model.bin", b"hello", "neither a pickle"),
        ("pytorch_model.bin", files.lfs_pointer(), "Git LFS pointer"),
        ("model.bin", files.ctranslate2_file(), "CTranslate2"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_weights_that_are_none_say_what_they_are(path: str, data: bytes, expected: str) -> None:
    (facts,) = collect({path: data}).weights
    assert facts.problem is not None
    assert expected in facts.problem


@pytest.mark.parametrize(
    ("path", "data", "format_"),
    [
        ("pytorch_model.bin", files.safetensors(TENSORS), "safetensors"),
        ("weights.weird", files.llama_gguf(), "gguf"),
        ("weights.weird", files.torch_pickle(), "pickle"),
        ("model.safetensors", files.EVIL_PICKLE, "pickle"),
        ("model.safetensors", files.EVIL_PICKLE_0, "pickle"),
        ("model.safetensors", files.torch_zip(), "pickle"),
        ("pytorch_model.bin", files.zip_file({"a": b"x"}), "pickle"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_weights_are_what_their_bytes_say_whatever_their_name(path: str, data: bytes, format_: str) -> None:
    (facts,) = collect({path: data}).weights
    assert (facts.format, facts.problem) == (format_, None)


@pytest.mark.req("A4")
@pytest.mark.parametrize("path", ["model.safetensors", "config.json", "README.md", "a.bin"])
@pytest.mark.parametrize(
    "data", [files.EVIL_PICKLE, files.EVIL_PICKLE_0, files.torch_zip(files.EVIL_PICKLE)], ids=["2", "0", "zip"]
)
def test_a_pickle_is_read_whatever_its_name(path: str, data: bytes) -> None:
    found = {facts.verdict: facts for facts in collect({path: data}).pickles}
    assert "code" in found
    assert "posix.system" in found["code"].imports


def test_harmless_pickles_are_told_from_the_others() -> None:
    evidence = collect({"a.bin": files.torch_zip(), "b.pt": files.torch_pickle(), "c.pkl": files.PLAIN_PICKLE})
    assert {facts.path: facts.verdict for facts in evidence.pickles} == {
        "a.bin": "tensors",
        "b.pt": "tensors",
        "c.pkl": "plain",
    }


def test_an_empty_file_is_no_pickle_of_any_kind() -> None:
    assert collect({"w.pkl": b"", "w.bin": b""}).pickles == ()


@pytest.mark.parametrize(("path", "expected"), [("w.joblib", ["unreadable"]), ("w.bin", []), ("w.txt", [])])
def test_bytes_that_are_no_pickle_count_only_under_a_name_that_is_always_loaded_as_one(
    path: str, expected: list[str]
) -> None:
    assert [facts.verdict for facts in collect({path: files.gzip_file()}).pickles] == expected


def test_a_pickle_that_its_first_bytes_hide_is_read_by_its_name() -> None:
    hidden = b"V" + b"x" * 10_000 + b"\n0" + files.EVIL_PICKLE_0
    assert [facts.verdict for facts in collect({"pytorch_model.bin": hidden}).pickles] == ["code"]


def test_opinions_are_asked_about_pickles_only_with_the_file_at_its_beginning() -> None:
    asked: list[bytes] = []

    def opinion(file: BinaryIO) -> tuple[Opinion, ...]:
        asked.append(file.read())
        return (Opinion(tool="other\x1b[31m", version="1", verdict="dangerous", detail="posix.system"),)

    evidence = collect({"a.bin": files.EVIL_PICKLE, "b.safetensors": files.safetensors(TENSORS)}, opinion)
    assert asked == [files.EVIL_PICKLE]
    assert [(one.tool, one.verdict) for one in evidence.pickles[0].opinions] == [("other", "dangerous")]


def test_nobody_is_asked_about_a_pickle_that_was_given_up_here() -> None:
    asked: list[bytes] = []

    def opinion(file: BinaryIO) -> tuple[Opinion, ...]:
        asked.append(file.read())
        return ()

    evidence = collect({"a.bin": b"\x80\x02}.", "b.pkl": b"\x80\x02", "c.pkl": b"\x80\x02(("}, opinion)
    assert {facts.path: facts.verdict for facts in evidence.pickles} == {
        "a.bin": "plain",
        "b.pkl": "unreadable",
        "c.pkl": "unreadable",
    }
    assert asked == [b"\x80\x02}."]


@pytest.mark.req("A9")
def test_shards_are_compared_with_their_index() -> None:
    rest = dict(list(TENSORS.items())[5:])
    good = collect(shards(rest)).documents["m.safetensors.index.json"]
    assert good == {"files": ["m-1.safetensors", "m-2.safetensors"], "tensors": len(TENSORS)}

    lacking = collect(shards(dict(list(rest.items())[1:]))).documents["m.safetensors.index.json"]
    assert lacking["mismatch"].startswith("m-2.safetensors lacks the tensor encoder.layer")

    surplus = collect(shards({**rest, "more": ("F32", (1,))})).documents["m.safetensors.index.json"]
    assert surplus["mismatch"] == "m-2.safetensors holds a tensor that the index does not place there"


def test_an_index_of_pickles_names_its_files_and_no_more() -> None:
    index = json.dumps({"weight_map": {"a": "pytorch_model-1.bin"}}).encode()
    evidence = collect({"pytorch_model.bin.index.json": index, "pytorch_model-1.bin": files.torch_zip()})
    assert evidence.documents["pytorch_model.bin.index.json"] == {"files": ["pytorch_model-1.bin"], "tensors": 1}


def test_a_tokenizer_that_is_none_or_too_large_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "problem" in collect({"tokenizer.json": b"{}"}).documents["tokenizer.json"]
    assert "LFS" in collect({"tokenizer.json": files.lfs_pointer()}).documents["tokenizer.json"]["problem"]
    monkeypatch.setattr(module, "MAX_TOKENIZER_BYTES", 10)
    evidence = collect({"tokenizer.json": b'{"model": {}}'})
    assert evidence.documents == {}
    assert evidence.notes == ("tokenizer.json: not read, it is larger than 10 bytes",)


def test_a_pointer_in_place_of_a_document_is_named() -> None:
    assert collect({"config.json": files.lfs_pointer()}).notes == (
        "config.json: not read, it is a Git LFS pointer: the content was never fetched",
    )


def test_documents_and_weights_have_a_bound_together() -> None:
    document = json.dumps({f"key{i}": "x" * 500 for i in range(250)}).encode()
    evidence = collect({f"{number:02}/config.json": document for number in range(20)})

    assert 0 < len(evidence.documents) < 20
    assert len(evidence.notes) == 20 - len(evidence.documents)
    assert len(encode(evidence.documents)) < module.MAX_KEPT_BYTES


def test_weights_beyond_the_bound_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEPT_BYTES", 1_000)
    evidence = collect({f"{number}.safetensors": files.safetensors(TENSORS) for number in range(9)})
    assert 0 < len(evidence.weights) < 5
    assert evidence.notes[-1] == "8.safetensors: left out, the evidence is full"


def test_formats_have_a_bound_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FORMATS_BYTES", 100)
    evidence = collect({f"{number}.txt": b"x" for number in range(50)})
    assert len(encode(evidence.formats)) <= 102
    assert evidence.notes == ("the formats of the last members were left out, the evidence is full",)


def test_harmless_pickles_leave_room_for_a_dangerous_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PICKLES_BYTES", 400)
    members = {f"{number:02}.bin": files.PLAIN_PICKLE for number in range(20)}
    evidence = collect({**members, "z.bin": files.EVIL_PICKLE})

    assert len(evidence.pickles) < 10
    assert [facts.path for facts in evidence.pickles if facts.verdict == "code"] == ["z.bin"]
    assert "19.bin: what its pickle does was left out, the evidence is full" in evidence.notes


def test_what_a_collector_made_arrives_as_it_was() -> None:
    members = {
        **shards(dict(list(TENSORS.items())[6:])),
        "config.json": b'{"a": [1, {"b": null}]}',
        "tokenizer.json": b'{"model": {"vocab": []}}',
        "model.gguf": files.llama_gguf(),
        "pytorch_model.bin": files.torch_zip(files.EVIL_PICKLE),
        "evil.safetensors": files.EVIL_PICKLE_0,
        "notes/config.json": b"{",
    }
    evidence = collect(members)
    assert received(evidence, set(members)) == evidence


def test_what_a_stranger_sent_is_about_members_clean_and_cut() -> None:
    escape = "\x1b[31mred" + "x" * 1_000
    sent = SetEvidence(
        documents={"config.json": {escape: escape}, "foreign.json": {}},
        weights=(
            WeightFacts(
                path="m.gguf",
                format="gguf",
                problem=escape,
                bytes_by_dtype={escape: 1, **{str(number): 1 for number in range(100)}},
                metadata={escape: escape, **{str(number): "x" for number in range(100)}},
            ),
            WeightFacts(path="foreign.gguf", format="gguf"),
        ),
        notes=(escape,) * 1_000,
        formats={"m.gguf": "gguf", "config.json": escape, "foreign.gguf": "gguf"},
        pickles=(
            PickleFacts(
                path="m.gguf",
                member=escape,
                verdict="code",
                reason=escape,
                imports=(escape,) * 1_000,
                opinions=(Opinion(tool=escape, version=escape, verdict="clean", detail=escape),) * 100,
            ),
            PickleFacts(path="foreign.bin", verdict="plain", reason=""),
        ),
        scanner=escape,
    )
    kept = received(sent, {"config.json", "m.gguf"})

    assert "\\u001b" not in encode(kept).decode()
    assert "foreign" not in encode(kept).decode()
    assert kept.formats == {"m.gguf": "gguf"}
    assert len(kept.weights[0].bytes_by_dtype) == len(kept.weights[0].metadata) == 32
    assert (len(kept.pickles[0].imports), len(kept.pickles[0].opinions)) == (64, 8)
    assert len(kept.notes) == module.MAX_NOTES
    assert len(encode(kept)) < 200_000


def test_evidence_beyond_what_any_collector_makes_is_refused() -> None:
    sent = SetEvidence(documents={"config.json": {"a": "x" * module.MAX_EVIDENCE_BYTES}})
    with pytest.raises(DocumentProblem, match="larger than 8388608 bytes"):
        received(sent, {"config.json"})


def test_the_parts_of_the_evidence_fit_its_bound() -> None:
    parts = module.MAX_KEPT_BYTES + module.MAX_FORMATS_BYTES + module.MAX_PICKLES_BYTES + module.MAX_CODE_BYTES
    notes = module.MAX_NOTES * 512 * 4
    assert parts + notes + 64 * 1024 < module.MAX_EVIDENCE_BYTES


NAMES = st.sampled_from(
    ["config.json", "tokenizer.json", "m.safetensors.index.json", "m.safetensors", "m.gguf", "m.bin", "m.pkl", "x"]
)
SAMPLES = st.sampled_from(
    [
        files.safetensors(TENSORS),
        files.llama_gguf(),
        files.torch_zip(),
        files.EVIL_PICKLE_0,
        b'{"weight_map":{"a":"b"}}',
    ]
)


@BOUNDED
@given(NAMES, SAMPLES | st.binary(max_size=200), st.lists(st.tuples(st.integers(0, 999), st.integers(0, 255))))
def test_no_bytes_under_no_name_break_the_collector(path: str, data: bytes, changes: list[tuple[int, int]]) -> None:
    changed = bytearray(data)
    for at, value in changes:
        if at < len(changed):
            changed[at] = value
    evidence = collect({path: bytes(changed)})

    assert evidence.formats[path] in set(FileFormat)
    assert received(evidence, {path}) == evidence
