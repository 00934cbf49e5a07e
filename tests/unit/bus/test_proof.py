"""What proves a pass: take one point away and it is none."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from adapters.child.protocol import PROCESS_FAMILY, Violation
from adapters.payloads import EMBEDDING_INPUT_SHA256 as ASKED_SHA256
from bus import proof
from bus.errors import ErrorCode
from bus.messages.evidence import Health, Isolation, Layer, Output, PhaseMark, ProbeEvidence, Reclaim
from bus.proof import what_is_unproven
from bus.states import ProbeState
from tests.support.proven import INPUT_SHA256, LIFE, proven_evidence, proven_marks

GOOD = proven_evidence()
S = ProbeState


def output(**changes: Any) -> ProbeEvidence:
    assert isinstance(GOOD.output, Output)
    return replace(GOOD, output=replace(GOOD.output, **changes))


def reclaim(**changes: Any) -> ProbeEvidence:
    assert isinstance(GOOD.reclaim, Reclaim)
    return replace(GOOD, reclaim=replace(GOOD.reclaim, **changes))


def isolation(**changes: Any) -> ProbeEvidence:
    assert isinstance(GOOD.isolation, Isolation)
    return replace(GOOD, isolation=replace(GOOD.isolation, **changes))


def code_of(evidence: ProbeEvidence | None, marks: tuple[PhaseMark, ...] | None = None) -> ErrorCode | None:
    error = what_is_unproven(evidence, proven_marks() if marks is None else marks)
    return None if error is None else error.code


@pytest.mark.req("P13")
def test_a_whole_proof_passes() -> None:
    assert code_of(GOOD) is None
    assert code_of(GOOD, proven_marks(S.PREPARING, *LIFE)) is None
    refused = isolation(refused_attempts=("subprocess.Popen (process)",))
    assert code_of(refused) is None, "an attempt to start a process is refused and recorded, but no use of the network"


@pytest.mark.req("P13")
@pytest.mark.parametrize("layer", ["process", "runtime", "model"])
@pytest.mark.parametrize("said", ["unknown", "unhealthy"])
def test_three_health_layers_are_needed(layer: str, said: str) -> None:
    healthy: dict[str, Any] = dict.fromkeys(("process", "runtime", "model"), "healthy")
    assert code_of(replace(GOOD, health=Health(**{**healthy, layer: said}))) is ErrorCode.HEALTHCHECK_FAILED


@pytest.mark.req("P13", "P2")
@pytest.mark.parametrize(
    "evidence",
    [
        replace(GOOD, output=None),
        output(finite=False),
        output(vector_length=0),
        output(norm=float("nan")),
        output(norm=float("inf")),
        output(norm=0.0),
        output(input_sha256="0" * 64),
        output(input_sha256="not the input"),
        output(repeat_identical=False),
    ],
    ids=["none", "finite", "empty", "nan", "inf", "zero", "other-input", "no-hash", "repeat"],
)
def test_an_answer_that_proves_nothing(evidence: ProbeEvidence) -> None:
    assert code_of(evidence) is ErrorCode.INVALID_OUTPUT


def test_a_card_may_add_in_another_order() -> None:
    on_card = replace(output(repeat_identical=False), device="cuda:0")
    assert isinstance(on_card.reclaim, Reclaim)
    assert code_of(replace(on_card, reclaim=replace(on_card.reclaim, verdict="reclaimed"))) is None


@pytest.mark.req("P11", "P13")
@pytest.mark.parametrize("layer", ["audit_guard", "scrubbed_environment"])
def test_offline_is_proven_by_guard_and_environment(layer: str) -> None:
    assert isinstance(GOOD.isolation, Isolation)
    down = tuple(replace(one, active=one.name != layer) for one in GOOD.isolation.layers)
    absent = tuple(one for one in GOOD.isolation.layers if one.name != layer)
    for layers in (down, absent, ()):
        assert code_of(isolation(layers=layers)) is ErrorCode.HEALTHCHECK_FAILED
    renamed = (*absent, Layer(name=f"{layer}_too", active=True))
    assert code_of(isolation(layers=renamed)) is ErrorCode.HEALTHCHECK_FAILED
    assert code_of(replace(GOOD, isolation=None)) is ErrorCode.HEALTHCHECK_FAILED


@pytest.mark.req("P11")
@pytest.mark.parametrize("attempt", ["socket.connect (inet)", "socket.getaddrinfo (name)", "from the future"])
def test_one_refused_use_of_the_network_is_enough(attempt: str) -> None:
    tried = isolation(refused_attempts=("os.system (process)", attempt))
    assert code_of(tried) is ErrorCode.OFFLINE_LOAD_VIOLATION


@pytest.mark.req("P8")
@pytest.mark.parametrize(
    ("evidence", "code"),
    [
        (replace(GOOD, reclaim=None), ErrorCode.HEALTHCHECK_FAILED),
        (reclaim(process_gone=False), ErrorCode.HEALTHCHECK_FAILED),
        (reclaim(verdict="not_reclaimed"), ErrorCode.GPU_MEMORY_NOT_RECLAIMED),
        (reclaim(verdict="inconclusive"), ErrorCode.GPU_MEMORY_NOT_RECLAIMED),
        (replace(GOOD, device="cuda:0"), ErrorCode.GPU_MEMORY_NOT_RECLAIMED),
    ],
    ids=["none", "process", "held", "inconclusive", "card-unmeasured"],
)
def test_memory_that_did_not_come_back(evidence: ProbeEvidence, code: ErrorCode) -> None:
    assert code_of(evidence) is code


@pytest.mark.req("P3", "P13", "G5")
@pytest.mark.parametrize(
    "path",
    [
        (S.UNLOADING,),
        (S.LOADING, S.UNLOADING),
        (S.LOADING, S.HEALTHCHECKING, S.UNLOADING),
        (S.HEALTHCHECKING, S.READY, S.UNLOADING),
        (S.LOADING, S.HEALTHCHECKING, S.READY),
        (S.READY, S.HEALTHCHECKING, S.LOADING, S.UNLOADING),
    ],
    ids="-".join,
)
def test_a_pass_went_through_every_phase(path: tuple[ProbeState, ...]) -> None:
    assert code_of(GOOD, proven_marks(*path)) is ErrorCode.HEALTHCHECK_FAILED


@pytest.mark.req("G5")
def test_nothing_proves_nothing() -> None:
    assert code_of(None) is ErrorCode.HEALTHCHECK_FAILED
    assert code_of(GOOD, ()) is ErrorCode.HEALTHCHECK_FAILED
    two_attempts = (*proven_marks(S.LOADING, S.HEALTHCHECKING), *proven_marks(S.READY, S.UNLOADING, attempt=2))
    assert code_of(GOOD, two_attempts) is ErrorCode.HEALTHCHECK_FAILED


@pytest.mark.req("P2")
def test_what_is_proven_is_what_is_asked() -> None:
    assert proof.EMBEDDING_INPUT_SHA256 == ASKED_SHA256 == INPUT_SHA256


def test_the_suffix_is_the_one_that_nodes_write() -> None:
    told = Violation(call="os.fork", family=PROCESS_FAMILY)
    assert f"{told.call} ({told.family})".endswith(proof.PROCESS_SUFFIX)
    assert not told.breaks_offline
