"""The command line against a real stack: every gate by command, and every wrong input with its typed end."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats
import pytest

from tests.support.cli import (
    COMMAND,
    Result,
    UpProcess,
    clean_environment,
    eventually,
    modelforge,
    modelforge_here,
    read_line,
    wait_gone,
)
from tests.support.stack import minilm_root

pytestmark = pytest.mark.timeout(110)


@dataclass
class Live:
    """A running `up` and what the tests need of it."""

    state: Path
    models: Path
    up: UpProcess

    def run(self, *arguments: str) -> Result:
        return modelforge_here(self.state, *arguments)

    def data(self, *arguments: str) -> Any:
        result = self.run(*arguments, "--json")
        assert result.code == 0, result.err
        return result.data

    def scan(self, path: str) -> str:
        return str(self.data("artifact", "scan", path)["set_digest"])


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("cli")
    models = folder / "models"
    # A copy, not links: another name of the same bytes, made elsewhere, would count as a change of the file.
    shutil.copytree(minilm_root() / "model", models / "minilm")
    (models / "empty").mkdir()
    (folder / "outside").mkdir()
    (models / "leading-out").symlink_to(folder / "outside")
    up = UpProcess(folder / "state", "--port", "0", "--artifact-root", str(models))
    try:
        yield Live(folder / "state", models, up)
    finally:
        code = up.end()
        shutil.rmtree(models)
    assert code == 0, up.err
    assert "stopped" in up.err
    wait_gone(list(up.pids().values()), 10)
    assert not (folder / "state" / "run" / "endpoint.json").exists()


@pytest.fixture(scope="module")
def assessment(live: Live) -> dict[str, Any]:
    digest = live.scan("minilm")
    live.data("profile", "create", "cpu-small")
    return dict(live.data("assess", digest[7:19], "--profile", "cpu-small", "--node", "local"))


def test_a_scan_that_nobody_waits_for_can_be_looked_at(live: Live) -> None:
    result = live.run("artifact", "scan", "empty", "--no-wait")
    assert result.code == 0, result.err
    hint = next(line for line in result.err.splitlines() if line.startswith("next: "))
    command = hint.removeprefix("next: modelforge ").split()
    assert command[:2] == ["artifact", "scan-show"]
    eventually(lambda: "ARTIFACT_EMPTY" in live.run(*command).out, "the scan's end is shown")
    assert live.run(*command).code == 1


def failed(result: Result, code: str, exit_: int) -> dict[str, Any]:
    """The three lines on stderr and the envelope on stdout say the same."""
    assert result.code == exit_, (result.out, result.err)
    document = json.loads(result.out)
    assert document["schema"] == "modelforge.error/v1"
    data = document["data"]
    assert data["code"] == code
    assert data["exit"] == exit_
    assert data["hint"]
    assert f"error: {code}: " in result.err
    assert f"  next: {data['hint']}" in result.err
    return dict(data)


@pytest.mark.req("G1")
@pytest.mark.parametrize(
    ("path", "code", "exit_"),
    [
        ("../outside", "PATH_OUTSIDE_ROOT", 2),
        ("/etc", "PATH_OUTSIDE_ROOT", 2),
        ("leading-out", "PATH_OUTSIDE_ROOT", 2),
        ("nowhere", "PATH_NOT_FOUND", 5),
        ("empty", "ARTIFACT_EMPTY", 2),
        ("minilm/config.json", "PATH_NOT_A_FOLDER", 2),
    ],
)
def test_a_path_that_cannot_be_scanned(live: Live, path: str, code: str, exit_: int) -> None:
    failed(live.run("artifact", "scan", path, "--json"), code, exit_)


@pytest.mark.parametrize(
    ("arguments", "code", "exit_"),
    [
        (("artifact", "show", "deadbeef"), "UNKNOWN_ID", 5),
        (("assess", "deadbeef", "--profile", "cpu-small"), "UNKNOWN_ID", 5),
        (("assess", "show", "asm-0000000000"), "UNKNOWN_ID", 5),
        (("profile", "show", "nobody"), "UNKNOWN_ID", 5),
        (("probe", "queue", "asm-0000000000"), "UNKNOWN_ID", 5),
        (("probe", "show", "prb-0000000000"), "UNKNOWN_ID", 5),
        (("probe", "watch", "prb-0000000000"), "UNKNOWN_ID", 5),
        (("probe", "cancel", "prb-0000000000"), "UNKNOWN_ID", 5),
        (("probe", "log", "prb-0000000000"), "UNKNOWN_ID", 5),
        (("candidate", "show", "cnd-0000000000"), "UNKNOWN_ID", 5),
        (("approve", "revoke", "apv-0000000000", "--reason", "r"), "UNKNOWN_ID", 5),
        (("artifact", "scan", "minilm", "--node", "elsewhere"), "NODE_UNKNOWN", 5),
        (("artifact", "scan", "minilm", "--node", "Not A Name"), None, 2),
    ],
)
def test_what_does_not_exist(live: Live, arguments: tuple[str, ...], code: str | None, exit_: int) -> None:
    result = live.run(*arguments, "--json")
    if code is None:
        assert result.code == exit_, result.err
    else:
        failed(result, code, exit_)


@pytest.mark.req("G4")
def test_a_set_without_approval_is_not_probed(live: Live, assessment: dict[str, Any]) -> None:
    failed(live.run("probe", "queue", assessment["id"], "--json"), "NOT_APPROVED", 4)
    assert live.data("probe", "list") == []


def test_the_beginning_of_a_digest_approves_nothing_without_a_terminal(live: Live, assessment: dict[str, Any]) -> None:
    prefix = assessment["set_digest"][7:19]
    error = failed(live.run("approve", "add", prefix, "--reason", "r", "--json"), "INVALID_ARGUMENT", 2)
    assert assessment["set_digest"] in error["hint"]
    assert live.data("approve", "list") == []


@pytest.mark.req("P1")
@pytest.mark.req("G1")
@pytest.mark.req("G2")
def test_every_gate_by_command(live: Live, assessment: dict[str, Any]) -> None:
    digest = assessment["set_digest"]
    approval = live.data("approve", "add", digest, "--reason", "a test")
    assert approval["approved_by"] == live.up.ready["user"]
    queued = subprocess.Popen(
        [*COMMAND, "probe", "queue", assessment["id"], "--wait", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(live.state),
    )
    watched = subprocess.Popen(
        [*COMMAND, "probe", "watch", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=clean_environment(live.state),
    )
    try:
        out, err = queued.communicate(timeout=60)
        assert queued.returncode == 0, err
        for word in ("queued", "completed"):
            assert any(word in line for line in err.splitlines()), err
        states = watched_states(watched)
    finally:
        for process in (queued, watched):
            process.kill()
            process.communicate()
    assert states[-1] == "completed"
    view = json.loads(out)["data"]
    assert view["state"] == "completed"
    assert view["evidence"]["output"]["vector_length"] == 384
    candidate = live.data("candidate", "show", view["candidate_id"])
    assert (candidate["status"], candidate["production"]) == ("lab_ready", False)
    assert candidate["probe_id"] == view["id"]
    shown = live.run("probe", "show", view["id"])
    assert "evidence (measured)" in shown.out
    log = live.data("probe", "log", view["id"])
    assert log["ref"] == f"runtime-worker://local/{view['id']}/attempt/1"
    assert live.run("probe", "watch", view["id"]).code == 0
    assert live.run("probe", "cancel", view["id"], "--json").code != 0
    trail = live.data("audit", "list", "--id", view["id"])
    assert {"queued", "completed"} <= {entry["what"] for entry in trail}


def watched_states(process: subprocess.Popen[bytes]) -> list[str]:
    """States on the JSON lines of `probe watch`, up to the end of the first probe."""
    states: list[str] = []
    while "completed" not in states:
        for line in read_line(process, 20).splitlines():
            document = json.loads(line)
            assert document["schema"] == "modelforge.probe/v1"
            states.append(document["data"]["state"])
    return states


def test_every_list_has_a_table_and_json(live: Live, assessment: dict[str, Any]) -> None:
    assert assessment["verdict"] == "compatible"
    for noun in (
        "artifact",
        "profile",
        "environment",
        "assess",
        "approve",
        "probe",
        "candidate",
        "node",
        "audit",
    ):
        table = live.run(noun, "list")
        assert table.code == 0, table.err
        assert table.out.splitlines()[0].isupper()
        assert isinstance(live.data(noun, "list"), list)


@pytest.mark.req("G5")
def test_a_file_that_changed_after_the_scan_fails_the_probe(live: Live, assessment: dict[str, Any]) -> None:
    live.run("approve", "add", assessment["set_digest"], "--reason", "a test")
    changed = live.models / "minilm" / "README.md"
    before = changed.read_bytes()
    candidates = live.data("candidate", "list")
    changed.write_bytes(before[:-1] + b"!")
    try:
        result = live.run("probe", "queue", assessment["id"], "--wait", "--json")
    finally:
        changed.write_bytes(before)
        live.scan("minilm")  # what a node has seen changed is only trusted again after a scan
    assert result.code == 1, result.err
    assert result.data["failure"]["code"] == "ARTIFACT_CHANGED"
    assert "error: ARTIFACT_CHANGED" in result.err
    assert live.data("candidate", "list") == candidates


def test_a_wait_has_an_end(live: Live, assessment: dict[str, Any]) -> None:
    live.run("approve", "add", assessment["set_digest"], "--reason", "a test")
    result = live.run("probe", "queue", assessment["id"], "--wait", "--timeout", "0.1", "--json")
    error = failed(result, "WAIT_TIMEOUT", 124)
    assert live.run("probe", "cancel", error["context"]["id"], "--wait", "--reason", "enough").code == 0
    assert live.data("probe", "show", error["context"]["id"])["state"] in ("cancelled", "completed")


@pytest.mark.req("A6")
def test_a_disabled_node_is_not_probed_until_it_is_enabled_again(live: Live, assessment: dict[str, Any]) -> None:
    """Each remedy's command, and the trail that it leaves."""
    live.run("approve", "add", assessment["set_digest"], "--reason", "a test")
    assess = ("assess", assessment["set_digest"], "--profile", "cpu-small", "--json")
    for off, on, finding in (
        (("disable", "local"), ("enable", "local"), "NODE_DISABLED"),
        (("enable", "local", "--no-lab"), ("enable", "local", "--lab"), "NODE_NOT_LAB_ELIGIBLE"),
    ):
        found = live.data("node", *off, "--reason", "its fan is loud")
        try:
            assert (found["enabled"], found["lab_eligible"]) != (True, True)
            blocked = live.run(*assess)
            assert blocked.code == 4
            assert finding in {one["code"] for one in blocked.data["findings"]}
            failed(live.run("probe", "queue", assessment["id"], "--json"), "ASSESSMENT_STALE", 4)
        finally:
            found = live.data("node", *on, "--reason", "mended")
        assert (found["enabled"], found["lab_eligible"]) == (True, True)
        assert live.run(*assess).code == 0
    reasons = [entry["detail"].get("reason") for entry in live.data("audit", "list", "--id", "local")]
    assert [reason for reason in reasons if reason] == ["mended", "its fan is loud"] * 2
    failed(live.run("node", "disable", "elsewhere", "--reason", "r", "--json"), "NODE_UNKNOWN", 5)
    assert live.run("node", "disable", "local").code == 2


