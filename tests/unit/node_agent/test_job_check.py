"""A job must name the approved files and the assessed environment, or nothing is started for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from adapters.registry import runtime_environment
from bus.errors import ErrorCode, ModelForgeError
from node_agent.job_check import check_job
from tests.support.agent_jobs import NO_DIGEST, probe_job

OWN = runtime_environment(test_double=True)


@pytest.mark.req("P5")
@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({}, None, ""),
        ({"set_digest": NO_DIGEST}, ErrorCode.ARTIFACT_CHANGED, "approved"),
        ({"environment_id": NO_DIGEST}, ErrorCode.RUNTIME_INCOMPATIBLE, "assessed"),
    ],
)
def test_what_differs_is_named(tmp_path: Path, changes: dict[str, Any], code: ErrorCode | None, field: str) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    job = msgspec.structs.replace(probe_job(tmp_path), **changes)
    assert job.manifest is not None
    if code is None:
        check_job(job, job.manifest, OWN)
        return
    with pytest.raises(ModelForgeError) as caught:
        check_job(job, job.manifest, OWN)
    assert caught.value.code is code
    assert caught.value.context[field] == NO_DIGEST
    assert caught.value.context["found"] in {job.manifest.digest(), OWN.digest()}
    assert NO_DIGEST in caught.value.message
