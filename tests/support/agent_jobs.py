"""Jobs as a controller would send them, for tests of the agent alone."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from adapters.registry import runtime_environment
from bus import ids
from bus.ids import now
from bus.messages.artifacts import Manifest
from bus.messages.jobs import ProbeJob, ScanJob
from bus.messages.profiles import RuntimeProfile
from node_agent.artifact_hash import Watch, hash_files
from node_agent.artifact_root import ArtifactRoot

NO_DIGEST = "sha256:" + "0" * 64


def scan_job(path: str = "model", **fields: Any) -> ScanJob:
    """A scan of `path` on the node `local`."""
    deadline_at = now() + timedelta(minutes=5)
    job_id = ids.new_id(ids.SCAN)
    return ScanJob(
        **{"job_id": job_id, "node": "local", "path": path, "max_files": 100, "deadline_at": deadline_at, **fields}
    )


def manifest_of(root: Path, folder: str = "model") -> Manifest:
    """The manifest of the folder as it is now."""
    with ArtifactRoot(root) as artifacts:
        return hash_files(artifacts, folder, artifacts.files(folder, max_files=100), Watch())


def probe_job(root: Path, profile: RuntimeProfile | None = None, **fields: Any) -> ProbeJob:
    """A probe of `root/model` as it is now, on the node `local`, with the test double unless a profile is given."""
    profile = profile or RuntimeProfile(name="tiny", adapter="faulty")
    manifest = manifest_of(root)
    return ProbeJob(
        **{
            "job_id": ids.new_id(ids.PROBE),
            "node": "local",
            "probe_type": "embedding_fixed_input",
            "location": "model",
            "set_digest": manifest.digest(),
            "manifest": manifest,
            "profile": profile,
            "profile_id": profile.digest(),
            "environment_id": runtime_environment(test_double=True).digest(),
            "assessment_id": ids.new_id(ids.ASSESSMENT),
            "approval_id": ids.new_id(ids.APPROVAL),
            "fingerprint": NO_DIGEST,
            "start_method": "fresh",
            "deadline_at": now() + timedelta(minutes=5),
            **fields,
        }
    )
