"""What the screens show, as a pure function of the feed's picture, the operator's wishes and the moment.

Nothing here knows Textual, the bus's connection or the clock: a `Board` is reduced by the functions below and turned
into rows; widgets draw them. So the state survives a change of framework, and every screen can be tested as values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Protocol

from bus.errors import ErrorCode
from bus.messages.gates import ProbeView
from bus.messages.inventory import NodeView
from bus.messages.profiles import Budgets
from bus.states import PROBE, PROBE_ACTIVE, ProbeState
from tui.lines import Tone

GLYPHS: Final[dict[ProbeState, str]] = {
    ProbeState.QUEUED: "○",
    ProbeState.PREPARING: "◔",
    ProbeState.LOADING: "◑",
    ProbeState.HEALTHCHECKING: "◕",
    ProbeState.READY: "●",
    ProbeState.UNLOADING: "◒",
    ProbeState.COMPLETED: "✓",
    ProbeState.FAILED: "✗",
    ProbeState.CANCELLED: "⊘",
}
TONES: Final[dict[ProbeState, Tone]] = {
    **dict.fromkeys(PROBE_ACTIVE, Tone.ACTIVE),
    ProbeState.QUEUED: Tone.TEXT,
    ProbeState.COMPLETED: Tone.GOOD,
    ProbeState.FAILED: Tone.BAD,
    ProbeState.CANCELLED: Tone.WARN,
}


_SILENCE: Final = (f"{ErrorCode.NO_CONTROLLER}: ", f"{ErrorCode.REQUEST_TIMEOUT}: ")


class Picture(Protocol):
    """What the view-model reads of `bus.feed.FeedState`."""

    @property
    def probes(self) -> Mapping[str, ProbeView]:
        """Probes by id."""

    @property
    def nodes(self) -> Mapping[str, NodeView]:
        """Nodes by name."""

    @property
    def sequence(self) -> int:
        """The last event that is in the picture."""

    @property
    def connected(self) -> bool:
        """Does the feed hear the bus?"""

    @property
    def as_of(self) -> datetime:
        """When the picture was known to be true."""

    @property
    def last_error(self) -> str | None:
        """Why the feed is not connected, or what it could not read."""


class LinkState(StrEnum):
    """How far the picture may be trusted."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    SILENT = "controller silent"  # the bus answers, the controller does not
    RECONNECTING = "reconnecting"
    DISCONNECTED = "disconnected"  # the feed has ended and will not come back by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The state of the link, since when, and why."""

    state: LinkState = LinkState.CONNECTING
    since: datetime
    reason: str | None = None

    @property
    def live(self) -> bool:
        """May the picture be shown as the present?"""
        return self.state is LinkState.CONNECTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """Everything that the probes screen depends on, but the moment.

    Attributes:
        filter_text: shows what contains it; with a leading `!`, what does not.
        cursor: the id of the chosen probe; it stays on its probe when rows move.
        refusal: why this user may not act, once the controller has said so.
        received_at: when the picture came, by the clock of this machine.
    """

    link: Link
    picture: Picture | None = None
    filter_text: str = ""
    faults_only: bool = False
    cursor: str | None = None
    refusal: str | None = None
    received_at: datetime | None = None


class Fault(StrEnum):
    """What asks for the operator."""

    FAILED = "failed"
    OVER_BUDGET = "over budget"
    NODE_OFFLINE = "node offline"


def received(board: Board, picture: Picture, now: datetime) -> Board:
    """A new picture from the feed. A cursor whose probe is gone, or was never set, goes to the first row."""
    state = _link_of(picture)
    if board.picture is None and not picture.connected:
        return linked(board, LinkState.CONNECTING, now, picture.last_error)
    if board.picture is None or board.picture.as_of != picture.as_of:
        board = replace(board, received_at=now)
    board = linked(replace(board, picture=picture), state, now, picture.last_error)
    if board.cursor is None or board.cursor not in picture.probes:
        rows = visible(board, moment_of(board, now))
        board = replace(board, cursor=rows[0].id if rows else None)
    return board


def _link_of(picture: Picture) -> LinkState:
    if picture.connected:
        return LinkState.CONNECTED
    # The feed gives its reason as text that begins with the code.
    return LinkState.SILENT if (picture.last_error or "").startswith(_SILENCE) else LinkState.RECONNECTING


def linked(board: Board, state: LinkState, now: datetime, reason: str | None = None) -> Board:
    """The link is in this state now; it keeps its beginning when it was in it before."""
    since = board.link.since if board.link.state is state else now
    return replace(board, link=Link(state=state, since=since, reason=reason))


def age_s(board: Board, now: datetime) -> float:
    """How long ago the picture came, by this machine's clock alone: the controller's may differ."""
    return 0.0 if board.received_at is None else max((now - board.received_at).total_seconds(), 0.0)


