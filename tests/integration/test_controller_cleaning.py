"""No text of a node reaches the ledger, and so no screen, with terminal control or a credential in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bus.messages.inventory import NodeInventory
from controller.cleaning import cleaned
from tests.support.controllers import Bench, controller_bench
from tests.support.fake_agent import ENVIRONMENT, HARDWARE, passing_evidence
from tests.support.ledger import environment, inventory
from tests.support.proven import proven_evidence
from tests.support.waiting import until

EVIL = "\x1b]0;pwned\x07\x1b[2J\x00\u202e\u2066 token=hunter2 hf_ABCDEFGHIJKLMNOPQRSTUVWX"
BAD = ("\\u001b", "\x1b", "\\u0000", "\u202e", "\u2066", "hunter2", "hf_ABC", "pwned")


def evil_inventory() -> dict[str, Any]:
    return {
        "agent_version": EVIL, "capabilities": ["runtime.probe.v1", EVIL],
        "environment": {**ENVIRONMENT, "python": EVIL, "packages": {**ENVIRONMENT["packages"], "x" + EVIL: EVIL}},
        "hardware": {**HARDWARE, "cpu_model": EVIL, "gpu_reason": EVIL, "gpus": [{"uuid": EVIL, "name": EVIL}]},
    }  # fmt: skip


def evil_evidence() -> dict[str, Any]:
    evidence = passing_evidence()
    evidence["device"] = EVIL
    evidence["runtime_facts"] = {EVIL: EVIL}
    evidence["memory"]["gpu_reason"] = EVIL
    evidence["isolation"] |= {"layers": [{"name": EVIL, "active": True, "detail": EVIL}], "refused_attempts": [EVIL]}
    return evidence


async def is_clean(bench: Bench) -> None:
    def dump(tx: Any) -> str:
        tables = ("audit", "nodes", "environments", "probes", "probe_logs", "assessments")
        connection = tx._connection
        return "".join(str(tuple(row)) for name in tables for row in connection.execute(f"SELECT * FROM {name}"))  # noqa: S608

    stored = await bench.store.read(dump)
    assert [bad for bad in BAD if bad in stored] == []


@pytest.mark.req("G6")
async def test_what_a_node_says_is_cleaned_where_it_enters(tmp_path: Path) -> None:
    async with controller_bench(tmp_path) as bench:
        agent = await bench.agent()
        await agent.hello(**evil_inventory())
        await is_clean(bench)
        await agent.hello()
        probe_id = await bench.queue(await bench.assessed(agent))
        lease = await agent.claim(await agent.pull())
        failure = {"code": "MODEL_LOAD_FAILED", "message": EVIL, "context": {"x": EVIL}}
        await agent.publish(
            agent.finished(probe_id, lease, 1, "failed", evidence=evil_evidence(), failure=failure, log_text=EVIL)
        )

        async def ended() -> bool:
            return bool((await bench.probe(probe_id))["state"] == "failed")

        await until(ended, "the probe ends")
        await agent.say(**evil_inventory())

        async def heard() -> bool:
            return (await bench.audits("local"))[-1] == "changed"

        await until(heard, "the inventory is heard")
        await is_clean(bench)
        assert (await bench.probe(probe_id))["evidence"]["device"].endswith("[redacted]")


def test_an_honest_record_stays_as_it_is() -> None:
    said: NodeInventory = inventory(environment=environment(packages={"pytoken-secret": "1:2.0"}))
    assert cleaned(said) == said
    assert cleaned(said).environment.digest() == said.environment.digest()
    assert cleaned(proven_evidence()) == proven_evidence()


def test_a_text_that_grows_while_it_is_cleaned_keeps_its_bound() -> None:
    assert cleaned(inventory(agent_version="\t" * 2_000)).agent_version == " " * 2_000
