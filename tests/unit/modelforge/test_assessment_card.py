"""An assessment on a small screen: verdict first, blockers before warnings, never more than fits, nothing hidden."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.messages.api import Assessments
from bus.messages.gates import Assessment, Declared, Estimate, EstimatePart
from modelforge import format as text
from modelforge.cli import assess, assessment_card, boundary, main
from modelforge.cli.assessment_card import (
    declared_line,
    findings_text,
    history_line,
    long_card,
    short_card,
    verdict_line,
)
from modelforge.cli.stale_card import stale_text
from tests.support.assessments import DECLARED, DIGEST, PROOF, assessment, earlier, estimate, finding

INSPECTED = Declared(adapter="vllm", version="1", executable=False, inspect_only=True)


@pytest.mark.req("A2")
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"verdict": "blocked", "findings": (finding("A"), finding("B"), finding("C", "warning"))},
            "BLOCKED: 2 blockers; nothing was loaded",
        ),
        ({}, "COMPATIBLE as far as files and facts say; not proven"),
        ({"proof": PROOF}, "COMPATIBLE as far as files and facts say; proven by prb-0000000001"),
        ({"verdict": "requires_probe"}, "REQUIRES PROBE: only a probe can tell; nothing was loaded, nothing is proven"),
        (
            {"verdict": "requires_probe", "proof": PROOF},
            "REQUIRES PROBE: only a probe can tell; prb-0000000001 passed here",
        ),
        (
            {"verdict": "requires_probe", "declared": INSPECTED},
            "REQUIRES PROBE: only a probe can tell, and this version cannot run one",
        ),
        ({"declared": INSPECTED}, "COMPATIBLE as far as files and facts say; this version cannot probe it"),
        (
            {"declared": None, "findings": (finding("PROBE_NOT_AVAILABLE", "warning"),)},
            "COMPATIBLE as far as files and facts say; this version cannot probe it",
        ),
        ({"stale_because": ("a", "b")}, "STALE: 2 facts changed since it was COMPATIBLE; assess again"),
    ],
)
def test_the_first_line_is_the_verdict_in_words(changes: dict[str, Any], words: str) -> None:
    one = assessment(**changes)
    assert verdict_line(one) == words
    assert short_card(one)[0] == words
    assert long_card(one).splitlines()[0] == words
    assert len(words) <= 80


def test_blockers_come_first_each_with_what_to_do() -> None:
    lines = short_card(
        assessment(
            verdict="blocked",
            findings=(finding("W", "warning", "slow", ""), finding("B", "blocker", "no pooling", "add 1_Pooling")),
        )
    )
    assert lines[1:4] == ["BLOCKER B: no pooling [config.json]", "  do: add 1_Pooling", "WARNING W: slow [config.json]"]


LONG = "a sentence that goes on and on about a file " * 9
WORDS = st.text(min_size=0, max_size=300) | st.just(LONG) | st.just("x" * 500) | st.just("\x1b[2J\n模型" * 40)
FINDINGS = st.builds(
    finding,
    code=st.sampled_from(["POOLING_MISSING", "A" * 60]),
    severity=st.sampled_from(["blocker", "warning", "note"]),
    message=WORDS,
    remedy=WORDS,
)


@given(
    st.lists(FINDINGS, max_size=40),
    st.sampled_from([16, 20, 24]),
    WORDS,
    st.lists(WORDS, max_size=3),
    st.booleans(),
)
def test_it_fits_whatever_it_holds(findings: list[Any], rows: int, name: str, stale: list[str], proven: bool) -> None:
    one = assessment(
        verdict="blocked",
        findings=tuple(findings),
        profile_name=name,
        created_by=name,
        stale_because=tuple(stale),
        estimate=estimate(earlier(), earlier()),
        proof=PROOF if proven else None,
    )
    lines = short_card(one, rows)
    assert len(lines) <= rows
    assert all(text.width(line) <= 80 for line in lines)
    assert not any("\x1b" in line or "\n" in line for line in lines)
    shown = sum(line.startswith(("BLOCKER ", "WARNING ")) for line in lines)
    left = [line for line in lines if line.startswith("and ")]
    counted = int(left[0].split()[1]) if left else 0
    assert shown + counted == len(findings)
    assert all("modelforge assess show" in line for line in left)


def test_few_whole_findings_say_more_than_many_beginnings() -> None:
    many = tuple(finding(f"B{number}", "blocker", LONG[:200], LONG[:150].strip()) for number in range(6))
    lines = short_card(assessment(verdict="blocked", findings=many), 20)
    blocks = "\n".join(lines[1:]).split("\n\n")[0].split("BLOCKER ")[1:]
    assert len(lines) <= 20
    assert 1 < len(blocks) < 6
    first = " ".join(blocks[0].split())
    assert LONG[:200].strip() in first
    assert first.endswith(LONG[:150].strip())
    assert f"and {6 - len(blocks)} more: modelforge assess show asm-0000000001" in lines


def test_what_is_cut_ends_with_a_whole_word_and_never_with_half_a_source() -> None:
    message = "the header of layer-00001-of-00002.gguf names tensors which no other file has " * 12
    lines = short_card(assessment(verdict="blocked", findings=(finding("B", "blocker", message, "copy it again"),)), 22)
    text_lines = lines[1 : lines.index("")]
    cut = next(line for line in text_lines if line.endswith("…"))
    assert cut.removesuffix(" …").split()[-1] in message.split()
    assert "[" not in "".join(text_lines)
    assert text_lines[-1] == "  do: copy it again"


def test_the_card_says_whether_it_still_holds() -> None:
    assert "by alice; not stale" in " ".join(short_card(assessment()))
    lines = short_card(assessment(stale_because=("driver changed from 1 to 2", "x")))
    assert "stale       yes (and 1 more): driver changed from 1 to 2" in lines
    assert not any("not stale" in line for line in lines)


@pytest.mark.req("A11")
def test_an_estimate_says_that_it_is_one_and_how_far_the_last_was_off() -> None:
    shown = " ".join(" ".join(short_card(assessment())).split())
    assert "551.0 MiB (estimated): weights 87.0 MiB + activations 4.0 MiB + runtime 460.0 MiB" in shown
    for scope in ("same set, profile and node", "same set and profile", "same adapter and node"):
        far = earlier(scope, node="n" * 24)
        for rows in (16, 24):
            shown = " ".join(" ".join(short_card(assessment(estimate=estimate(far)), rows)).split())
            assert "551.0 MiB (estimated); an earlier estimate was +12 % off: 492.0 MiB measured" in shown
            assert "…" not in shown
    assert "for another set or profile" in history_line(earlier("same adapter and node"))
    less = long_card(assessment(estimate=estimate(earlier("same set and profile", node="far", error_percent=-7))))
    assert "an earlier estimate was -7 % off: 492.0 MiB measured on far" in less
    assert "how far it is off is unknown" in long_card(assessment())
    assert "prb-0000000001 measured 440.0 MiB since" in long_card(assessment(proof=PROOF))
    assert "none: the files do not say enough" in long_card(assessment(estimate=None))


@pytest.mark.req("A2")
def test_declared_and_proven_are_two_things() -> None:
    unproven = long_card(assessment())
    declared, _, proven = unproven.partition("proven here (measured)")
    assert "declared by the runtime (a claim)" in declared
    assert "bert (declared)" in declared
    assert "no probe has completed" in proven
    both = long_card(assessment(proof=PROOF)).partition("proven here (measured)")[2]
    assert "prb-0000000001" in both
    assert "peak 440.0 MiB (source process_rss)" in both
    assert "sentence_transformers" not in both


def test_every_part_of_an_estimate_is_shown_whole() -> None:
    part = EstimatePart(name="activations", size_bytes=2**20, basis="why " * 60)
    card = long_card(assessment(estimate=Estimate(size_bytes=2**20, parts=(part,))))
    assert card.count("why") == 60
    assert "  activations     1.0 MiB  why" in card
    assert "  all             1.0 MiB  estimated" in card


def test_facts_are_shown_when_they_are_asked_for() -> None:
    assert "550.1" not in long_card(assessment())
    assert "driver  550.1" in long_card(assessment(), facts=True)


def test_findings_stand_in_order_of_weight_with_their_remedy() -> None:
    one = assessment(verdict="blocked", findings=(finding("N", "note"), finding("W", "warning"), finding("B")))
    assert [line.split(":")[0] for line in findings_text(one).splitlines()[::2]] == ["blocker", "warning", "note"]
    assert "remedy: r" in long_card(one)
    assert findings_text(assessment()) == "no findings"
    hostile = assessment(findings=(finding("B", message="\x1b]0;owned\x07name"),))
    assert "\x1b" not in findings_text(hostile)


@pytest.mark.req("A18")
def test_a_stale_one_says_each_fact_that_changed() -> None:
    because = ("driver changed from 550.1 to 560.2", "python changed from 3.11.9 to 3.11.10")
    block = stale_text([assessment(stale_because=because), assessment(id="asm-2", stale_because=("x",))])
    assert block.split("\n\n")[0].splitlines() == [
        "asm-0000000001 compatible: set abababababab, profile cpu-small@1, node local",
        "  - driver changed from 550.1 to 560.2",
        "  - python changed from 3.11.9 to 3.11.10",
    ]
    assert stale_text([]) == "no assessment is stale"
    wide = stale_text([assessment(profile_name="p" * 24, node="n" * 24, stale_because=("fact " * 50,))])
    assert all(len(line) <= 80 for line in wide.splitlines())


class Answering:
    """An operator that has one answer."""

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    async def call(self, verb: object, request: object) -> object:
        self.asked.append(request)
        return self.answer


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Answering:
    one = Answering(None)
    monkeypatch.setenv("MODELFORGE_STATE", str(tmp_path))
    monkeypatch.setattr(assess, "with_operator", lambda _, work: asyncio.run(work(one)))
    return one


def rows_on_screen(*streams: str) -> int:
    """How many rows of 80 columns a terminal needs for what was written."""
    return sum(max(1, math.ceil(text.width(line) / 80)) for stream in streams for line in stream.splitlines())


@pytest.mark.parametrize("verdict", ["compatible", "requires_probe", "blocked"])
@pytest.mark.parametrize("number", [0, 1, 30])
def test_the_whole_command_fits_a_terminal(
    answering: Answering, capsys: pytest.CaptureFixture[str], verdict: Any, number: int
) -> None:
    severity: Any = "blocker" if verdict == "blocked" else "warning"
    answering.answer = assessment(
        verdict=verdict, findings=tuple(finding("CODE", severity, LONG, LONG) for _ in range(number))
    )
    code = boundary.run(main.call, ["assess", "ab" * 4, "--profile", "p", "--node", "n"])
    said = capsys.readouterr()
    assert code == (4 if verdict == "blocked" else 0)
    assert said.out.startswith(assessment_card.WORDS[verdict])
    assert "next: " in said.err
    assert rows_on_screen(said.out, said.err) <= 22  # the last two rows are for a prompt


@pytest.mark.parametrize(("verdict", "code"), [("blocked", 4), ("compatible", 0), ("requires_probe", 0)])
def test_json_is_the_whole_record(
    answering: Answering, capsys: pytest.CaptureFixture[str], verdict: Any, code: int
) -> None:
    one = assessment(verdict=verdict, findings=tuple(finding(f"C{number}") for number in range(30)), proof=PROOF)
    answering.answer = one
    assert boundary.run(main.call, ["assess", "ab" * 4, "--profile", "p", "--node", "n", "--json"]) == code
    data = json.loads(capsys.readouterr().out)["data"]
    assert set(data) == set(Assessment.__struct_fields__)
    assert len(data["findings"]) == 30
    assert data["declared"]["adapter"] == DECLARED.adapter


@pytest.mark.parametrize("found", [(), (assessment(stale_because=("driver changed from 1 to 2",)),)])
def test_the_stale_ones_are_asked_for_and_followed_by_another_assessment(
    answering: Answering, capsys: pytest.CaptureFixture[str], found: tuple[Assessment, ...]
) -> None:
    answering.answer = Assessments(assessments=found)
    assert boundary.run(main.call, ["assess", "list", "--stale"]) == 0
    assert answering.asked[0].stale_only
    said = capsys.readouterr()
    if found:
        assert "driver changed from 1 to 2" in said.out
        assert said.err == f"next: modelforge assess {DIGEST[7:19]} --profile cpu-small@1 --node local\n"
    else:
        assert said.out == "no assessment is stale\n"


def test_a_short_search_says_so_even_when_it_found_nothing(
    answering: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    answering.answer = Assessments(assessments=(), truncated=True)
    assert boundary.run(main.call, ["assess", "list", "--stale"]) == 0
    said = capsys.readouterr()
    assert said.out == "no assessment is stale\n"
    assert "older ones may be stale" in said.err


def test_a_place_is_chosen_and_shown(answering: Answering, capsys: pytest.CaptureFixture[str]) -> None:
    answering.answer = assessment(location="models/a b", profile_version=3)
    assert boundary.run(main.call, ["assess", "ab" * 4, "--profile", "p@3", "--node", "n", "--path", "models/a b"]) == 0
    assert answering.asked[0].location == "models/a b"
    out = capsys.readouterr().out
    assert "abababababab at local:models/a b, profile cpu-small@3" in out
    assert "location     models/a b" in long_card(answering.answer)
    assert "cpu-small@3" in long_card(answering.answer)


def test_what_a_proof_answers_is_not_said_beside_it() -> None:
    found = (finding("DECLARED_NOT_PROVEN", "note"), finding("REQUIRES_PROBE", "note"), finding("N", "note"))
    for proof, number in ((None, 3), (PROOF, 1)):
        one = assessment(findings=found, proof=proof)
        assert f"and {text.count(number, 'note')}: modelforge assess show asm-0000000001" in short_card(one)
        assert ("DECLARED_NOT_PROVEN" in long_card(one)) == (proof is None)
        assert "note: N" in long_card(one)


def test_what_went_stale_stands_under_the_verdict_and_nothing_is_wider_than_the_screen() -> None:
    because = ("driver changed from 550.1 to 560.2", "fact " * 40)
    one = assessment(stale_because=because, findings=(finding("B", "warning", LONG, LONG),), location="d/" * 90)
    lines = long_card(one, facts=True, columns=80).splitlines()
    assert lines[1] == "  - driver changed from 550.1 to 560.2"
    assert all(text.width(line) <= 80 for line in lines)
    assert f"  {DIGEST}" in lines  # whole, below its name
    assert max(len(line) for line in long_card(one, columns=120).splitlines()) > 80


def test_the_declared_line_reads_as_a_sentence() -> None:
    bare = Declared(adapter="vllm", version="not installed", executable=False, inspect_only=True)
    assert declared_line(bare).startswith("vllm: not installed; can be inspected only;")
    assert declared_line(DECLARED) == "sentence_transformers 6.2.0; executable; model type bert (declared)"


def test_show_may_be_longer_and_has_everything(answering: Answering, capsys: pytest.CaptureFixture[str]) -> None:
    answering.answer = assessment(findings=tuple(finding(f"C{number}", "note") for number in range(30)))
    assert boundary.run(main.call, ["assess", "show", "asm-1", "--facts"]) == 0
    out = capsys.readouterr().out
    assert all(f"C{number}:" in out for number in range(30))
    assert "python  3.11.9" in out
