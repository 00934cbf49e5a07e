"""A whole probe of the packaged model by the agent's own probe path, beside a bare script.

The probe does more than the script: it verifies every file against a manifest, isolates the child, samples memory at
six points, runs the input twice, checks health, and proves that the child is gone. The rows say what that costs.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Final, cast

from adapters.child.environment import OFFLINE
from adapters.payloads import EMBEDDING_INPUT
from adapters.registry import runtime_environment
from benchmarks.measure import BASELINE, Contender, Row, in_turns, row
from bus import ids
from bus.client import BusClient, StoredAck
from bus.codec import decode
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.api import ClaimGranted
from bus.messages.artifacts import Manifest
from bus.messages.evidence import AnyEvidence, ProbeFinished
from bus.messages.gates import StartMethod
from bus.messages.jobs import ProbeJob
from bus.messages.profiles import RuntimeProfile
from modelforge.demo import MODEL_FOLDER, packaged_model
from node_agent.artifact_hash import Watch, hash_files
from node_agent.artifact_root import ArtifactRoot
from node_agent.claims import Lease
from node_agent.controller_api import Boot, ControllerApi
from node_agent.measure import nvml
from node_agent.probe_run import ProbeRunner
from node_agent.reporter import Reporter
from node_agent.worker import ChildFactory, WorkerSettings

NODE: Final = "bench"
MAX_FILES: Final = 1_000
DEADLINE: Final = timedelta(minutes=10)
SCRIPT_S: Final = 300.0
REACHES: Final[dict[StartMethod, float]] = {"fresh": 1.1, "template": 0.15}
PROFILE: Final = RuntimeProfile(name="bench")


class Sink:
    """Stands in for the bus: takes the evidence at once, so that the network is no part of the figure."""

    def __init__(self) -> None:
        self.finished: ProbeFinished | None = None

    async def publish_stored(self, subject: str, data: bytes, **_: object) -> StoredAck:  # noqa: ARG002 -- BusClient's
        """Keep the last message."""
        message: object = decode(data, AnyEvidence)
        if isinstance(message, ProbeFinished):
            self.finished = message
        return StoredAck("MF_EVIDENCE", 1, duplicate=False)


class ProbeBench:
    """The agent's probe runner with a factory of its own, for one folder."""

    def __init__(self, folder: Path, factory: ChildFactory, scratch: Path) -> None:
        self._folder = folder
        # The job holds its whole manifest, so that nothing is asked of a controller.
        self._boot = Boot(NODE, ids.new_boot_id())
        self._runner = ProbeRunner(
            factory,
            api=ControllerApi(cast("BusClient", Sink()), self._boot),
            artifact_root=folder.parent,
            scratch=scratch,
            hash_threads=2,
            cards=nvml.discover,
            environment=runtime_environment,
        )
        self._manifest = manifest_of(folder)

    async def run(self, start_method: StartMethod) -> float:
        """One probe from the job to its last evidence; seconds.

        Raises:
            ModelForgeError: what the probe failed with; NODE_FAULT when it was not started as asked.
        """
        job = self._job(start_method)
        sink = Sink()
        granted = ClaimGranted(lease_id=ids.new_id(ids.LEASE), attempt=1, token=ids.new_token(), ttl_s=SCRIPT_S)
        began = time.perf_counter()
        lease = Lease(granted, job.job_id, "", asyncio.get_running_loop().time())
        async with Reporter(cast("BusClient", sink), lease, self._boot) as reporter:
            await self._runner.run(job, lease, reporter)
        seconds = time.perf_counter() - began
        check(sink.finished, start_method)
        return seconds

    def _job(self, start_method: StartMethod) -> ProbeJob:
        return ProbeJob(
            job_id=ids.new_id(ids.PROBE),
            node=NODE,
            probe_type="embedding_fixed_input",
            location=self._folder.name,
            set_digest=self._manifest.digest(),
            manifest=self._manifest,
            profile=PROFILE,
            profile_id=PROFILE.digest(),
            environment_id=runtime_environment().digest(),
            assessment_id=ids.new_id(ids.ASSESSMENT),
            approval_id=ids.new_id(ids.APPROVAL),
            fingerprint=PROFILE.digest(),
            start_method=start_method,
            deadline_at=ids.now() + DEADLINE,
        )


def check(finished: ProbeFinished | None, start_method: StartMethod) -> None:
    """A probe that failed, or went another way, was not what is measured here.

    Raises:
        ModelForgeError: see `ProbeBench.run`.
    """
    if finished is None:
        raise ModelForgeError(ErrorCode.NODE_FAULT, "the probe ended without evidence")
    if finished.failure is not None:
        raise ModelForgeError.from_failure(finished.failure)
    isolation = finished.evidence.isolation if finished.evidence is not None else None
    if finished.outcome != "completed" or isolation is None or isolation.start_method != start_method:
        raise ModelForgeError(ErrorCode.NODE_FAULT, f"the probe was to be {start_method} and ended {finished.outcome}")


def manifest_of(folder: Path) -> Manifest:
    """The manifest of the folder, as a scan makes it."""
    with ArtifactRoot(folder.parent) as root:
        return hash_files(root, folder.name, root.files(folder.name, max_files=MAX_FILES), Watch())


async def bare_script(folder: Path) -> float:
    """A fresh interpreter that hashes, loads and encodes once; seconds.

    Raises:
        ModelForgeError: NODE_FAULT when the script fails.
    """
    command = [sys.executable, "-P", "-m", "benchmarks.bare_script", str(folder), EMBEDDING_INPUT]
    began = time.perf_counter()
    done = await asyncio.to_thread(
        subprocess.run, command, check=False, capture_output=True, timeout=SCRIPT_S, env={**os.environ, **OFFLINE}
    )
    seconds = time.perf_counter() - began
    if done.returncode != 0:
        raise ModelForgeError(ErrorCode.NODE_FAULT, f"the bare script ended with {done.returncode}")
    return seconds


async def rows(rounds: int, scratch: Path) -> list[Row]:
    """Both rows, measured in turns with the script.

    Raises:
        ModelForgeError: what a probe or the script failed with.
    """
    folder = packaged_model() / MODEL_FOLDER
    async with AsyncExitStack() as stack:
        factory = ChildFactory(WorkerSettings())
        stack.push_async_callback(factory.close)
        bench = ProbeBench(folder, factory, scratch)
        runs: dict[str, Contender] = {
            BASELINE: lambda: bare_script(folder),
            "fresh": lambda: bench.run("fresh"),
            "template": lambda: bench.run("template"),
        }
        seconds = await in_turns(runs, rounds, lambda line: print(f"probe: {line}", file=sys.stderr, flush=True))
    return [
        row(f"probe, {way}, against a bare script", seconds[way], seconds[BASELINE], reach)
        for way, reach in REACHES.items()
    ]
