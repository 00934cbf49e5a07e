"""What a node's word is worth, decided purely: snapshots and a message in, a verdict out (spec P3, P8, P13).

Evidence is accepted while its lease row is active. A lease whose time is over but which nobody has ended yet still
counts: the end of a lease is a committed change, and until then no newer attempt exists that could be harmed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bus import states
from bus.errors import ErrorCode, Failure, ModelForgeError
from bus.messages.evidence import Evidence, PhaseMark, ProbeFinished
from bus.proof import what_is_unproven
from bus.states import Cause, JobEvent, LeaseState, ProbeEvent, ProbeState
from bus.text import clean_line, redact
from controller.lease_rules import JobSnapshot, LeaseSnapshot

# A phase that a node reports, and the event by which the table leads there. `preparing` is the claim's own.
PHASE_EVENTS: Final = {
    ProbeState.LOADING: ProbeEvent.LOAD,
    ProbeState.HEALTHCHECKING: ProbeEvent.CHECK,
    ProbeState.READY: ProbeEvent.PASS,
    ProbeState.UNLOADING: ProbeEvent.UNLOAD,
}
_CODE: Final = re.compile(r"^[A-Z][A-Z0-9_]{1,63}\Z")
MAX_MESSAGE_CHARS: Final = 2_000
MAX_CONTEXT_ITEMS: Final = 16
MAX_CONTEXT_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class Accept:
    """The message is the next word of the attempt that holds the lease."""

    job: JobSnapshot
    lease: LeaseSnapshot


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The message was applied before: acknowledge it and say nothing."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The message is audited and acknowledged, never applied."""

    code: ErrorCode
    reason: str


@dataclass(frozen=True, slots=True)
class Steps:
    """The phases that the ledger has not seen, and the state that they lead to."""

    marks: tuple[PhaseMark, ...]
    state: ProbeState


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ends: the events of its probe and of itself, and the failure to store."""

    probe_event: ProbeEvent
    job_event: JobEvent
    failure: Failure | None
    note: str = ""


def judge_sender(
    message: Evidence,
    subject_node: str,
    job: JobSnapshot | None,
    lease: LeaseSnapshot | None,
    *,
    boot_is_dead: bool,
) -> Accept | Duplicate | Refusal:
    """Is this the next word of the attempt that holds the job? `lease` is the one that the message names."""
    if message.node != subject_node:
        return Refusal(ErrorCode.EVIDENCE_REFUSED, f"sent by {subject_node} in the name of {message.node}")
    if job is None or lease is None:
        return Refusal(ErrorCode.EVIDENCE_REFUSED, "no such job or lease")
    for name, stored, said in (
        ("node", lease.node, message.node),
        ("job", lease.job_id, message.job_id),
        ("boot", lease.boot_id, message.boot_id),
        ("attempt", lease.attempt, message.attempt),
    ):
        if stored != said:
            return Refusal(ErrorCode.EVIDENCE_REFUSED, f"the lease has another {name}")
    ended_by_this = job.terminal and lease.state is LeaseState.RELEASED
    if message.sequence <= lease.last_sequence or ended_by_this:
        return Duplicate()
    if boot_is_dead:
        return Refusal(ErrorCode.BOOT_SUPERSEDED, "a newer agent of this node was admitted")
    if job.terminal:
        return Refusal(ErrorCode.JOB_TERMINAL, f"the job is {job.state}")
    if lease.state is not LeaseState.ACTIVE:
        return Refusal(ErrorCode.LEASE_FENCED, f"the lease is {lease.state}")
    return Accept(job, lease)


def judge_timeline(
    known: Sequence[PhaseMark],
    sent: Sequence[PhaseMark],
    state: ProbeState,
    attempt: int,
) -> Steps | Refusal:
    """The phases of `sent` that `known` (the marks in the ledger) lacks; both hold one attempt's whole story.

    So a lost message costs nothing, and a story that contradicts what was told before is refused.
    """
    before = [mark.state for mark in known if mark.attempt == attempt and mark.state is not ProbeState.PREPARING]
    story = [mark for mark in sent if mark.state is not ProbeState.PREPARING]
    if any(mark.attempt != attempt for mark in story):
        return Refusal(ErrorCode.EVIDENCE_REFUSED, "the timeline names another attempt")
    if [mark.state for mark in story[: len(before)]] != before:
        return Refusal(ErrorCode.EVIDENCE_REFUSED, "the timeline contradicts what was reported before")
    fresh = tuple(story[len(before) :])
    for mark in fresh:
        event = PHASE_EVENTS.get(mark.state)
        if event is None or not states.PROBE.allows(state, event, Cause.NODE):
            return Refusal(ErrorCode.ILLEGAL_TRANSITION, f"a probe that is {state} cannot become {mark.state}")
        state = states.PROBE.advance(state, event, Cause.NODE)
    return Steps(fresh, state)


def judge_probe_end(message: ProbeFinished, state: ProbeState, *, cancel_requested: bool) -> Ending | Refusal:
    """How the attempt's last word ends the probe; `state` is the one that its timeline led to (spec P10, P13)."""
    ending = _probe_ending(message, cancel_requested=cancel_requested)
    if not states.PROBE.allows(state, ending.probe_event, Cause.NODE):
        return Refusal(ErrorCode.ILLEGAL_TRANSITION, f"a probe that is {state} does not accept {ending.probe_event}")
    return ending


def _probe_ending(message: ProbeFinished, *, cancel_requested: bool) -> Ending:
    if message.outcome == "completed":
        # The controller owns the verdict: a node's "completed" counts only with its proof (spec P8, P13).
        unproven = what_is_unproven(message.evidence, message.timeline)
        if unproven is not None:
            return Ending(ProbeEvent.FAIL, JobEvent.FAIL, clean_failure(unproven.to_failure()))
        note = "completed before the cancel arrived" if cancel_requested else ""
        return Ending(ProbeEvent.COMPLETE, JobEvent.SUCCEED, None, note)
    failure = end_failure(message.outcome, message.failure, cancel_requested=cancel_requested)
    if message.outcome == "cancelled" and cancel_requested:
        return Ending(ProbeEvent.CANCEL, JobEvent.CANCEL, failure)
    return Ending(ProbeEvent.FAIL, JobEvent.FAIL, failure)


def end_failure(outcome: str, failure: Failure | None, *, cancel_requested: bool) -> Failure:
    """The failure to store for an end that is no success."""
    if outcome == "cancelled":
        if cancel_requested:
            return clean_failure(failure) if failure else _failure(ErrorCode.CANCELLED, "cancelled by an operator")
        return _failure(ErrorCode.NODE_FAULT, "the node ended the attempt although nobody had cancelled it")
    return clean_failure(failure) if failure else _failure(ErrorCode.NODE_FAULT, "the node reported no reason")


def clean_failure(failure: Failure) -> Failure:
    """A node's failure as it may be stored: one line, bounded, without terminal control or credentials.

    A code that this version does not know is kept, so that no reason gets lost.
    """
    code = failure.code if _CODE.match(failure.code) else ErrorCode.INTERNAL.value
    context = {
        clean_line(key, MAX_CONTEXT_CHARS): clean_line(redact(value), MAX_CONTEXT_CHARS)
        for key, value in list(failure.context.items())[:MAX_CONTEXT_ITEMS]
    }
    return Failure(code=code, message=clean_line(redact(failure.message), MAX_MESSAGE_CHARS), context=context)


def _failure(code: ErrorCode, message: str) -> Failure:
    return ModelForgeError(code, message).to_failure()
