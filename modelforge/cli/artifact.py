"""`modelforge artifact`: scan a folder on a node, list and show the sets that came of it."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

import rich_click as click

from bus import verbs
from bus.errors import ErrorCode, Exit, ModelForgeError
from bus.ids import now
from bus.messages.api import ById, Page, ScanRequest
from bus.states import JOB
from modelforge import format as text
from modelforge.cli.command import App, Command
from modelforge.cli.hints import after_scan
from modelforge.cli.session import pick_node, wait_until, with_operator

if TYPE_CHECKING:
    from bus.messages.artifacts import ArtifactSet, ScanView
    from bus.operator import Operator

_DETAILS_ON_SCREEN_MAX: Final = 40


@click.group()
def artifact() -> None:
    """Scan model folders; list and show artifact sets."""


@artifact.command(cls=Command)
@click.argument("path")
@click.option("--node", metavar="NAME", help="Node whose folder is scanned (default: the only one).")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait for the scan's end.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait.",
)
@click.option("--request-id", help="Makes a repeat of this command harmless (default: a fresh one).")
@click.pass_obj
def scan(
    app: App,
    path: str,
    node: str | None,
    wait: bool,
    timeout_s: float,
    request_id: str | None,
) -> int:
    """Hash every file of the folder PATH, which is relative to the node's artifact root."""

    async def work(operator: Operator) -> tuple[ScanView, tuple[str, ...]]:
        target = await pick_node(operator, node)
        request = ScanRequest(node=target, path=path, request_id=request_id or uuid.uuid4().hex)
        queued = await operator.call(verbs.ARTIFACTS_SCAN, request)
        app.out.progress.phase(f"scan {queued.id} of {target}:{path} queued")
        view = await follow_scan(operator, app, queued, timeout_s) if wait else queued
        return view, await after_scan(operator, view)

    view, hints = with_operator(app, work)
    if view.failure is not None:
        raise ModelForgeError.from_failure(view.failure)
    app.out.result("scan", view, lambda: _scan_card(view))
    app.next(*hints)
    if not JOB.is_terminal(view.state):
        app.next(f"modelforge artifact scan-show {view.id}")
    return 0


@artifact.command("scan-show", cls=Command)
@click.argument("id_", metavar="ID")
@click.pass_obj
def scan_show(app: App, id_: str) -> int:
    """Show one scan, by the id that `artifact scan` printed. Exit 1 when it failed."""

    async def work(operator: Operator) -> tuple[ScanView, tuple[str, ...]]:
        view = await operator.call(verbs.SCANS_SHOW, ById(id=id_))
        return view, await after_scan(operator, view)

    view, hints = with_operator(app, work)
    app.out.result("scan", view, lambda: _scan_card(view))
    app.next(*hints)
    return Exit.OK if view.failure is None else Exit.FAILED


async def follow_scan(operator: Operator, app: App, queued: ScanView, timeout_s: float) -> ScanView:
    """Wait for a scan's end, naming each state once.

    Raises:
        ModelForgeError: WAIT_TIMEOUT.
    """

    async def read() -> ScanView:
        view = await operator.call(verbs.SCANS_SHOW, ById(id=queued.id))
        app.out.progress.phase(f"scan {view.id} of {view.node}:{view.path} {view.state}")
        return view

    return await wait_until(
        operator,
        "scan",
        queued.id,
        read=read,
        done=lambda view: JOB.is_terminal(view.state),
        progress=app.out.progress,
        timeout_s=timeout_s,
    )


def _scan_card(view: ScanView) -> str:
    return text.card(
        [
            ("scan", view.id),
            ("node", view.node),
            ("path", view.path),
            ("state", view.state),
            ("set", view.set_digest or text.NOTHING),
            *([("failure", f"{view.failure.code}: {view.failure.message}")] if view.failure is not None else []),
        ],
        indent=0,
    )


@artifact.command("list", cls=Command)
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Newest ones only.")
@click.pass_obj
def list_(app: App, limit: int) -> None:
    """List the known artifact sets, newest first."""
    reply = with_operator(app, lambda operator: operator.call(verbs.ARTIFACTS_LIST, Page(limit=limit)))
    sets = reply.sets

    def rows() -> str:
        moment = now()
        return text.table(
            ("SET", "FILES", "SIZE", "AGE", "LOCATIONS"),
            [
                (
                    text.short(one.digest),
                    one.file_count,
                    text.size(one.size_bytes),
                    text.age(one.created_at, moment),
                    _locations(one),
                )
                for one in sets
            ],
        )

    app.out.result("artifact-sets", sets, rows)
    app.out.truncated(reply, len(sets), limit)
    if not sets:
        app.next("modelforge artifact scan PATH")


def _locations(one: ArtifactSet) -> str:
    return ", ".join(f"{place.node}:{place.path}" for place in one.locations) or text.NOTHING


@artifact.command(cls=Command)
@click.argument("set_", metavar="SET")
@click.pass_obj
def show(app: App, set_: str) -> None:
    """Show one artifact set, by its digest or the beginning of it, with every file."""
    found = with_operator(app, lambda operator: operator.call(verbs.ARTIFACTS_SHOW, ById(id=set_)))
    app.out.result("artifact-set", found, lambda: set_card(found))


def set_card(found: ArtifactSet) -> str:
    """A set on the screen: identity, places, files, weight headers and notes."""
    files = found.manifest.files if found.manifest else ()
    blocks = [
        text.card(
            [
                ("set", found.digest),
                ("files", found.file_count),
                ("size", text.size(found.size_bytes)),
                ("created", text.moment(found.created_at)),
                ("locations", _locations(found)),
            ],
            indent=0,
        )
    ]
    if files:
        shown = files[:_DETAILS_ON_SCREEN_MAX]
        rows = [(text.short(file.sha256), text.size(file.size_bytes), file.path) for file in shown]
        blocks.append(text.table(("SHA-256", "SIZE", "FILE"), rows))
        if len(files) > len(shown):
            blocks.append(f"and {text.count(len(files) - len(shown), 'more file')}: see --json")
    if found.evidence is not None and found.evidence.weights:
        blocks.append(
            text.table(
                ("FORMAT", "TENSORS", "PARAMETERS", "WEIGHTS"),
                [(one.format, one.tensors, one.parameters, one.path) for one in found.evidence.weights],
            )
        )
    if found.evidence is not None and found.evidence.notes:
        blocks.append("\n".join(f"note: {note}" for note in found.evidence.notes))
    return "\n\n".join(blocks)


def require_digest_or_prefix(value: str) -> str:
    """A set's name as typed: hex digits, with or without `sha256:`.

    Raises:
        ModelForgeError: INVALID_ARGUMENT, before anything is sent.
    """
    digits = value.removeprefix("sha256:")
    if digits and all(character in "0123456789abcdef" for character in digits):
        return value
    hint = "List the sets with `modelforge artifact list`."
    message = f"{value!r} names no set: a set is named by the hex digits of its digest"
    raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, message, hint=hint)
