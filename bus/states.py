"""Every transition table of the product: state, event, next state, and who may cause it (spec P3).

A missing edge changes nothing: `advance` raises, unless the pair is listed as an explicit ignore. The CHECK
constraints of the ledger, the colours and actions of the TUI, and the diagrams in docs/reference/states.md come
from these tables; tests hold them together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Generic, TypeVar

from bus.errors import ErrorCode, ModelForgeError


class ProbeState(StrEnum):
    """Spec P3, in the order of a probe's life."""

    QUEUED = "queued"
    PREPARING = "preparing"
    LOADING = "loading"
    HEALTHCHECKING = "healthchecking"
    READY = "ready"
    UNLOADING = "unloading"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ProbeEvent(StrEnum):
    """What can happen to a probe."""

    CLAIM = "claim"
    LOAD = "load"
    CHECK = "check"
    PASS = "pass"  # noqa: S105 -- the name of an event, not a password
    UNLOAD = "unload"
    COMPLETE = "complete"
    FAIL = "fail"
    CANCEL = "cancel"
    GIVE_UP = "give_up"


class JobState(StrEnum):
    """A unit of work that travels to a node (scan, probe; serving jobs later)."""

    QUEUED = "queued"
    LEASED = "leased"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class JobEvent(StrEnum):
    """What can happen to a job."""

    CLAIM = "claim"
    SUCCEED = "succeed"
    FAIL = "fail"
    CANCEL = "cancel"
    EXPIRE = "expire"


class LeaseState(StrEnum):
    """One attempt's right to work on a job."""

    ACTIVE = "active"
    RELEASED = "released"
    EXPIRED = "expired"
    FENCED = "fenced"


class LeaseEvent(StrEnum):
    """What can happen to a lease."""

    RENEW = "renew"
    RELEASE = "release"
    EXPIRE = "expire"
    FENCE = "fence"


class Cause(StrEnum):
    """Who may cause an edge."""

    NODE = "node"  # evidence of the attempt that holds the lease
    OPERATOR = "operator"
    CONTROLLER = "controller"  # deadlines, attempt limits, reconciliation


S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Edge(Generic[S]):
    """Where an event leads, and who may cause it."""

    to: S
    by: frozenset[Cause]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Generic[S, E]):
    """One state machine: edges, terminal states, and pairs that are silently nothing."""

    name: str
    initial: S
    terminal: frozenset[S]
    edges: dict[tuple[S, E], Edge[S]]
    ignored: frozenset[tuple[S, E]] = field(default_factory=frozenset)

    def advance(self, state: S, event: E, by: Cause) -> S:
        """The state after `event`; the same state for an ignored pair.

        Raises:
            ModelForgeError: ILLEGAL_TRANSITION for a missing edge or a cause that may not use it.
        """
        edge = self.edges.get((state, event))
        if edge is not None and by in edge.by:
            return edge.to
        if (state, event) in self.ignored:
            return state
        message = f"a {self.name} that is {state} does not accept {event} from {by}"
        raise ModelForgeError(ErrorCode.ILLEGAL_TRANSITION, message, state=state, event=event)

    def allows(self, state: S, event: E, by: Cause) -> bool:
        """Would `advance` change the state? The TUI greys out actions by this."""
        edge = self.edges.get((state, event))
        return edge is not None and by in edge.by

    def is_terminal(self, state: S) -> bool:
        """Has the life ended?"""
        return state in self.terminal


_NODE: Final = frozenset({Cause.NODE})
_OPERATOR: Final = frozenset({Cause.OPERATOR})
_CONTROLLER: Final = frozenset({Cause.CONTROLLER})
_NODE_OR_CONTROLLER: Final = frozenset({Cause.NODE, Cause.CONTROLLER})

_P, _PE = ProbeState, ProbeEvent
PROBE_ACTIVE: Final = (_P.PREPARING, _P.LOADING, _P.HEALTHCHECKING, _P.READY, _P.UNLOADING)

