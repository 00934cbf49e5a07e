"""A whole scan of a small folder: manifest and evidence of one and the same moment."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from bus.digest import canonical_json
from bus.errors import ErrorCode, ModelForgeError
from node_agent.artifact_hash import Watch
from node_agent.artifact_scan import Scanned, scan_folder
from node_agent.scan_run import refuse_too_large

HEADER = {"w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    model = tmp_path / "model"
    (model / "1_Pooling").mkdir(parents=True)
    header = json.dumps(HEADER).encode()
    (model / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
    (model / "config.json").write_text('{"model_type": "bert"}')
    (model / "1_Pooling" / "config.json").write_text("{broken")
    (model / "README.md").write_text("words")
    return tmp_path


@pytest.mark.req("P1", "A3")
def test_a_scan_gives_manifest_and_evidence(root: Path) -> None:
    scanned = scan_folder(root, "model", max_files=10, watch=Watch())
    assert [entry.path for entry in scanned.manifest.files] == [
        "1_Pooling/config.json",
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    assert scanned.evidence.documents == {"config.json": {"model_type": "bert"}}
    (weights,) = scanned.evidence.weights
    assert (weights.path, weights.parameters, weights.problem) == ("model.safetensors", 4, None)
    assert scanned.evidence.notes[0].startswith("1_Pooling/config.json: not read")


def test_the_same_folder_gives_the_same_digest(root: Path) -> None:
    first = scan_folder(root, "model", max_files=10, watch=Watch(threads=1))
    second = scan_folder(root, "./model/", max_files=10, watch=Watch(threads=4))
    assert first.manifest.digest() == second.manifest.digest()


def test_a_file_that_comes_during_the_scan_is_noticed(root: Path) -> None:
    class Meddling(Watch):
        """Files are listed before the first check."""

        def check(self) -> None:
            (root / "model" / "late.json").write_text("{}")

    with pytest.raises(ModelForgeError) as caught:
        scan_folder(root, "model", max_files=10, watch=Meddling())
    assert (caught.value.code, caught.value.context["file"]) == (ErrorCode.ARTIFACT_CHANGED, "late.json")


def test_a_set_whose_report_does_not_fit_is_refused_before_a_file_is_hashed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hashing thousands of files for a report that cannot be sent costs minutes, and says the same in the end."""
    for number in range(4_000):
        (root / "model" / f"a file with a rather long name, number {number:05}").touch()

    def never(*_: object) -> None:
        pytest.fail("a file was hashed")

    monkeypatch.setattr("node_agent.artifact_scan.hash_files", never)
    with pytest.raises(ModelForgeError) as caught:
        scan_folder(root, "model", max_files=10_000, watch=Watch(), accept=refuse_too_large)
    assert caught.value.code is ErrorCode.SCAN_TOO_LARGE
    assert caught.value.message.startswith("4004 files make a report of")


def test_what_is_asked_before_is_as_long_as_what_is_found(root: Path) -> None:
    asked: list[Scanned] = []
    found = scan_folder(root, "model", max_files=10, watch=Watch(), accept=asked.append)
    (before,) = asked
    assert before.evidence == found.evidence
    assert len(canonical_json(before.manifest)) == len(canonical_json(found.manifest))
