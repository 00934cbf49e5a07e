"""The doctor's questions to a running stack: server, credentials, controller, streams, nodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from bus import verbs
from bus.errors import ModelForgeError
from bus.ids import now
from bus.messages.api import Nothing, Page, Status
from bus.operator import Operator
from modelforge import format as text
from modelforge.doctor import Check
from modelforge.extras import install_command

if TYPE_CHECKING:
    from bus.messages.inventory import NodeView
    from bus.settings import ClientSettings

_SKEW_LIMIT_S: Final = 5.0
_SLOW_ROUND_TRIP_S: Final = 0.5
_OUTBOX_LIMIT: Final = 100
_OTHERS: Final = 0o077
# How the status begins about a stream that stores nothing although its server answers, as after a full disk.
DEGRADED: Final = "degraded"
_RESTART_SERVER: Final = (
    "make room on the server's disk, then restart nats-server (stop `modelforge up`, start it again)"
)


async def stack_checks(settings: ClientSettings) -> list[Check]:
    """Dial, then ask; a question that depends on a failed one is not asked."""
    try:
        operator = await Operator.connect(settings)
    except ModelForgeError as error:
        return [_failed("server", error)]
    try:
        return await _ask(operator, settings)
    finally:
        await operator.close()


def _failed(name: str, error: ModelForgeError) -> Check:
    return Check(name=name, level="fail", detail=f"{error.code}: {error.message}", fix=error.hint)


async def _ask(operator: Operator, settings: ClientSettings) -> list[Check]:
    checks = [check_credentials(settings)]
    try:
        round_trip_s = await operator.client.round_trip()
        slow = round_trip_s > _SLOW_ROUND_TRIP_S
        detail = f"{settings.url} answers in {text.duration_ms(round_trip_s * 1_000)}"
        checks.append(
            Check(name="server", level="warn" if slow else "ok", detail=detail, fix="look at its load" if slow else "")
        )
        status = await operator.call(verbs.STATUS, Nothing())
    except ModelForgeError as error:
        return [*checks, _failed("controller", error)]
    checks += [check_controller(status), check_clock(status), check_streams(status)]
    try:
        nodes = (await operator.call(verbs.NODES_LIST, Page())).nodes
    except ModelForgeError as error:
        return [*checks, _failed("nodes", error)]
    if not nodes:
        fix = "modelforge up, or start an agent"
        return [*checks, Check(name="nodes", level="fail", detail="no node has ever said hello", fix=fix)]
    return [*checks, *(check_node(node) for node in nodes)]


def check_credentials(settings: ClientSettings) -> Check:
    """The key was accepted; nobody else should be able to read it."""
    detail = f"{settings.credentials} accepted as {settings.user}"
    if Path(settings.credentials).stat().st_mode & _OTHERS:
        fix = f"chmod 600 {settings.credentials}"
        return Check(name="credentials", level="warn", detail=f"{detail}; others can read it", fix=fix)
    return Check(name="credentials", level="ok", detail=detail)


def check_controller(status: Status) -> Check:
    """It answers, and its outbox drains."""
    detail = (
        f"version {status.version}, schema {status.schema_version}, since {text.moment(status.started_at)}, "
        f"{text.count(status.open_jobs, 'open job')}, {status.outbox_waiting} waiting to be published"
    )
    if status.outbox_waiting > _OUTBOX_LIMIT:
        return Check(name="controller", level="warn", detail=detail, fix="read the controller's log")
    return Check(name="controller", level="ok", detail=detail)


def check_clock(status: Status) -> Check:
    """The controller's clock and ours."""
    skew_s = abs((now() - status.at).total_seconds())
    if skew_s > _SKEW_LIMIT_S:
        return Check(name="clock", level="warn", detail=f"{skew_s:.0f} s apart from the controller", fix="timedatectl")
    return Check(name="clock", level="ok", detail="agrees with the controller's")


def check_streams(status: Status) -> Check:
    """Every stream is as declared, and takes what is published."""
    off = {name: how for name, how in status.streams.items() if how != "ok"}
    if off or not status.streams:
        detail = ", ".join(f"{name}: {how}" for name, how in off.items()) or "the controller reports no streams"
        degraded = any(how.startswith(DEGRADED) for how in off.values())
        fix = _RESTART_SERVER if degraded else "compare with docs/reference/streams.md"
        return Check(name="streams", level="fail", detail=detail, fix=fix)
    return Check(name="streams", level="ok", detail=", ".join(status.streams))


def check_node(node: NodeView) -> Check:
    """A node is online, and its inventory says what it can do."""
    name = f"node {node.name}"
    if node.liveness != "online":
        detail = f"{node.liveness}, last seen {text.moment(node.last_seen_at)}"
        return Check(
            name=name,
            level="fail" if node.liveness == "offline" else "warn",
            detail=detail,
            fix=f"start the agent of {node.name}",
        )
    if node.inventory is None:
        return Check(
            name=name, level="fail", detail="online without an inventory", fix=f"modelforge node show {node.name}"
        )
    adapters = node.inventory.environment.adapters
    executable = [one.name for one in adapters if one.executable]
    slots = f"{len(node.inventory.active)} of {node.inventory.slots} slots in use"
    if not executable:
        reasons = "; ".join(f"{one.name}: {one.reason}" for one in adapters) or "no adapters"
        return Check(
            name=name,
            level="warn",
            detail=f"online, but nothing can be run ({reasons})",
            fix=install_command("runtime"),
        )
    return Check(name=name, level="ok", detail=f"online, runs {', '.join(executable)}, {slots}")
