"""`modelforge up` when parts of it, or it itself, are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import COMMAND, UpProcess, clean_environment, eventually, modelforge_here, wait_gone

LIMIT_S = 30.0


@pytest.fixture
def up(tmp_path: Path) -> Iterator[UpProcess]:
    running = UpProcess(tmp_path / "state", "--port", "0")
    yield running
    if running.process.poll() is None:
        running.end()
    wait_gone(list(running.pids().values()), LIMIT_S)


def node_is_online(state: Path) -> bool:
    result = modelforge_here(state, "node", "list", "--json")
    return result.code == 0 and [one["liveness"] for one in result.data] == ["online"]


def test_a_killed_part_is_started_again_and_sigint_ends_all_cleanly(up: UpProcess) -> None:
    for name in ("agent", "controller", "nats-server"):
        os.kill(up.pids()[name], signal.SIGKILL)
        eventually(lambda name=name: f"{name} started again" in up.err, f"{name} is started again")  # type: ignore[misc]
    assert "agent ended (signal 9 (SIGKILL)); restart 1 of 5" in up.err
    eventually(lambda: node_is_online(up.state), "the node is online again")
    assert up.end(signal.SIGINT) == 0
    assert "stopped" in up.err
    assert "Traceback" not in up.err
    assert not (up.state / "run" / "endpoint.json").exists()


def test_a_wait_outlasts_the_controllers_death(up: UpProcess) -> None:
    """The scan stands still with its agent, so that the command is surely waiting when the controller falls silent."""
    config = up.state.parent / "impatient.toml"
    config.write_text("[client]\ntimeout_s = 0.5\n")
    model = Path(up.ready["artifact_root"]) / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    err = up.state.parent / "scan.err"
    os.kill(up.pids()["agent"], signal.SIGSTOP)
    with err.open("wb") as file:
        scan = subprocess.Popen(
            [*COMMAND, "artifact", "scan", "model", "--json"],
            stdout=subprocess.PIPE,
            stderr=file,
            stdin=subprocess.DEVNULL,
            env=clean_environment(up.state, {"MODELFORGE_CONFIG": str(config)}),
        )
    try:
        eventually(lambda: "queued" in err.read_text(), "the scan is queued")
        os.kill(up.pids()["controller"], signal.SIGSTOP)
        eventually(lambda: "the controller does not answer" in err.read_text(), "the silence is told")
        os.kill(up.pids()["controller"], signal.SIGKILL)
        eventually(lambda: "controller started again" in up.err, "the controller is started again")
        os.kill(up.pids()["agent"], signal.SIGCONT)
        out, _ = scan.communicate(timeout=LIMIT_S)
    finally:
        scan.kill()
        scan.communicate()
    assert scan.returncode == 0, err.read_text()
    assert json.loads(out)["data"]["set_digest"].startswith("sha256:")
    assert err.read_text().count("does not answer") == 1


def test_kill_9_of_up_leaves_no_orphan_and_the_next_up_starts(up: UpProcess, tmp_path: Path) -> None:
    up.process.kill()
    up.process.wait()
    assert up.process.stdout is not None
    up.process.stdout.close()
    wait_gone(list(up.pids().values()), LIMIT_S)
    assert (up.state / "run" / "endpoint.json").exists()
    assert modelforge_here(up.state, "probe", "list").code == 3
    again = UpProcess(tmp_path / "state", "--port", "0")
    try:
        assert node_is_online(again.state)
    finally:
        assert again.end() == 0


def test_a_folder_in_the_place_of_the_address_is_told_before_anything_starts(tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / "run" / "endpoint.json").mkdir(parents=True)
    result = modelforge_here(state, "up", "--port", "0", "--json")
    assert result.code == 3
    assert '"code":"STORE_UNAVAILABLE"' in result.out
    assert not (state / "server").exists()


def test_an_address_that_cannot_be_removed_keeps_no_part_alive(up: UpProcess) -> None:
    (up.state / "run" / "endpoint.json").unlink()
    (up.state / "run" / "endpoint.json").mkdir()
    assert up.end(signal.SIGINT) == 3
    assert "error: STORE_UNAVAILABLE: " in up.err
    wait_gone(list(up.pids().values()), 0.1)


def test_a_part_that_does_not_come_up_is_named_with_its_log(tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / "controller" / "ledger.db").mkdir(parents=True)
    result = modelforge_here(state, "up", "--port", "0", "--json")
    assert result.code == 1
    assert '"code":"SERVER_START_FAILED"' in result.out
    assert "controller.log" in result.err
    assert not (state / "run" / "endpoint.json").exists()
