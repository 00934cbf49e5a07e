"""A set on the screen: what speaks against it is not to be overlooked, and no name of a model's folder drives it."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bus.digest import digest_of
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.api import ArtifactFiles, FilesRequest
from bus.messages.artifacts import (
    ArtifactSet,
    Expectation,
    FileEntry,
    FileFormat,
    Manifest,
    Opinion,
    PickleFacts,
    Quarantine,
    SetEvidence,
    SetLocation,
    WeightFacts,
)
from modelforge.cli import artifact, artifact_card, boundary, main, members
from modelforge.cli.artifact_card import REMARKABLE, places, set_card, state
from modelforge.cli.members import read_set

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HEX = "cd" * 32


def entries(number: int) -> tuple[FileEntry, ...]:
    return tuple(FileEntry(path=f"f{index:05d}", size_bytes=index, sha256=HEX) for index in range(number))


def a_set(number: int = 2, **changes: Any) -> ArtifactSet:
    files = entries(number)
    fields: dict[str, Any] = {
        "digest": Manifest(files=files).digest(),
        "file_count": number,
        "size_bytes": sum(file.size_bytes for file in files),
        "created_at": AT,
        "locations": (SetLocation(node="local", path="m", scanned_at=AT),),
    }
    return ArtifactSet(**{**fields, **changes})


CORRUPT = SetLocation(
    node="local",
    path="m",
    scanned_at=AT,
    state="corrupt",
    file="model.safetensors",
    problem="another SHA-256",
    found_at=AT,
    found_by="prb-0000000001",
)


def held(**changes: Any) -> Quarantine:
    fields: dict[str, Any] = {
        "id": "qrt-0000000001",
        "sha256": HEX,
        "set_digest": f"sha256:{HEX}",
        "path": "x.bin",
        "reason": "imports os.system",
        "quarantined_by": "controller",
        "quarantined_at": AT,
    }
    return Quarantine(**{**fields, **changes})


def test_a_corrupt_place_names_file_and_problem() -> None:
    found = a_set(locations=(CORRUPT,))
    assert places(found) == "local:m (CORRUPT)"
    assert state(found) == "CORRUPT"
    card = set_card(found, ())
    assert "local:m CORRUPT: model.safetensors: another SHA-256" in card
    assert "by prb-0000000001" in card


def test_a_quarantine_is_shown_with_its_reason_until_it_is_released() -> None:
    found = a_set(quarantined=(held(),))
    assert state(found) == "1 quarantined"
    assert "x.bin (cdcdcdcdcdcd): imports os.system [qrt-0000000001 by controller" in set_card(found, ())
    assert "NOT released" in set_card(found, ())
    released = a_set(quarantined=(held(released_by="apv-0000000001"),))
    assert state(released) == "1 place"
    assert "released for this set by apv-0000000001" in set_card(released, ())
    assert state(a_set(locations=())) == "nowhere"


def test_an_expectation_says_what_the_set_was_compared_with() -> None:
    one = Expectation(kind="sha256sum", sha256=HEX, required_by="alice", scan_id="scn-1", at=AT)
    signed = Expectation(kind="openssf_signature", sha256=HEX, key="sha256:k", required_by="a", scan_id="scn-2", at=AT)
    card = set_card(a_set(expectations=(one, signed)), ())
    assert "sha256sum cdcdcdcdcdcd: every file is equal (by alice in scn-1" in card
    assert "openssf_signature cdcdcdcdcdcd, signed with sha256:k" in card


def test_what_is_not_what_it_seems_is_named_apart() -> None:
    formats = {"a.safetensors": "pickle", "config.json": "json", "w.bin": "lfs_pointer"}
    card = set_card(a_set(evidence=SetEvidence(formats=formats)), ())
    assert "by their bytes\n  lfs_pointer: w.bin\n  pickle: a.safetensors" in card
    assert "json: config.json" not in card
    assert set(FileFormat) > REMARKABLE


def test_pickles_show_verdict_reason_imports_and_opinions() -> None:
    pickle = PickleFacts(
        path="w.bin",
        member="data.pkl",
        verdict="code",
        reason="calls os.system",
        imports=("os.system", "a.b", "c.d", "e.f"),
        opinions=(
            Opinion(tool="picklescan", version="1.0", verdict="dangerous", detail="os"),
            Opinion(tool="fickling", version="2", verdict="unavailable"),
        ),
    )
    card = set_card(a_set(evidence=SetEvidence(pickles=(pickle,))), ())
    assert "code: w.bin!data.pkl: calls os.system (imports os.system, a.b, c.d …)" in card
    assert "[second opinions: picklescan 1.0: dangerous, os; fickling 2: unavailable]" in card


def test_weights_show_their_quantization_and_their_problem() -> None:
    weights = (
        WeightFacts(
            path="m.gguf",
            format="gguf",
            tensors=3,
            parameters=9,
            bytes_by_dtype={"Q4_K": 1024},
            metadata={"quantization": "Q4_K_M"},
        ),
        WeightFacts(path="n.gguf", format="gguf", problem="truncated"),
    )
    lines = set_card(a_set(evidence=SetEvidence(weights=weights)), ()).splitlines()
    assert any(line.split()[:2] == ["gguf", "Q4_K_M"] and "Q4_K 1.0 KiB" in line for line in lines)
    assert any(line.endswith("n.gguf: truncated") for line in lines)


def test_no_name_of_a_folder_drives_the_terminal() -> None:
    bad = "a\x1b]0;owned\x07\nset  sha256:fake\u202e"
    pickle = PickleFacts(path=bad, verdict="code", reason=bad, imports=(bad,))
    evidence = SetEvidence(
        formats={bad: "pickle"},
        weights=(WeightFacts(path=bad, format="unknown", problem=bad),),
        pickles=(pickle,),
        notes=(bad,),
    )
    files = (FileEntry(path=bad, size_bytes=1, sha256=HEX),)
    corrupt = SetLocation(node="local", path=bad, scanned_at=AT, state="corrupt", file=bad, problem=bad)
    card = set_card(a_set(evidence=evidence, quarantined=(held(path=bad, reason=bad),), locations=(corrupt,)), files)
    assert not set("\x1b\x07\u202e") & set(card)
    assert sum(line == "set" or line.startswith("set ") for line in card.splitlines()) == 1


def test_long_lists_are_cut_and_counted() -> None:
    notes = tuple(f"note {number}" for number in range(50))
    card = set_card(a_set(50, evidence=SetEvidence(notes=notes)), entries(40))
    assert "and 10 more: see --json" in card
    assert "and 10 more files: see --files or --json" in card


class Paged:
    """A controller whose manifest does not fit a message."""

    def __init__(self, found: ArtifactSet, files: tuple[FileEntry, ...], page_max: int = 7) -> None:
        self.found, self.files, self.page_max = found, files, page_max
        self.pages: list[tuple[int, int]] = []

    async def call(self, verb: object, request: Any) -> object:
        if not isinstance(request, FilesRequest):
            return self.found
        self.pages.append((request.offset, request.limit))
        files = self.files[request.offset : request.offset + min(request.limit, self.page_max)]
        return ArtifactFiles(digest=self.found.digest, offset=request.offset, files=files, total=len(self.files))


async def test_all_members_come_page_by_page() -> None:
    operator: Any = Paged(a_set(20), entries(20))
    found, files = await read_set(operator, "cd", files_max=None)
    assert files == entries(20)
    assert found.manifest is not None
    assert digest_of(found.manifest) == found.digest
    assert [offset for offset, _ in operator.pages] == [0, 7, 14]


async def test_only_as_many_as_are_shown_are_asked_for() -> None:
    operator: Any = Paged(a_set(20), entries(20), page_max=100)
    found, files = await read_set(operator, "cd", files_max=3)
    assert (len(files), found.manifest, operator.pages) == (3, None, [(0, 3)])
    whole: Any = Paged(a_set(20, manifest=Manifest(files=entries(20))), ())
    _, files = await read_set(whole, "cd", files_max=3)
    assert (len(files), whole.pages) == (3, [])


@pytest.mark.parametrize("files", [entries(13), tuple(reversed(entries(20)))])
async def test_pages_that_do_not_make_up_the_set_are_a_fault(files: tuple[FileEntry, ...]) -> None:
    operator: Any = Paged(a_set(20), files)
    with pytest.raises(ModelForgeError) as caught:
        await read_set(operator, "cd", files_max=None)
    assert caught.value.code is ErrorCode.INTERNAL


@pytest.fixture
def dialled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Paged:
    paged = Paged(a_set(50, quarantined=(held(),), locations=(CORRUPT,)), entries(50))
    monkeypatch.setenv("MODELFORGE_STATE", str(tmp_path))
    monkeypatch.setattr(artifact, "with_operator", lambda _, work: asyncio.run(work(paged)))
    return paged


def test_show_is_short_on_the_screen_and_whole_as_json(dialled: Paged, capsys: pytest.CaptureFixture[str]) -> None:
    assert boundary.run(main.call, ["artifact", "show", "cd"]) == 0
    said = capsys.readouterr()
    assert said.out.count(" f000") == artifact_card.SHOWN_MAX
    assert f"next: modelforge approve add {dialled.found.digest} --purpose quarantine_release" in said.err
    assert "next: modelforge artifact scan m --node local" in said.err
    assert boundary.run(main.call, ["artifact", "show", "cd", "--files"]) == 0
    assert capsys.readouterr().out.count(" f000") == 50
    assert boundary.run(main.call, ["artifact", "show", "cd", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["data"]["manifest"]["files"]) == 50
    assert members.PAGE_FILES >= 50


def test_a_quarantine_says_how_it_is_released(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Any] = []

    class Answering:
        async def call(self, verb: object, request: object) -> object:
            asked.append(request)
            return held()

    monkeypatch.setenv("MODELFORGE_STATE", str(tmp_path))
    monkeypatch.setattr(artifact, "with_operator", lambda _, work: asyncio.run(work(Answering())))
    arguments = ["artifact", "quarantine", "cd", "--file", "x.bin", "--reason", "imports os.system"]
    assert boundary.run(main.call, arguments) == 0
    assert (asked[0].set_digest, asked[0].path, asked[0].reason) == ("cd", "x.bin", "imports os.system")
    said = capsys.readouterr()
    assert "imports os.system" in said.out
    assert f"next: modelforge approve add sha256:{HEX} --purpose quarantine_release --reason WHY" in said.err
    assert boundary.run(main.call, ["artifact", "quarantine", "nope", "--file", "x", "--reason", "r"]) == 2
    assert boundary.run(main.call, ["artifact", "quarantine", "cd", "--file", "x"]) == 2
    assert len(asked) == 1
