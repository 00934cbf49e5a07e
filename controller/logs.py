"""The controller's log: one line for each entry, also for a traceback, on standard error."""

from __future__ import annotations

import logging
import sys
from typing import Final

from bus.text import clean_line, redact

FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
MAX_LINE_CHARS: Final = 8_000


class OneLine(logging.Formatter):
    """An entry with its traceback as one clean line, so that a log can be searched and a stranger's text obeys."""

    def format(self, record: logging.LogRecord) -> str:
        """The entry, at most `MAX_LINE_CHARS` long."""
        return clean_line(redact(super().format(record)), MAX_LINE_CHARS)


def begin(level: int = logging.INFO) -> None:
    """Send every log entry of this process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine(FORMAT))
    logging.basicConfig(level=level, handlers=[handler], force=True)
