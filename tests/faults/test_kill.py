"""kill -9 of each part in the middle of a probe: it completes, nothing is lost, nothing happens twice."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from bus import verbs
from bus.messages import api
from bus.messages.gates import ProbeView
from bus.operator import Operator
from bus.states import PROBE_ACTIVE, ProbeState
from tests.support.stack import Stack, minilm_root, prepared_assessment, probe_in, queue_probe, running_stack, until


def rows(stack: Stack, query: str, *values: object) -> list[tuple[Any, ...]]:
    """Read the ledger beside the controller, as an auditor would."""
    connection = sqlite3.connect(f"file:{stack.ledger}?mode=ro", uri=True)
    try:
        return connection.execute(query, values).fetchall()
    finally:
        connection.close()


async def completed_once(stack: Stack, operator: Operator, probe: ProbeView) -> ProbeView:
    """The probe ends completed, with one candidate, one terminal audit entry and one release."""
    view = await probe_in(operator, probe.id, ProbeState.COMPLETED)
    assert view.candidate_id
    assert rows(stack, "SELECT status, production FROM candidates WHERE probe_id = ?", probe.id) == [("lab_ready", 0)]
    ends = rows(stack, "SELECT what FROM audit WHERE id = ? AND what IN ('completed', 'failed', 'cancelled')", probe.id)
    assert ends == [("completed",)]
    leases = rows(stack, "SELECT attempt, state, token_sha256 FROM leases WHERE job_id = ? ORDER BY attempt", probe.id)
    assert [lease[0] for lease in leases] == list(range(1, view.attempt + 1))
    assert [lease[1] for lease in leases].count("released") == 1
    assert len({lease[2] for lease in leases}) == len(leases)
    return view


async def queue_is_empty(operator: Operator) -> None:
    """Every job's message was acknowledged or removed."""

    async def empty() -> bool:
        info = await operator.client.js("STREAM.INFO.MF_JOBS")
        return bool(info["state"]["messages"] == 0)

    await until(empty, "no job's message is left")


@pytest.mark.req("P4")
async def test_the_agent_dies_while_loading_and_its_successor_completes(tmp_path: Path) -> None:
    async with running_stack(tmp_path, minilm_root()) as (stack, operator):
        probe = await queue_probe(operator, await prepared_assessment(operator), "template")
        await probe_in(operator, probe.id, ProbeState.LOADING)
        stack.kill("agent")
        stack.start_agent()
        view = await completed_once(stack, operator, probe)
        assert view.attempt == 2
        states = [(mark.attempt, mark.state.value) for mark in view.timeline]
        assert (1, "loading") in states
        assert (2, "loading") in states
        assert rows(stack, "SELECT attempt, state FROM leases WHERE job_id = ? ORDER BY attempt", probe.id) == [
            (1, "expired"),
            (2, "released"),
        ]
        await queue_is_empty(operator)


@pytest.mark.req("B1", "P4", "G6")
async def test_the_controller_dies_in_mid_probe_and_nothing_is_lost(tmp_path: Path) -> None:
    async with running_stack(tmp_path, minilm_root()) as (stack, operator):
        probe = await queue_probe(operator, await prepared_assessment(operator), "template")
        await probe_in(operator, probe.id, *PROBE_ACTIVE)
        stack.kill("controller")
        stack.start_controller()
        await completed_once(stack, operator, probe)
        await queue_is_empty(operator)


@pytest.mark.req("D1", "P4")
async def test_the_server_dies_in_mid_probe_and_nothing_is_lost(tmp_path: Path) -> None:
    async with running_stack(tmp_path, minilm_root()) as (stack, operator):
        probe = await queue_probe(operator, await prepared_assessment(operator), "template")
        await probe_in(operator, probe.id, *PROBE_ACTIVE)
        await asyncio.to_thread(stack.server.kill)
        await asyncio.to_thread(stack.start_server)
        await completed_once(stack, operator, probe)
        await queue_is_empty(operator)


@pytest.mark.req("D1", "P4")
async def test_the_store_is_wiped_with_one_probe_running_and_one_queued(tmp_path: Path) -> None:
    async with running_stack(tmp_path, minilm_root(), slots=1) as (stack, operator):
        assessment = await prepared_assessment(operator)
        running = await queue_probe(operator, assessment, "template")
        queued = await queue_probe(operator, assessment, "template")
        await probe_in(operator, running.id, *PROBE_ACTIVE)
        await probe_in(operator, queued.id, ProbeState.QUEUED)
        recorded = rows(stack, "SELECT max_sequence FROM stream_marks WHERE stream = 'MF_JOBS'")[0][0]
        await asyncio.to_thread(stack.server.kill)
        stack.wipe_store()
        await asyncio.to_thread(stack.start_server)
        for probe in (running, queued):
            await completed_once(stack, operator, probe)
        await queue_is_empty(operator)
        info = await operator.client.js("STREAM.INFO.MF_JOBS")
        assert info["state"]["last_seq"] > recorded + 1


@pytest.mark.req("B1")
async def test_a_second_agent_is_refused_while_the_first_lives_and_admitted_after_its_death(tmp_path: Path) -> None:
    async with running_stack(tmp_path, minilm_root()) as (stack, operator):
        stack.start_agent("second")
        assert await asyncio.to_thread(stack.processes.pop("second").wait, 20) == 4
        said = stack.log("second").read_text()
        assert "BOOT_CONFLICT" in said
        assert "Traceback" not in said
        first = (await operator.call(verbs.NODES_SHOW, api.ById(id="local"))).boot_id
        stack.kill("agent")
        stack.start_agent("successor")

        async def admitted() -> bool:
            node = await operator.call(verbs.NODES_SHOW, api.ById(id="local"))
            return node.boot_id != first and node.liveness == "online"

        await until(admitted, "the successor is admitted", timeout_s=5.0)
