"""Names and ids: how they look, how they are made, and how they are checked."""

from __future__ import annotations

import re
import secrets
import uuid
from datetime import UTC, datetime
from typing import Final

from bus.errors import ErrorCode, ModelForgeError

# One token of a subject, a consumer name and a file name at once: short, lower case, starting with a letter.
# A purely numeric consumer name lets one node acknowledge another's message (docs/adr/0003).
# \Z and not $: the latter also matches before a trailing newline.
NAME: Final = re.compile(r"^[a-z][a-z0-9-]{0,23}\Z")
_ID: Final = re.compile(r"^[a-z]{3}-[0-9a-z]{10}\Z")
# Crockford's base 32: no i, l, o, u, so that an id can be read aloud and typed.
_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_RANDOM_CHARS: Final = 10

PROBE, SCAN, ASSESSMENT, APPROVAL, CANDIDATE, LEASE, EVENT = "prb", "scn", "asm", "apv", "cnd", "lse", "evt"
QUARANTINE = "qtn"


def new_id(prefix: str) -> str:
    """A fresh id such as `prb-7k3m9q2xta`: 50 random bits; the ledger's primary key refuses a repeat."""
    return f"{prefix}-{''.join(secrets.choice(_ALPHABET) for _ in range(_RANDOM_CHARS))}"


def new_boot_id() -> str:
    """A fresh id for one life of one process."""
    return uuid.uuid4().hex


def new_token() -> str:
    """A fresh lease token: 256 random bits. Only its SHA-256 is ever stored (spec P4)."""
    return secrets.token_urlsafe(32)


def is_id(text: str) -> bool:
    """Does `text` have the form of an id made by `new_id`?"""
    return _ID.match(text) is not None


def check_name(name: str, what: str) -> str:
    """Return `name` if it may name a node, user or profile.

    Raises:
        ModelForgeError: INVALID_ARGUMENT, naming the rule.
    """
    if NAME.match(name) is None:
        message = f"{what} name {name!r} must be 1 to 24 of a-z, 0-9 and -, beginning with a letter"
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, message)
    return name


def log_ref(node: str, probe_id: str, attempt: int) -> str:
    """The reference of one attempt's log: `runtime-worker://<node>/<probe>/attempt/<n>` (spec P12)."""
    return f"runtime-worker://{node}/{probe_id}/attempt/{attempt}"


def now() -> datetime:
    """The present moment, UTC, in whole microseconds (what RFC 3339 and SQLite text keep)."""
    return datetime.now(UTC)