def test_a_profile_is_immutable(live: Live, assessment: dict[str, Any], tmp_path: Path) -> None:
    assert assessment["profile_name"] == "cpu-small"
    failed(live.run("profile", "create", "cpu-small", "--threads", "2", "--json"), "PROFILE_CONFLICT", 4)
    file = tmp_path / "p.toml"
    file.write_text('name = "from-file"\nthreads = 2\n[budgets]\nloading_s = 7\n')
    made = live.data("profile", "create", "--file", str(file))
    assert (made["profile"]["threads"], made["profile"]["budgets"]["loading_s"]) == (2, 7)
    assert live.data("profile", "show", "from-file")["id"] == made["id"]


def test_a_blocked_assessment_is_exit_4_and_cannot_be_queued(live: Live, assessment: dict[str, Any]) -> None:
    live.data("profile", "create", "gpu", "--device", "cuda")
    if live.data("node", "show", "local")["inventory"]["hardware"]["gpus"]:
        pytest.skip("this machine has a GPU: a CUDA profile is not blocked here")
    said = live.run("assess", assessment["set_digest"], "--profile", "gpu")
    assert said.code == 4, said.err
    assert re.match(r"BLOCKED: \d+ blockers?; nothing was loaded$", said.out.splitlines()[0])
    assert len(said.out.splitlines()) <= 24
    assert max(len(line) for line in said.out.splitlines()) <= 80
    result = live.run("assess", assessment["set_digest"], "--profile", "gpu", "--json")
    assert result.code == 4, result.err
    assert result.data["verdict"] == "blocked"
    live.run("approve", "add", assessment["set_digest"], "--reason", "a test")
    failed(live.run("probe", "queue", result.data["id"], "--json"), "ASSESSMENT_BLOCKED", 4)


