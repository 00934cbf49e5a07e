"""`modelforge assess`: does this set fit this profile on this node, as far as files and facts can say?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import rich_click as click

from bus import verbs
from bus.errors import Exit
from bus.ids import now
from bus.messages.api import AssessmentsRequest, AssessRequest, ById
from modelforge import format as text
from modelforge.cli import assessment_card as card
from modelforge.cli.command import App, Command
from modelforge.cli.hints import after_assessment, assess_again
from modelforge.cli.lazy import DefaultGroup
from modelforge.cli.names import can_ask, require_digest_or_prefix
from modelforge.cli.output import NEXT
from modelforge.cli.session import pick_node, with_operator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bus.messages.gates import Assessment
    from bus.operator import Operator

# A prompt of two lines must not push the verdict off the screen.
_PROMPT_ROWS: Final = 2
_CARD_ROWS_MIN: Final = 16
_HINTS_MAX: Final = 3


@click.group(cls=DefaultGroup, default="create")
def assess() -> None:
    """Assess a set for a node; list and show assessments.

    `modelforge assess SET --profile P --node N` is short for `modelforge assess create SET …`.
    """


@assess.command(cls=Command)
@click.argument("set_", metavar="SET")
@click.option("--profile", required=True, metavar="NAME", help="Profile, by name or id.")
@click.option("--node", metavar="NAME", help="Node to assess for (default: the only one).")
@click.pass_obj
def create(app: App, set_: str, profile: str, node: str | None) -> int:
    """Assess the artifact set SET, by its digest or the beginning of it. Exit 4 when it is blocked."""
    wanted = require_digest_or_prefix(set_)

    async def work(operator: Operator) -> Assessment:
        target = await pick_node(operator, node)
        request = AssessRequest(set_digest=wanted, profile=profile, node=target)
        return await operator.call(verbs.ASSESSMENTS_CREATE, request)

    made = with_operator(app, work)
    hints = after_assessment(made, can_ask=can_ask())
    # The terminal's rows are for all that it shows at once: the card, what to type next, and the prompt below.
    rows = max(_CARD_ROWS_MIN, card.ROWS - _PROMPT_ROWS - sum(_rows_of(app.whole(hint)) for hint in hints))
    app.out.result("assessment", made, lambda: _styled(app, made, card.short_card(made, rows)))
    app.next(*hints)
    return Exit.REFUSED if made.verdict == "blocked" else Exit.OK


def _rows_of(hint: str) -> int:
    return math.ceil(text.width(f"{NEXT}{hint}") / card.COLUMNS)


def _styled(app: App, one: Assessment, lines: Sequence[str]) -> str:
    """The first line in the colour of the verdict."""
    return "\n".join((app.out.style(lines[0], card.STYLE[one.verdict]), *lines[1:]))


@assess.command("list", cls=Command)
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Newest ones only.")
@click.option("--stale", is_flag=True, help="Only those that no longer hold, each with what changed.")
@click.pass_obj
def list_(app: App, limit: int, stale: bool) -> None:
    """List the assessments, newest first."""
    request = AssessmentsRequest(limit=limit, stale_only=stale)
    reply = with_operator(app, lambda operator: operator.call(verbs.ASSESSMENTS_LIST, request))
    found = reply.assessments
    if stale:
        _tell_stale(app, found)
        if found:
            app.out.truncated(reply, len(found), limit)
        return

    def rows() -> str:
        moment = now()
        return text.table(
            ("ASSESSMENT", "VERDICT", "SET", "PROFILE", "NODE", "BLOCKERS", "WARNINGS", "STALE", "AGE"),
            [
                (
                    one.id,
                    one.verdict,
                    text.short(one.set_digest),
                    one.profile_name,
                    one.node,
                    card.number(one, "blocker"),
                    card.number(one, "warning"),
                    "yes" if one.stale_because else "no",
                    text.age(one.created_at, moment),
                )
                for one in found
            ],
        )

    app.out.result("assessments", found, rows)
    app.out.truncated(reply, len(found), limit)
    if not found:
        app.next("modelforge assess SET --profile NAME")


def _tell_stale(app: App, found: Sequence[Assessment]) -> None:
    """One block each: what it was, and every fact that changed."""
    app.out.result("assessments", found, lambda: card.stale_text(found))
    again = dict.fromkeys(assess_again(one) for one in found)
    app.next(*list(again)[:_HINTS_MAX])


@assess.command(cls=Command)
@click.argument("id_", metavar="ID")
@click.option("--facts", is_flag=True, help="Also every fact that the fingerprint is made of.")
@click.pass_obj
def show(app: App, id_: str, facts: bool) -> None:
    """Show one assessment: findings, estimate, what the runtime declares and what was proven here."""
    found = with_operator(app, lambda operator: operator.call(verbs.ASSESSMENTS_SHOW, ById(id=id_)))
    app.out.result("assessment", found, lambda: _styled(app, found, card.long_card(found, facts=facts).split("\n")))
    if found.stale_because:
        app.next(assess_again(found))
