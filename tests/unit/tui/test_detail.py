"""The detail pane as text: every failure tells what to do, every missing value tells why."""

from __future__ import annotations

import msgspec
import pytest

from bus.errors import CODES, ErrorCode, Failure
from bus.messages.gates import ProbeView
from bus.states import ProbeState
from tests.support.pictures import cpu_evidence, gpu_evidence, probe, probes
from tui.detail import detail_lines, title_line
from tui.evidence import evidence_lines
from tui.lines import plain, width_of

S = ProbeState


def text(view: ProbeView, width: int = 100, **options: object) -> str:
    return "\n".join(plain(content) for content in detail_lines(view, width, **options))  # type: ignore[arg-type]


@pytest.mark.req("P9")
@pytest.mark.parametrize("code", ErrorCode)
def test_every_code_is_shown_with_its_meaning_and_remedy(code: ErrorCode) -> None:
    view = probe("a", S.FAILED, 10, 5, failure=Failure(code=code, message="it happened"))
    shown = " ".join(text(view, 400).split())
    assert code in shown
    assert CODES[code].meaning in shown
    assert CODES[code].remedy.replace(" ID`", f" {view.id}`") in shown


def test_the_remedy_names_this_probe() -> None:
    view = probe("7k3m9q2xta", S.FAILED, 10, 5, failure=Failure(code="RUNTIME_CRASH", message="signal 9"))
    assert "`modelforge probe log prb-7k3m9q2xta`" in text(view)


@pytest.mark.parametrize("width", [78, 118])
def test_no_line_is_wider_than_the_pane(width: int) -> None:
    for view in probes().values():
        long = [content for content in detail_lines(view, width) if width_of(content) > width]
        assert not [plain(content) for content in long if len(plain(content).split()[-1]) < width - 12]


def test_evidence_of_a_machine_without_a_card() -> None:
    shown = "\n".join(plain(content) for content in evidence_lines(cpu_evidence(), 100))
    for part in (
        "✓ process healthy", "capability not_routed_in_m4", "not_applicable · process gone, exit 0", "✓ seccomp sockets",
        "✗ network namespace (unshare refused)", "started by template", "384 values float32, norm 1.000000",
        "9f02" * 16, "5c1d" * 16, "inference 22 ms", "437 MiB", "from process_rss", "n/a (no NVIDIA driver on this node)",
    ):  # fmt: skip
        assert part in shown


def test_evidence_of_a_card_that_kept_memory() -> None:
    shown = "\n".join(plain(content) for content in evidence_lines(gpu_evidence(), 140))
    for part in (
        "✗ not_reclaimed", "baseline 420 MiB, after exit 1.21 GiB, tolerance 64.0 MiB", "98 % busy", "71 °C",
        "power n/a (not supported)", "ours n/a (process gone)", "foreign process 4711 holds 310 MiB",
        "after exit n/a (not sampled)",
    ):  # fmt: skip
        assert part in shown


def test_missing_parts_of_evidence_are_explained() -> None:
    bare = msgspec.structs.replace(cpu_evidence(), isolation=None, reclaim=None, output=None)
    shown = "\n".join(plain(content) for content in evidence_lines(bare, 100))
    assert shown.count("n/a (") == 4


def test_a_barrier_that_was_not_there_is_said() -> None:
    isolation = msgspec.structs.replace(cpu_evidence().isolation, layers=(), egress_barrier="none")  # type: ignore[type-var]
    shown = "\n".join(
        plain(c) for c in evidence_lines(msgspec.structs.replace(cpu_evidence(), isolation=isolation), 90)
    )
    assert "isolation none" in shown
    assert "barrier none" in shown


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        (probe("a", S.QUEUED, 5, 5), "no attempt has begun"),
        (probe("a", S.LOADING, 5, 5), "evidence comes with the end of the attempt"),
        (probe("a", S.FAILED, 5, 5), "no attempt left any"),
    ],
)
def test_no_evidence_tells_why(view: ProbeView, reason: str) -> None:
    assert f"n/a ({reason})" in text(view)
    assert "n/a (asking the controller)" in text(view, missing="asking the controller")


def test_the_history_keeps_every_attempt() -> None:
    shown = text(probes()["prb-6y8z0a2c4e"])
    assert shown.partition("history")[2].count("queued") == 1  # the ledger marks the queue too
    for attempt in (1, 2, 3):
        assert f"attempt {attempt}" in shown
    assert shown.rstrip().endswith("✗ failed")


def test_an_answered_failure_and_a_requested_cancel() -> None:
    views = probes()
    assert "a later probe of this set and profile passed" in text(views["prb-4m6n8p0q2r"], outdated=True)
    assert "requested; the node ends the child" in text(views["prb-9d1f3g7jks"])
    assert "candidate cnd-6w2x9r4t1m, lab ready, never production" in text(views["prb-0a2b4c6d8e"])


def test_a_cancelled_probe_is_told_as_a_wish_and_once() -> None:
    shown = text(probes()["prb-8s1t3v5w7x"])
    assert shown.splitlines()[0] == " on request ada cancelled the probe"
    assert "next       Queue it again when wanted." in shown
    assert "✗" not in shown
    assert "CANCELLED" not in shown
    failure = Failure(code="PROCESS_SURVIVED", message="it would not end")
    assert "✗ failed" in text(probe("a", S.CANCELLED, 10, 5, failure=failure))


def test_the_title() -> None:
    assert plain(title_line(probes()["prb-2v8c5n1wze"])) == "prb-2v8c5n1wze  ◕ healthchecking  attempt 2 of 3  on gpu-1"
