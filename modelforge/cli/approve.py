"""`modelforge approve`: an operator's word for one exact set.

An approval names bytes, not a model: so it takes the whole digest, or, from a person at a terminal, the beginning of
it and then the first eight digits typed as an answer to what is shown. Enter alone approves nothing.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, get_args

import rich_click as click

from bus import verbs
from bus.errors import ErrorCode, ModelForgeError
from bus.ids import now
from bus.messages.api import ApproveRequest, ById, Page, RevokeRequest
from bus.messages.gates import Purpose
from modelforge import format as text
from modelforge.cli.artifact import require_digest_or_prefix
from modelforge.cli.command import App, Command
from modelforge.cli.hints import after_approval
from modelforge.cli.session import with_operator

if TYPE_CHECKING:
    from bus.messages.artifacts import ArtifactSet
    from bus.messages.gates import Approval
    from bus.operator import Operator

_DIGEST_DIGITS: Final = 64
_CONFIRM_DIGITS: Final = 8


@click.group()
def approve() -> None:
    """Add, list and revoke approvals of exact sets."""


@approve.command(cls=Command)
@click.argument("set_", metavar="SET")
@click.option("--reason", required=True, help="Why; it is kept and audited.")
@click.option(
    "--purpose",
    type=click.Choice(get_args(Purpose)),
    default="lab_execution",
    show_default=True,
    help="What is allowed.",
)
@click.option("--confirm", metavar="HEX8", help="First eight digits of the digest, when SET is only its beginning.")
@click.pass_obj
def add(app: App, set_: str, reason: str, purpose: Purpose, confirm: str | None) -> None:
    """Approve exactly the set SET for one purpose."""
    named = require_digest_or_prefix(set_)

    exact = with_operator(app, lambda operator: operator.call(verbs.ARTIFACTS_SHOW, ById(id=named)))
    app.out.note(
        f"approving {exact.digest} for {purpose}: {text.count(exact.file_count, 'file')}, {text.size(exact.size_bytes)}"
    )
    if len(named.removeprefix("sha256:")) < _DIGEST_DIGITS:
        # Between two connections and not inside one: a question asked inside the loop swallows Ctrl-C.
        _confirm(exact, confirm)
    request = ApproveRequest(set_digest=exact.digest, purpose=purpose, reason=reason)

    async def work(operator: Operator) -> tuple[Approval, tuple[str, ...]]:
        approval = await operator.call(verbs.APPROVALS_ADD, request)
        return approval, await after_approval(operator, approval)

    made, hints = with_operator(app, work)
    app.out.result("approval", made, lambda: _card(made))
    app.next(*hints)


def _confirm(exact: ArtifactSet, confirm: str | None) -> None:
    """Compare what was typed with the digest.

    Raises:
        ModelForgeError: INVALID_ARGUMENT when nobody can be asked, or the answer is another one.
    """
    wanted = text.short(exact.digest, _CONFIRM_DIGITS)
    if confirm is None and sys.stdin.isatty() and sys.stderr.isatty():
        confirm = click.prompt(f"Type the first {_CONFIRM_DIGITS} digits of the digest to approve it", err=True)
    if confirm is None:
        message = "the beginning of a digest is not enough to approve a set without a terminal"
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, message, hint=f"Name the whole digest: {exact.digest}")
    if confirm.strip() != wanted:
        message = "the confirmation differs from the digest; nothing was approved"
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, message, set=exact.digest)


@approve.command("list", cls=Command)
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Newest ones only.")
@click.pass_obj
def list_(app: App, limit: int) -> None:
    """List the approvals, newest first."""
    reply = with_operator(app, lambda operator: operator.call(verbs.APPROVALS_LIST, Page(limit=limit)))
    found = reply.approvals

    def rows() -> str:
        moment = now()
        return text.table(
            ("APPROVAL", "SET", "PURPOSE", "STATE", "BY", "AGE", "REASON"),
            [
                (
                    one.id,
                    text.short(one.set_digest),
                    one.purpose,
                    "revoked" if one.revoked_at else "valid",
                    one.approved_by,
                    text.age(one.approved_at, moment),
                    one.reason,
                )
                for one in found
            ],
        )

    app.out.result("approvals", found, rows)
    app.out.truncated(reply, len(found), limit)
    if not found:
        app.next("modelforge approve add SET --reason WHY")


@approve.command(cls=Command)
@click.argument("id_", metavar="ID")
@click.option("--reason", required=True, help="Why; it is kept and audited.")
@click.pass_obj
def revoke(app: App, id_: str, reason: str) -> None:
    """Take an approval back; no probe is queued on it any more."""
    request = RevokeRequest(id=id_, reason=reason)
    found = with_operator(app, lambda operator: operator.call(verbs.APPROVALS_REVOKE, request))
    app.out.result("approval", found, lambda: _card(found))


def _card(one: Approval) -> str:
    pairs: list[tuple[str, object]] = [
        ("approval", one.id),
        ("set", one.set_digest),
        ("purpose", one.purpose),
        ("approved", f"{text.moment(one.approved_at)} by {one.approved_by}"),
        ("reason", one.reason),
    ]
    if one.revoked_at is not None:
        pairs += [("revoked", f"{text.moment(one.revoked_at)} by {one.revoked_by}"), ("because", one.revoke_reason)]
    return text.card(pairs, indent=0)
