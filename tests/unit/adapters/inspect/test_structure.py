"""Layers, names, shapes and sizes: what a configuration says against what the weight headers hold (spec A3, A9)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from adapters.formats import stacks
from adapters.inspect.plausibility import plausibility_findings
from adapters.inspect.structure_checks import FAMILIES, structure_findings
from bus.messages.artifacts import WeightFacts
from tests.support.subjects import SIGLIP, TROCR, WHISPER

Shapes = Mapping[str, tuple[int, ...]]


def facts(*files: Shapes) -> list[WeightFacts]:
    return [
        WeightFacts(path=f"{number}", format="safetensors", metadata=stacks.metadata(shapes.items()))
        for number, shapes in enumerate(files)
    ]


def stack(prefix: str, count: int, tensors: int = 1) -> dict[str, tuple[int, ...]]:
    return {f"{prefix}.{number}.w{tensor}": (1,) for number in range(count) for tensor in range(tensors)}


def said(config: dict[str, Any], *files: Shapes, **how: bool) -> list[str]:
    return [item.code for item in structure_findings(facts(*files), config, **how)]


def family(kind: str, prefix: str = "") -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """A configuration of three layers whose every size is another, and weights that fit it."""
    known = FAMILIES[kind]
    keys = sorted({keys[0] for pair in known.shapes.values() for keys in pair})
    config: dict[str, Any] = {key: 20 + place for place, key in enumerate(keys)}
    tensors = {prefix + end: tuple(config[keys[0]] for keys in pair) for end, pair in known.shapes.items()}
    layers = stack(prefix + known.stack, 3, known.tensors)
    first = f"{prefix}{known.stack}.0."
    for place in range(sum(name.startswith(first) for name in tensors)):
        del layers[f"{first}w{place}"]
    return {"model_type": kind, known.layers[0]: 3, **config}, {**tensors, **layers}


@pytest.mark.req("A3")
@pytest.mark.parametrize("kind", FAMILIES)
def test_each_known_family_fits_with_and_without_its_prefix_and_in_shards(kind: str) -> None:
    config, tensors = family(kind)
    assert said(config, tensors) == []
    assert said(*family(kind, FAMILIES[kind].prefix)) == []
    names = sorted(tensors)
    assert said(config, *({name: tensors[name] for name in names[place::2]} for place in range(2))) == []


@pytest.mark.req("A3")
@pytest.mark.parametrize("kind", FAMILIES)
def test_each_size_of_a_known_family_is_held_against_the_files(kind: str) -> None:
    config, tensors = family(kind)
    known = FAMILIES[kind]
    for key in sorted({keys[0] for pair in known.shapes.values() for keys in pair}):
        assert set(said({**config, key: 19}, tensors)) == {"WEIGHTS_FOREIGN"}, key
        assert said({**config, key: 19}, tensors, quantized=True) == [], key
    for count in (1, 2, 4):
        assert said({**config, known.layers[0]: count}, tensors) == ["LAYER_COUNT_MISMATCH"]
    for key in (known.layers[0], *(keys[0] for keys in known.shapes[known.words])):
        assert said({name: value for name, value in config.items() if name != key}, tensors) == ["CONFIG_IMPLAUSIBLE"]
    foreign = {f"m.{name}": shape for name, shape in tensors.items()}
    assert set(said(config, foreign)) == {"WEIGHTS_FOREIGN", "LAYER_COUNT_MISMATCH"}
    assert set(said(config, {"w": (1,)})) == {"WEIGHTS_FOREIGN", "LAYER_COUNT_MISMATCH"}


@pytest.mark.req("A9")
@pytest.mark.parametrize("kind", FAMILIES)
def test_each_layer_has_all_its_tensors(kind: str) -> None:
    config, tensors = family(kind)
    known = FAMILIES[kind]
    last = f"{known.stack}.2.w1"
    fewer = {name: shape for name, shape in tensors.items() if name != last}
    assert said(config, fewer) == ["WEIGHTS_INCOMPLETE"]
    assert said(config, fewer, quantized=True) == []
    # One less in every layer, and one more in one of them; in shards, the counts of a layer are put together.
    lacking = {name: shape for name, shape in tensors.items() if not name.endswith(f".w{known.tensors - 1}")}
    assert said(config, lacking) == ["WEIGHTS_INCOMPLETE"]
    assert said(config, tensors, {f"{known.stack}.1.more": (1,)}) == ["WEIGHTS_INCOMPLETE"]
    assert said(config, tensors, {f"{known.stack}.{number}.more": (1,) for number in range(3)}) == []


def test_layers_that_nobody_counted_are_outdated_evidence() -> None:
    config, tensors = family("bert")
    (counted,) = facts(tensors)
    older = {
        key: re.sub(r"x[0-9]+\Z", "", text) if key == "stack 1" else text for key, text in counted.metadata.items()
    }
    found = structure_findings([WeightFacts(path="m", format="safetensors", metadata=older)], config)
    assert [item.code for item in found] == ["EVIDENCE_OUTDATED"]


def test_layers_too_different_to_be_counted_are_incomplete() -> None:
    config, tensors = family("bert")
    more = {f"encoder.layer.{number}.w{place}": (1,) for number in range(80) for place in range(16 + number % 2)}
    found = said({**config, "num_hidden_layers": 80}, {**more, **tensors})
    assert found == ["WEIGHTS_INCOMPLETE"]


def test_layers_under_both_names_must_both_be_whole() -> None:
    config, tensors = family("bert")
    assert said(config, {**tensors, **stack("bert.encoder.layer", 4)}) == ["LAYER_COUNT_MISMATCH"]


def test_a_tied_head_may_stand_in_for_the_table_of_words() -> None:
    config, tensors = family("llama")
    assert said(config, {name: shape for name, shape in tensors.items() if name != "embed_tokens.weight"}) == []
    assert said(config, {name: shape for name, shape in tensors.items() if name != "lm_head.weight"}) == []


@pytest.mark.req("A9")
def test_evidence_without_structure_is_outdated() -> None:
    old = WeightFacts(path="m", format="safetensors", metadata={"format": "pt"})
    config, tensors = family("bert")
    assert [item.code for item in structure_findings([old], config)] == ["EVIDENCE_OUTDATED"]
    assert [item.code for item in structure_findings([old, *facts(tensors)], config)] == ["EVIDENCE_OUTDATED"]
    assert list(structure_findings([], config)) == []


TOWERS = {"text_config": {"num_hidden_layers": 2}, "vision_config": {"num_hidden_layers": 4}}
OTHERS: list[tuple[dict[str, Any], dict[str, int]]] = [
    ({"model_type": "t5", "num_layers": 3, "num_decoder_layers": 2}, {"encoder.block": 3, "decoder.block": 2}),
    ({"model_type": "t5", "num_layers": 3}, {"encoder.block": 3, "decoder.block": 3}),
    (WHISPER, {"model.encoder.layers": 1, "model.decoder.layers": 2}),
    ({"model_type": "bart", "encoder_layers": 2, "decoder_layers": 3, "num_hidden_layers": 2},
     {"model.encoder.layers": 2, "model.decoder.layers": 3}),
    (TROCR, {"encoder.encoder.layer": 2, "decoder.model.decoder.layers": 2}),
    ({**SIGLIP, **TOWERS}, {"text_model.encoder.layers": 2, "vision_model.encoder.layers": 4}),
    ({"model_type": "llava", **TOWERS}, {"language_model.model.layers": 2, "vision_tower.vision_model.encoder.layers": 4}),
    ({"model_type": "opt", "num_hidden_layers": 3}, {"model.decoder.layers": 3}),
    ({"model_type": "vit", "num_hidden_layers": 3}, {"vit.encoder.layer": 3}),
    ({"model_type": "nomic_bert", "n_layer": 3}, {"encoder.layers": 3}),
    ({"model_type": "deepseek_v3", "num_hidden_layers": 3, "num_nextn_predict_layers": 1}, {"model.layers": 4}),
    ({"model_type": "wav2vec2", "num_hidden_layers": 4}, {"wav2vec2.encoder.layers": 4, "wav2vec2.adapter.layers": 3}),
    # A stack of its own beside the main one; a number of its own says how long it is.
    ({"model_type": "mllama", **TOWERS},
     {"language_model.model.layers": 2, "vision_model.transformer.layers": 4, "vision_model.global_transformer.layers": 8}),
]  # fmt: skip


@pytest.mark.req("A3")
@pytest.mark.parametrize(("config", "held"), OTHERS, ids=[config["model_type"] for config, _ in OTHERS])
def test_each_stack_is_held_against_the_part_that_counts_it(config: dict[str, Any], held: dict[str, int]) -> None:
    def of(counts: dict[str, int]) -> list[str]:
        tensors = {name: shape for prefix, count in counts.items() for name, shape in stack(prefix, count).items()}
        return said(config, tensors)

    assert of(held) == []
    for prefix, count in held.items():
        if "global" not in prefix and "adapter" not in prefix:
            assert set(of({**held, prefix: count + 5})) == {"LAYER_COUNT_MISMATCH"}, prefix


def test_of_other_types_nothing_is_said_that_the_configuration_does_not_count() -> None:
    assert said({"model_type": "odd"}, stack("layers", 3)) == []
    assert said({"model_type": "albert", "num_hidden_layers": 12}, stack("albert.layers", 1)) == []
    assert said({"model_type": "idefics", **TOWERS, "num_hidden_layers": 9}, stack("perceiver.layers", 3)) == []
    assert said({"model_type": "odd", "num_hidden_layers": 3}, {"w": (1,)}) == []
    # A runtime that translates names: only numbers are held against each other.
    assert said({"model_type": "bert", "num_hidden_layers": 3}, stack("m.layers", 3), own_names=True) == []
    assert said({"model_type": "bert", "num_hidden_layers": 3}, stack("m.layers", 2), own_names=True) == [
        "LAYER_COUNT_MISMATCH"
    ]


def implausible(config: dict[str, Any]) -> list[str]:
    found = list(plausibility_findings(config, "config.json"))
    assert {item.code for item in found} <= {"CONFIG_IMPLAUSIBLE"}
    assert {item.severity for item in found} <= {"blocker"}
    return [item.source for item in found]


WRONG = [0, -1, 6.0, 6.5, True, "6", [], [6, 0], {}, {"a": 6}, 2**70, 10**5_000, float("nan"), float("inf")]


@pytest.mark.req("A9")
@pytest.mark.parametrize("value", WRONG, ids=lambda value: str(type(value)) if value == 10**5_000 else str(value)[:20])
@pytest.mark.parametrize(
    "key",
    [
        "hidden_size", "d_model", "dim", "n_embd", "embedding_size", "num_hidden_layers", "num_layers", "n_layer", "n_layers",
        "encoder_layers", "decoder_layers", "num_decoder_layers", "num_attention_heads", "num_heads", "n_head", "n_heads",
        "encoder_attention_heads", "decoder_attention_heads", "num_key_value_heads", "head_dim", "d_kv", "intermediate_size",
        "d_ff", "ffn_dim", "hidden_dim", "encoder_ffn_dim", "decoder_ffn_dim", "n_inner", "vocab_size",
        "max_position_embeddings", "n_positions", "max_source_positions", "max_target_positions",
    ],
)  # fmt: skip
def test_a_size_is_a_positive_whole_number(key: str, value: object) -> None:
    for kind in ("bert", "other"):
        assert implausible({"model_type": kind, key: 6}) == []
        assert implausible({"model_type": kind, key: value}) == [f"config.json: {key}"]
        assert implausible({"model_type": kind, "text_config": {key: value}}) == [f"config.json: {key}"]


def test_null_says_that_a_size_is_worked_out_where_it_can_be() -> None:
    for key in ("n_inner", "head_dim", "num_key_value_heads"):
        assert implausible({"model_type": "gpt2", key: None}) == []
    for key in ("hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads", "intermediate_size"):
        assert implausible({"model_type": "gpt2", key: None}) == [f"config.json: {key}"]


def test_sizes_for_each_stage_are_a_list_where_the_type_may_have_them() -> None:
    assert implausible({"model_type": "swin", "num_heads": [3, 6, 12, 24]}) == []
    assert implausible({"model_type": "bert", "num_attention_heads": [3, 6]}) == ["config.json: num_attention_heads"]
    assert implausible({"model_type": "swin", "hidden_size": [384]}) == ["config.json: hidden_size"]


@pytest.mark.req("A9")
@pytest.mark.parametrize(
    ("config", "wrong"),
    [
        ({"model_type": "bert", "hidden_size": 384, "num_attention_heads": 12}, []),
        ({"model_type": "bert", "hidden_size": 384, "num_attention_heads": 7}, ["num_attention_heads"]),
        ({"model_type": "distilbert", "dim": 384, "n_heads": 7}, ["n_heads"]),
        ({"model_type": "bert", "hidden_size": 384, "num_attention_heads": 7, "head_dim": 64}, ["num_attention_heads"]),
        ({"model_type": "llama", "hidden_size": 384, "num_attention_heads": 7}, ["num_attention_heads"]),
        ({"model_type": "llama", "hidden_size": 384, "num_attention_heads": 7, "head_dim": 64}, []),
        ({"model_type": "t5", "d_model": 384, "num_heads": 7, "d_kv": 64}, []),
        ({"model_type": "llama", "num_attention_heads": 8, "num_key_value_heads": 3}, ["num_key_value_heads"]),
        ({"model_type": "llama", "num_attention_heads": 8, "num_key_value_heads": 16}, ["num_key_value_heads"]),
        ({"model_type": "llama", "num_attention_heads": 8, "num_key_value_heads": 2}, []),
        ({"model_type": "siglip", "text_config": {"hidden_size": 10, "num_attention_heads": 3}}, ["text_config.num_attention_heads"]),
    ],
)  # fmt: skip
def test_heads_divide_the_hidden_size_where_the_type_wants_it(config: dict[str, Any], wrong: list[str]) -> None:
    assert implausible(config) == [f"config.json: {key}" for key in wrong]


@pytest.mark.req("A3")
@pytest.mark.parametrize("kind", ["albert", "modernbert", "t5"])
def test_the_layout_of_a_bert_under_a_type_that_has_another_is_foreign(kind: str) -> None:
    config, tensors = family("bert")
    assert "WEIGHTS_FOREIGN" in said({**config, "model_type": kind}, tensors)
    assert "WEIGHTS_FOREIGN" not in said({**config, "model_type": "ernie"}, tensors)
    assert "WEIGHTS_FOREIGN" not in said({**config, "model_type": kind}, tensors, own_names=True)


@pytest.mark.req("A9")
@pytest.mark.parametrize("head", ["classifier.weight", "classifier.out_proj.weight", "score.weight"])
def test_a_class_that_scores_has_the_head_in_its_files(head: str) -> None:
    config, tensors = family("bert")
    scores = {**config, "architectures": ["BertForSequenceClassification"]}
    assert said(scores, tensors) == ["HEAD_MISSING"]
    assert said(scores, {**tensors, head: (1, 8)}) == []
