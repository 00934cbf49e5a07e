"""docs/reference/errors.md: every error code and what to do about it."""

from __future__ import annotations

from bus.errors import CODES, Exit
from docs.generators import markdown as md


def render() -> str:
    """The page."""
    intro = (
        "A code is an API: it is never renamed or used for something else, only added. *Retry* says whether the same "
        "request may be sent again unchanged; *message* says what becomes of the JetStream message that ended in the "
        "code; *exit* is what the `modelforge` command leaves with."
    )
    rows = [
        (md.code(code.value), info.meaning, info.remedy, info.retry.value, info.ack.value, str(info.exit.value))
        for code, info in CODES.items()
    ]
    exits = [(str(exit_.value), exit_.name.lower()) for exit_ in Exit]
    return md.page(
        "Errors",
        intro,
        md.table(("code", "what it means", "what to do", "retry", "message", "exit"), rows),
        "## Exit codes",
        md.table(("exit", "meaning"), exits),
    )
