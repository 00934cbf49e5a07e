"""Facts: each is named singly, the map is canonical, and the difference of two maps is said exactly."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus import ids
from bus.codec import encode
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.artifacts import Quarantine, SetEvidence, SetLocation, WeightFacts
from bus.messages.inventory import NodeInventory, NodeView
from bus.text import clean_line
from controller import facts
from controller.facts import RULES_FACT, SetSnapshot, changes, fingerprint_of
from tests.support.ledger import ADAPTER, card, environment, hardware, inventory, with_adapter

# The same examples in every run, and no clock: two cores are shared by many.
drawn = settings(deadline=None, derandomize=True, database=None)
SHA = "a" * 64
PLACE = SetLocation(node="local", path="models/x", scanned_at=ids.now())
CORRUPT = msgspec.structs.replace(
    PLACE, state="corrupt", file="model.safetensors", problem="other bytes", found_at=ids.now(), found_by="prb-1"
)


def quarantine(path: str, released_by: str | None = None) -> Quarantine:
    return Quarantine(
        id="qrt-1",
        sha256=SHA,
        set_digest=f"sha256:{SHA}",
        path=path,
        reason="bad",
        quarantined_by="user:alice",
        quarantined_at=ids.now(),
        released_by=released_by,
    )


def made(**given_: Any) -> dict[str, str]:
    """The fact map, with some of what it is made from replaced."""
    said: NodeInventory | None = given_.pop("inventory", inventory())
    node = NodeView(name="local", enabled=True, lab_eligible=True, liveness="online", inventory=said)
    node = msgspec.structs.replace(node, **given_.pop("node", {}))
    profile_id, adapter = given_.pop("profile_id", "sha256:p"), given_.pop("adapter", ADAPTER)
    evidence = facts.evidence_facts(encode(given_.pop("evidence", SetEvidence(scanner="scan.2"))).decode())
    values: dict[str, Any] = {"digest": "sha256:a", "evidence": evidence, "place": PLACE, **given_}
    declared = facts.adapter_facts_of(facts.inventory_of(node).environment, adapter)
    return facts.facts_of(SetSnapshot(**values), profile_id, facts.node_facts_of(node), declared)


def runs_on(**changes_: Any) -> dict[str, Any]:
    return {"inventory": inventory(environment=environment(**changes_))}


def stands_on(**changes_: Any) -> dict[str, Any]:
    return {"inventory": inventory(hardware=hardware(**changes_))}


def torch(version: str) -> dict[str, str]:
    return {**environment().packages, "torch": version}


@pytest.mark.req("A1", "A18")
def test_the_same_facts_give_the_same_fingerprint_in_any_order() -> None:
    one = made()
    other = dict(reversed(one.items()))
    assert fingerprint_of(one) == fingerprint_of(other)
    assert fingerprint_of(one).startswith("sha256:")
    assert changes(one, other) == ()


@pytest.mark.req("A18")
@pytest.mark.parametrize(
    ("given_", "sentence"),
    [
        ({"digest": "sha256:b"}, "set changed from sha256:a to sha256:b"),
        ({"evidence": SetEvidence(scanner="scan.3")}, "scan rules changed from scan.2 to scan.3"),
        ({"place": None}, "set location changed from models/x to none"),
        ({"place": CORRUPT}, "set integrity changed from verified to corrupt: model.safetensors: other bytes"),
        ({"quarantined": (quarantine("pytorch_model.bin"),)}, "quarantine changed from none to pytorch_model.bin"),
        ({"quarantined": (quarantine("a.bin", "apv-1"),)}, "quarantine changed from none to a.bin released"),
        ({"pickle_approved": True}, "pickle approval changed from none to approved"),
        ({"profile_id": "sha256:q"}, "profile changed from sha256:p to sha256:q"),
        ({"node": {"enabled": False}}, "node enabled changed from yes to no"),
        ({"node": {"lab_eligible": False}}, "node lab-eligible changed from yes to no"),
        ({"inventory": inventory(capabilities=())}, "node probes changed from yes to no"),
        (runs_on(python="3.12.1"), "python changed from 3.11.7 to 3.12.1"),
        (runs_on(platform="linux-aarch64"), "platform changed from linux-x86_64 to linux-aarch64"),
        (runs_on(image="lab:2"), "image changed from none to lab:2"),
        (runs_on(packages=torch("2.14.0")), "package torch changed from 2.13.0 to 2.14.0"),
        (
            {"inventory": with_adapter(inventory(), version="7")},
            "adapter version changed from 6.2.0 to 7",
        ),
        (
            {"inventory": with_adapter(inventory(), executable=False, reason="no torch")},
            "adapter executable changed from yes to no: no torch",
        ),
        (
            {"inventory": with_adapter(inventory(), quantizations=("gptq",))},
            "adapter quantizations changed from none to gptq",
        ),
        (stands_on(cpu_model="Other"), "cpu model changed from Test CPU to Other"),
        (stands_on(driver_version="575.51"), "driver changed from none to 575.51"),
        (stands_on(cuda_version="13"), "cuda changed from none to 13"),
        (
            stands_on(gpus=(card(),)),
            "gpu GPU-1 changed from absent to Test card 17179869184 B cc 9.0",
        ),
        (stands_on(memory_total_bytes=16 * 1024**3), "host memory changed from 8 GiB to 16 GiB"),
    ],
)
def test_each_fact_counts_and_is_named_alone(given_: dict[str, Any], sentence: str) -> None:
    before, after = made(), made(**given_)
    assert fingerprint_of(before) != fingerprint_of(after)
    assert changes(before, after) == (sentence,)


@pytest.mark.req("A18")
def test_each_part_of_what_the_scan_read_is_a_fact() -> None:
    read = SetEvidence(
        scanner="scan.2",
        documents={"config.json": {}},
        weights=(WeightFacts(path="w", format="safetensors"),),
        notes=("a note",),
        formats={"w": "safetensors"},
    )
    named = [sentence.split(" changed from ")[0] for sentence in changes(made(), made(evidence=read))]
    assert named == ["set documents", "set weight headers", "set notes", "set formats"]
    other = msgspec.structs.replace(read, documents={"config.json": {"a": 1}})
    [sentence] = changes(made(evidence=read), made(evidence=other))
    assert sentence.startswith("set documents changed from 1 (sha256:")


@pytest.mark.req("A18")
def test_evidence_of_an_older_ledger_is_read_and_what_is_none_is_refused() -> None:
    old = facts.evidence_facts('{"documents":{},"weights":[],"notes":[]}')
    assert old["scan rules"] == "scan.1"
    assert {**old, "scan rules": "scan.2"} == facts.evidence_facts(encode(SetEvidence(scanner="scan.2")).decode())
    for wrong in ("[]", '{"documents":5}', "{"):
        with pytest.raises(ModelForgeError) as caught:
            facts.evidence_facts(wrong)
        assert caught.value.code is ErrorCode.STORE_SCHEMA_MISMATCH


@pytest.mark.req("A18")
def test_liveness_free_memory_boots_and_clocks_do_not_count() -> None:
    moved = inventory(boot_id="boot9", sequence=99, at=ids.now(), slots=7, hardware=hardware(memory_available_bytes=1))
    assert made() == made(inventory=moved, node={"liveness": "offline", "boot_id": "boot9"})


@pytest.mark.req("A18")
def test_the_order_of_cards_and_of_what_is_declared_does_not_count() -> None:
    two = (card(), card(uuid="GPU-2"))
    assert made(**stands_on(gpus=two)) == made(**stands_on(gpus=two[::-1]))
    types = ("bert", "gpt2")
    one = made(inventory=with_adapter(inventory(), model_types=types))
    other = made(inventory=with_adapter(inventory(), model_types=types[::-1]))
    assert changes(one, other) == tuple(changes(one, other)) == (changes(one, other)[0],)
    assert changes(one, other)[0].startswith("environment changed from sha256:"), "its identity is another one"


@pytest.mark.req("A18")
def test_two_cards_of_one_name_are_both_counted() -> None:
    twins = (card(name="A"), card(name="B"))
    assert changes(made(**stands_on(gpus=(card(name="A"),))), made(**stands_on(gpus=twins))) != ()


@pytest.mark.req("A18")
def test_facts_made_by_other_rules_are_stale_for_that_reason_alone() -> None:
    now = made(**stands_on(driver_version="1"))
    assert changes({"set": "sha256:a", "driver": "none"}, now) == ("fingerprint rules changed from 1 to 2",)
    assert changes({**now, RULES_FACT: "3"}, made()) == ("fingerprint rules changed from 3 to 2",)


@pytest.mark.req("A18")
def test_facts_that_only_one_side_knows_are_named_too() -> None:
    assert changes({"a": "1"}, {"b": "2"}) == ("a changed from 1 to absent", "b changed from absent to 2")
    assert changes({"a": "absent"}, {}) == ("a changed from absent to absent",), "a fact and no fact are two things"


@pytest.mark.req("A18")
def test_a_folder_called_none_is_a_place() -> None:
    there = facts.place_fact(msgspec.structs.replace(PLACE, path="none"))
    assert there != facts.place_fact(None)
    assert (facts.path_of(there), facts.path_of("none"), facts.path_of("a/b")) == ("none", None, "a/b")


@pytest.mark.req("A18")
def test_a_node_without_inventory_has_no_facts() -> None:
    with pytest.raises(ModelForgeError) as caught:
        made(inventory=None)
    assert caught.value.code is ErrorCode.NODE_UNKNOWN


@pytest.mark.req("A18", "B1")
def test_what_a_node_says_is_bounded_and_a_change_is_never_cut_away() -> None:
    long_one, long_two = "x" * 1_999 + "1", "x" * 1_999 + "2"
    many = {f"package-{number}": "1" for number in range(2_000)}
    huge = runs_on(python=long_one, packages=many)
    found = made(**huge)
    assert len(found) < 60
    assert max(map(len, found.values())) <= facts.MAX_FACT_CHARS
    [sentence] = changes(found, made(**runs_on(python=long_two, packages=many)))
    assert sentence.startswith("python changed from …x")
    before, after = sentence.removeprefix("python changed from ").split(" to ")
    assert before != after
    assert len(sentence) < 400
    escaped = made(**runs_on(python="3\x1b[31m.11\n"))
    assert escaped["python"] == "3.11\u23ce"


@pytest.mark.req("A18")
def test_two_long_values_that_begin_alike_are_shown_where_they_differ() -> None:
    [sentence] = changes({"f": "x" * 250 + "one"}, {"f": "x" * 250 + "two"})
    before, after = sentence.removeprefix("f changed from ").split(" to ")
    assert (before, after) == ("…" + "x" * 12 + "one", "…" + "x" * 12 + "two")


FACTS = st.dictionaries(
    st.one_of(st.sampled_from(sorted(made())), st.text(min_size=1, max_size=12)),
    st.one_of(st.sampled_from(["none", "verified", "yes", "absent", "x" * 500, "sha256:" + SHA]), st.text(max_size=40)),
    max_size=12,
)


@pytest.mark.req("A18")
@drawn
@given(FACTS, FACTS)
def test_fingerprints_are_equal_for_equal_maps_only_and_so_is_silence(
    one: dict[str, str], other: dict[str, str]
) -> None:
    assert (fingerprint_of(one) == fingerprint_of(other)) == (one == other)
    assert (changes(one, other) == ()) == (one == other)


@pytest.mark.req("A18")
@drawn
@given(st.data())
def test_any_single_fact_that_changes_is_named_and_no_other(data: st.DataObject) -> None:
    before = made(**stands_on(gpus=(card(),), driver_version="570.86"))
    name = data.draw(st.sampled_from(sorted(before)))
    value = data.draw(st.text(max_size=400).filter(lambda text: text != before[name]))
    after = {**before, name: value}
    assert fingerprint_of(before) != fingerprint_of(after)
    [sentence] = changes(before, after)
    assert sentence.startswith(f"{name} changed from ")
    without = {fact: text for fact, text in before.items() if fact != name}
    [sentence] = changes(before, without)
    assert sentence.startswith(f"{name} changed from ")


@pytest.mark.req("A18")
@drawn
@given(st.text(max_size=600), st.text(max_size=600))
def test_two_texts_never_become_one_fact(one: str, other: str) -> None:
    plain_one, plain_other = clean_line(one), clean_line(other)
    if plain_one != plain_other:
        assert facts.bounded_text(plain_one) != facts.bounded_text(plain_other)
    assert len(facts.bounded_text(one)) <= facts.MAX_FACT_CHARS
    assert facts.folded([one, other]) == facts.folded([other, one, one])
