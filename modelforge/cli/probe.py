"""`modelforge probe`: the fixed-input probe, from the queue to its evidence."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import rich_click as click

from bus import verbs
from bus.errors import ErrorCode, Exit, ModelForgeError
from bus.ids import now
from bus.messages.api import ById, CancelRequest, LogRequest, Page, QueueProbeRequest
from modelforge import format as text
from modelforge.cli.command import App, Command
from modelforge.cli.evidence_card import probe_card
from modelforge.cli.hints import after_probe, refused
from modelforge.cli.output import columns
from modelforge.cli.session import goes_on, with_operator
from modelforge.cli.watching import Marks, follow_probe, probe_exit, tell_news, watch_all

if TYPE_CHECKING:
    from bus.messages.api import LogView
    from bus.messages.gates import ProbeView
    from bus.operator import Operator


@click.group()
def probe() -> None:
    """Queue, watch, show and cancel probes."""


@probe.command(cls=Command)
@click.argument("assessment")
@click.option("--wait", is_flag=True, help="Wait for the end; the exit code tells how it went.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    default=1_800.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait; exit 124 when it is over, the probe goes on.",
)
@click.option("--fresh", is_flag=True, help="Start the child as a new interpreter, not from the template process.")
@click.option("--request-id", help="Makes a repeat of this command harmless (default: a fresh one).")
@click.pass_obj
def queue(
    app: App,
    assessment: str,
    wait: bool,
    timeout_s: float,
    fresh: bool,
    request_id: str | None,
) -> int:
    """Queue the probe that ASSESSMENT allows, on the node that it names."""
    request = QueueProbeRequest(
        assessment_id=assessment,
        request_id=request_id or uuid.uuid4().hex,
        start_method="fresh" if fresh else "template",
    )

    begun: list[ProbeView] = []

    async def work(operator: Operator) -> ProbeView:
        try:
            queued = await operator.call(verbs.PROBES_QUEUE, request)
        except ModelForgeError as error:
            raise await refused(operator, error, assessment) from error
        begun.append(queued)
        if not wait:
            return queued
        app.out.progress.phase(f"probe {queued.id} queued on {queued.node}")
        told = len(queued.timeline)
        return await follow_probe(operator, app.out.progress, queued.id, timeout_s=timeout_s, told=told)

    try:
        view = with_operator(app, work)
    except (KeyboardInterrupt, ModelForgeError) as error:
        if not begun or (isinstance(error, ModelForgeError) and error.code is not ErrorCode.WAIT_TIMEOUT):
            raise
        look = app.whole(f"modelforge probe watch {begun[0].id}")
        raise goes_on(error, f"probe {begun[0].id}", look) from error
    app.out.result("probe", view, lambda: probe_card(view, columns()))
    code = probe_exit(app, view) if wait else Exit.OK
    app.next(*after_probe(view))
    return code


@probe.command(cls=Command)
@click.argument("id_", metavar="[ID]", required=False)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="Stop watching after this long (exit 124).  [no limit]",
)
@click.pass_obj
def watch(app: App, id_: str | None, timeout_s: float | None) -> int:
    """Print a line for each state that a probe enters; of all probes when no ID is given.

    With an ID the command ends when the probe does, and its exit code tells how. With --json each line is the whole
    probe as JSON.
    """
    if id_ is None:
        with_operator(app, lambda operator: watch_all(operator, app, timeout_s))
        return Exit.OK
    marks = Marks()
    view = with_operator(
        app,
        lambda operator: follow_probe(
            operator, app.out.spinner, id_, timeout_s=timeout_s, changed=lambda one: tell_news(app, marks, one)
        ),
    )
    code = probe_exit(app, view)
    app.next(*after_probe(view))
    return code


@probe.command(cls=Command)
@click.argument("id_", metavar="ID")
@click.pass_obj
def show(app: App, id_: str) -> None:
    """Show one probe with its timeline and its evidence."""
    view = with_operator(app, lambda operator: operator.call(verbs.PROBES_SHOW, ById(id=id_)))
    app.out.result("probe", view, lambda: probe_card(view, columns()))
    app.next(*after_probe(view))


@probe.command("list", cls=Command)
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Newest ones only.")
@click.pass_obj
def list_(app: App, limit: int) -> None:
    """List the probes, newest first."""
    reply = with_operator(app, lambda operator: operator.call(verbs.PROBES_LIST, Page(limit=limit)))
    probes = reply.probes

    def rows() -> str:
        moment = now()
        return text.table(
            ("PROBE", "STATE", "ATTEMPT", "SET", "PROFILE", "NODE", "AGE", "RESULT"),
            [
                (
                    one.id,
                    one.state,
                    f"{one.attempt}/{one.max_attempts}",
                    text.short(one.set_digest),
                    one.profile_name,
                    one.node,
                    text.age(one.queued_at, moment),
                    _result(one),
                )
                for one in probes
            ],
        )

    app.out.result("probes", probes, rows)
    app.out.truncated(reply, len(probes), limit)
    if not probes:
        app.next("modelforge probe queue ASSESSMENT --wait")


def _result(one: ProbeView) -> str:
    if one.failure is not None:
        return one.failure.code
    return one.candidate_id or text.NOTHING


@probe.command(cls=Command)
@click.argument("id_", metavar="ID")
@click.option("--reason", default="", help="Why; it is kept and audited.")
@click.option("--wait", is_flag=True, help="Wait until the probe has ended.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait.",
)
@click.pass_obj
def cancel(app: App, id_: str, reason: str, wait: bool, timeout_s: float) -> None:
    """Cancel a probe: its child is ended and its memory checked."""

    async def work(operator: Operator) -> ProbeView:
        view = await operator.call(verbs.PROBES_CANCEL, CancelRequest(id=id_, reason=reason))
        if not wait or view.finished_at is not None:
            return view
        app.out.progress.phase(f"probe {view.id} is being cancelled")
        told = len(view.timeline)
        return await follow_probe(operator, app.out.progress, view.id, timeout_s=timeout_s, told=told)

    view = with_operator(app, work)
    app.out.result(
        "probe",
        view,
        lambda: (
            f"probe {view.id} is {view.state}"
            + (", cancel requested" if view.cancel_requested and view.finished_at is None else "")
        ),
    )
    if not wait and view.finished_at is None:
        app.next(f"modelforge probe watch {view.id}")


@probe.command(cls=Command)
@click.argument("id_", metavar="ID")
@click.option("--attempt", type=click.IntRange(min=1), help="Which attempt.  [the newest]")
@click.pass_obj
def log(app: App, id_: str, attempt: int | None) -> None:
    """Print the bounded log of an attempt."""
    request = LogRequest(id=id_, attempt=attempt)
    view = with_operator(app, lambda operator: operator.call(verbs.PROBES_LOG, request))
    app.out.result("log", view, view.text.rstrip)
    _log_notes(app, view)


def _log_notes(app: App, view: LogView) -> None:
    app.out.note(f"{view.ref}, ended {text.moment(view.at)}", "quiet")
    if view.dropped_bytes:
        app.out.note(f"{text.size(view.dropped_bytes)} were dropped: the log is bounded", "warn")
    if not view.text.strip():
        app.out.note("the log is empty", "quiet")
