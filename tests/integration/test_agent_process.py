"""The agent as a process: configuration, signals, exit codes, and what it leaves behind."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from adapters.faulty import FAULTS_FILE, Fault
from bus.codec import decode, encode
from bus.errors import ErrorCode, Exit, ModelForgeError
from bus.messages.artifacts import Manifest
from bus.messages.evidence import ScanFinished
from modelforge.keys import ensure_key
from node_agent.artifact_root import Stamp
from node_agent.hash_cache import HashCache
from tests.support.agent_jobs import probe_job, scan_job
from tests.support.agents import AgentBench, agent_bench
from tests.support.waiting import until


@dataclass
class AgentProcess:
    """A running `python -P -m node_agent` and what it has logged."""

    process: asyncio.subprocess.Process
    lines: list[str] = field(default_factory=list)

    async def read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.lines.append(line.decode())

    def said(self, words: str) -> bool:
        return any(words in line for line in self.lines)

    async def exit_code(self) -> int:
        async with asyncio.timeout(20):
            return await self.process.wait()


@asynccontextmanager
async def agent_process(config: Path) -> AsyncIterator[AgentProcess]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "node_agent", "--config", str(config), stderr=asyncio.subprocess.PIPE
    )
    agent = AgentProcess(process)
    reading = asyncio.create_task(agent.read())
    try:
        yield agent
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await reading


def write_config(folder: Path, **sections: dict[str, Any]) -> Path:
    path = folder / "agent.toml"
    path.write_text(
        "\n".join(
            f"[{name}]\n" + "\n".join(f"{key} = {json.dumps(value)}" for key, value in values.items())
            for name, values in sections.items()
        )
    )
    return path


def config_of(bench: AgentBench, folder: Path, **node: Any) -> Path:
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    return write_config(
        folder,
        node={"name": "local", "artifact_root": str(bench.root), "scratch": str(scratch), "test_double": True, **node},
        client={"url": bench.stack.url, "credentials": str(bench.stack.credentials("local"))},
    )


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[AgentBench]:
    async with agent_bench(tmp_path) as bench:
        (bench.root / "model").mkdir()
        (bench.root / "model" / "config.json").write_text("{}")
        yield bench


@pytest.mark.req("B2", "D1")
async def test_a_process_runs_jobs_until_sigterm(bench: AgentBench, tmp_path: Path) -> None:
    async with agent_process(config_of(bench, tmp_path)) as agent:
        job = scan_job()
        await bench.controller.put(job)
        assert (await bench.controller.finished(job.job_id)).outcome == "succeeded"
        agent.process.terminate()
        assert await agent.exit_code() == Exit.OK


@pytest.mark.req("B2")
async def test_the_process_listens_on_nothing(bench: AgentBench, tmp_path: Path) -> None:
    async with agent_process(config_of(bench, tmp_path)) as agent:
        await bench.controller.until(lambda: bool(bench.controller.hellos))
        assert listening_sockets(agent.process.pid) == []


async def test_a_second_agent_is_refused_with_an_exit_code_of_its_own(bench: AgentBench, tmp_path: Path) -> None:
    async def conflict(_: Any) -> Any:
        raise ModelForgeError(ErrorCode.BOOT_CONFLICT, "another agent speaks for this node")

    bench.controller.answers["hello"] = conflict
    async with agent_process(config_of(bench, tmp_path)) as agent:
        assert await agent.exit_code() == Exit.REFUSED
    (line,) = [line for line in agent.lines if "CRITICAL" in line]
    assert "BOOT_CONFLICT: another agent speaks for this node" in line
    assert "Traceback" not in "".join(agent.lines)


async def test_an_agent_that_starts_before_the_server_waits_for_it(bench: AgentBench, tmp_path: Path) -> None:
    await asyncio.to_thread(bench.stack.server.stop)
    async with agent_process(config_of(bench, tmp_path)) as agent:
        await until(lambda: agent.said("waiting for it"), "the agent's word that there is no server")
        await asyncio.to_thread(bench.stack.server.start)
        await bench.controller.until(lambda: bool(bench.controller.hellos))


async def test_a_wait_for_the_server_can_be_ended(bench: AgentBench, tmp_path: Path) -> None:
    await asyncio.to_thread(bench.stack.server.stop)
    async with agent_process(config_of(bench, tmp_path)) as agent:
        await until(lambda: agent.said("waiting for it"), "the agent's word that there is no server")
        agent.process.send_signal(signal.SIGINT)
        assert await agent.exit_code() == Exit.OK


async def test_a_wrong_key_ends_the_agent_at_once(bench: AgentBench, tmp_path: Path) -> None:
    config = config_of(bench, tmp_path)
    foreign = tmp_path / "foreign.nk"
    ensure_key(foreign)
    config.write_text(config.read_text().replace(str(bench.stack.credentials("local")), str(foreign)))
    async with agent_process(config) as agent:
        assert await agent.exit_code() == Exit.UNREACHABLE
    assert agent.said("AUTH_FAILED")


async def test_a_wrong_configuration_is_one_line_and_exits_with_2(tmp_path: Path) -> None:
    config = write_config(tmp_path, node={"name": "local", "artifact_root": str(tmp_path), "slot": 2})
    async with agent_process(config) as agent:
        assert await agent.exit_code() == Exit.USAGE
    (line,) = agent.lines
    assert "CONFIG_INVALID" in line
    assert "unknown key 'slot'" in line


@pytest.mark.req("A18")
async def test_what_the_environment_file_declares_is_what_the_agent_says(bench: AgentBench, tmp_path: Path) -> None:
    declared = tmp_path / "environment.toml"
    declared.write_text('image = "worker@sha256:0123"\n[adapters.vllm]\nquantizations = ["gptq"]\n')
    async with agent_process(config_of(bench, tmp_path, environment=str(declared))):
        await bench.controller.until(lambda: bool(bench.controller.hellos))
    environment = bench.controller.hellos[0].inventory.environment
    assert environment.image == "worker@sha256:0123"
    assert {facts.name: facts.quantizations for facts in environment.adapters}["vllm"] == ("gptq",)


async def test_a_wrong_environment_file_ends_the_agent_before_it_begins(bench: AgentBench, tmp_path: Path) -> None:
    declared = tmp_path / "environment.toml"
    declared.write_text("[adapters.vllm]\nquantization = []\n")
    async with agent_process(config_of(bench, tmp_path, environment=str(declared))) as agent:
        assert await agent.exit_code() == Exit.USAGE
    (line,) = agent.lines
    assert "CONFIG_INVALID" in line
    assert "unknown key 'quantization'" in line
    assert "modelforge environment validate" in line


@pytest.mark.req("P5")
async def test_a_poisoned_cache_deceives_a_scan_and_no_probe(bench: AgentBench, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    status = (bench.root / "model" / "config.json").stat()
    HashCache(cache).remember({Stamp.of(status): "ab" * 32})
    async with agent_process(config_of(bench, tmp_path, cache=str(cache))):
        scan = scan_job()
        await bench.controller.put(scan)
        scanned = await bench.controller.finished(scan.job_id)
        assert isinstance(scanned, ScanFinished)
        assert (scanned.files_hashed, scanned.files_cached) == (0, 1)
        manifest = decode((scanned.manifest_json or "").encode(), Manifest)
        assert manifest.files[0].sha256 == "ab" * 32
        job = probe_job(bench.root, manifest=manifest, set_digest=manifest.digest())
        await bench.controller.put(job)
        message = await bench.controller.finished(job.job_id)
    assert message.failure is not None
    assert (message.failure.code, message.failure.context["file"]) == ("ARTIFACT_CHANGED", "config.json")


@pytest.mark.req("P6")
async def test_sigterm_in_mid_probe_ends_the_child_and_leaves_the_job_to_a_successor(
    bench: AgentBench, tmp_path: Path
) -> None:
    (bench.root / "model" / FAULTS_FILE).write_bytes(encode([Fault(stage="load", kind="hang")]))
    job = probe_job(bench.root)
    config = config_of(bench, tmp_path, stop_grace_s=0.2)
    async with agent_process(config) as agent:
        await bench.controller.put(job)
        await bench.controller.until(lambda: "loading" in bench.controller.states(job.job_id))
        child = children_of(agent.process.pid)
        agent.process.terminate()
        assert await agent.exit_code() == Exit.OK
    assert child
    assert not living(child)
    assert list(tmp_path.joinpath("scratch").rglob("*")) == []
    (bench.root / "model" / FAULTS_FILE).write_bytes(encode([]))
    async with agent_process(config):
        message = await bench.controller.finished(job.job_id)
    # The files are others now, and the successor noticed: it verified them again.
    assert message.attempt == 2
    assert message.failure is not None
    assert message.failure.code == "ARTIFACT_CHANGED"


@pytest.mark.req("P6")
async def test_kill_9_of_the_agent_takes_its_child_along(bench: AgentBench, tmp_path: Path) -> None:
    (bench.root / "model" / FAULTS_FILE).write_bytes(encode([Fault(stage="load", kind="hang_deaf")]))
    job = probe_job(bench.root)
    async with agent_process(config_of(bench, tmp_path)) as agent:
        await bench.controller.put(job)
        await bench.controller.until(lambda: "loading" in bench.controller.states(job.job_id))
        children = children_of(agent.process.pid)
        agent.process.kill()
        await agent.exit_code()
    assert children
    await until(lambda: not living(children), "the end of the child")


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def living(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def listening_sockets(pid: int) -> list[str]:
    """The lines of the process's own sockets in the kernel's tables that are in the state LISTEN."""
    own = {str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    lines = [
        line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()
    ]
    return [" ".join(line) for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in own]
