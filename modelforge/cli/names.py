"""How an operator names a thing, and whether one can be asked."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from bus.errors import ErrorCode, ModelForgeError

if TYPE_CHECKING:
    from bus.messages.gates import Assessment


NOT_INSTALLED: Final = "not installed"


def can_ask() -> bool:
    """Is there a person at a terminal, who can answer and sees the question?"""
    return sys.stdin.isatty() and sys.stderr.isatty()


def require_digest_or_prefix(value: str) -> str:
    """A set's name as typed: hex digits, with or without `sha256:`.

    Raises:
        ModelForgeError: INVALID_ARGUMENT, before anything is sent.
    """
    digits = value.removeprefix("sha256:")
    if digits and all(character in "0123456789abcdef" for character in digits):
        return value
    hint = "List the sets with `modelforge artifact list`."
    message = f"{value!r} names no set: a set is named by the hex digits of its digest"
    raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, message, hint=hint)


def adapter_label(name: str, version: str) -> str:
    """An adapter with its version, which a node declares as `not installed` where there is none."""
    return f"{name}: {version}" if version == NOT_INSTALLED else f"{name} {version}"


def versioned(one: Assessment) -> str:
    """The profile of an assessment, so that it names exactly the contents that were assessed: `NAME@VERSION`."""
    return f"{one.profile_name}@{one.profile_version}"
