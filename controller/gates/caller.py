"""Who asks, and with which words: names for the audit trail, texts and ids that a caller may send."""

from __future__ import annotations

from typing import Final

from bus.errors import ErrorCode, ModelForgeError
from bus.subjects import Caller
from bus.text import clean_line

MAX_REASON_CHARS: Final = 1_000
MAX_REQUEST_ID_CHARS: Final = 64


def actor_of(caller: Caller) -> str:
    """How the audit trail names the caller: a user named `controller` is never taken for the controller."""
    return f"{caller.role}:{caller.name}"


def checked_reason(reason: str) -> str:
    """A reason: one clean line that says something.

    Raises:
        ModelForgeError: INVALID_ARGUMENT when it is empty or too long.
    """
    text = clean_line(reason.strip(), MAX_REASON_CHARS + 1)
    if not text or len(text) > MAX_REASON_CHARS:
        message = f"a reason is needed, of at most {MAX_REASON_CHARS} characters"
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, message, hint="Say why: `--reason TEXT`.")
    return text


def request_key(caller: Caller, request_id: str) -> str:
    """The ledger's key of a request: two users may choose the same id.

    Raises:
        ModelForgeError: INVALID_ARGUMENT when the id is empty or too long.
    """
    if not request_id or len(request_id) > MAX_REQUEST_ID_CHARS or not request_id.isprintable():
        message = f"request_id must have 1 to {MAX_REQUEST_ID_CHARS} printable characters"
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, message)
    return f"{caller.name}:{request_id}"
