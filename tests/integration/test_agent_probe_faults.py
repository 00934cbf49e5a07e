"""Faults of the node and of the agent itself around a probe: each ends the attempt at once, typed, with what is known."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from bus.codec import encode
from bus.digest import canonical_json
from bus.errors import ErrorCode, ModelForgeError
from bus.ids import PROBE, new_id
from bus.messages.artifacts import Manifest
from bus.messages.jobs import ProbeJob
from node_agent.probe_sampler import ProbeSampler
from node_agent.worker import Child, ExitStatus
from tests.support.agent_jobs import NO_DIGEST
from tests.support.probes import ProbeBench, no_place_of_this_host, probe_bench


@pytest.fixture
async def probes(tmp_path: Path) -> AsyncIterator[ProbeBench]:
    async with probe_bench(tmp_path) as bench:
        yield bench


@pytest.mark.parametrize(
    ("field", "code"), [("set_digest", "ARTIFACT_CHANGED"), ("environment_id", "RUNTIME_INCOMPATIBLE")]
)
@pytest.mark.req("P5")
async def test_a_job_for_another_set_or_environment_starts_no_child(probes: ProbeBench, field: str, code: str) -> None:
    message = await probes.run(msgspec.structs.replace(probes.job(), **{field: NO_DIGEST}))
    assert message.failure is not None
    assert (message.outcome, message.failure.code) == ("failed", code)
    assert NO_DIGEST in message.failure.context.values()
    assert probes.factory.children == []


def without_manifest(probes: ProbeBench) -> ProbeJob:
    """A job whose manifest is too large for its message; the controller has it."""
    job = probes.job()
    data = canonical_json(job.manifest)
    probes.controller.manifests[job.set_digest] = data
    probes.controller.chunk_bytes = 50
    return msgspec.structs.replace(job, manifest=None, manifest_bytes=len(data))


@pytest.mark.req("P5")
async def test_a_manifest_that_is_not_in_the_job_is_fetched_and_every_byte_is_compared_with_it(
    probes: ProbeBench,
) -> None:
    job = without_manifest(probes)
    assert (await probes.run(job)).outcome == "completed"
    (probes.model / "config.json").write_text("[]")
    again = msgspec.structs.replace(job, job_id=new_id(PROBE))
    message = await probes.run(again)
    assert message.failure is not None
    assert (message.failure.code, message.failure.context["file"]) == ("ARTIFACT_CHANGED", "config.json")


@pytest.mark.req("P5")
async def test_another_manifest_than_the_approved_one_starts_no_child(probes: ProbeBench) -> None:
    job = without_manifest(probes)
    probes.controller.manifests[job.set_digest] = canonical_json(Manifest(files=())).ljust(job.manifest_bytes)
    message = await probes.run(job)
    assert message.failure is not None
    assert (message.outcome, message.failure.code) == ("failed", "BLOB_REFUSED")
    assert probes.factory.children == []


@pytest.mark.req("P9")
async def test_a_node_without_scratch_says_so_in_the_first_attempt(probes: ProbeBench) -> None:
    """Silence would burn every attempt, and end as ATTEMPTS_EXHAUSTED."""
    probes.scratch.rmdir()
    message = await probes.run(probes.job())
    probes.scratch.mkdir()
    assert message.failure is not None
    assert (message.outcome, message.failure.code, message.attempt) == ("failed", "NODE_FAULT", 1)
    assert "No such file or directory" in message.failure.message
    assert message.timeline[-1].state.value == "unloading"
    assert message.log_ref.endswith("/attempt/1")
    no_place_of_this_host(probes, message)


@pytest.mark.req("P9")
async def test_a_child_that_does_not_end_is_reported_with_what_was_measured(
    probes: ProbeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, refused = Child.terminate, []

    async def stuck(child: Child, grace_s: float) -> ExitStatus:
        status = await real(child, grace_s)
        refused.append(status)
        raise ModelForgeError(ErrorCode.NODE_FAULT, "the child did not end after SIGKILL")

    monkeypatch.setattr(Child, "terminate", stuck)
    message = await probes.run(probes.job())
    assert refused
    assert message.failure is not None
    assert (message.outcome, message.failure.code) == ("failed", "NODE_FAULT")
    assert message.evidence is not None
    assert message.evidence.output is not None
    assert message.evidence.reclaim is None


@pytest.mark.req("P9")
async def test_a_defect_after_the_steps_keeps_what_was_measured(
    probes: ProbeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise LookupError("/secret/place")

    monkeypatch.setattr(ProbeSampler, "reclaim", broken)
    message = await probes.run(probes.job())
    assert message.failure is not None
    assert (message.outcome, message.failure.code) == ("failed", "NODE_FAULT")
    assert message.evidence is not None
    assert message.evidence.output is not None
    assert "/secret/place" not in encode(message).decode()
    probes.nothing_is_left()
