"""`modelforge assess`: does this set fit this profile on this node, as far as files and facts can say?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import rich_click as click

from bus import verbs
from bus.errors import Exit
from bus.ids import now
from bus.messages.api import AssessmentsRequest, AssessRequest, ById
from modelforge import format as text
from modelforge.cli.artifact import require_digest_or_prefix
from modelforge.cli.command import App, Command
from modelforge.cli.lazy import DefaultGroup
from modelforge.cli.session import pick_node, with_operator

if TYPE_CHECKING:
    from bus.messages.gates import Assessment
    from bus.operator import Operator


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
    """Assess the artifact set SET, by its digest or the beginning of it. Exit 1 when it is blocked."""
    wanted = require_digest_or_prefix(set_)

    async def work(operator: Operator) -> Assessment:
        target = await pick_node(operator, node)
        request = AssessRequest(set_digest=wanted, profile=profile, node=target)
        return await operator.call(verbs.ASSESSMENTS_CREATE, request)

    made = with_operator(app, work)
    app.out.result("assessment", made, lambda: assessment_card(made))
    if made.verdict == "blocked":
        app.out.note("fix each blocker, then assess again", "quiet")
        return Exit.FAILED
    if not made.approvals:
        app.next(f"modelforge approve add {made.set_digest} --reason WHY")
    app.next(f"modelforge probe queue {made.id} --wait")
    return Exit.OK


@assess.command("list", cls=Command)
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Newest ones only.")
@click.pass_obj
def list_(app: App, limit: int) -> None:
    """List the assessments, newest first."""
    reply = with_operator(app, lambda operator: operator.call(verbs.ASSESSMENTS_LIST, AssessmentsRequest(limit=limit)))
    found = reply.assessments

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
                    _number(one, "blocker"),
                    _number(one, "warning"),
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


def _number(one: Assessment, severity: str) -> int:
    return sum(finding.severity == severity for finding in one.findings)


@assess.command(cls=Command)
@click.argument("id_", metavar="ID")
@click.pass_obj
def show(app: App, id_: str) -> None:
    """Show one assessment with its findings."""
    found = with_operator(app, lambda operator: operator.call(verbs.ASSESSMENTS_SHOW, ById(id=id_)))
    app.out.result("assessment", found, lambda: assessment_card(found))


def assessment_card(one: Assessment) -> str:
    """An assessment on the screen: what it rests on, then every finding with its remedy."""
    estimate = f"{text.size(one.estimate.size_bytes)} (estimated)" if one.estimate else text.NOTHING
    head = text.card(
        [
            ("assessment", one.id),
            ("verdict", one.verdict),
            ("set", one.set_digest),
            ("profile", f"{one.profile_name} ({text.short(one.profile_id)})"),
            ("node", one.node),
            ("adapter", f"{one.adapter} {one.adapter_version}"),
            ("memory", estimate),
            ("fingerprint", one.fingerprint),
            ("stale", "\n".join(one.stale_because) if one.stale_because else "no"),
            ("approvals", ", ".join(one.approvals) or "none"),
            ("created", f"{text.moment(one.created_at)} by {one.created_by}"),
        ],
        indent=0,
    )
    return f"{head}\n\n{findings_text(one)}"


def findings_text(one: Assessment) -> str:
    """Every finding, blockers first: code, fact, source, remedy."""
    if not one.findings:
        return "no findings"
    order = ("blocker", "warning", "note")
    ranked = sorted(one.findings, key=lambda finding: order.index(finding.severity))
    return "\n".join(
        f"{finding.severity}: {finding.code}: {finding.message} [{finding.source}]"
        + (f"\n  remedy: {finding.remedy}" if finding.remedy else "")
        for finding in ranked
    )
