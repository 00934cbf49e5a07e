"""Approvals on the screen: who, when and why, for the word and for taking it back."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bus import verbs
from bus.messages.api import Approvals, Assessments, Nodes, Profiles
from bus.messages.artifacts import ArtifactSet
from bus.messages.gates import Approval
from bus.messages.profiles import AdapterFacts
from modelforge import format as text
from modelforge.cli import approve, boundary, main
from modelforge.cli.approve import approvals_text
from tests.support.declaring import declaring

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HEX, OTHER = "ab" * 6 + "12" * 26, "cd" * 6 + "34" * 26


def approval(**changes: Any) -> Approval:
    fields: dict[str, Any] = {
        "id": "apv-0000000001",
        "set_digest": f"sha256:{HEX}",
        "purpose": "lab_execution",
        "approved_by": "alice",
        "approved_at": AT,
        "reason": "read the card and the licence",
    }
    return Approval(**{**fields, **changes})


REVOKED = approval(
    id="apv-0000000002",
    set_digest=f"sha256:{OTHER}",
    purpose="quarantine_release",
    revoked_by="bob",
    revoked_at=AT + timedelta(hours=1),
    revoke_reason="the file is bad after all",
)


@pytest.mark.req("G4")
def test_each_approval_says_who_when_and_why() -> None:
    assert approvals_text([approval(), REVOKED]).splitlines() == [
        "APPROVAL        SET           PURPOSE             STATE",
        "apv-0000000001  abababababab  lab_execution       valid",
        "  approved 2026-01-02T03:04:05Z by alice: read the card and the licence",
        "apv-0000000002  cdcdcdcdcdcd  quarantine_release  revoked",
        "  approved 2026-01-02T03:04:05Z by alice: read the card and the licence",
        "  revoked 2026-01-02T04:04:05Z by bob: the file is bad after all",
    ]


def test_a_long_reason_is_whole_and_fits_the_screen() -> None:
    reason = "because of reasons " * 40 + "\x1b[2J模型" * 9
    shown = approvals_text([approval(reason=reason, approved_by="a" * 90)])
    assert all(text.width(line) <= 80 for line in shown.splitlines())
    assert shown.count("reasons") == 40
    assert "\x1b" not in shown


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    asked: list[Any] = []

    class Answering:
        async def call(self, verb: object, request: object) -> object:
            asked.append(request)
            return Approvals(approvals=(approval(), REVOKED))

    monkeypatch.setenv("MODELFORGE_STATE", str(tmp_path))
    monkeypatch.setattr(approve, "with_operator", lambda _, work: asyncio.run(work(Answering())))
    return asked


@pytest.mark.parametrize(
    ("named", "expected"), [("ab", [HEX]), (f"sha256:{OTHER}", [OTHER]), ("ef", []), (None, [HEX, OTHER])]
)
def test_the_list_can_be_of_one_set(
    answered: list[Any], capsys: pytest.CaptureFixture[str], named: str | None, expected: list[str]
) -> None:
    option = ["--set", named] if named else []
    assert boundary.run(main.call, ["approve", "list", "--json", *option]) == 0
    said = capsys.readouterr()
    data = json.loads(said.out)["data"]
    assert [one["set_digest"] for one in data] == [f"sha256:{digest}" for digest in expected]
    if not expected:
        assert "no approval of set ef" in said.err
        assert "modelforge approve add ef" in said.err
    assert all(set(Approval.__struct_fields__) == set(one) for one in data)


class Controller:
    """One set, one approval that it may have already, and the adapters of one node."""

    def __init__(self, *, before: bool, adapters: tuple[AdapterFacts, ...]) -> None:
        self._before = before
        self._node = declaring(*adapters)

    async def call(self, verb: verbs.Verb[Any, Any], request: Any) -> object:
        if verb is verbs.ARTIFACTS_SHOW:
            return ArtifactSet(digest=f"sha256:{HEX}", file_count=1, size_bytes=1, created_at=AT)
        if verb is verbs.APPROVALS_LIST:
            return Approvals(approvals=(approval(),) if self._before else ())
        if verb is verbs.APPROVALS_ADD:
            return approval(purpose=request.purpose)
        if verb is verbs.NODES_LIST:
            return Nodes(nodes=(self._node,))
        if verb is verbs.PROFILES_LIST:
            return Profiles(profiles=())
        return Assessments(assessments=())


RUNS = AdapterFacts(name="sentence_transformers", version="1", executable=True, formats=("safetensors",))
INSPECTED = AdapterFacts(name="transformers", version="1", executable=False, formats=("pickle",))


def add(monkeypatch: pytest.MonkeyPatch, controller: Controller, *options: str) -> None:
    monkeypatch.setattr(approve, "with_operator", lambda _, work: asyncio.run(work(controller)))
    assert boundary.run(main.call, ["approve", "add", HEX, "--reason", "r", *options]) == 0


@pytest.mark.parametrize("before", [True, False])
def test_an_approval_that_was_there_before_says_whose_it_is(
    before: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MODELFORGE_STATE", str(tmp_path))
    add(monkeypatch, Controller(before=before, adapters=(RUNS,)), "--json")
    said = capsys.readouterr()
    words = "approved before by alice at 2026-01-02T03:04:05Z: read the card and the licence"
    assert (words in said.err) == before
    assert json.loads(said.out)["data"]["reason"] == "read the card and the licence"


def test_an_approval_of_pickle_says_what_it_does_not_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MODELFORGE_STATE", str(tmp_path))
    words = "it lifts PICKLE_NOT_APPROVED only: no adapter that can be executed here (sentence_transformers)"
    add(monkeypatch, Controller(before=False, adapters=(RUNS, INSPECTED)), "--purpose", "pickle")
    assert words in capsys.readouterr().err
    add(monkeypatch, Controller(before=False, adapters=(RUNS, INSPECTED)))
    assert "PICKLE_NOT_APPROVED" not in capsys.readouterr().err
    loads = msgspec.structs.replace(INSPECTED, executable=True)
    add(monkeypatch, Controller(before=False, adapters=(RUNS, loads)), "--purpose", "pickle")
    assert "PICKLE_NOT_APPROVED" not in capsys.readouterr().err


def test_a_set_that_is_none_is_refused(answered: list[Any]) -> None:
    assert boundary.run(main.call, ["approve", "list", "--set", "minilm"]) == 2
    assert answered == []