@pytest.mark.req("D4")
async def test_a_foreign_client_reads_service_streams_and_messages(live: Live, assessment: dict[str, Any]) -> None:
    """With the operator's own key and nothing of ours: what the `nats` command line does."""
    assert assessment["id"]
    ready = live.up.ready
    foreign = await nats.connect(ready["url"], nkeys_seed=ready["credentials"], allow_reconnect=False)
    try:

        async def ask(subject: str, request: str = "") -> Any:
            return json.loads((await foreign.request(subject, request.encode(), timeout=10)).data)

        service = await ask("$SRV.INFO.modelforge")
        assert {"probes-queue", "candidates-list"} <= {one["name"] for one in service["endpoints"]}
        names = (await ask("$JS.API.STREAM.NAMES"))["streams"]
        assert {"MF_JOBS", "MF_EVIDENCE", "MF_INVENTORY", "MF_EVENTS", "MF_ADVISORIES"} <= set(names)
        for name in names:
            config = (await ask(f"$JS.API.STREAM.INFO.{name}"))["config"]
            assert config["description"]
            assert config["metadata"]["product"] == "modelforge"
        got = await ask("$JS.API.STREAM.MSG.GET.MF_EVENTS", '{"last_by_subj":"mf.events.assessment.>"}')
        event = json.loads(base64.b64decode(got["message"]["data"]))
        assert (event["kind"], event["entity"]) == ("event.v1", "assessment")
    finally:
        await foreign.close()


