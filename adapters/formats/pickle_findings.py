"""What is found in a pickle while it is followed, and what all pickles of one file may cost together."""

from __future__ import annotations

import re
from typing import Any, Final

from adapters.formats.pickle_names import WORDS
from adapters.formats.pickle_source import Exhausted
from adapters.formats.pickle_values import OTHER, Name

MAX_INSTRUCTIONS: Final = 2_000_000
MAX_READ_BYTES: Final = 512 * 1024 * 1024
MAX_IMPORTS: Final = 256
_MAX_NAME_CHARS: Final = 200
# Wider than an identifier: a module is a file's name. A line of prose is none.
_IMPORTABLE: Final = re.compile(r"[\w.-]+")
_MAX_KEPT_CHARS: Final = 4 * 1024 * 1024


class Budget:
    """What all pickles of one file may cost together."""

    def __init__(self) -> None:
        self.instructions = MAX_INSTRUCTIONS
        self.kept_chars = _MAX_KEPT_CHARS
        self.read_bytes = MAX_READ_BYTES

    @property
    def spent(self) -> bool:
        """Is there nothing left for another pickle?"""
        return self.instructions < 0 or self.read_bytes < 0

    def spend(self) -> None:
        """One instruction.

        Raises:
            Exhausted: there were too many.
        """
        self.instructions -= 1
        if self.instructions < 0:
            raise Exhausted(f"it has more than {MAX_INSTRUCTIONS} instructions")

    def reads(self, size: int) -> None:
        """`size` bytes of the file; what is passed over does not count.

        Raises:
            Exhausted: there were too many.
        """
        self.read_bytes -= size
        if self.read_bytes < 0:
            raise Exhausted(f"more than {MAX_READ_BYTES} bytes of it are instructions and short values")

    def text(self, text: str) -> Any:
        """`text` as it is kept: exactly when it may be part of a name and there is room."""
        if len(text) > _MAX_NAME_CHARS:
            return OTHER
        if text in WORDS:
            return WORDS[text]
        self.kept_chars -= len(text)
        return text if self.kept_chars >= 0 else OTHER


class Findings:
    """What was seen in one pickle.

    Attributes:
        code: the first thing that is on no list.
        imports: each dotted name once, in the order in which they appear.
        tensors: was a name imported that has to do with tensors?
        imported: was a name imported that is on no list and that can be one?
        numbered: was a name imported by its number, which few processes have given out?
        parted: did two unpicklers part ways, so that one of them may read other instructions?
        called: was anything called, or any object filled?
    """

    def __init__(self) -> None:
        self.code: str | None = None
        self.imports: dict[str, None] = {}
        self.tensors = False
        self.imported = False
        self.numbered = False
        self.parted = False
        self.called = False

    def refuse(self, reason: str | None) -> None:
        """Keep the first reason."""
        if self.code is None and reason is not None:
            self.code = reason

    def name(self, name: Name) -> None:
        """An import."""
        if len(self.imports) < MAX_IMPORTS:
            self.imports[name.dotted] = None
        if name.allowed is None:
            self.imported |= all(_IMPORTABLE.fullmatch(part) for part in name.key)
            self.refuse(f"it imports {name.dotted}")
        else:
            self.tensors |= name.allowed.tensors
