"""Approvals on the screen: who, when and why, for the word and for taking it back."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bus.messages.api import Approvals
from bus.messages.gates import Approval
from modelforge import format as text
from modelforge.cli import approve, boundary, main
from modelforge.cli.approve import approvals_text

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


def test_a_set_that_is_none_is_refused(answered: list[Any]) -> None:
    assert boundary.run(main.call, ["approve", "list", "--set", "minilm"]) == 2
    assert answered == []
