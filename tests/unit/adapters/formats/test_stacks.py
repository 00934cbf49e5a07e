"""Layers and landmarks of a model, written into the metadata of its files and put together again."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.formats import cleaning, stacks
from bus.messages.artifacts import WeightFacts
from bus.text import clean_line

BOUNDED = settings(deadline=2_000)
WORDS = "embeddings.word_embeddings.weight"


def layers(prefix: str, numbers: Iterable[int]) -> list[tuple[str, tuple[int, ...]]]:
    return [(f"{prefix}.{number}.output.weight", (1,)) for number in numbers]


@pytest.mark.req("A9")
@pytest.mark.parametrize(
    ("name", "stack"),
    [
        ("encoder.layer.0.output.weight", "encoder.layer"),
        ("bert.encoder.layer.0.output.weight", "bert.encoder.layer"),
        ("layers.0.w", "layers"),
        ("transformer.h.0.w", "transformer.h"),
        ("encoder.block.0.layer.1.w", "encoder.block"),
        ("model.layers.0.mlp.experts.7.w", "model.layers"),
        ("encoder.layers.0.blocks.3.w", "encoder.layers"),
        # A stack within a numbered stage is a part of that stage, and no stack of the model.
        ("encoder.stages.0.layers.3.w", None),
        ("embeddings.0.w", None),
        ("mylayers.0.w", None),
        ("layers.0", None),
        ("layers.123456.w", None),
        ("layers.-1.w", None),
    ],
)
def test_a_stack_is_known_by_its_name(name: str, stack: str | None) -> None:
    found = stacks.structure([stacks.metadata([(name, (1,))])])
    assert found is not None
    assert dict(found.stacks) == ({} if stack is None else {stack: ((int(name.partition(f"{stack}.")[2][0]),) * 2,)})


@pytest.mark.req("A9")
@given(st.lists(st.sets(st.integers(0, 40)), min_size=1, max_size=4))
@BOUNDED
def test_the_layers_of_all_files_are_put_together(files: list[set[int]]) -> None:
    found = stacks.structure([stacks.metadata(layers("layers", numbers)) for numbers in files])
    assert found is not None
    whole = set().union(*files)
    held = {number for begin, end in found.stacks.get("layers", ()) for number in range(begin, end + 1)}
    # More gaps than there is room for leave layers out: fewer are held then, never more.
    assert held <= whole
    if all(sum(number - 1 not in numbers for number in numbers) < 15 for numbers in files):
        assert held == whole


def test_of_several_landmarks_with_one_ending_the_shortest_name_counts() -> None:
    inner = stacks.metadata([(f"a.{WORDS}", (2, 3)), (f"x{WORDS}", (9, 9))])
    outer = stacks.metadata([(WORDS, (4, 5))])
    first, both = stacks.structure([inner]), stacks.structure([inner, outer])
    assert first is not None
    assert both is not None
    assert first.landmarks == {WORDS: (f"a.{WORDS}", (2, 3))}
    assert both.landmarks == {WORDS: (WORDS, (4, 5))}


def test_evidence_without_a_structure_is_told_from_a_file_without_stacks() -> None:
    nothing = stacks.metadata([("w", (1,))])
    assert stacks.structure([nothing]) == stacks.Structure(stacks={}, tensors={}, landmarks={})
    assert stacks.structure([nothing, {"format": "pt"}]) is None
    assert stacks.structure([]) is None


@given(st.dictionaries(st.text(max_size=300), st.lists(st.integers(0, 2**62), max_size=16).map(tuple), max_size=5))
@BOUNDED
def test_what_is_kept_is_bounded_and_clean_whatever_the_names(tensors: dict[str, tuple[int, ...]]) -> None:
    many = [
        (f"{name}{number}.layers.{number}.{name}", shape) for name, shape in tensors.items() for number in range(20)
    ]
    gaps = layers("layers", range(0, 99_999, 2)) if tensors else []
    kept = stacks.metadata([*tensors.items(), *many, *gaps, *((f"{name}.{WORDS}", s) for name, s in tensors.items())])
    facts = WeightFacts(path="m", format="safetensors", metadata=kept)
    assert cleaning.clean_weights(facts).metadata == kept
    assert all(clean_line(text, cleaning.MAX_CHARS) == text for text in kept.values())


@given(
    st.dictionaries(st.sampled_from(["stacks", "stack 1", "stack 2", "tensor lm_head.weight"]), st.text(max_size=40))
)
@BOUNDED
def test_no_metadata_that_another_machine_made_up_breaks_the_reader(kept: dict[str, str]) -> None:
    found = stacks.structure([kept])
    assert (found is None) == ("stacks" not in kept)


def test_ranges_that_another_machine_made_up_are_left_out() -> None:
    found = stacks.structure([{"stacks": "1", "stack 1": "layers 5-2,x,1-,0-1,3-3,-1-9,000001-2"}])
    assert found is not None
    assert found.stacks == {"layers": ((0, 1), (3, 3))}
