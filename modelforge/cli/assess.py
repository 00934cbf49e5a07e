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
from modelforge.cli.hints import after_assessment, lab_approved, mend
from modelforge.cli.lazy import DefaultGroup
from modelforge.cli.names import can_ask, require_digest_or_prefix, versioned
from modelforge.cli.output import NEXT, columns
from modelforge.cli.session import pick_node, with_operator
from modelforge.cli.stale_card import open_ones, stale_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bus.messages.api import Assessments
    from bus.messages.gates import Assessment
    from bus.operator import Operator

# A prompt of two lines must not push the verdict off the screen.
_PROMPT_ROWS: Final = 2
_CARD_ROWS_MIN: Final = 16
_HINTS_MAX: Final = 3
# Enough to type; with more of them a row would be wider than a terminal.
_SET_DIGITS: Final = 8
# Among so many at least is looked for a newer assessment of the same question.
_KNOWN_MIN: Final = 200


@click.group(cls=DefaultGroup, default="create")
def assess() -> None:
    """Assess a set for a node; list and show assessments.

    `modelforge assess SET --profile P --node N` is short for `modelforge assess create SET …`.
    """


@assess.command(cls=Command)
@click.argument("set_", metavar="SET")
@click.option("--profile", required=True, metavar="NAME", help="Profile: NAME, NAME@VERSION or an id.")
@click.option("--node", metavar="NAME", help="Node to assess for (default: the only one).")
@click.option("--path", metavar="PATH", help="Which of the set's places on the node (default: the first by name).")
@click.pass_obj
def create(app: App, set_: str, profile: str, node: str | None, path: str | None) -> int:
    """Assess the artifact set SET, by its digest or the beginning of it. Exit 4 when it is blocked."""
    wanted = require_digest_or_prefix(set_)

    async def work(operator: Operator) -> tuple[Assessment, bool]:
        target = await pick_node(operator, node)
        request = AssessRequest(set_digest=wanted, profile=profile, node=target, location=path)
        made = await operator.call(verbs.ASSESSMENTS_CREATE, request)
        return made, await lab_approved(operator, made)

    made, lab = with_operator(app, work)
    hints = after_assessment(made, can_ask=can_ask(), lab=lab)
    # The terminal's rows are for all that it shows at once: the card, what to type next, and the prompt below.
    rows = max(_CARD_ROWS_MIN, card.ROWS - _PROMPT_ROWS - sum(_rows_of(app.whole(hint)) for hint in hints))
    more = app.whole(f"modelforge assess show {made.id}")
    app.out.result("assessment", made, lambda: _styled(app, made, card.short_card(made, rows, more=more)))
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
    if stale:
        _list_stale(app, limit)
        return
    request = AssessmentsRequest(limit=limit)
    reply = with_operator(app, lambda operator: operator.call(verbs.ASSESSMENTS_LIST, request))
    found = reply.assessments

    def rows() -> str:
        moment = now()
        return text.table(
            ("ASSESSMENT", "VERDICT", "SET", "PROFILE", "NODE", "BLOCK", "WARN", "STALE", "AGE"),
            [
                (
                    one.id,
                    one.verdict,
                    text.short(one.set_digest, _SET_DIGITS),
                    versioned(one),
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


def _list_stale(app: App, limit: int) -> None:
    """What no longer holds and was not assessed anew, by its cause; how to mend that; and whether there may be more."""

    async def work(operator: Operator) -> tuple[Assessments, Assessments]:
        stale = await operator.call(verbs.ASSESSMENTS_LIST, AssessmentsRequest(limit=limit, stale_only=True))
        if not stale.assessments:
            return stale, stale
        known = AssessmentsRequest(limit=max(limit, _KNOWN_MIN))
        return stale, await operator.call(verbs.ASSESSMENTS_LIST, known)

    reply, known = with_operator(app, work)
    found = reply.assessments
    shown = open_ones(found, known.assessments)
    app.out.result("assessments", found, lambda: stale_text(shown, replaced=len(found) - len(shown)))
    if found:
        app.out.truncated(reply, len(found), limit)
    elif reply.truncated:
        app.out.note("only the newest assessments were looked through; older ones may be stale", "warn")
    app.next(*list(dict.fromkeys(mend(one) for one in shown))[:_HINTS_MAX])


@assess.command(cls=Command)
@click.argument("id_", metavar="ID")
@click.option("--facts", is_flag=True, help="Also every fact that the fingerprint is made of.")
@click.pass_obj
def show(app: App, id_: str, facts: bool) -> None:
    """Show one assessment: findings, estimate, what the runtime declares and what was proven here."""

    async def work(operator: Operator) -> tuple[Assessment, bool]:
        found = await operator.call(verbs.ASSESSMENTS_SHOW, ById(id=id_))
        return found, await lab_approved(operator, found)

    found, lab = with_operator(app, work)
    lines = card.long_card(found, facts=facts, columns=columns()).split("\n")
    app.out.result("assessment", found, lambda: _styled(app, found, lines))
    if found.stale_because:
        app.next(mend(found))
    elif found.verdict != "blocked":
        app.next(*after_assessment(found, can_ask=can_ask(), lab=lab))
