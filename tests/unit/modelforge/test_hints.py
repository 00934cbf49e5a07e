"""The commands that are suggested: with the real names, in an order that works, and never the reason of a failure."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import click
import msgspec
import pytest

from bus import verbs
from bus.errors import ErrorCode, Failure, ModelForgeError
from bus.ids import now
from bus.messages.api import Approvals, Assessments, Profiles
from bus.messages.artifacts import ArtifactSet, ScanView, SetLocation
from bus.messages.gates import Approval, Assessment, Declared, Finding, ProbeView, Purpose
from bus.messages.profiles import Budgets, ProfileView, RuntimeProfile
from bus.operator import Operator
from bus.states import JobState, ProbeState
from modelforge.cli import approve, boundary, main
from modelforge.cli.hints import (
    after_approval,
    after_assessment,
    after_probe,
    after_revocation,
    after_scan,
    lab_approved,
    mend,
    refused,
)
from tests.support.assessments import PROOF

DIGEST = f"sha256:{'ab' * 32}"
AT = datetime(2026, 1, 1, tzinfo=UTC)


class Answers:
    """An operator whose answers are known beforehand; what is not known fails."""

    def __init__(self, **answers: Any) -> None:
        self._answers = answers

    async def call(self, verb: verbs.Verb[Any, Any], _: object) -> Any:
        if verb.name not in self._answers:
            raise ModelForgeError(ErrorCode.REQUEST_TIMEOUT, "no answer")
        return self._answers[verb.name]


def operator(**answers: Any) -> Operator:
    return cast("Operator", Answers(**{name.replace("_", "."): answer for name, answer in answers.items()}))


def profiles(*names: str) -> Profiles:
    views = [ProfileView(id="a" * 64, profile=RuntimeProfile(name=n), created_at=AT, created_by="me") for n in names]
    return Profiles(profiles=tuple(views))


def assessment(id_: str, **changes: Any) -> Assessment:
    fields: dict[str, Any] = {
        "id": id_,
        "set_digest": DIGEST,
        "profile_id": "a" * 64,
        "profile_name": "p",
        "node": "local",
        "environment_id": DIGEST,
        "adapter": "sentence_transformers",
        "adapter_version": "1",
        "fingerprint": DIGEST,
        "verdict": "compatible",
        "findings": (),
        "estimate": None,
        "facts": {},
        "created_at": AT,
        "created_by": "me",
    }
    return Assessment(**{**fields, **changes})


def approval(purpose: Purpose = "lab_execution") -> Approval:
    return Approval(id="apv-1", set_digest=DIGEST, purpose=purpose, approved_by="me", approved_at=AT, reason="r")


def probe(**changes: Any) -> ProbeView:
    fields: dict[str, Any] = {
        "id": "prb-0000000001",
        "state": ProbeState.QUEUED,
        "node": "local",
        "location": "model",
        "set_digest": DIGEST,
        "profile_id": DIGEST,
        "profile_name": "p",
        "assessment_id": "asm-0000000001",
        "approval_id": "apv-0000000001",
        "attempt": 1,
        "max_attempts": 3,
        "queued_at": AT,
        "queued_by": "me",
        "state_at": AT,
        "start_method": "template",
        "budgets": Budgets(),
    }
    return ProbeView(**{**fields, **changes})


def scan() -> ScanView:
    return ScanView(id="scn-1", node="local", path="m", state=JobState.SUCCEEDED, queued_at=AT, set_digest=DIGEST)


ASSESS = f"modelforge assess {'ab' * 6} --profile {{}} --node local"
AGAIN = ASSESS.format("p@1")
REVOKED = {"revoked_by": "me", "revoked_at": AT, "revoke_reason": "r"}


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"profiles_list": profiles()}, ("modelforge profile create NAME", ASSESS.format("NAME"))),
        ({"profiles_list": profiles("cpu")}, (ASSESS.format("cpu@1"),)),
        ({"profiles_list": profiles("a", "b")}, (ASSESS.format("a@1"), "modelforge profile list")),
        ({}, (ASSESS.format("PROFILE"),)),
    ],
)
async def test_a_scan_is_followed_by_a_profile_when_there_is_none(
    answers: dict[str, Any], expected: tuple[str, ...]
) -> None:
    assert await after_scan(operator(**answers), scan()) == expected


async def test_an_approval_is_followed_by_the_newest_assessment_that_allows_a_probe() -> None:
    found = (
        assessment("asm-other", set_digest=f"sha256:{'cd' * 32}"),
        assessment("asm-blocked", verdict="blocked"),
        assessment("asm-stale", stale_because=("the node's environment",)),
        assessment("asm-good"),
        assessment("asm-older"),
    )
    asked = operator(assessments_list=Assessments(assessments=found))
    assert await after_approval(asked, approval()) == ("modelforge probe queue asm-good --wait",)
    assert await after_approval(asked, approval("production")) == ()
    none = operator(assessments_list=Assessments(assessments=found[:3]))
    assert await after_approval(none, approval()) == (AGAIN,)
    blocked = operator(assessments_list=Assessments(assessments=found[:2]))
    assert await after_approval(blocked, approval()) == ("modelforge assess show asm-blocked",)
    nothing = operator(assessments_list=Assessments(assessments=found[:1]))
    assert await after_approval(nothing, approval()) == (f"modelforge assess {'ab' * 6} --profile PROFILE --node NODE",)
    assert await after_approval(operator(), approval()) == ("modelforge assess list",)


async def test_the_first_assessment_of_a_set_is_suggested_with_the_real_names() -> None:
    place = SetLocation(node="far", path="m", state="present", scanned_at=AT)
    exact = ArtifactSet(digest=DIGEST, file_count=1, size_bytes=1, created_at=AT, locations=(place,))
    asked = operator(assessments_list=Assessments(assessments=()), profiles_list=profiles("cpu"), artifacts_show=exact)
    assert await after_approval(asked, approval()) == (f"modelforge assess {'ab' * 6} --profile cpu@1 --node far",)


INSPECTED = Declared(adapter="vllm", version="1", executable=False, inspect_only=True)
UNPROBED: list[dict[str, Any]] = [
    {"declared": INSPECTED},
    {"findings": (Finding(code="PROBE_NOT_AVAILABLE", severity="warning", message="m", source="s", remedy="r"),)},
]


@pytest.mark.parametrize("changes", UNPROBED)
async def test_no_probe_is_suggested_where_none_can_run(changes: dict[str, Any]) -> None:
    one = assessment("asm-1", verdict="requires_probe", **changes)
    asked = operator(assessments_list=Assessments(assessments=(one,)))
    assert await after_approval(asked, approval()) == ()
    assert after_assessment(one, can_ask=True, lab=True) == ()
    revoked = msgspec.structs.replace(approval(), **REVOKED)
    gone = operator(assessments_list=Assessments(assessments=(one,)), approvals_list=Approvals(approvals=(revoked,)))
    sentences, commands = await after_revocation(gone, revoked)
    assert "asm-1" not in " ".join(sentences)
    assert commands == ()


async def test_what_is_proven_is_shown_and_not_proven_again() -> None:
    one = assessment("asm-1", proof=PROOF)
    asked = operator(assessments_list=Assessments(assessments=(one,)))
    shown = ("modelforge candidate show cnd-0000000001",)
    assert await after_approval(asked, approval()) == shown
    assert after_assessment(one, can_ask=True, lab=False) == shown


async def test_an_approval_for_another_purpose_lets_no_probe_run() -> None:
    """It changed nothing that the assessment rests on; what a probe needs is still missing, until it is there."""
    other = approval("pickle")
    one = assessment("asm-1", approvals=("apv-1",))
    approve, probe = f"modelforge approve add {'ab' * 6} --reason WHY", "modelforge probe queue asm-1 --wait"
    asked = operator(assessments_list=Assessments(assessments=(one,)), approvals_list=Approvals(approvals=(other,)))
    assert not await lab_approved(asked, one)
    assert await after_approval(asked, other, can_ask=True) == (approve, probe)
    lab = msgspec.structs.replace(approval(), id="apv-2")
    both = msgspec.structs.replace(one, approvals=("apv-1", "apv-2"))
    asked = operator(
        assessments_list=Assessments(assessments=(both,)), approvals_list=Approvals(approvals=(lab, other))
    )
    assert await lab_approved(asked, both)
    assert await after_approval(asked, other, can_ask=True) == (probe,)
    assert not await lab_approved(operator(), both)


def test_a_corrupt_place_is_scanned_before_anything_is_assessed_again() -> None:
    because = ("set integrity changed from verified to corrupt: a.bin: its size is 2 bytes instead of 1",)
    one = assessment("asm-1", stale_because=because, location="models/a b")
    assert mend(one) == "modelforge artifact scan 'models/a b' --node local"
    mended = msgspec.structs.replace(one, stale_because=("set integrity changed from corrupt: a.bin to verified",))
    assert mend(mended) == f"{AGAIN} --path 'models/a b'"
    moved = msgspec.structs.replace(one, stale_because=("set location changed from models/a b to none",))
    assert mend(moved) == AGAIN


async def test_the_place_that_was_scanned_is_the_one_to_assess() -> None:
    def place(path: str) -> SetLocation:
        return SetLocation(node="local", path=path, state="present", scanned_at=AT)

    one = ArtifactSet(digest=DIGEST, file_count=1, size_bytes=1, created_at=AT, locations=(place("a"), place("m")))
    asked = operator(profiles_list=profiles("cpu"))
    assert await after_scan(asked, scan(), one) == (ASSESS.format("cpu@1") + " --path m",)
    single = msgspec.structs.replace(one, locations=(place("m"),))
    assert await after_scan(asked, scan(), single) == (ASSESS.format("cpu@1"),)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("ARTIFACT_CHANGED", ("modelforge artifact scan 'a b' --node local", ASSESS.format("p"))),
        ("CANCELLED", ("modelforge probe queue asm-0000000001 --wait",)),
        ("RUNTIME_CRASH", ("modelforge probe log prb-0000000001",)),
        ("NODE_FAULT", ("modelforge doctor", "modelforge probe log prb-0000000001")),
        (
            "RUNTIME_INCOMPATIBLE",
            (
                "modelforge environment show local",
                ASSESS.format("p"),
                "modelforge probe log prb-0000000001",
            ),
        ),
    ],
)
def test_a_failed_probe_is_mended_where_it_lies(code: str, expected: tuple[str, ...]) -> None:
    failed = probe(state=ProbeState.FAILED, location="a b", log_ref="log", failure=Failure(code=code, message="m"))
    assert after_probe(failed) == expected


@pytest.mark.parametrize(
    ("code", "changes", "command"),
    [
        (ErrorCode.NOT_APPROVED, {}, f"modelforge approve add {DIGEST} --reason WHY"),
        (ErrorCode.ASSESSMENT_BLOCKED, {"verdict": "blocked"}, "modelforge assess show asm-1"),
        (ErrorCode.ASSESSMENT_STALE, {"stale_because": ("driver changed from 1 to 2",)}, AGAIN),
    ],
)
async def test_a_refused_probe_says_what_to_type_with_the_real_names(
    code: ErrorCode, changes: dict[str, Any], command: str
) -> None:
    error = ModelForgeError(code, "no", assessment="asm-1")
    asked = operator(assessments_show=assessment("asm-1", **changes))
    told = await refused(asked, error, "asm-1")
    assert (told.code, told.message, told.context) == (code, "no", {"assessment": "asm-1"})
    assert told.hint.endswith(f": `{command}`.")
    assert await refused(operator(), error, "asm-1") is error
    other = ModelForgeError(ErrorCode.NODE_OFFLINE, "no")
    assert await refused(asked, other, "asm-1") is other


def test_a_probe_is_followed_by_what_came_of_it() -> None:
    assert after_probe(probe()) == ("modelforge probe watch prb-0000000001",)
    done = probe(state=ProbeState.COMPLETED, candidate_id="cnd-1")
    assert after_probe(done) == ("modelforge candidate show cnd-1",)


async def test_only_a_probe_can_tell_is_no_reason_not_to_queue_one() -> None:
    asked = operator(assessments_list=Assessments(assessments=(assessment("asm-1", verdict="requires_probe"),)))
    assert await after_approval(asked, approval()) == ("modelforge probe queue asm-1 --wait",)


async def test_a_file_that_is_let_through_is_assessed_again() -> None:
    asked = operator(assessments_list=Assessments(assessments=(assessment("asm-1", verdict="blocked"),)))
    for purpose in ("pickle", "quarantine_release"):
        assert await after_approval(asked, approval(purpose)) == (AGAIN,)


@pytest.mark.parametrize(
    ("changes", "can_ask", "expected"),
    [
        ({"verdict": "blocked"}, True, ("modelforge assess show asm-1",)),
        (
            {},
            True,
            (f"modelforge approve add {'ab' * 6} --reason WHY", "modelforge probe queue asm-1 --wait"),
        ),
        ({}, False, (f"modelforge approve add {DIGEST} --reason WHY", "modelforge probe queue asm-1 --wait")),
        (
            {
                "verdict": "requires_probe",
                "declared": Declared(adapter="vllm", version="1", executable=False, inspect_only=True),
            },
            True,
            (),
        ),
    ],
)
def test_an_assessment_is_followed_by_what_is_possible(
    changes: dict[str, Any], can_ask: bool, expected: tuple[str, ...]
) -> None:
    assert after_assessment(assessment("asm-1", **changes), can_ask=can_ask, lab=False) == expected


def test_an_approved_assessment_is_followed_by_its_probe() -> None:
    assert after_assessment(assessment("asm-1"), can_ask=True, lab=True) == ("modelforge probe queue asm-1 --wait",)


async def test_a_revocation_says_what_it_blocks_and_what_goes_on() -> None:
    revoked = msgspec.structs.replace(approval(), **REVOKED)
    found = (assessment("asm-1"), assessment("asm-blocked", verdict="blocked"))
    asked = operator(assessments_list=Assessments(assessments=found), approvals_list=Approvals(approvals=(revoked,)))
    sentences, commands = await after_revocation(asked, revoked)
    assert sentences == (
        f"no probe of set {'ab' * 6} is queued any more: asm-1 cannot be queued",
        "a probe that is under way goes on",
    )
    assert commands == (f"modelforge approve add {DIGEST} --reason WHY",)


async def test_a_revocation_beside_another_approval_blocks_nothing() -> None:
    revoked = msgspec.structs.replace(approval(), **REVOKED)
    other = msgspec.structs.replace(approval(), id="apv-2")
    asked = operator(
        assessments_list=Assessments(assessments=(assessment("asm-1"),)),
        approvals_list=Approvals(approvals=(other, revoked)),
    )
    sentences, commands = await after_revocation(asked, revoked)
    assert sentences == ("apv-2 still approves the same set for the same purpose: nothing is blocked",)
    assert commands == ()


async def test_a_revoked_release_names_what_went_stale() -> None:
    revoked = msgspec.structs.replace(approval("quarantine_release"), **REVOKED)
    stale = assessment("asm-1", stale_because=("quarantine changed",))
    asked = operator(assessments_list=Assessments(assessments=(stale,)), approvals_list=Approvals(approvals=(revoked,)))
    sentences, commands = await after_revocation(asked, revoked)
    assert sentences == (
        f"the quarantined files block every assessment of set {'ab' * 6}",
        "stale now: asm-1",
    )
    assert commands == (AGAIN,)
    assert await after_revocation(operator(), revoked) == ((), ())


def test_ctrl_c_at_the_question_ends_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The question is asked outside of any loop, where Ctrl-C is an exception at once."""
    exact = ArtifactSet(digest=DIGEST, file_count=1, size_bytes=1, created_at=now())
    dialled: list[str] = []

    def dial(_: object, work: Any) -> Any:
        dialled.append("dialled")
        return asyncio.run(work(operator(artifacts_show=exact)))

    def question(*_: object, **__: object) -> str:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        raise click.Abort

    monkeypatch.setenv("MODELFORGE_STATE", str(tmp_path))
    monkeypatch.setattr(approve, "with_operator", dial)
    monkeypatch.setattr("rich_click.prompt", question)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert boundary.run(main.call, ["approve", "add", "abab", "--reason", "r"]) == 130
    assert dialled == ["dialled"]
    err = capsys.readouterr().err
    assert "error: INTERRUPTED: interrupted; nothing was approved" in err
    assert "Nothing was sent" in err
    assert "goes on" not in err
