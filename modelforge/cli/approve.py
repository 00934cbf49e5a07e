"""`modelforge approve`: an operator's word for one exact set.

An approval names bytes, not a model: so it takes the whole digest, or, from a person at a terminal, the beginning of
it and then the first eight digits typed as an answer to what is shown. Enter alone approves nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, get_args

import rich_click as click

from bus import verbs
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.api import ApproveRequest, ById, Page, RevokeRequest
from bus.messages.gates import Purpose
from modelforge import format as text
from modelforge.cli.command import App, Command
from modelforge.cli.hints import after_approval, after_revocation
from modelforge.cli.names import can_ask, require_digest_or_prefix
from modelforge.cli.output import columns
from modelforge.cli.session import with_operator

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from bus.messages.artifacts import ArtifactSet
    from bus.messages.gates import Approval
    from bus.operator import Operator

_DIGEST_DIGITS: Final = 64
_CONFIRM_DIGITS: Final = 8
_PREFIX: Final = "sha256:"
_COLUMNS: Final = 80
# The controller knows no filter: so many are asked for when only some of them are wanted.
_FILTERED_MAX: Final = 200


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
    metavar="PURPOSE",
    help=f"What is allowed: {', '.join(get_args(Purpose)[:-1])} or {get_args(Purpose)[-1]}.",
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

    async def work(operator: Operator) -> tuple[Approval, tuple[str, ...], tuple[str, ...]]:
        before = await _known(operator)
        approval = await operator.call(verbs.APPROVALS_ADD, request)
        said = [_said_before(approval)] if approval.id in before else []
        if purpose == "pickle":
            said += await _pickle_limits(operator)
        return approval, tuple(said), await after_approval(operator, approval, can_ask=can_ask())

    made, said, hints = with_operator(app, work)
    for sentence in said:
        app.out.note(sentence, "warn")
    app.out.result("approval", made, lambda: _card(made))
    app.next(*hints)


async def _known(operator: Operator) -> frozenset[str]:
    """The approvals that are there already, as far back as one answer goes; none when nobody says."""
    try:
        return frozenset(one.id for one in (await operator.call(verbs.APPROVALS_LIST, Page())).approvals)
    except ModelForgeError:
        return frozenset()


def _said_before(one: Approval) -> str:
    when = f"approved before by {one.approved_by} at {text.moment(one.approved_at)}"
    return f"{when}: {one.reason}; that approval stands, and nothing was added"


async def _pickle_limits(operator: Operator) -> list[str]:
    """What this approval does not do, where no adapter that can be executed declares that it loads pickle."""
    try:
        nodes = (await operator.call(verbs.NODES_LIST, Page())).nodes
    except ModelForgeError:
        nodes = ()
    runs = [one for node in nodes if node.inventory for one in node.inventory.environment.adapters if one.executable]
    if any("pickle" in one.formats for one in runs):
        return []
    names = sorted({one.name for one in runs})
    who = f"no adapter that can be executed here ({', '.join(names)})" if names else "no adapter that is known here"
    return [f"it lifts PICKLE_NOT_APPROVED only: {who} loads pickle at all"]


def _confirm(exact: ArtifactSet, confirm: str | None) -> None:
    """Compare what was typed with the digest.

    Raises:
        ModelForgeError: INVALID_ARGUMENT when nobody can be asked, or the answer is another one.
    """
    wanted = text.short(exact.digest, _CONFIRM_DIGITS)
    if confirm is None and can_ask():
        confirm = _ask()
    if confirm is None:
        message = "the beginning of a digest is not enough to approve a set without a terminal"
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, message, hint=f"Name the whole digest: {exact.digest}")
    if confirm.strip() != wanted:
        message = "the confirmation differs from the digest; nothing was approved"
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, message, set=exact.digest)


def _ask() -> str:
    """What a person types.

    Raises:
        ModelForgeError: INTERRUPTED, when it is Ctrl-C: then nothing was sent, so nothing goes on.
    """
    try:
        answer: str = click.prompt(f"Type the first {_CONFIRM_DIGITS} digits of the digest to approve it", err=True)
    except (click.Abort, KeyboardInterrupt) as error:
        click.echo(err=True)  # Ctrl-C leaves the cursor in the question's line
        hint = "Nothing was sent; type the command again when you are sure."
        raise ModelForgeError(ErrorCode.INTERRUPTED, "interrupted; nothing was approved", hint=hint) from error
    return answer


@approve.command("list", cls=Command)
@click.option("--set", "set_", metavar="SET", help="Only those of this set, by its digest or the beginning of it.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Newest ones only.")
@click.pass_obj
def list_(app: App, set_: str | None, limit: int) -> None:
    """List the approvals, newest first: who, when and why, and who took one back."""
    wanted = require_digest_or_prefix(set_).removeprefix(_PREFIX) if set_ is not None else None
    asked = limit if wanted is None else max(limit, _FILTERED_MAX)
    reply = with_operator(app, lambda operator: operator.call(verbs.APPROVALS_LIST, Page(limit=asked)))
    found = reply.approvals
    if wanted is not None:
        found = tuple(one for one in found if one.set_digest.removeprefix(_PREFIX).startswith(wanted))[:limit]
    app.out.result("approvals", found, lambda: approvals_text(found))
    if wanted is not None and not found and not reply.truncated:
        app.out.note(f"no approval of set {wanted}", "quiet")
    else:
        app.out.truncated(reply, len(found), limit)
    if not found:
        app.next(f"modelforge approve add {set_ or 'SET'} --reason WHY")


def approvals_text(found: Sequence[Approval]) -> str:
    """A table of what stands on one line, and below each row who, when and why; 80 columns."""
    rows = [
        (one.id, text.short(one.set_digest), one.purpose, "revoked" if one.revoked_at else "valid") for one in found
    ]
    heading, *lines = text.table(("APPROVAL", "SET", "PURPOSE", "STATE"), rows).splitlines()
    blocks = [heading]
    for one, line in zip(found, lines, strict=True):
        blocks.append(line)
        blocks += _told("approved", one.approved_at, one.approved_by, one.reason)
        if one.revoked_at is not None:
            blocks += _told("revoked", one.revoked_at, one.revoked_by, one.revoke_reason)
    return "\n".join(blocks)


def _told(what: str, at: datetime, by: str | None, why: str | None) -> list[str]:
    said = f"{what} {text.moment(at)} by {by or text.NOTHING}: {why or text.NOTHING}"
    return text.wrap(said, _COLUMNS, first="  ", rest="    ")


@approve.command(cls=Command)
@click.argument("id_", metavar="ID")
@click.option("--reason", required=True, help="Why; it is kept and audited.")
@click.pass_obj
def revoke(app: App, id_: str, reason: str) -> None:
    """Take an approval back; no probe is queued on it any more."""
    request = RevokeRequest(id=id_, reason=reason)

    async def work(operator: Operator) -> tuple[Approval, tuple[str, ...], tuple[str, ...]]:
        revoked = await operator.call(verbs.APPROVALS_REVOKE, request)
        return revoked, *await after_revocation(operator, revoked)

    found, sentences, commands = with_operator(app, work)
    app.out.result("approval", found, lambda: _card(found))
    for sentence in sentences:
        app.out.note(sentence, "quiet")
    app.next(*commands)


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
    return text.card(pairs, indent=0, columns=columns())
