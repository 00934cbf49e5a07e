"""`modelforge artifact`: scan a folder on a node, list and show the sets that came of it, quarantine a file."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from bus import verbs
from bus.errors import ErrorCode, Exit, ModelForgeError
from bus.ids import now
from bus.messages.api import ById, Page, QuarantineRequest, ScanRequest
from bus.states import JOB
from modelforge import format as text
from modelforge.cli import artifact_card as card
from modelforge.cli.command import App, Command
from modelforge.cli.hints import after_scan, scan_again
from modelforge.cli.members import read_set
from modelforge.cli.names import require_digest_or_prefix
from modelforge.cli.scanning import (
    check_path,
    follow_scan,
    left_out,
    read_expected,
    scan_card,
    scan_error,
    scan_record,
    scanned_set,
    send_expected,
)
from modelforge.cli.session import goes_on, pick_node, with_operator

if TYPE_CHECKING:
    from bus.messages.artifacts import ArtifactSet, FileEntry, ScanView
    from bus.operator import Operator

    Scanned = tuple[ScanView, ArtifactSet | None, tuple[str, ...]]

_FILE = click.Path(path_type=Path)


@click.group()
def artifact() -> None:
    """Scan model folders; list and show artifact sets; quarantine files."""


@artifact.command(cls=Command)
@click.argument("path")
@click.option("--node", metavar="NAME", help="Node whose folder is scanned (default: the only one).")
@click.option("--fresh", is_flag=True, help="Read every byte again, whatever an earlier scan has read.")
@click.option("--expect", "sums", type=_FILE, metavar="FILE", help="List of `sha256sum` that the folder must equal.")
@click.option(
    "--expect-signature", "signature", type=_FILE, metavar="FILE", help="OpenSSF model signature that it must equal."
)
@click.option("--public-key", type=_FILE, metavar="FILE", help="Key that the signature is checked with.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait for the scan's end.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="How long to wait.  [until the scan ends]",
)
@click.option("--request-id", help="Makes a repeat of this command harmless (default: a fresh one).")
@click.pass_obj
def scan(  # noqa: PLR0913 -- one argument per option
    app: App,
    *,
    path: str,
    node: str | None,
    fresh: bool,
    sums: Path | None,
    signature: Path | None,
    public_key: Path | None,
    wait: bool,
    timeout_s: float | None,
    request_id: str | None,
) -> int:
    """Hash every file of the folder PATH, which is relative to the node's artifact root."""
    check_path(path)
    wanted = read_expected(sums, signature, public_key)
    if wanted is not None and wanted.ignored:
        app.out.note(f"the signature says nothing of {left_out(wanted)}", "warn")

    begun: list[ScanView] = []

    async def work(operator: Operator) -> Scanned:
        target = await pick_node(operator, node)
        expected = await send_expected(operator, wanted, app.out.progress) if wanted is not None else None
        request = ScanRequest(
            node=target, path=path, request_id=request_id or uuid.uuid4().hex, fresh=fresh, expected=expected
        )
        queued = await operator.call(verbs.ARTIFACTS_SCAN, request)
        begun.append(queued)
        app.out.progress.phase(f"scan {queued.id} of {target}:{path} queued")
        view = await follow_scan(operator, app, queued, timeout_s) if wait else queued
        found = await scanned_set(operator, view)
        return view, found, await after_scan(operator, view, found)

    try:
        view, found, hints = with_operator(app, work)
    except (KeyboardInterrupt, ModelForgeError) as error:
        if not begun or (isinstance(error, ModelForgeError) and error.code is not ErrorCode.WAIT_TIMEOUT):
            raise
        look = app.whole(f"modelforge artifact scan-show {begun[0].id}")
        raise goes_on(error, f"scan {begun[0].id}", look) from error
    if view.failure is not None:
        raise scan_error(view.failure, wanted)
    app.out.result("scan", scan_record(view, found), lambda: scan_card(view, found))
    app.next(*hints)
    if not JOB.is_terminal(view.state):
        app.next(f"modelforge artifact scan-show {view.id}")
    return Exit.OK


@artifact.command("scan-show", cls=Command)
@click.argument("id_", metavar="ID")
@click.pass_obj
def scan_show(app: App, id_: str) -> int:
    """Show one scan, by the id that `artifact scan` printed. Exit 1 when it failed."""

    async def work(operator: Operator) -> Scanned:
        view = await operator.call(verbs.SCANS_SHOW, ById(id=id_))
        found = await scanned_set(operator, view)
        return view, found, await after_scan(operator, view, found)

    view, found, hints = with_operator(app, work)
    app.out.result("scan", scan_record(view, found), lambda: scan_card(view, found))
    app.next(*hints)
    return Exit.OK if view.failure is None else Exit.FAILED


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
            ("SET", "FILES", "SIZE", "AGE", "STATE", "LOCATIONS"),
            [
                (
                    text.short(one.digest),
                    one.file_count,
                    text.size(one.size_bytes),
                    text.age(one.created_at, moment),
                    card.state(one),
                    card.places(one),
                )
                for one in sets
            ],
        )

    app.out.result("artifact-sets", sets, rows)
    app.out.truncated(reply, len(sets), limit)
    if not sets:
        app.next("modelforge artifact scan PATH")


@artifact.command(cls=Command)
@click.argument("set_", metavar="SET")
@click.option("--files", "all_files", is_flag=True, help="Every file, however many there are.")
@click.pass_obj
def show(app: App, set_: str, all_files: bool) -> None:
    """Show one artifact set, by its digest or the beginning of it."""
    files_max = None if all_files or app.out.as_json else card.SHOWN_MAX

    async def work(operator: Operator) -> tuple[ArtifactSet, tuple[FileEntry, ...]]:
        return await read_set(operator, set_, files_max=files_max)

    found, files = with_operator(app, work)
    app.out.result("artifact-set", found, lambda: card.set_card(found, files))
    if any(one.released_by is None for one in found.quarantined):
        app.next(_release(found.digest))
    for place in found.locations:
        if place.state == "corrupt":
            app.next(scan_again(place.path, place.node))


@artifact.command(cls=Command)
@click.argument("set_", metavar="SET")
@click.option("--file", "path", required=True, metavar="PATH", help="Member of the set, as `artifact show` names it.")
@click.option("--reason", required=True, help="Why; it is kept and audited.")
@click.pass_obj
def quarantine(app: App, set_: str, path: str, reason: str) -> None:
    """Quarantine the bytes of one file of the set SET, in every set that has them."""
    request = QuarantineRequest(set_digest=require_digest_or_prefix(set_), path=path, reason=reason)
    made = with_operator(app, lambda operator: operator.call(verbs.ARTIFACTS_QUARANTINE, request))
    app.out.result("quarantine", made, lambda: card.quarantine_card(made))
    app.out.note("every assessment of a set with these bytes is stale now", "quiet")
    app.next("modelforge assess list --stale", _release(made.set_digest))


def _release(digest: str) -> str:
    """An approval of the whole set takes a quarantine back; there is no other way."""
    return f"modelforge approve add {digest} --purpose quarantine_release --reason WHY"
