"""Random walks over the store's probe transitions: the table and the ledger never disagree (seeded, Hypothesis)."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bus.errors import ErrorCode, ModelForgeError
from bus.messages import api
from bus.states import PROBE, Cause, ProbeEvent, ProbeState
from tests.support.ledger import Lab, open_lab


class ProbeMachine(RuleBasedStateMachine):
    """Any event from anybody at any time, against a real ledger; a model of states stands beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.stack = AsyncExitStack()
        self.folder = tempfile.TemporaryDirectory()
        self.states: dict[str, ProbeState] = {}
        self.attempts: dict[str, int] = {}
        self.lab: Lab
        self.assessment = ""

    def run(self, awaitable: Any) -> Any:
        return self.loop.run_until_complete(awaitable)

    @initialize()
    def prepare(self) -> None:
        self.lab = self.run(self.stack.enter_async_context(open_lab(Path(self.folder.name))))
        self.assessment = self.run(self.lab.ready()).id
        self.queue()

    @rule()
    def queue(self) -> None:
        if len(self.states) < 3:
            probe = self.run(self.lab.queue(self.assessment))
            self.states[probe.id] = ProbeState.QUEUED
            self.attempts[probe.id] = 0

    @rule(pick=st.integers(0, 2), event=st.sampled_from(list(ProbeEvent)), by=st.sampled_from(list(Cause)))
    def anything(self, pick: int, event: ProbeEvent, by: Cause) -> None:
        self.move(pick, event, by)

    @rule(pick=st.integers(0, 2), forward=st.integers(0, 7))
    def sensible(self, pick: int, forward: int) -> None:
        """Steps that the table allows, so that walks reach the end of a life."""
        probe_id = sorted(self.states)[pick % len(self.states)]
        edges = [
            event
            for (state, event), edge in PROBE.edges.items()
            if state is self.states[probe_id] and Cause.NODE in edge.by
        ]
        if edges:
            self.move(pick, edges[forward % len(edges)], Cause.NODE)

    def move(self, pick: int, event: ProbeEvent, by: Cause) -> None:
        probe_id = sorted(self.states)[pick % len(self.states)]
        before = self.states[probe_id]
        actor = Cause.NODE if event is ProbeEvent.CLAIM else by
        allowed = PROBE.allows(before, event, actor)
        if event is ProbeEvent.CLAIM and self.attempts[probe_id] >= 3:
            allowed = False  # the schema's own bound on attempts
        if event is ProbeEvent.GIVE_UP or (event is ProbeEvent.CANCEL and before is ProbeState.QUEUED):
            return  # ends of the job that the lab does not follow; their own tests do
        try:
            self.run(self.lab.run(probe_id, event, by=by))
        except ModelForgeError as error:
            assert not allowed, f"{before} refused {event} from {by}"
            assert error.code is ErrorCode.ILLEGAL_TRANSITION  # noqa: PT017
        except sqlite3.IntegrityError as error:
            assert "CHECK" in str(error)  # noqa: PT017
            assert not allowed
        else:
            assert allowed, f"{before} accepted {event} from {by}"
            self.states[probe_id] = PROBE.advance(before, event, actor)
            self.attempts[probe_id] += event is ProbeEvent.CLAIM

    @rule(pick=st.integers(0, 2))
    def cancel(self, pick: int) -> None:
        probe_id = sorted(self.states)[pick % len(self.states)]
        state = self.states[probe_id]
        try:
            view = self.run(self.lab.call("probes.cancel", api.CancelRequest(id=probe_id)))
        except ModelForgeError as error:
            assert error.code is ErrorCode.JOB_TERMINAL  # noqa: PT017
            assert PROBE.is_terminal(state)
        else:
            expected = ProbeState.CANCELLED if state is ProbeState.QUEUED else state
            assert view.state is expected
            self.states[probe_id] = expected

    @invariant()
    def the_ledger_says_what_the_model_says(self) -> None:
        if not self.assessment:
            return
        rows = self.run(
            self.lab.rows(
                "SELECT p.id, p.state, j.state AS job, j.finished_at, j.attempt_count "
                "FROM probes p JOIN jobs j ON j.id = p.id"
            )
        )
        assert {row["id"]: row["state"] for row in rows} == self.states
        assert {row["id"]: row["attempt_count"] for row in rows} == self.attempts
        for row in rows:
            over = PROBE.is_terminal(ProbeState(row["state"]))
            assert over == (row["finished_at"] is not None) == (row["job"] not in {"queued", "leased"})

    @invariant()
    def candidates_are_exactly_the_completed_probes(self) -> None:
        if self.assessment:
            rows = self.run(self.lab.rows("SELECT probe_id, status, production FROM candidates"))
            completed = {key for key, state in self.states.items() if state is ProbeState.COMPLETED}
            assert {row["probe_id"] for row in rows} == completed
            assert all((row["status"], row["production"]) == ("lab_ready", 0) for row in rows)

    @invariant()
    def audit_and_events_grow_together_without_a_gap(self) -> None:
        if self.assessment:
            rows = self.run(self.lab.rows("SELECT count(*) AS n, max(sequence) AS last FROM audit"))[0]
            events = self.run(self.lab.rows("SELECT count(*) AS n FROM outbox WHERE topic = 'event'"))[0]
            assert rows["n"] == rows["last"] == events["n"]

    def teardown(self) -> None:
        self.run(self.stack.aclose())
        self.loop.close()
        self.folder.cleanup()


@pytest.mark.req("P3", "G5", "G6")
class TestProbeMachine(ProbeMachine.TestCase):  # type: ignore[misc,valid-type]  # Hypothesis makes it at run time
    settings = settings(
        max_examples=12,
        stateful_step_count=25,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
