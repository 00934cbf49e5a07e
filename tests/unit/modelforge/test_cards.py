"""What an operator reads: the evidence card, the lines of a watch, an assessment's findings."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from bus.errors import Failure
from bus.messages.evidence import (
    Health,
    Isolation,
    Layer,
    MemorySource,
    MemorySummary,
    Output,
    PhaseMark,
    ProbeEvidence,
    Reclaim,
    Timings,
)
from bus.messages.gates import ProbeView
from bus.messages.inventory import NodeView
from bus.messages.profiles import Budgets
from bus.states import ProbeState
from modelforge.cli.evidence_card import evidence_pairs, isolation_lines, probe_card, reclaim_line
from modelforge.cli.node import flags_card
from modelforge.cli.watching import Marks

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
DIGEST = "sha256:" + "ab" * 32

EVIDENCE = ProbeEvidence(
    adapter="sentence_transformers",
    adapter_version="6.2.0",
    device="cpu",
    batch_size=1,
    max_sequence_length=256,
    timings=Timings(load_ms=812.5, inference_ms=9.25, repeat_inference_ms=8.0, total_ms=2_400.0),
    memory=MemorySummary(
        source=MemorySource.PROCESS_RSS,
        before_bytes=100 * 2**20,
        after_load_bytes=300 * 2**20,
        peak_bytes=310 * 2**20,
        after_exit_bytes=0,
        gpu_reason="no driver",
    ),
    samples=(),
    health=Health(process="healthy", runtime="healthy", model="healthy"),
    isolation=Isolation(
        layers=(
            Layer(name="seccomp_sockets", active=True),
            Layer(name="network_namespace", active=False, detail="EPERM"),
        ),
        egress_barrier="seccomp_sockets",
        containment="none",
        start_method="template",
        refused_attempts=("connect",),
    ),
    reclaim=Reclaim(verdict="not_applicable", basis="process_exit", process_gone=True, exit_status="exit 0"),
    output=Output(
        input_sha256="cd" * 32,
        vector_length=384,
        vector_sha256="ef" * 32,
        norm=1.0,
        first_values=(0.5, -0.25),
        dtype="float32",
        finite=True,
        repeat_identical=True,
    ),
)


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
        "attempt": 0,
        "max_attempts": 3,
        "queued_at": AT,
        "queued_by": "alice",
        "state_at": AT,
        "start_method": "template",
        "budgets": Budgets(),
    }
    return ProbeView(**{**fields, **changes})


def marks(*states: str, attempt: int = 1) -> tuple[PhaseMark, ...]:
    return tuple(PhaseMark(state=ProbeState(state), at=AT, attempt=attempt) for state in states)


@pytest.mark.req("P7")
def test_the_card_names_every_figure_with_its_source() -> None:
    pairs = dict(evidence_pairs(EVIDENCE))
    assert pairs["input SHA-256"] == "cd" * 32
    assert str(pairs["vector"]).startswith("length 384, norm 1.000000, float32, finite, repeat identical")
    assert pairs["load"] == "812.5 ms"
    assert pairs["inference"] == "9.2 ms (again 8.0 ms)"
    assert pairs["memory"] == (
        "before 100.0 MiB, after load 300.0 MiB, peak 310.0 MiB, after exit 0 B (source process_rss)\n"
        "GPU not measured: no driver"
    )
    assert pairs["reclaim"] == "not_applicable (process_exit); process gone, exit 0"


def test_a_missing_part_is_said_not_left_out() -> None:
    bare = msgspec.structs.replace(EVIDENCE, output=None, isolation=None, reclaim=None)
    pairs = dict(evidence_pairs(bare))
    assert pairs["output"] == "none"
    assert "none" in str(pairs["isolation"])
    assert pairs["reclaim"] == "not checked"


def test_inactive_layers_and_refused_calls_are_shown() -> None:
    lines = isolation_lines(EVIDENCE.isolation).splitlines()
    assert "seccomp_sockets: active" in lines
    assert "network_namespace: INACTIVE (EPERM)" in lines
    assert "refused: connect" in lines


def test_a_process_that_is_still_there_is_not_overlooked() -> None:
    left = Reclaim(verdict="not_reclaimed", basis="nvml", process_gone=False, exit_status="unknown")
    assert "STILL THERE" in reclaim_line(left)


def test_the_probe_card_shows_failure_and_timeline() -> None:
    failed = probe(
        state=ProbeState.FAILED,
        attempt=1,
        timeline=marks("preparing", "unloading"),
        cancel_requested=True,
        failure=Failure(code="GPU_OOM", message="no room"),
        evidence=EVIDENCE,
    )
    card = probe_card(failed)
    assert card.splitlines()[0] == "prb-0000000001 FAILED: GPU_OOM: no room"
    assert "unloading" in card
    assert "evidence (measured)" in card


def test_the_probe_card_begins_with_what_came_of_it_and_fits() -> None:
    done = probe(state=ProbeState.COMPLETED, candidate_id="cnd-0000000001", evidence=EVIDENCE)
    card = probe_card(done, 80)
    assert card.splitlines()[0] == "prb-0000000001 COMPLETED: it made candidate cnd-0000000001"
    assert all(len(line) <= 80 for line in card.splitlines())
    assert f"  {DIGEST}" in card.splitlines()
    assert probe_card(probe(cancel_requested=True)).startswith("prb-0000000001 QUEUED on local, cancel requested")


@pytest.mark.parametrize(
    ("enabled", "lab", "words"),
    [
        (False, True, "local is DISABLED for work: the fan is broken"),
        (True, True, "local is enabled for work and probes: the fan is broken"),
        (True, False, "local is enabled for work, NOT for probes: the fan is broken"),
    ],
)
def test_a_changed_node_is_told_in_one_sentence_and_a_short_card(enabled: bool, lab: bool, words: str) -> None:
    changed = NodeView(name="local", enabled=enabled, lab_eligible=lab, liveness="online")
    lines = flags_card(changed, "the fan is broken").splitlines()
    assert lines[0] == words
    assert len(lines) == 6


def test_each_state_is_told_once_and_none_is_lost() -> None:
    seen = Marks()
    queued = probe(timeline=marks("queued", attempt=0))
    assert len(seen.news(queued)) == 1
    assert seen.news(queued) == []
    late = probe(
        state=ProbeState.READY,
        attempt=1,
        timeline=queued.timeline + marks("preparing", "loading", "healthchecking", "ready"),
    )
    assert [line.split()[2] for line in seen.news(late)] == ["preparing", "loading", "healthchecking", "ready"]
    assert seen.news(copy.deepcopy(late)) == []


def test_the_last_line_says_what_came_of_the_probe() -> None:
    """The ledger puts the end into the timeline too, so the result belongs to the end's own line."""
    passed = probe(
        state=ProbeState.COMPLETED,
        attempt=1,
        timeline=marks("unloading", "completed"),
        candidate_id="cnd-0000000001",
    )
    failed = probe(
        id="prb-0000000002",
        state=ProbeState.FAILED,
        attempt=1,
        timeline=marks("loading", "failed"),
        failure=Failure(code="GPU_OOM", message="no room"),
    )
    for ended, words in ((passed, "candidate cnd-0000000001"), (failed, "GPU_OOM: no room")):
        before, last = Marks().news(ended)
        assert words not in before
        assert last.split()[2] == ended.state
        assert last.endswith(f"attempt 1  {words}")


def test_a_phase_that_was_never_entered_shows_no_time() -> None:
    cut = msgspec.structs.replace(EVIDENCE, timings=Timings(verify_ms=3.0, total_ms=5.0))
    pairs = dict(evidence_pairs(cut))
    assert pairs["load"] == "-"
    assert pairs["inference"] == "- (again -)"
    assert str(pairs["other times"]).startswith("verify 3.0 ms, start -, unload -, total ")


def test_a_second_attempt_is_told_again() -> None:
    seen = Marks()
    first = probe(state=ProbeState.LOADING, attempt=1, timeline=marks("preparing", "loading"))
    seen.news(first)
    second = msgspec.structs.replace(
        first, state=ProbeState.PREPARING, attempt=2, timeline=first.timeline + marks("preparing", attempt=2)
    )
    (line,) = seen.news(second)
    assert "attempt 2" in line
