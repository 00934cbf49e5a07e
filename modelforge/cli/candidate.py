"""`modelforge candidate`: what passed every gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import rich_click as click

from bus import verbs
from bus.ids import now
from bus.messages.api import ById, Page
from modelforge import format as text
from modelforge.cli.command import App, Command
from modelforge.cli.session import with_operator

if TYPE_CHECKING:
    from bus.messages.gates import Candidate


@click.group()
def candidate() -> None:
    """List and show deployment candidates."""


@candidate.command("list", cls=Command)
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Newest ones only.")
@click.pass_obj
def list_(app: App, limit: int) -> None:
    """List the candidates, newest first."""
    reply = with_operator(app, lambda operator: operator.call(verbs.CANDIDATES_LIST, Page(limit=limit)))
    found = reply.candidates

    def rows() -> str:
        moment = now()
        return text.table(
            ("CANDIDATE", "STATUS", "PRODUCTION", "SET", "PROFILE", "NODE", "PROBE", "AGE", "STALE"),
            [
                (
                    one.id,
                    one.status,
                    production(one),
                    text.short(one.set_digest),
                    one.profile_name,
                    one.node,
                    one.probe_id,
                    text.age(one.created_at, moment),
                    "yes" if one.stale_because else "no",
                )
                for one in found
            ],
        )

    app.out.result("candidates", found, rows)
    app.out.truncated(reply, len(found), limit)
    if not found:
        app.next("modelforge probe queue ASSESSMENT --wait")


@candidate.command(cls=Command)
@click.argument("id_", metavar="ID")
@click.pass_obj
def show(app: App, id_: str) -> None:
    """Show one candidate."""
    found = with_operator(app, lambda operator: operator.call(verbs.CANDIDATES_SHOW, ById(id=id_)))
    app.out.result("candidate", found, lambda: candidate_card(found))
    app.next(f"modelforge probe show {found.probe_id}")


def production(one: Candidate) -> str:
    """The word `false`, as the specification spells it (spec G2)."""
    return str(one.production).lower()


def candidate_card(one: Candidate) -> str:
    """A candidate on the screen."""
    return text.card(
        [
            ("candidate", one.id),
            ("status", one.status),
            ("production", production(one)),
            ("probe", one.probe_id),
            ("set", one.set_digest),
            ("profile", f"{one.profile_name} ({text.short(one.profile_id)})"),
            ("node", one.node),
            ("environment", one.environment_id),
            ("fingerprint", one.fingerprint),
            ("created", text.moment(one.created_at)),
            ("stale", "\n".join(one.stale_because) if one.stale_because else "no"),
        ],
        indent=0,
    )
