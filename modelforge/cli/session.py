"""One connection for one command: dial, work, close; and waiting for a thing to end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from bus import subjects, verbs
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.api import Page
from bus.operator import Operator
from modelforge.cli.patience import LIMIT_S, Patience, patiently

if TYPE_CHECKING:
    from nats.aio.msg import Msg

    from modelforge.cli.command import App
    from modelforge.cli.output import Progress

T = TypeVar("T")
# An event wakes the waiting command at once; this bound only covers an event that was lost.
REFRESH_S: Final = 2.0
TICK_S: Final = 0.2


def with_operator(app: App, work: Callable[[Operator], Awaitable[T]]) -> T:
    """Run `work` with a connected operator.

    Raises:
        ModelForgeError: NOT_CONNECTED, AUTH_FAILED, NO_CONTROLLER, REQUEST_TIMEOUT, or what the controller answered.
    """
    settings = app.client()

    async def session() -> T:
        operator = await Operator.connect(settings)
        try:
            return await work(operator)
        finally:
            await operator.close()

    return asyncio.run(session())


def goes_on(error: ModelForgeError | KeyboardInterrupt, what: str, look: str) -> ModelForgeError:
    """The end of a wait whose work goes on: what that is, and the command that looks at it."""
    hint = f"Look at it with `{look}`."
    if isinstance(error, ModelForgeError):
        return ModelForgeError(error.code, error.message, hint=hint, **error.context)
    return ModelForgeError(ErrorCode.INTERRUPTED, f"interrupted; {what} goes on", hint=hint)


async def pick_node(operator: Operator, name: str | None) -> str:
    """The named node, or the only one there is.

    Raises:
        ModelForgeError: NODE_UNKNOWN when there is none, INVALID_ARGUMENT when there are several.
    """
    if name is not None:
        return name
    nodes = (await operator.call(verbs.NODES_LIST, Page())).nodes
    if len(nodes) == 1:
        return nodes[0].name
    if not nodes:
        raise ModelForgeError(ErrorCode.NODE_UNKNOWN, "no node has ever said hello to this controller")
    names = ", ".join(node.name for node in nodes)
    hint = f"Add `--node {nodes[0].name}`."
    raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, f"several nodes are known: {names}", hint=hint)


async def wait_until(
    operator: Operator,
    entity: str,
    entity_id: str,
    *,
    read: Callable[[], Awaitable[T]],
    done: Callable[[T], bool],
    progress: Progress,
    timeout_s: float | None,
    refresh_s: float | None = None,
) -> T:
    """Read a thing again at each of its events until `done`; the subscription stands before the first look.

    `refresh_s`: how often it is read without an event; what changes without events is asked for more often.

    A controller that is away for a while, as in a restart, does not end the wait.

    Raises:
        ModelForgeError: WAIT_TIMEOUT when `timeout_s` is over (the work goes on), what `read` raises, or why the
            controller has not answered for too long.
    """
    patience = patience_for(progress, timeout_s)
    end = None if timeout_s is None else time.monotonic() + timeout_s
    changed = asyncio.Event()

    async def wake(_: Msg) -> None:  # the client awaits its callbacks
        changed.set()

    subject = subjects.event(entity, entity_id, ">")
    subscription = await patiently(lambda: operator.client.subscribe(subject, wake), patience)
    try:
        while True:
            changed.clear()
            try:
                thing = await read()
            except ModelForgeError as error:
                patience.bear(error)
            else:
                patience.answered()
                if done(thing):
                    return thing
            await _pause(changed, end, progress, REFRESH_S if refresh_s is None else refresh_s)
            if end is not None and time.monotonic() >= end:
                message = f"{entity} {entity_id} has not ended after {timeout_s:g} s"
                raise ModelForgeError(ErrorCode.WAIT_TIMEOUT, message, id=entity_id)
    finally:
        if operator.client.connected:
            await subscription.unsubscribe()


def patience_for(progress: Progress, timeout_s: float | None) -> Patience:
    """As much patience as a wait of `timeout_s` has room for."""
    return Patience(progress, limit_s=LIMIT_S if timeout_s is None else min(LIMIT_S, timeout_s))


async def _pause(changed: asyncio.Event, end: float | None, progress: Progress, refresh_s: float) -> None:
    """Until something changed, the refresh is due or the wait is over; the progress line moves meanwhile."""
    until = time.monotonic() + refresh_s
    if end is not None:
        until = min(until, end)
    while not changed.is_set() and time.monotonic() < until:
        progress.tick()
        try:
            await asyncio.wait_for(changed.wait(), min(TICK_S, max(0.001, until - time.monotonic())))
        except TimeoutError:
            continue
