"""A set of thousands of files through the real chain: its manifest travels as a blob, up from the scan and down to the probe."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bus import verbs
from bus.digest import canonical_json
from bus.messages import api
from bus.messages.blobs import MAX_INLINE_BYTES
from bus.states import ProbeState
from tests.support.stack import minilm_root, prepared_assessment, probe_in, queue_probe, running_stack

FILES = 3_000


def crowded_root(folder: Path) -> Path:
    """The packaged model, with thousands of small notes beside its files."""
    root = folder / "artifacts"
    shutil.copytree(minilm_root() / "model", root / "model")
    notes = root / "model" / "notes"
    notes.mkdir()
    for number in range(FILES):
        (notes / f"a note with a rather long name, number {number:06}.txt").write_text(str(number))
    return root


@pytest.mark.req("P5", "A3", "G4")
async def test_a_set_that_fits_no_message_is_scanned_and_probed(tmp_path: Path) -> None:
    (tmp_path / "stack").mkdir()
    async with running_stack(tmp_path / "stack", crowded_root(tmp_path)) as (_, operator):
        assessment_id = await prepared_assessment(operator)
        assessment = await operator.call(verbs.ASSESSMENTS_SHOW, api.ById(id=assessment_id))
        files = await operator.call(verbs.ARTIFACTS_FILES, api.FilesRequest(id=assessment.set_digest))
        assert files.total > FILES
        assert len(canonical_json(files.files)) > MAX_INLINE_BYTES
        probe = await queue_probe(operator, assessment_id)
        assert (await probe_in(operator, probe.id, ProbeState.COMPLETED)).failure is None
