"""A shard index is held against the headers of its shards."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.formats import shards
from adapters.formats.shards import ShardBook, is_index, reduced_index, weight_map

INDEX = "model.safetensors.index.json"
MAPPED = {"a": "model-1.safetensors", "b": "model-1.safetensors", "c": "model-2.safetensors"}


def book(index: dict[str, str], held: dict[str, list[str]], path: str = INDEX) -> dict[str, str]:
    found = ShardBook()
    assert found.add_index(path, index)
    for shard, names in held.items():
        assert found.add_shard(shard, names)
    return found.mismatches()


def test_shards_that_hold_what_the_index_says_are_no_mismatch() -> None:
    assert book(MAPPED, {"model-1.safetensors": ["b", "a"], "model-2.safetensors": ["c"]}) == {}


@pytest.mark.parametrize(
    ("held", "words"),
    [
        ({"model-1.safetensors": ["a"], "model-2.safetensors": ["c"]}, "model-1.safetensors lacks the tensor b that"),
        ({"model-1.safetensors": [], "model-2.safetensors": ["c"]}, "lacks 2 tensors, such as a, that the index"),
        ({"model-1.safetensors": ["a", "b"], "model-2.safetensors": ["c", "d"]}, "holds a tensor that the index does"),
        ({"model-1.safetensors": ["a", "c"], "model-2.safetensors": ["b"]}, "lacks the tensor b"),
    ],
)
def test_the_first_contradiction_is_named(held: dict[str, list[str]], words: str) -> None:
    assert words in book(MAPPED, held)[INDEX]


def test_an_absent_shard_is_no_contradiction() -> None:
    """It is missing, and another finding says so."""
    assert book(MAPPED, {"model-1.safetensors": ["a", "b"]}) == {}


def test_an_index_speaks_of_its_own_folder() -> None:
    held = {"model-1.safetensors": ["x"], "unet/model-1.safetensors": ["a", "b"], "unet/model-2.safetensors": ["c"]}
    assert book(MAPPED, held, f"unet/{INDEX}") == {}


def test_names_from_outside_are_cleaned() -> None:
    text = book({"\x1b[31mred": "s\x1b]0;x\x07.safetensors"}, {"s\x1b]0;x\x07.safetensors": []})[INDEX]
    assert text == "s.safetensors lacks the tensor red that the index places there"


def test_the_names_of_a_set_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "MAX_NAMES", 5)
    found = ShardBook()
    assert found.add_index(INDEX, MAPPED)
    assert not found.add_shard("model-1.safetensors", ["a", "b", "x"])
    assert found.mismatches() == {}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (INDEX, True),
        ("unet/diffusion_pytorch_model.safetensors.index.json", True),
        ("pytorch_model.bin.index.json", True),
        ("model.safetensors.index.fp16.json", True),
        ("index.json", False),
        ("config.json", False),
        ("model.safetensors.index.json.bak", False),
    ],
)
def test_an_index_is_known_by_its_name(path: str, expected: bool) -> None:
    assert is_index(path) is expected


@pytest.mark.parametrize("document", [[], {}, {"weight_map": []}, {"weight_map": {"a": 1}}, None])
def test_an_index_that_maps_nothing_says_so(document: Any) -> None:
    assert weight_map(document) is None
    assert reduced_index(document) == {"files": [], "tensors": 0, "problem": "it maps no tensors to files"}


def test_an_index_of_too_many_files_keeps_none() -> None:
    mapped = {str(number): f"{number}.bin" for number in range(shards.MAX_SHARDS + 1)}
    assert reduced_index({"weight_map": mapped}) == {
        "files": [],
        "tensors": shards.MAX_SHARDS + 1,
        "problem": "it names more than 10000 files",
    }


@pytest.mark.parametrize("name", ["w\x1b[0m.safetensors", "w\n.safetensors", "w" * 600])
def test_a_file_whose_name_only_looks_like_another_makes_the_index_unreadable(name: str) -> None:
    assert reduced_index({"weight_map": {"a": "w.safetensors"}}) == {"files": ["w.safetensors"], "tensors": 1}
    assert "unclean" in reduced_index({"weight_map": {"a": name}})["problem"]
