"""Which files a child may open: the set and what the machine gives, and nothing that lies beside the set."""

from __future__ import annotations

import json
import os
import sysconfig
from pathlib import Path

import pytest

from adapters.child.file_rules import FileRules
from adapters.child.guard import Guard

pytestmark = pytest.mark.req("P5")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "root" / "model"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (tmp_path / "root" / "other").mkdir()
    (tmp_path / "root" / "other" / "vocab.txt").write_text("x")
    (tmp_path / "scratch").mkdir()
    return folder


@pytest.fixture
def rules(model: Path, tmp_path: Path) -> FileRules:
    return FileRules.of(model, tmp_path / "scratch")


def test_the_set_the_scratch_folder_and_the_libraries_are_read(rules: FileRules, model: Path, tmp_path: Path) -> None:
    allowed = [
        model / "config.json",
        model,
        tmp_path / "scratch" / "x",
        json.__file__,
        pytest.__file__,
        Path(sysconfig.get_paths()["purelib"]),
        "/proc/self/mountinfo",
        "/dev/urandom",
        "/etc/ssl/openssl.cnf",
    ]
    assert [str(path) for path in allowed if rules.refuses(str(path), os.O_RDONLY)] == []
    assert not rules.refuses(7, os.O_RDONLY)
    assert not rules.refuses(os.fsencode(model / "config.json"), os.O_RDONLY)


def test_what_lies_beside_the_set_is_refused_by_every_name(rules: FileRules, model: Path) -> None:
    other = model.parent / "other" / "vocab.txt"
    (model / "link").symlink_to(other.parent)
    refused = [
        str(other),
        f"{model}/../other/vocab.txt",
        f"{model}/link/../other/vocab.txt",
        f"{Path('/proc/self') / 'root'}{other}",
        os.path.relpath(other),
        "/etc/passwd",
        f"{model}x/../other/vocab.txt",
    ]
    assert [path for path in refused if not rules.refuses(path, os.O_RDONLY)] == []


def test_a_link_of_the_set_leads_to_a_member(rules: FileRules, model: Path) -> None:
    """The scan went through the link and hashed what lies behind it, as in the caches of the hub's clients."""
    (model / "vocab.txt").symlink_to(model.parent / "other" / "vocab.txt")
    assert not rules.refuses(str(model / "vocab.txt"), os.O_RDONLY)


def test_a_file_that_is_not_there_is_not_refused_to_a_reader(rules: FileRules, model: Path) -> None:
    assert not rules.refuses(str(model.parent / "none"), os.O_RDONLY)
    assert rules.refuses(str(model.parent / "none"), os.O_WRONLY | os.O_CREAT)


def test_only_the_scratch_folder_is_written(rules: FileRules, model: Path, tmp_path: Path) -> None:
    assert not rules.refuses(str(tmp_path / "scratch" / "new"), os.O_RDWR | os.O_CREAT)
    assert not rules.refuses(os.devnull, os.O_WRONLY)
    for path in (model / "config.json", pytest.__file__, "/proc/self/mem"):
        assert rules.refuses(str(path), os.O_WRONLY)


def test_of_a_folder_on_the_import_path_only_code_is_read(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = tmp_path / "root" / "other"
    (clone / "part.py").write_text("")
    monkeypatch.syspath_prepend(str(clone))
    rules = FileRules.of(model, tmp_path / "scratch")
    assert not rules.refuses(str(clone / "part.py"), os.O_RDONLY)
    assert rules.refuses(str(clone / "vocab.txt"), os.O_RDONLY)


def test_the_guard_refuses_reports_and_names_no_path(rules: FileRules, model: Path) -> None:
    seen: list[str] = []
    guard = Guard(lambda call, family: seen.append(f"{call} ({family})"), processes=True)
    arguments = (str(model.parent / "other" / "vocab.txt"), "r", os.O_RDONLY)
    guard.hook("open", arguments)
    guard.confine(rules)
    with pytest.raises(PermissionError):
        guard.hook("open", arguments)
    guard.hook("open", (str(model / "config.json"), "r", os.O_RDONLY))
    assert seen == ["open outside the set (file)"]
    assert (guard.file_attempts, guard.network_attempts, guard.process_attempts) == (1, 0, 0)
    guard.retarget(lambda *_: None, processes=True)
    guard.hook("open", arguments)
    assert guard.file_attempts == 0
