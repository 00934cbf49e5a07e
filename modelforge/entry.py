"""The `modelforge` script, before anything is imported: a Ctrl-C while Python still loads modules ends in order too."""

from __future__ import annotations

import sys
from typing import Final

# The same as `Exit.INTERRUPTED` and its row in bus/errors.py, which may be what was just being imported.
INTERRUPTED: Final = 130
_WORDS: Final = (
    "error: INTERRUPTED: interrupted at the start\n"
    "  why:  The operator interrupted the command.\n"
    "  next: Type it again: nothing was done yet.\n"
)


def main() -> None:
    """Import the command line and run it."""
    try:
        from modelforge.cli.main import main as command_line  # noqa: PLC0415 -- guarded, see above
    except KeyboardInterrupt:
        sys.stderr.write(_WORDS)
        sys.exit(INTERRUPTED)
    command_line()
