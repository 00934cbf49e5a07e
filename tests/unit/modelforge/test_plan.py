"""What `up` refuses before it writes anything."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from bus.errors import ErrorCode, ModelForgeError
from modelforge.plan import make_plan
from modelforge.state import StateFolder, StateLock, write_private
from modelforge.up import process_variables


def refused(code: ErrorCode, state: Path, **flags: object) -> ModelForgeError:
    config = flags.pop("config", None)
    with pytest.raises(ModelForgeError) as caught:
        make_plan(state, config, **flags)  # type: ignore[arg-type]
    assert caught.value.code is code
    return caught.value


def test_a_taken_port_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = refused(ErrorCode.PORT_IN_USE, state, port=port)
    assert str(port) in error.message
    assert not state.exists()


def test_a_locked_state_names_the_holder(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    folder.create()
    lock = StateLock(folder.lock)
    lock.acquire()
    assert str(os.getpid()) in refused(ErrorCode.STATE_LOCKED, tmp_path, port=0).message
    lock.release()
    assert make_plan(tmp_path, None, port=0).server.port == 0


def test_a_lock_can_be_held_once(tmp_path: Path) -> None:
    first, second = StateLock(tmp_path / "lock"), StateLock(tmp_path / "lock")
    first.acquire()
    with pytest.raises(ModelForgeError) as caught:
        second.acquire()
    assert caught.value.code is ErrorCode.STATE_LOCKED
    first.release()
    second.acquire()
    second.release()


def test_a_missing_artifact_root_is_refused(tmp_path: Path) -> None:
    error = refused(ErrorCode.PATH_NOT_FOUND, tmp_path / "state", port=0, artifact_root=tmp_path / "nowhere")
    assert "nowhere" in error.message
    assert not (tmp_path / "state").exists()


def test_a_bad_node_name_is_refused(tmp_path: Path) -> None:
    refused(ErrorCode.CONFIG_INVALID, tmp_path, port=0, node="Not A Name")


def test_an_unreadable_configuration_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "a-folder.toml"
    folder.mkdir()
    refused(ErrorCode.CONFIG_UNREADABLE, tmp_path, port=0, config=folder)
    broken = tmp_path / "broken.toml"
    broken.write_text("[server\n")
    assert "line 1" in refused(ErrorCode.CONFIG_UNREADABLE, tmp_path, port=0, config=broken).message


def test_the_plan_makes_paths_absolute_and_its_own_root_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path)
    plan = make_plan(tmp_path / "state", None, port=0, artifact_root=Path("models"), node="n1")
    assert plan.artifact_root == tmp_path / "models"
    assert not plan.make_artifact_root
    assert plan.node_name == "n1"
    own = make_plan(tmp_path / "state", None, port=0)
    assert own.make_artifact_root
    assert own.artifact_root == tmp_path / "state" / "artifacts"
    assert own.node["cache"] == str(tmp_path / "state" / "cache")
    assert (own.node["scratch"], own.node["environment"]) == ("", "")
    assert not (tmp_path / "state").exists()


def test_every_path_of_the_node_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "modelforge.toml"
    config.write_text('[node]\nname = "n1"\nartifact_root = "models"\ncache = "c"\nenvironment = "e.toml"\n')
    plan = make_plan(tmp_path / "state", config, port=0)
    assert {key: plan.node[key] for key in ("artifact_root", "cache", "environment")} == {
        "artifact_root": str(tmp_path / "models"),
        "cache": str(tmp_path / "c"),
        "environment": str(tmp_path / "e.toml"),
    }


def test_a_file_in_the_place_of_the_state_folder_is_typed(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(ModelForgeError) as caught:
        StateFolder(tmp_path / "state").create()
    assert caught.value.code is ErrorCode.STORE_UNAVAILABLE


def test_private_files_are_whole_and_ours_alone(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_private(path, "one")
    write_private(path, "two")
    assert path.read_text() == "two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_the_processes_do_not_inherit_our_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MODELFORGE_URL", "MODELFORGE_STATE", "MODELFORGE_CONFIG", "MODELFORGE_ARTIFACT_ROOT"):
        monkeypatch.setenv(name, "x")
    variables = process_variables()
    assert not [name for name in variables if name.startswith("MODELFORGE_")]
    assert "PATH" in variables
