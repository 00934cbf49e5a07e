from __future__ import annotations

import importlib.metadata
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bus.errors import ErrorCode, ModelForgeError
from bus.ids import now
from bus.messages.api import Status
from bus.messages.inventory import NodeView
from bus.settings import ClientSettings
from modelforge import doctor, doctor_stack
from modelforge.cli.command import App
from modelforge.cli.doctor import _runs_here
from modelforge.cli.output import Output


def status(**changes: Any) -> Status:
    fields: dict[str, Any] = {
        "version": "1",
        "boot_id": "b",
        "started_at": now(),
        "at": now(),
        "schema_version": 1,
        "event_sequence": 0,
        "open_jobs": 1,
        "outbox_waiting": 0,
        "streams": {"MF_JOBS": "ok"},
    }
    return Status(**{**fields, **changes})


def test_a_defective_check_is_a_finding_and_not_the_end() -> None:
    def broken() -> doctor.Check:
        raise ValueError("oops")

    assert doctor._guarded("x", broken).level == "fail"

    def typed() -> doctor.Check:
        raise ModelForgeError(ErrorCode.DEPENDENCY_MISSING, "gone", hint="pip install it")

    assert doctor._guarded("x", typed).fix == "pip install it"


def test_every_problem_comes_with_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    base, extra = doctor.check_packages("", ("msgspec",)), doctor.check_packages("runtime", ("torch",))
    assert (base.level, base.fix) == ("fail", ".venv/bin/pip install .")
    assert (extra.level, extra.fix) == ("warn", ".venv/bin/pip install '.[runtime]'")
    assert "torch MISSING" in extra.detail
    (tmp_path / "state").write_text("a file")
    assert doctor.check_state(tmp_path / "state").level == "fail"


def test_a_state_folder_that_does_not_exist_yet_is_fine(tmp_path: Path) -> None:
    assert doctor.check_state(tmp_path / "a" / "b").level == "ok"
    assert not (tmp_path / "a").exists()
    assert doctor.check_state(tmp_path).level == "ok"


@pytest.mark.parametrize(("free", "level"), [(1, "fail"), (2**30, "warn"), (2**40, "ok")])
def test_disk_levels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, level: str) -> None:
    class Usage:
        def __init__(self) -> None:
            self.free = free

    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage())
    assert doctor.check_disk(tmp_path).level == level


def test_the_controllers_answer_is_judged() -> None:
    assert doctor_stack.check_controller(status()).level == "ok"
    assert doctor_stack.check_controller(status(outbox_waiting=101)).level == "warn"
    assert doctor_stack.check_clock(status()).level == "ok"
    assert doctor_stack.check_clock(status(at=now() - timedelta(minutes=1))).level == "warn"
    assert doctor_stack.check_streams(status()).level == "ok"
    assert doctor_stack.check_streams(status(streams={"MF_JOBS": "drift: storage"})).level == "fail"
    assert doctor_stack.check_streams(status(streams={})).level == "fail"
    degraded = doctor_stack.check_streams(status(streams={"MF_JOBS": "degraded: nothing is stored"}))
    assert degraded.level == "fail"
    assert "degraded: nothing is stored" in degraded.detail
    assert "restart nats-server" in degraded.fix


@pytest.mark.parametrize(("liveness", "level"), [("offline", "fail"), ("doubtful", "warn"), ("online", "fail")])
def test_a_node_that_cannot_work_is_named(liveness: Any, level: str) -> None:
    check = doctor_stack.check_node(NodeView(name="local", enabled=True, lab_eligible=True, liveness=liveness))
    assert check.level == level
    assert check.fix


def test_an_online_node_without_inventory_is_looked_at_by_its_name() -> None:
    check = doctor_stack.check_node(NodeView(name="local", enabled=True, lab_eligible=True, liveness="online"))
    assert check.fix == "modelforge node show local"


@pytest.mark.parametrize(("runs_here", "level"), [(True, "fail"), (False, "warn")])
def test_where_nothing_is_to_run_the_lack_of_server_and_disk_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs_here: bool, level: str
) -> None:
    """The operator's image has no server and a small tmpfs; its doctor could never end well."""

    def lacking(*_: object) -> doctor.Check:
        raise ModelForgeError(ErrorCode.DEPENDENCY_MISSING, "not here")

    for name in ("check_disk", "check_binary", "check_isolation"):
        monkeypatch.setattr(doctor, name, lacking)
    found = {check.name: check.level for check in doctor.local_checks(tmp_path, None, runs_here=runs_here)}
    assert {found[name] for name in ("free disk", "nats-server", "isolation")} == {level}
    assert found["state folder"] == "ok"


def test_a_named_server_means_that_the_stack_runs_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "operator.toml"
    file.write_text('[client]\nurl = "nats://nats:4222"\n')
    own = App(out=Output(), state=tmp_path, named_state=False, config=None)
    assert _runs_here(own)
    assert not _runs_here(replace(own, config=file))
    assert not _runs_here(replace(own, flags={"url": "nats://h:1"}))
    file.write_text("[client")
    assert _runs_here(replace(own, config=file))


def test_a_key_that_others_can_read_is_a_warning(tmp_path: Path) -> None:
    key = tmp_path / "k.nk"
    key.write_text("seed")
    settings = ClientSettings(url="nats://h:1", user="alice", credentials=str(key))
    key.chmod(0o644)
    assert doctor_stack.check_credentials(settings).fix == f"chmod 600 {key}"
    key.chmod(0o600)
    assert doctor_stack.check_credentials(settings).level == "ok"
