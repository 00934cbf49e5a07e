"""Damage of every kind, drawn by Hypothesis: nothing crashes, nothing hangs, and a corrupted set is never compatible."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.formats.documents import DocumentProblem
from adapters.formats.evidence import received
from adapters.inspect.registry import inspect
from adapters.inspect.subject import Inspection
from bus.codec import decode, encode
from bus.errors import ModelForgeError
from bus.messages.artifacts import Manifest, SetEvidence
from controller import facts
from node_agent.artifact_scan import Scanned
from tests.support.corpus import controls
from tests.support.corpus.controls import CONTROLS, Control
from tests.support.corpus.folders import WEIGHTS, Files
from tests.support.corpus.raw import with_header
from tests.support.corpus.row import subject_of

VERDICTS: Final = {"compatible", "requires_probe", "blocked"}
# A hang is an example that takes longer; the same draws in every run, so that a failure is found again.
drawn = settings(deadline=2_000, derandomize=True, database=None)
Struct = TypeVar("Struct", SetEvidence, Manifest)
Mutate = Callable[[bytes], bytes]


def assessed(control: Control, scanned: Scanned) -> Inspection:
    return inspect(subject_of(scanned, control.profile, {}))


@st.composite
def damages(draw: st.DrawFn) -> Mutate:
    """A change of a file's bytes; places are parts of its length, and half of them lie in the first kilobyte."""
    kind = draw(st.sampled_from(["flip", "cut", "insert", "replace", "repeat"]))
    place = draw(st.floats(0, 1, exclude_max=True))
    near = draw(st.booleans())
    new = draw(st.binary(min_size=1, max_size=16))

    def mutate(data: bytes) -> bytes:
        at = int(place * (min(len(data), 1_024) if near else len(data)))
        match kind:
            case "flip":
                return data[:at] + bytes(byte ^ new[0] for byte in data[at : at + 1]) + data[at + 1 :]
            case "cut":
                return data[:at]
            case "insert":
                return data[:at] + new + data[at:]
            case "replace":
                return data[:at] + new + data[at + len(new) :]
            case _:
                return data[:at] + data[at:] + data[at:]

    return mutate


@pytest.mark.parametrize("name", CONTROLS)
def test_the_controls_are_not_blocked(name: str) -> None:
    """Else the properties below would hold of anything."""
    found = assessed(CONTROLS[name], controls.read(CONTROLS[name].files))

    assert found.verdict != "blocked", found.findings
    assert not controls.is_corrupt(CONTROLS[name], CONTROLS[name].files)


@pytest.mark.req("A3", "A4", "A9")
@pytest.mark.parametrize("name", CONTROLS)
@settings(drawn, max_examples=200)
@given(data=st.data())
def test_damaged_files_are_never_compatible(name: str, data: st.DataObject) -> None:
    control = CONTROLS[name]
    path = data.draw(st.sampled_from(sorted(control.files)))
    damaged = {**control.files, path: data.draw(damages())(control.files[path])}

    found = assessed(control, controls.read(damaged))

    assert found.verdict in VERDICTS
    if controls.is_corrupt(control, damaged):
        assert found.verdict == "blocked", (path, damaged[path][:200], found.findings)


@pytest.mark.req("A3", "A9")
@pytest.mark.parametrize("name", CONTROLS)
@settings(drawn, max_examples=30)
@given(data=st.data())
def test_a_set_without_a_required_file_is_never_compatible(name: str, data: st.DataObject) -> None:
    control = CONTROLS[name]
    gone = data.draw(st.sets(st.sampled_from(control.required), min_size=1, max_size=3))

    found = assessed(control, controls.read({path: held for path, held in control.files.items() if path not in gone}))

    assert found.verdict == "blocked", (gone, found.findings)


JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value, as the keys on the way to it."""
    found = [above]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += places(inner, (*above, key))
    return found


def replaced(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    """`value` with something else at one place."""
    if not place:
        return new
    copy = value.copy()
    copy[place[0]] = replaced(value[place[0]], place[1:], new)
    return copy


def documents_of(files: Files) -> list[str]:
    return sorted(path for path in files if path.endswith(".json"))


@pytest.mark.parametrize("name", [name for name in CONTROLS if documents_of(CONTROLS[name].files)])
@settings(drawn, max_examples=150)
@given(data=st.data())
def test_a_document_may_hold_any_value_anywhere(name: str, data: st.DataObject) -> None:
    """A number where a word belongs, a list where a number does: an answer, whatever it is."""
    control = CONTROLS[name]
    path = data.draw(st.sampled_from(documents_of(control.files)))
    document = json.loads(control.files[path])
    place = data.draw(st.sampled_from(places(document)))
    changed = json.dumps(replaced(document, place, data.draw(JSON))).encode()
    damaged = {**control.files, path: changed}

    found = assessed(control, controls.read(damaged))

    assert found.verdict in VERDICTS
    if controls.is_corrupt(control, damaged):
        assert found.verdict == "blocked", (path, place, found.findings)


# Of each control that can be called compatible: the sizes that its files show too.
SHOWN: Final = {
    "sentence_transformers": (
        "num_hidden_layers", "hidden_size", "vocab_size", "max_position_embeddings", "type_vocab_size", "intermediate_size",
    ),
    "sharded": ("num_hidden_layers", "hidden_size", "vocab_size", "max_position_embeddings", "intermediate_size"),
    "transformers": ("num_hidden_layers", "hidden_size", "vocab_size", "intermediate_size"),
}  # fmt: skip
NEAR: Final[st.SearchStrategy[Any]] = st.integers(-3, 20) | st.sampled_from(
    [10**400, 6 * 10**11, 8.0, 1.0, "8", [8], [], {}, True, None, 512.0]
)


@pytest.mark.req("A3", "A9")
@pytest.mark.parametrize("name", SHOWN)
@settings(drawn, max_examples=250)
@given(data=st.data())
def test_a_size_that_the_files_contradict_is_never_compatible(name: str, data: st.DataObject) -> None:
    control = CONTROLS[name]
    config = json.loads(control.files["config.json"])
    key = data.draw(st.sampled_from(SHOWN[name]))
    value = data.draw(NEAR | JSON)
    damaged = {**control.files, "config.json": json.dumps({**config, key: value}).encode()}

    found = assessed(control, controls.read(damaged))

    same = type(value) is int and value == config[key]
    assert (found.verdict == "compatible") == same, (key, value, found.findings)


@pytest.mark.req("A9")
@pytest.mark.parametrize("name", SHOWN)
@settings(drawn, max_examples=80)
@given(value=NEAR | JSON)
def test_heads_that_do_not_divide_the_hidden_size_are_never_compatible(name: str, value: object) -> None:
    control = CONTROLS[name]
    config = {**json.loads(control.files["config.json"]), "num_attention_heads": value}
    damaged = {**control.files, "config.json": json.dumps(config).encode()}

    found = assessed(control, controls.read(damaged))

    if type(value) is not int or value < 1 or config["hidden_size"] % value:
        assert found.verdict == "blocked", found.findings


@pytest.mark.req("A3")
@settings(drawn, max_examples=250)
@given(data=st.data())
def test_what_the_library_refuses_of_a_header_is_never_compatible(data: st.DataObject) -> None:
    control = CONTROLS["sentence_transformers"]
    weights = control.files[WEIGHTS]
    end = 8 + int.from_bytes(weights[:8], "little")
    header = json.loads(weights[8:end])
    place = data.draw(st.sampled_from(places(header)))
    near = st.sampled_from(["F16", "F64", "BF16", [], [8], [8, 8, 1], [0, 0], [-1, 8], [0, 128], [128, 0], 0, 1, 2**63])
    damaged = {**control.files, WEIGHTS: with_header(replaced(header, place, data.draw(near | JSON)), weights[end:])}

    found = assessed(control, controls.read(damaged))

    if controls.is_corrupt(control, damaged):
        assert found.verdict == "blocked", (place, found.findings)


@pytest.mark.parametrize("name", CONTROLS)
@settings(drawn, max_examples=150)
@given(data=st.data())
def test_evidence_that_another_machine_made_up_is_refused_or_assessed(name: str, data: st.DataObject) -> None:
    control = CONTROLS[name]
    scanned = controls.read(control.files)
    record = json.loads(encode(scanned.evidence))
    place = data.draw(st.sampled_from(places(record)))
    text = json.dumps(replaced(record, place, data.draw(JSON)))

    evidence = decoded(text.encode(), SetEvidence)

    if evidence is not None:
        kept = kept_of(evidence, scanned.manifest)
        assert kept is None or assessed(control, Scanned(manifest=scanned.manifest, evidence=kept)).verdict in VERDICTS


def decoded(data: bytes, kind: type[Struct]) -> Struct | None:
    """What the wire makes of it; `None` where it refuses it with a code."""
    try:
        return decode(data, kind)
    except ModelForgeError:
        return None


def kept_of(evidence: SetEvidence, manifest: Manifest) -> SetEvidence | None:
    """What a controller keeps of it; `None` where it is too large."""
    try:
        return received(evidence, {file.path for file in manifest.files})
    except DocumentProblem:
        return None


@pytest.mark.req("A3", "A9")
@pytest.mark.parametrize("name", CONTROLS)
@settings(drawn, max_examples=40)
@given(data=st.data())
def test_evidence_that_says_less_than_the_files_is_never_compatible(name: str, data: st.DataObject) -> None:
    """A record of the weights is gone, or says what is wrong with them."""
    control = CONTROLS[name]
    scanned = controls.read(control.files)
    weights = list(scanned.evidence.weights)
    at = data.draw(st.integers(0, len(weights) - 1))
    problem = data.draw(st.none() | st.text(min_size=1, max_size=40))
    weights[at : at + 1] = [] if problem is None else [msgspec.structs.replace(weights[at], problem=problem)]
    evidence = msgspec.structs.replace(scanned.evidence, weights=tuple(weights))

    found = assessed(control, Scanned(manifest=scanned.manifest, evidence=evidence))

    assert found.verdict == "blocked", found.findings


@pytest.mark.req("A3", "A9")
@pytest.mark.parametrize("name", CONTROLS)
@settings(drawn, max_examples=60)
@given(data=st.data())
def test_a_manifest_without_a_required_member_is_never_compatible(name: str, data: st.DataObject) -> None:
    """Whatever the evidence still says about it: the manifest is what the set is."""
    control = CONTROLS[name]
    scanned = controls.read(control.files)
    gone = data.draw(st.sampled_from(control.required))
    other = data.draw(st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30))
    files = tuple(
        msgspec.structs.replace(file, path=other or "") if file.path == gone else file
        for file in scanned.manifest.files
        if file.path != gone or other is not None
    )
    manifest = Manifest(files=files)

    found = assessed(control, Scanned(manifest=manifest, evidence=kept_of(scanned.evidence, manifest) or SetEvidence()))

    assert found.verdict == "blocked", (gone, other, found.findings)


@pytest.mark.parametrize("name", CONTROLS)
@settings(drawn, max_examples=80)
@given(data=st.data())
def test_a_manifest_that_another_machine_made_up_is_refused_or_assessed(name: str, data: st.DataObject) -> None:
    control = CONTROLS[name]
    scanned = controls.read(control.files)
    record = json.loads(encode(scanned.manifest))
    place = data.draw(st.sampled_from(places(record)))
    manifest = decoded(json.dumps(replaced(record, place, data.draw(JSON))).encode(), Manifest)

    if manifest is not None:
        kept = kept_of(scanned.evidence, manifest) or SetEvidence()
        assert assessed(control, Scanned(manifest=manifest, evidence=kept)).verdict in VERDICTS


FACTS: Final = {
    facts.RULES_FACT: facts.RULES,
    "set": "sha256:" + "a" * 64,
    "quarantine": "none",
    "driver": "580.65.06",
    "cuda": "13.0",
    "gpu GPU-00000001": "Test card 85899345920 B cc 9.0",
    "node enabled": "yes",
    "image": "none",
    "profile": "sha256:" + "b" * 64,
    "package torch": "2.13.0",
    "adapter version": "6.2.0",
}
WORDS: Final = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), min_size=1, max_size=400)


@pytest.mark.req("A18")
@settings(drawn, max_examples=300)
@given(
    moved=st.dictionaries(st.sampled_from(sorted(set(FACTS) - {facts.RULES_FACT})), WORDS, max_size=4),
    new=st.dictionaries(st.text(st.characters(categories=["Ll"]), min_size=12, max_size=20), WORDS, max_size=2),
    gone=st.sets(st.sampled_from(sorted(set(FACTS) - {facts.RULES_FACT})), max_size=2),
)
def test_a_fingerprint_moves_with_every_fact_and_says_which(
    moved: dict[str, str], new: dict[str, str], gone: set[str]
) -> None:
    current = {name: value for name, value in {**FACTS, **moved, **new}.items() if name not in gone}
    differing = {name for name in {*FACTS, *current} if FACTS.get(name) != current.get(name)}

    said = facts.changes(FACTS, current)

    assert (facts.fingerprint_of(FACTS) == facts.fingerprint_of(current)) == (not differing)
    assert {sentence.partition(" changed from ")[0] for sentence in said} == differing
    for sentence in said:
        before, _, after = sentence.partition(" changed from ")[2].partition(" to ")
        assert before != after


@settings(drawn, max_examples=30)
@given(order=st.permutations(sorted(FACTS)))
def test_a_fingerprint_does_not_depend_on_the_order_of_its_facts(order: list[str]) -> None:
    assert facts.fingerprint_of({name: FACTS[name] for name in order}) == facts.fingerprint_of(FACTS)
