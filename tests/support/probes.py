"""A bench whose agent runs real probes of the test double, against the scripted controller."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from adapters.faulty import FAULTS_FILE, Fault
from adapters.registry import runtime_environment
from bus.codec import encode
from bus.messages.evidence import ProbeFinished
from bus.messages.jobs import ProbeJob
from bus.messages.profiles import Budgets, RuntimeProfile
from node_agent.controller_api import ControllerApi
from node_agent.measure.nvml import Discovery
from node_agent.probe_run import ProbeRunner
from node_agent.worker import Child, ChildFactory, WorkerSettings
from tests.support.agent_jobs import probe_job
from tests.support.agents import AgentBench, agent_bench

NO_CARD = "a test has no card"


class SeenChildren(ChildFactory):
    """Remembers the children that it started."""

    def __init__(self) -> None:
        super().__init__(WorkerSettings(test_double=True))
        self.children: list[Child] = []

    async def start(self, adapter: str, **options: Any) -> Child:
        child = await super().start(adapter, **options)
        self.children.append(child)
        return child


class ProbeBench:
    """A bench whose agent runs probes of the test double."""

    def __init__(self, bench: AgentBench, factory: SeenChildren, scratch: Path) -> None:
        self.bench, self.factory, self.scratch = bench, factory, scratch
        self.controller = bench.controller
        self.model = bench.root / "model"

    def job(
        self, *faults: Fault, budgets: Budgets | None = None, start_method: str = "fresh", **profile: Any
    ) -> ProbeJob:
        """A probe of a model with these faults; `profile` are fields of the profile."""
        (self.model / FAULTS_FILE).write_bytes(encode(faults))
        fields: dict[str, Any] = {"name": "tiny", "adapter": "faulty", "budgets": budgets or Budgets(), **profile}
        return probe_job(self.bench.root, RuntimeProfile(**fields), start_method=start_method)

    async def run(self, job: ProbeJob) -> ProbeFinished:
        await self.controller.put(job)
        return await self.finished(job)

    async def finished(self, job: ProbeJob) -> ProbeFinished:
        message = await self.controller.finished(job.job_id)
        assert isinstance(message, ProbeFinished)
        return message

    async def reaches(self, job: ProbeJob, state: str) -> None:
        await self.controller.until(lambda: state in self.controller.states(job.job_id))

    def nothing_is_left(self) -> None:
        assert all(child.gone for child in self.factory.children)
        assert list(self.scratch.iterdir()) == []


@asynccontextmanager
async def probe_bench(tmp_path: Path) -> AsyncIterator[ProbeBench]:
    async with agent_bench(tmp_path) as bench:
        (bench.root / "model").mkdir()
        (bench.root / "model" / "config.json").write_text("{}")
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        factory = SeenChildren()

        def runner(api: ControllerApi) -> ProbeRunner:
            return ProbeRunner(
                factory,
                api=api,
                artifact_root=bench.root,
                scratch=scratch,
                hash_threads=2,
                cards=lambda: Discovery(reason=NO_CARD),
                environment=lambda: runtime_environment(test_double=True),
                test_double=True,
            )

        await bench.agent(probes=runner)
        try:
            yield ProbeBench(bench, factory, scratch)
        finally:
            await factory.close()


def no_place_of_this_host(probes: ProbeBench, message: ProbeFinished) -> None:
    text = encode(message).decode()
    for place in (probes.bench.root, probes.scratch, Path.home()):
        assert str(place) not in text
