"""Places of this machine never leave it: their names are taken out of everything that is reported."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from bus.errors import Failure
from bus.text import clean_line, clean_text, redact


class Scrub:
    """Replaces known folders by labels, credentials by a mark, and terminal control by nothing."""

    def __init__(self, places: Mapping[str, Path]) -> None:
        """`places` maps a label, such as `artifacts`, to a folder; the interpreter's and the user's own are added."""
        known = {"python": Path(sys.prefix), "python-base": Path(sys.base_prefix), "home": Path.home(), **places}
        names = {
            (str(form), f"<{label}>")
            for label, path in known.items()
            for form in (path, path.resolve())
            # A folder at the root of the file system is no secret, and its name is a part of every other.
            if len(form.parts) > 1
        }
        # The longest first, or the folder around a place would hide what the place is.
        self._names = sorted(names, key=lambda pair: len(pair[0]), reverse=True)

    def text(self, text: str) -> str:
        """Many lines."""
        return clean_text(redact(self._places(text)), len(text) + 1)

    def line(self, text: str) -> str:
        """One line."""
        return clean_line(redact(self._places(text)))

    def facts(self, facts: Mapping[str, str]) -> dict[str, str]:
        """Short facts."""
        return {self.line(key): self.line(value) for key, value in facts.items()}

    def failure(self, failure: Failure) -> Failure:
        """A failure, its context included."""
        return Failure(code=failure.code, message=self.line(failure.message), context=self.facts(failure.context))

    def _places(self, text: str) -> str:
        for name, label in self._names:
            text = text.replace(name, label)
        return text
