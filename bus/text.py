"""The one sanitiser for text that somebody else wrote: model output, file names, logs, error messages.

The attacker is a model folder whose names or output end up on the screen where an approval is given. A terminal
obeys escape sequences, so they are removed at the boundary where text enters the product, not where it is shown.
"""

from __future__ import annotations

import re
from typing import Final

_ESCAPES: Final = re.compile(
    r"\x1b(?:\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|\[[0-?]*[ -/]*[@-~]?|[ -/]*[0-~]?)"
    r"|\x9b[0-?]*[ -/]*[@-~]?|[\x90\x98\x9d-\x9f][^\x9c\x1b\x07]*[\x9c\x07]?"
)
# C0 (without tab and newline), DEL, C1, line separators, the marks that reorder text on the screen, and characters that
# are not seen at all: two names that look the same are not the same name.
_BAD: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028\u2029\u202a-\u202e\u2060-\u206f\ufeff"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_REPLACEMENT: Final = "\ufffd"
_CREDENTIALS: Final = re.compile(
    r"(?i)\b(S[OAUNCX][A-Z2-7]{56})\b|\b(hf_[A-Za-z0-9]{16,})\b|\b(eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)\b"
    r"|((?:authorization|api[_-]?key|token|secret|password|passwd)\s*[=:]\s*(?:bearer\s+)?)(\S+)"
    r"|(://[^\s/:@]+:)[^\s/@]+(@)"
)


def clean_text(text: str, limit: int = 100_000) -> str:
    """Remove terminal control from `text`, keeping newlines and tabs; at most `limit` characters are kept."""
    return _BAD.sub(_REPLACEMENT, _ESCAPES.sub("", text[:limit].replace("\r\n", "\n")))


def clean_line(text: str, limit: int = 4_000) -> str:
    """Like `clean_text`, but on one line: newlines become a visible mark, tabs become blanks."""
    return clean_text(text, limit).replace("\n", "\u23ce").replace("\t", "    ")


def redact(text: str) -> str:
    """Replace what looks like a credential (NKey seeds, hub tokens, JWTs, `key=value` secrets, URLs) by a mark."""

    def mark(match: re.Match[str]) -> str:
        if match.group(4):
            return f"{match.group(4)}[redacted]"
        if match.group(6):
            return f"{match.group(6)}[redacted]{match.group(7)}"
        return "[redacted]"

    return _CREDENTIALS.sub(mark, text)
