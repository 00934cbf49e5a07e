"""A scan keeps what its own reader and the other scanners say of each pickle, and none of them runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import pickles
from tests.support.scans import evidence_of, scan


def nowhere_marked(folder: Path) -> bool:
    return not any(folder.rglob(pickles.MARKER))


@pytest.mark.req("A4")
async def test_pickles_are_judged_by_us_and_thought_about_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "artifacts" / "model"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    (model / "evil.bin").write_bytes(pickles.PROTO2 + pickles.EVIL)
    (model / "hidden.bin").write_bytes(pickles.zipped({"a/version": b"3", "notes.txt": pickles.EVIL}))
    (model / "weights.bin").write_bytes(pickles.torch_zip(pickles.PROTO2 + b"}."))
    monkeypatch.chdir(tmp_path)

    found = {facts.path: facts for facts in evidence_of(await scan(tmp_path / "artifacts")).pickles}

    assert {path: facts.verdict for path, facts in found.items()} == {
        "evil.bin": "code",
        "hidden.bin": "code",
        "weights.bin": "plain",
    }
    said = {path: {one.tool: one.verdict for one in facts.opinions} for path, facts in found.items()}
    assert said["evil.bin"] == {"picklescan": "dangerous", "fickling": "dangerous"}
    assert said["weights.bin"] == {"picklescan": "clean", "fickling": "clean"}
    assert said["hidden.bin"]["picklescan"] == "clean"
    assert nowhere_marked(tmp_path)
