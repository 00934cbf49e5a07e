"""kill -9 of the agent: its children and its template are gone with it, whatever they were doing."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.support.children import faulty_model
from tests.support.waiting import until

AGENT = """
import asyncio, json, sys
from pathlib import Path
from adapters.child.protocol import Isolated, Prepared, Proceed
from node_agent.worker import ChildFactory, WorkerSettings
from tests.support.children import begin, profile
async def main():
    factory = ChildFactory(WorkerSettings(test_double=True))
    children = []
    for number, way in enumerate(sys.argv[3:]):
        child = await begin(factory, Path(sys.argv[1]), Path(sys.argv[2]) / str(number), run=profile("faulty"),
                            start_method=way)
        for _ in range(2):
            await child.receive(20)
            await child.send(Proceed())
        children.append(child)
    print(json.dumps([child.pid for child in children] + [factory.template_pid("faulty")]), flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


def state_of(pid: int) -> str:
    """`R`, `S`, `Z` and so on; empty when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.mark.req("P6")
@pytest.mark.parametrize("kind", ["hang", "hang_deaf"])
async def test_children_and_template_die_with_the_agent(tmp_path: Path, kind: str) -> None:
    model = faulty_model(tmp_path / "model", {"stage": "load", "kind": kind})
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", AGENT, str(model), str(tmp_path), "fresh", "template", "template", stdout=PIPE
    )
    assert agent.stdout is not None
    pids = json.loads(await asyncio.wait_for(agent.stdout.readline(), 40))
    assert len(set(pids)) == 4
    assert all(state_of(pid) in {"R", "S"} for pid in pids)
    agent.kill()
    await agent.wait()
    await until(lambda: all(state_of(pid) in {"", "Z"} for pid in pids), "all of them are dead")


@pytest.mark.req("P6")
async def test_a_child_that_starts_after_its_agent_died_ends_at_once(tmp_path: Path) -> None:
    """The signal is armed too late then; looking at the parent again is what ends it."""
    options = {
        "parent_pid": 2**22 - 1,
        "scratch_path": str(tmp_path),
        "memory_limit_bytes": 2**30,
        "threads": 1,
    }
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "adapters.child", "--channel", "0", json.dumps(options), stdin=PIPE, stderr=PIPE
    )
    _, error = await asyncio.wait_for(child.communicate(), 30)
    assert child.returncode != 0
    assert b"is gone" in error
