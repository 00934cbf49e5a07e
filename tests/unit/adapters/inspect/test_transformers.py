"""The Transformers layout, and vLLM which reads it: configuration, tokenizer, weights, heads, processors (A9, A13, A14)."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.inspect.codes import FindingCode as Code
from adapters.inspect.registry import inspect
from bus.messages.profiles import AudioSemantics, Preprocessing
from tests.support.ledger import safetensors_bytes
from tests.support.subjects import (
    ENCODER,
    EXTRACTOR,
    IMAGES,
    RERANKER,
    SIGLIP,
    SKELETON,
    TROCR,
    WHISPER,
    WHOLE,
    WRITER,
    blockers,
    codes,
    doc,
    only,
    subject,
    transformers_files,
    weights_bytes,
)

SPEECH = {"task": "speech_recognition"}
READING = {"task": "image_to_text"}
PAIR = {"task": "image_text_similarity", "max_sequence_length": 64}
WHISPER_FILES = transformers_files(WHISPER, **{"processor_config.json": doc(EXTRACTOR)})
TROCR_FILES = transformers_files(TROCR, **{"preprocessor_config.json": doc(IMAGES)})
SIGLIP_FILES = transformers_files(SIGLIP, **{"processor_config.json": doc({"image_processor": IMAGES})})
INDEX = "model.safetensors.index.json"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
SHARDS = {
    "model.safetensors": None,
    FIRST: weights_bytes(WHOLE // 2),
    SECOND: safetensors_bytes(WHOLE // 2, name="v"),
    INDEX: doc({"weight_map": {**dict.fromkeys(SKELETON, FIRST), "w": FIRST, "v": SECOND}}),
}


def bpe(name: str) -> dict[str, bytes | None]:
    return {"tokenizer.json": None, "tokenizer_config.json": doc({"tokenizer_class": name})}


@pytest.mark.req("A13")
@pytest.mark.parametrize(
    ("files", "profile"),
    [
        (transformers_files(), {}),
        (transformers_files(**SHARDS), {}),
        (transformers_files(RERANKER), {"task": "reranking"}),
        (transformers_files(WRITER), {"task": "text_generation"}),
        (WHISPER_FILES, SPEECH),
        (transformers_files(WHISPER, **{"preprocessor_config.json": doc(EXTRACTOR["feature_extractor"])}), SPEECH),
        (TROCR_FILES, READING),
        (transformers_files(TROCR, **{"processor_config.json": doc({"image_processor": IMAGES})}), READING),
        (SIGLIP_FILES, PAIR),
    ],
)
def test_a_complete_folder_of_each_task_and_layout_is_compatible(
    files: dict[str, bytes], profile: dict[str, Any]
) -> None:
    inspection = inspect(subject(files, profile))
    assert codes(inspection) == ["PROBE_NOT_AVAILABLE", "DECLARED_NOT_PROVEN"]
    assert inspection.verdict == "compatible"
    again = inspect(subject(files, {**profile, "adapter": "vllm"}))
    assert codes(again) == ["PROBE_NOT_AVAILABLE", "REQUIRES_PROBE"]
    assert only(again, Code.REQUIRES_PROBE).severity == "note"
    assert again.verdict == "requires_probe", "vLLM is never more than to be probed"


@pytest.mark.req("A9", "A13", "A14")
@pytest.mark.parametrize("name", ["transformers", "vllm"])
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"config.json": None}, ["CONFIG_MISSING"]),
        ({"config.json": doc([1])}, ["CONFIG_UNREADABLE"]),
        ({"generation_config.json": doc([1])}, ["CONFIG_UNREADABLE"]),
        ({"special_tokens_map.json": b"{broken"}, ["CONFIG_UNREADABLE"]),
        ({"tokenizer.json": None}, ["TOKENIZER_INCOMPLETE"]),
        ({"tokenizer.json": None, "tokenizer_config.json": None}, ["TOKENIZER_MISSING"]),
        ({"tokenizer.json": doc({"version": "1.0"})}, ["TOKENIZER_INCOMPLETE"]),
        ({"model.safetensors": None}, ["NO_WEIGHTS"]),
        ({"adapter_config.json": doc({"peft_type": "LORA"})}, ["ADAPTER_WEIGHTS"]),
        ({"config.json": doc({**ENCODER, "max_position_embeddings": 128})}, ["SEQUENCE_TOO_LONG"]),
        ({**SHARDS, SECOND: None}, ["SHARD_MISSING"]),
        ({**SHARDS, INDEX: doc({"weight_map": {"w": FIRST, "x": SECOND}})}, ["SHARD_MISMATCH"]),
        ({**SHARDS, INDEX: doc({})}, ["SHARD_INDEX_UNREADABLE"]),
        ({INDEX: doc({"weight_map": {"w": "../w.safetensors"}})}, ["SHARD_MISSING"]),
    ],
)
def test_what_the_layout_lacks_is_named(name: str, changes: dict[str, bytes | None], expected: list[str]) -> None:
    assert set(expected) <= set(blockers(inspect(subject(transformers_files(**changes), {"adapter": name}))))
    assert not blockers(inspect(subject(transformers_files(), {"adapter": name})))


@pytest.mark.req("A9")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({**bpe("GPT2Tokenizer"), "vocab.json": doc({"a": 0})}, ["TOKENIZER_INCOMPLETE"]),
        ({**bpe("GPT2TokenizerFast"), "vocab.json": doc({"a": 0}), "merges.txt": b"a b\n"}, []),
        ({**bpe("Wav2Vec2CTCTokenizer"), "vocab.json": doc({"a": 0})}, []),
        ({**bpe("SomeTokenizer"), "vocab.json": doc({"a": 0})}, ["TOKENIZER_INCOMPLETE"]),
        ({**bpe("SomeTokenizer"), "merges.txt": b"a b\n"}, ["TOKENIZER_INCOMPLETE"]),
        ({**bpe("T5Tokenizer"), "vocab.txt": b"a\n"}, ["TOKENIZER_INCOMPLETE"]),
        ({**bpe("T5Tokenizer"), "spiece.model": b"\x0a\x01x"}, []),
        ({**bpe("LlamaTokenizer"), "spiece.model": b"\x0a\x01x"}, ["TOKENIZER_INCOMPLETE"]),
        ({**bpe("BertTokenizer"), "vocab.txt": b"a\n"}, []),
        ({"tokenizer.json": None, "tekken.json": doc({})}, []),
    ],
)
def test_a_tokenizer_without_its_files_is_incomplete(changes: dict[str, bytes | None], expected: list[str]) -> None:
    assert blockers(inspect(subject(transformers_files(**changes)))) == expected


def test_a_vocabulary_in_pieces_needs_a_package() -> None:
    files = transformers_files(**{**bpe("T5Tokenizer"), "spiece.model": b"\x0a\x01x"})
    found = only(inspect(subject(files)), Code.PACKAGE_MISSING)
    assert (found.severity, "sentencepiece" in found.message) == ("warning", True)


@pytest.mark.parametrize(
    ("size", "said", "severity"),
    [(2, None, ""), (3, "another model", "blocker"), (9, "another model", "blocker"), (1, "no vector", "warning")],
)
def test_a_tokenizer_of_another_size_than_the_model_is_doubted(size: int, said: str | None, severity: str) -> None:
    found = [
        item for item in inspect(subject(transformers_files({**ENCODER, "vocab_size": size}))).findings
        if item.code == Code.TOKENIZER_MISMATCH
    ]  # fmt: skip
    assert [item.severity for item in found] == ([] if said is None else [severity])
    assert said is None or said in found[0].message


def test_tokens_that_were_added_count_for_a_tokenizers_size() -> None:
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1}}
    added = [{"id": number, "content": f"<{number}>"} for number in range(2, 9)]
    wanted = {**ENCODER, "vocab_size": 9}
    for tokens, expected in ((added, False), ([], True)):
        files = transformers_files(wanted, **{"tokenizer.json": doc({"model": model, "added_tokens": tokens})})
        assert ("TOKENIZER_MISMATCH" in codes(inspect(subject(files)))) is expected


@pytest.mark.req("A9")
def test_positions_behind_the_padding_are_not_counted() -> None:
    roberta = {**ENCODER, "model_type": "roberta", "architectures": ["RobertaModel"], "max_position_embeddings": 514}
    assert blockers(inspect(subject(transformers_files(roberta), {"max_sequence_length": 512}))) == []
    assert blockers(inspect(subject(transformers_files(roberta), {"max_sequence_length": 513}))) == [
        "SEQUENCE_TOO_LONG"
    ]
    # Where the text is a caption, the runtime cuts it.
    cut = inspect(subject(SIGLIP_FILES, {**PAIR, "max_sequence_length": 65}))
    assert only(cut, Code.SEQUENCE_TOO_LONG).severity == "warning"


@pytest.mark.req("A9")
def test_shards_without_an_index_are_not_found_by_transformers_and_are_by_vllm() -> None:
    files = transformers_files(**{**SHARDS, INDEX: None})
    inspection = inspect(subject(files))
    assert blockers(inspection) == ["SHARD_UNINDEXED"]
    assert FIRST in only(inspection, Code.SHARD_UNINDEXED).message
    assert blockers(inspect(subject(files, {"adapter": "vllm"}))) == []
    one_gone = transformers_files(**{**SHARDS, INDEX: None, FIRST: None})
    assert blockers(inspect(subject(one_gone, {"adapter": "vllm"}))) == ["SHARD_MISSING"]


@pytest.mark.req("A9")
def test_renamed_shards_are_said_not_to_match_rather_than_to_be_missing() -> None:
    renamed = {"model-00001-of-000002.safetensors": SHARDS[FIRST], "model-00002-of-000002.safetensors": SHARDS[SECOND]}
    inspection = inspect(subject(transformers_files(**{**SHARDS, FIRST: None, SECOND: None, **renamed})))
    assert set(blockers(inspection)) == {"SHARD_MISSING", "SHARD_UNINDEXED"}
    assert "does not match" in only(inspection, Code.SHARD_MISSING).message


@pytest.mark.req("A9")
def test_an_index_left_behind_steers_the_loader_away_from_a_complete_pickle() -> None:
    files = transformers_files(**{"model.safetensors": None, "pytorch_model.bin": b"\x80\x02}.", INDEX: SHARDS[INDEX]})
    assert blockers(inspect(subject(files))) == ["PICKLE_NOT_LOADED", "SHARD_MISSING"]
    beside = inspect(
        subject(transformers_files(**{"pytorch_model.bin.index.json": doc({"weight_map": {"w": "p.bin"}})}))
    )
    assert only(beside, Code.SHARD_MISSING).severity == "note"
    assert beside.verdict == "compatible"


@pytest.mark.req("A9")
@pytest.mark.parametrize(
    ("changes", "used", "other"),
    [
        ({**SHARDS, "model.safetensors": weights_bytes()}, "model.safetensors", INDEX),
        ({"model.fp16.safetensors": safetensors_bytes(dtype="F16", size=2)}, "model.safetensors", "model.fp16"),
        ({**SHARDS, "consolidated.safetensors": safetensors_bytes()}, INDEX, "consolidated"),
    ],
)
def test_of_two_sets_of_weights_the_one_that_wins_is_named(
    changes: dict[str, bytes | None], used: str, other: str
) -> None:
    inspection = inspect(subject(transformers_files(**changes)))
    found = only(inspection, Code.DUPLICATE_WEIGHTS)
    assert found.severity == "warning"
    assert found.message.startswith(f"{used} is loaded")
    assert other in found.message
    assert inspection.verdict == "compatible"
    assert "DUPLICATE_WEIGHTS" not in codes(inspect(subject(transformers_files())))


def test_safetensors_win_over_a_pickle_and_both_are_named() -> None:
    inspection = inspect(subject(transformers_files(**{"pytorch_model.bin": b"\x80\x02}."})))
    found = only(inspection, Code.PICKLE_BESIDE_WEIGHTS)
    assert "model.safetensors is loaded" in found.message
    assert "pytorch_model.bin" in found.message


@pytest.mark.req("A13")
@pytest.mark.parametrize(
    ("config", "task", "expected"),
    [
        (ENCODER, "embedding", []),
        ({**ENCODER, "architectures": ["BertForMaskedLM"]}, "embedding", []),
        (RERANKER, "embedding", ["TASK_MISMATCH"]),
        (WHISPER, "embedding", ["TASK_MISMATCH"]),
        (TROCR, "embedding", ["TASK_MISMATCH"]),
        (RERANKER, "reranking", []),
        (ENCODER, "reranking", ["HEAD_MISSING"]),
        ({**RERANKER, "id2label": {"0": "no", "1": "yes"}}, "reranking", ["TASK_MISMATCH"]),
        ({key: value for key, value in RERANKER.items() if key != "id2label"}, "reranking", ["TASK_MISMATCH"]),
        ({**RERANKER, "architectures": ["BertForTokenClassification"]}, "reranking", ["TASK_MISMATCH"]),
        (WRITER, "text_generation", []),
        ({**WRITER, "architectures": ["LlamaModel"]}, "text_generation", ["HEAD_MISSING"]),
        ({**WRITER, "architectures": ["LlamaModel"], "tie_word_embeddings": True}, "embedding", []),
        (RERANKER, "text_generation", ["TASK_MISMATCH"]),
        (WHISPER, "text_generation", ["TASK_MISMATCH"]),
        ({**WHISPER, "text_config": {"vocab_size": 2}}, "text_generation", []),
        (WHISPER, "speech_recognition", []),
        ({**WHISPER, "architectures": ["WhisperModel"]}, "speech_recognition", ["HEAD_MISSING"]),
        ({**WRITER, "model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}, "speech_recognition", ["TASK_MISMATCH"]),
        (TROCR, "image_to_text", []),
        ({**WRITER, "model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}, "image_to_text", ["TASK_MISMATCH"]),
        (SIGLIP, "image_text_similarity", []),
        (ENCODER, "image_text_similarity", ["TASK_MISMATCH"]),
    ],
)  # fmt: skip
def test_the_head_must_be_of_the_task(config: dict[str, Any], task: str, expected: list[str]) -> None:
    both = {**EXTRACTOR, "image_processor": IMAGES}
    files = transformers_files(config, **{"processor_config.json": doc(both)})
    profile = {"task": task, "max_sequence_length": 64}
    assert blockers(inspect(subject(files, profile))) == expected


@pytest.mark.req("A13")
def test_a_configuration_that_names_no_class_shows_no_head() -> None:
    silent = {key: value for key, value in RERANKER.items() if key != "architectures"}
    inspection = inspect(subject(transformers_files(silent), {"task": "reranking"}))
    assert only(inspection, Code.HEAD_MISSING).severity == "warning"


@pytest.mark.req("A9", "A13")
@pytest.mark.parametrize(
    ("files", "profile", "expected"),
    [
        (transformers_files(WHISPER), SPEECH, ["PROCESSOR_MISSING"]),
        (transformers_files(WHISPER, **{"processor_config.json": doc({})}), SPEECH, ["PROCESSOR_MISSING"]),
        (transformers_files(TROCR), READING, ["PROCESSOR_MISSING"]),
        (transformers_files(SIGLIP, **{"processor_config.json": doc(EXTRACTOR)}), PAIR, ["PROCESSOR_MISSING"]),
        ({**WHISPER_FILES, "generation_config.json": b""}, SPEECH, ["EMPTY_FILE"]),
    ],
)
def test_a_task_of_images_or_sound_needs_its_processor(
    files: dict[str, bytes], profile: dict[str, Any], expected: list[str]
) -> None:
    assert set(expected) <= set(blockers(inspect(subject(files, profile))))


@pytest.mark.req("A9")
@pytest.mark.parametrize(
    ("files", "profile", "severity"),
    [
        (WHISPER_FILES, SPEECH, "blocker"),
        (TROCR_FILES, READING, "warning"),
        (transformers_files(WRITER), {"task": "text_generation"}, "warning"),
        (transformers_files(), {}, None),
    ],
)
def test_generation_without_its_configuration_is_said(
    files: dict[str, bytes], profile: dict[str, Any], severity: str | None
) -> None:
    assert "GENERATION_CONFIG_MISSING" not in codes(inspect(subject(files, profile)))
    without = {path: data for path, data in files.items() if path != "generation_config.json"}
    found = [item for item in inspect(subject(without, profile)).findings if item.code == "GENERATION_CONFIG_MISSING"]
    assert [item.severity for item in found] == ([] if severity is None else [severity])


GENERATION = {"lang_to_id": {"<|en|>": 1}, "is_multilingual": True, "no_timestamps_token_id": 5}


@pytest.mark.req("A9", "M3")
@pytest.mark.parametrize(
    ("audio", "extractor", "generation", "severity"),
    [
        ({}, {}, {}, None),
        ({"sampling_rate_hz": 44_100}, {}, {}, "blocker"),
        ({}, {"sampling_rate": 8_000}, {}, "blocker"),
        ({"window_s": 20}, {}, {}, "warning"),
        ({"window_s": 60}, {}, {}, "blocker"),
        ({}, {"feature_size": 128}, {}, "blocker"),
        ({"language": "en"}, {}, {}, None),
        ({"language": "xx"}, {}, {}, "blocker"),
        ({"purpose": "translate"}, {}, {}, None),
        ({"purpose": "translate"}, {}, {"is_multilingual": False}, "blocker"),
        ({"timestamps": True}, {}, {}, None),
        ({"timestamps": True}, {}, {"no_timestamps_token_id": None}, "blocker"),
    ],
)
def test_the_profiles_sound_must_be_the_models(
    audio: dict[str, Any], extractor: dict[str, Any], generation: dict[str, Any], severity: str | None
) -> None:
    files = {
        **WHISPER_FILES,
        "processor_config.json": doc({"feature_extractor": {**EXTRACTOR["feature_extractor"], **extractor}}),
        "generation_config.json": doc({**GENERATION, **generation}),
    }
    inspection = inspect(subject(files, {**SPEECH, "audio": AudioSemantics(**audio)}))
    found = [item.severity for item in inspection.findings if item.code == "AUDIO_MISMATCH"]
    assert found == ([] if severity is None else [severity])


@pytest.mark.req("A9", "M3")
@pytest.mark.parametrize(
    ("config", "processor", "wanted", "severity"),
    [
        (TROCR, IMAGES, None, None),
        (TROCR, IMAGES, 64, None),
        (TROCR, IMAGES, 384, "blocker"),
        (TROCR, {**IMAGES, "size": {"height": 384, "width": 384}}, None, "blocker"),
        (TROCR, {**IMAGES, "size": 384}, None, "blocker"),
        (TROCR, {"size": {"shortest_edge": 384}}, None, None),
        (TROCR, {"do_center_crop": True, "crop_size": {"height": 32, "width": 32}}, None, "blocker"),
        (TROCR, {**IMAGES, "do_resize": False, "size": 384}, None, None),
        ({**TROCR, "encoder": {"model_type": "vit", "hidden_size": 8}}, IMAGES, 384, "warning"),
    ],
)
def test_the_sizes_of_images_must_agree(
    config: dict[str, Any], processor: dict[str, Any], wanted: int | None, severity: str | None
) -> None:
    files = transformers_files(config, **{"preprocessor_config.json": doc(processor)})
    profile = {**READING, "preprocessing": Preprocessing(image_size_px=wanted)}
    found = [item.severity for item in inspect(subject(files, profile)).findings if item.code == "IMAGE_SIZE_MISMATCH"]
    assert found == ([] if severity is None else [severity])


@pytest.mark.req("A3")
@pytest.mark.parametrize(
    ("config", "held", "expected"),
    [
        (ENCODER, 2 * (4 * 64 + 2 * 128) + 16, []),
        (ENCODER, (4 * 64 + 2 * 128) + 16, ["WEIGHTS_INCOMPLETE"]),
        (WRITER, 3 * (2 * 8 * 2 * 6 + 2 * 128) + 16, []),
        (WRITER, 2 * (2 * 8 * 2 * 6 + 2 * 128) + 16, ["WEIGHTS_INCOMPLETE"]),
        ({**ENCODER, "model_type": "t5"}, 8, []),
        ({**ENCODER, "intermediate_size": None}, 8, []),
        ({**ENCODER, "quantization_config": {"quant_method": "gptq"}}, 8, []),
    ],
)
def test_weights_that_lack_layers_of_the_configuration_are_incomplete(
    config: dict[str, Any], held: int, expected: list[str]
) -> None:
    files = transformers_files(config, **{"model.safetensors": safetensors_bytes(held)})
    inspection = inspect(subject(files, {"task": "text_generation" if config is WRITER else "embedding"}))
    found = [item for item in inspection.findings if item.code == "WEIGHTS_INCOMPLETE"]
    assert [item.code for item in found] == expected
    assert {item.severity for item in found} <= {"warning"}
