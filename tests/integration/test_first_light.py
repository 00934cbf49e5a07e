"""The whole chain through real processes: from bytes on disk to a candidate, seen live on the operator's screen."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from adapters.payloads import EMBEDDING_INPUT
from bus import verbs
from bus.messages import api
from bus.messages.gates import ProbeView
from bus.states import PROBE_ACTIVE, ProbeState
from tests.support.screens import text_of
from tests.support.stack import (
    Stack,
    minilm_root,
    prepared_assessment,
    probe_in,
    queue_probe,
    running_stack,
    show_probe,
    until,
)
from tui.actions import challenge
from tui.app import ModelForgeApp, make_app
from tui.desk import BusDesk

FIXED_INPUT_SHA256 = "4b02d91d7dadba93ab1429b990a482ad004654360dae85da5c92841676fb5ff1"


@pytest.mark.req("G1", "G2", "P1", "P2", "P3", "P6", "P11", "D1", "D2")
async def test_a_real_model_goes_through_every_gate(tmp_path: Path) -> None:
    async with running_stack(tmp_path, minilm_root()) as (stack, operator):
        probe = await queue_probe(operator, await prepared_assessment(operator))
        view = await probe_in(operator, probe.id, ProbeState.COMPLETED)
        they_follow_each_other(view)
        evidence = view.evidence
        assert evidence is not None
        assert evidence.output is not None
        assert evidence.isolation is not None
        assert evidence.reclaim is not None
        assert evidence.kind == "measured"
        assert evidence.output.input_sha256 == FIXED_INPUT_SHA256
        assert (evidence.output.vector_length, round(evidence.output.norm, 5)) == (384, 1.0)
        assert evidence.isolation.egress_barrier != "none"
        assert evidence.isolation.refused_attempts == ()
        assert evidence.reclaim.process_gone
        memory = evidence.memory
        assert memory.before_bytes is not None
        assert memory.after_load_bytes is not None
        assert memory.peak_bytes is not None
        assert memory.before_bytes < memory.after_load_bytes <= memory.peak_bytes
        assert memory.after_exit_bytes == 0
        candidate = await operator.call(verbs.CANDIDATES_SHOW, api.ById(id=view.candidate_id or ""))
        assert (candidate.status, candidate.production, candidate.probe_id) == ("lab_ready", False, view.id)
        log = await operator.call(verbs.PROBES_LOG, api.LogRequest(id=view.id))
        assert log.ref == f"runtime-worker://local/{view.id}/attempt/1"
        await asyncio.to_thread(stack.close)
        the_input_is_nowhere(stack)


def they_follow_each_other(view: ProbeView) -> None:
    """Every state of the specification, once, in its order and in time."""
    assert [mark.state.value for mark in view.timeline] == [
        "queued", "preparing", "loading", "healthchecking", "ready", "unloading", "completed",
    ]  # fmt: skip
    times = [mark.at for mark in view.timeline]
    assert times == sorted(times)


def the_input_is_nowhere(stack: Stack) -> None:
    """Not in the ledger and its log, not in a stream, not in a log file: only its hash is (spec P2)."""
    with sqlite3.connect(stack.ledger) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    files = [path for path in stack.folder.rglob("*") if path.is_file()]
    assert any(FIXED_INPUT_SHA256.encode() in path.read_bytes() for path in files), "the search finds what is there"
    assert not [path.name for path in files if EMBEDDING_INPUT.encode() in path.read_bytes()]


@pytest.mark.req("P1", "P10", "G5")
async def test_the_operator_watches_a_probe_live_and_cancels_it(tmp_path: Path) -> None:
    async with running_stack(tmp_path, minilm_root()) as (stack, operator):
        assessment = await prepared_assessment(operator)
        desk = await BusDesk.connect(stack.client_settings())
        app = make_app(desk, {})
        try:
            async with app.run_test(size=(120, 40)) as pilot:
                await shown(app, pilot, lambda text: "connected" in text and "no probe" in text.lower())
                probe = await queue_probe(operator, assessment, "template")
                await shown(app, pilot, lambda text: probe.id in text and "preparing" in text)
                await probe_in(operator, probe.id, *PROBE_ACTIVE)
                await pilot.press("x")
                await shown(app, pilot, lambda text: "Cancel this probe?" in text)
                await pilot.press(*challenge(probe.id), "tab", "enter")
                await shown(app, pilot, lambda text: "cancelled" in text and "1 cancelled" in text)
        finally:
            await desk.close()
        view = await show_probe(operator, probe.id)
        assert (view.state, view.candidate_id) == (ProbeState.CANCELLED, None)
        assert [mark.state for mark in view.timeline][-2:] == [ProbeState.UNLOADING, ProbeState.CANCELLED]
        assert (await operator.call(verbs.CANDIDATES_LIST, api.Page())).candidates == ()


async def shown(app: ModelForgeApp, pilot: Pilot[None], condition: Callable[[str], bool]) -> None:
    """Wait until the screen says so; a failure shows the screen."""

    async def there() -> bool:
        await pilot.pause()
        return condition(text_of(app))

    try:
        await until(there, "the screen shows it", timeout_s=20.0)
    except AssertionError as error:
        pytest.fail(f"{error}\n{text_of(app)}")
