"""`modelforge audit`: who did what, and when."""

from __future__ import annotations

import rich_click as click

from bus import verbs
from bus.messages.api import AuditRequest
from modelforge import format as text
from modelforge.cli.command import App, Command
from modelforge.cli.session import with_operator


@click.group()
def audit() -> None:
    """Read the audit trail."""


@audit.command("list", cls=Command)
@click.option("--id", "id_", metavar="ID", help="Only what happened to this thing.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Newest ones only.")
@click.pass_obj
def list_(app: App, id_: str | None, limit: int) -> None:
    """List audit entries, newest first."""
    request = AuditRequest(id=id_, limit=limit)
    reply = with_operator(app, lambda operator: operator.call(verbs.AUDIT_LIST, request))
    entries = reply.entries
    app.out.result(
        "audit",
        entries,
        lambda: text.table(
            ("NUMBER", "TIME", "ACTOR", "WHAT", "ENTITY", "ID", "DETAIL"),
            [
                (
                    one.sequence,
                    text.moment(one.at),
                    one.actor,
                    one.what,
                    one.entity,
                    one.id,
                    " ".join(f"{key}={value}" for key, value in one.detail.items()) or text.NOTHING,
                )
                for one in entries
            ],
        ),
    )
    app.out.truncated(reply, len(entries), limit)