PROBE: Final[Table[ProbeState, ProbeEvent]] = Table(
    name="probe",
    initial=_P.QUEUED,
    terminal=frozenset({_P.COMPLETED, _P.FAILED, _P.CANCELLED}),
    edges={
        # A claim starts an attempt: the first from the queue, a later one from wherever the dead attempt stood.
        (_P.QUEUED, _PE.CLAIM): Edge(_P.PREPARING, _NODE),
        **{(state, _PE.CLAIM): Edge(_P.PREPARING, _NODE) for state in PROBE_ACTIVE},
        (_P.PREPARING, _PE.LOAD): Edge(_P.LOADING, _NODE),
        (_P.LOADING, _PE.CHECK): Edge(_P.HEALTHCHECKING, _NODE),
        (_P.HEALTHCHECKING, _PE.PASS): Edge(_P.READY, _NODE),
        (_P.READY, _PE.UNLOAD): Edge(_P.UNLOADING, _NODE),
        # Early failure and cancellation still go through unloading: reclaim is checked (spec P8, P10).
        (_P.PREPARING, _PE.UNLOAD): Edge(_P.UNLOADING, _NODE),
        (_P.LOADING, _PE.UNLOAD): Edge(_P.UNLOADING, _NODE),
        (_P.HEALTHCHECKING, _PE.UNLOAD): Edge(_P.UNLOADING, _NODE),
        (_P.UNLOADING, _PE.COMPLETE): Edge(_P.COMPLETED, _NODE),
        (_P.UNLOADING, _PE.FAIL): Edge(_P.FAILED, _NODE),
        (_P.UNLOADING, _PE.CANCEL): Edge(_P.CANCELLED, _NODE),
        # Nothing was started yet: the operator's cancel is the end at once.
        (_P.QUEUED, _PE.CANCEL): Edge(_P.CANCELLED, _OPERATOR),
        # No attempt is left, or the deadline passed: nobody is there to unload.
        **{(state, _PE.GIVE_UP): Edge(_P.FAILED, _CONTROLLER) for state in (_P.QUEUED, *PROBE_ACTIVE)},
    },
)

_J, _JE = JobState, JobEvent
JOB: Final[Table[JobState, JobEvent]] = Table(
    name="job",
    initial=_J.QUEUED,
    terminal=frozenset({_J.SUCCEEDED, _J.FAILED, _J.CANCELLED, _J.EXPIRED}),
    edges={
        (_J.QUEUED, _JE.CLAIM): Edge(_J.LEASED, _NODE),
        (_J.LEASED, _JE.CLAIM): Edge(_J.LEASED, _NODE),
        (_J.LEASED, _JE.SUCCEED): Edge(_J.SUCCEEDED, _NODE),
        (_J.LEASED, _JE.FAIL): Edge(_J.FAILED, _NODE_OR_CONTROLLER),
        (_J.QUEUED, _JE.FAIL): Edge(_J.FAILED, _CONTROLLER),
        (_J.QUEUED, _JE.CANCEL): Edge(_J.CANCELLED, _OPERATOR),
        (_J.LEASED, _JE.CANCEL): Edge(_J.CANCELLED, _NODE),
        (_J.QUEUED, _JE.EXPIRE): Edge(_J.EXPIRED, _CONTROLLER),
        (_J.LEASED, _JE.EXPIRE): Edge(_J.EXPIRED, _CONTROLLER),
    },
)

_L, _LE = LeaseState, LeaseEvent
LEASE: Final[Table[LeaseState, LeaseEvent]] = Table(
    name="lease",
    initial=_L.ACTIVE,
    terminal=frozenset({_L.RELEASED, _L.EXPIRED, _L.FENCED}),
    edges={
        (_L.ACTIVE, _LE.RENEW): Edge(_L.ACTIVE, _NODE),
        (_L.ACTIVE, _LE.RELEASE): Edge(_L.RELEASED, _NODE),
        (_L.ACTIVE, _LE.EXPIRE): Edge(_L.EXPIRED, _CONTROLLER),
        (_L.ACTIVE, _LE.FENCE): Edge(_L.FENCED, _CONTROLLER),
    },
    # The end of a lease may be learned twice (sweep and claim in one moment); the first reason stands.
    ignored=frozenset(
        (state, event)
        for state in (_L.RELEASED, _L.EXPIRED, _L.FENCED)
        for event in (_LE.EXPIRE, _LE.FENCE, _LE.RELEASE)
    ),
)

TABLES: Final = (PROBE, JOB, LEASE)