def test_doctor_finds_the_running_stack_well(live: Live) -> None:
    result = live.run("doctor", "--json")
    found = {check["name"]: check for check in result.data}
    assert {"credentials", "server", "controller", "streams", "node local"} <= set(found)
    assert [check for check in result.data if check["level"] == "fail"] == []
    assert result.code == 0


def test_config_show_names_the_running_stack(live: Live) -> None:
    sections = live.data("config", "show")["sections"]
    client = sections["client"]
    assert client["url"]["value"] == live.up.ready["url"]
    assert "endpoint.json" in client["url"]["origin"]
    # What only the flags of `up` said.
    assert sections["node"]["artifact_root"]["value"] == str(live.models)
    assert "node.toml" in sections["node"]["artifact_root"]["origin"]
    assert sections["server"]["port"]["value"] == int(live.up.ready["url"].rpartition(":")[2])
    assert sections["up"]["user"]["value"] == live.up.ready["user"]


def test_a_second_up_on_the_same_state_names_the_first(live: Live) -> None:
    error = failed(live.run("up", "--port", "0", "--json"), "STATE_LOCKED", 2)
    assert error["context"]["pid"] == str(live.up.process.pid)


def test_a_taken_port_is_named_before_anything_is_written(live: Live, tmp_path: Path) -> None:
    port = live.up.ready["url"].rpartition(":")[2]
    state = tmp_path / "state"
    error = failed(modelforge(state, "up", "--port", port, "--json"), "PORT_IN_USE", 2)
    assert error["context"]["port"] == port
    assert not state.exists()


def test_a_wrong_key_is_told_from_no_server(live: Live, tmp_path: Path) -> None:
    from modelforge.keys import ensure_key  # noqa: PLC0415 -- beside the one test that needs it

    ensure_key(tmp_path / "stranger.nk")
    arguments = ("probe", "list", "--json", "--url", live.up.ready["url"], "--user", "stranger")
    failed(live.run(*arguments, "--credentials", str(tmp_path / "stranger.nk")), "AUTH_FAILED", 3)
    failed(live.run(*arguments, "--credentials", str(tmp_path / "missing.nk")), "AUTH_FAILED", 3)