def moment_of(board: Board, now: datetime) -> datetime:
    """The controller's present, that ages are counted to; the last known one when the link is down.

    It is the picture's own time plus its age, so that a wrong clock here shows no wrong durations; and it stands still
    while nothing is known, so that nothing seems to go on.
    """
    if board.picture is None:
        return now
    return board.picture.as_of + timedelta(seconds=age_s(board, now)) if board.link.live else board.picture.as_of


def budget_s(state: ProbeState, budgets: Budgets) -> int | None:
    """How long a phase may take; `None` where the profile sets no limit of its own."""
    return {
        ProbeState.PREPARING: budgets.preparing_s,
        ProbeState.LOADING: budgets.loading_s,
        ProbeState.HEALTHCHECKING: budgets.healthchecking_s,
        ProbeState.UNLOADING: budgets.unloading_s,
    }.get(state)


def elapsed_s(view: ProbeView, moment: datetime) -> float:
    """Time in the present state, or 0 after the end."""
    return 0.0 if PROBE.is_terminal(view.state) else max((moment - view.state_at).total_seconds(), 0.0)


def total_s(view: ProbeView, moment: datetime) -> float:
    """Time since the probe was queued, up to its end."""
    end = (view.finished_at or view.state_at) if PROBE.is_terminal(view.state) else moment
    return max((end - view.queued_at).total_seconds(), 0.0)


def fault_of(view: ProbeView, nodes: Mapping[str, NodeView], moment: datetime) -> Fault | None:
    """Does this probe ask for the operator, and why?"""
    if view.state is ProbeState.FAILED:
        return Fault.FAILED
    if PROBE.is_terminal(view.state):
        return None
    budget = budget_s(view.state, view.budgets)
    if budget is not None and elapsed_s(view, moment) > budget:
        return Fault.OVER_BUDGET
    node = nodes.get(view.node)
    return Fault.NODE_OFFLINE if node is not None and node.liveness == "offline" else None


def superseded(picture: Picture) -> frozenset[str]:
    """Failed probes whose set, profile and node a later probe has passed: history, not news."""
    passed: dict[tuple[str, str, str], datetime] = {}
    for view in picture.probes.values():
        if view.state is ProbeState.COMPLETED:
            key = (view.set_digest, view.profile_id, view.node)
            passed[key] = max(passed.get(key, view.queued_at), view.queued_at)
    return frozenset(
        view.id
        for view in picture.probes.values()
        if view.state is ProbeState.FAILED
        and passed.get((view.set_digest, view.profile_id, view.node), view.queued_at) > view.queued_at
    )


def asking(picture: Picture, moment: datetime) -> tuple[ProbeView, ...]:
    """The probes that ask for the operator now: faults that no later probe has answered."""
    old = superseded(picture)
    return tuple(
        view for view in picture.probes.values() if fault_of(view, picture.nodes, moment) and view.id not in old
    )


def next_asking(board: Board, moment: datetime) -> Board:
    """The cursor on the next listed probe that asks for the operator, from the top again after the last."""
    if board.picture is None:
        return board
    wanted = {view.id for view in asking(board.picture, moment)}
    ids = [view.id for view in visible(board, moment)]
    start = ids.index(board.cursor) + 1 if board.cursor in ids else 0
    found = next((name for name in ids[start:] + ids[:start] if name in wanted), board.cursor)
    return replace(board, cursor=found)


def visible(board: Board, moment: datetime) -> tuple[ProbeView, ...]:
    """The probes to list: active ones first, then the newest, as far as the wishes allow."""
    if board.picture is None:
        return ()
    nodes = board.picture.nodes
    chosen = [
        view
        for view in board.picture.probes.values()
        if matches(view, board.filter_text) and (not board.faults_only or fault_of(view, nodes, moment))
    ]
    chosen.sort(key=lambda view: (PROBE.is_terminal(view.state), -view.queued_at.timestamp(), view.id))
    return tuple(chosen)


def matches(view: ProbeView, text: str) -> bool:
    """Does the filter let this probe through? Case does not matter."""
    wanted = text.strip().casefold()
    inverse = wanted.startswith("!")
    wanted = wanted.removeprefix("!")
    if not wanted:
        return True
    fields = (
        view.id, view.state, view.node, view.profile_name, view.location, view.set_digest, view.queued_by,
        view.failure.code if view.failure else "", view.candidate_id or "",
    )  # fmt: skip
    return any(wanted in field.casefold() for field in fields) != inverse


def moved(board: Board, rows: tuple[ProbeView, ...], steps: int) -> Board:
    """The cursor `steps` rows further, stopping at the ends; on the first row when its probe is not listed."""
    if not rows:
        return board
    ids = [view.id for view in rows]
    if board.cursor not in ids:
        return replace(board, cursor=ids[0])
    index = min(max(ids.index(board.cursor) + steps, 0), len(ids) - 1)
    return replace(board, cursor=ids[index])
