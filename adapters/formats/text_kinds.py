"""What kind of text a file is, by the first bytes of it."""

from __future__ import annotations

import re
from typing import Final

from bus.messages.artifacts import FileFormat

_UTF_8_MARK: Final = b"\xef\xbb\xbf"
_UTF_16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
# A character that no text needs; terminal escapes are text that is cleaned where it is shown.
_NO_TEXT: Final = bytes([*range(0x07), *range(0x0E, 0x1A), *range(0x1C, 0x20)])
_LFS: Final = re.compile(rb"version https?://[!-~]{1,100}/spec/v1\r?\n(?:[a-z][^\n]*\n)*?oid sha256:[0-9a-f]{64}\r?\n")
_MAX_LFS_BYTES: Final = 1_024
_JSON: Final = re.compile(rb'\{\s*(?:["}]|\Z)|\[\s*(?:["\]\[{]|(?:true|false|null|-?[0-9][0-9.eE+-]*)\s*[,\]]|\Z)')
_HTML: Final = re.compile(rb"(?:<!--.{0,1000}?-->\s*)*<(?:!doctype html|html|head|body)\b", re.IGNORECASE | re.DOTALL)
_PYTHON_SHEBANG: Final = re.compile(rb"#![^\n]*\bpython")
_SCRIPT: Final = re.compile(rb"#!\s*/|<\?php\b|@echo (?:off|on)\b", re.IGNORECASE)
# What may stand before the first statement of a Python file: blank lines, comments, and one docstring.
_BLANK: Final = re.compile(rb"(?:[ \t]*(?:#[^\n]*)?\r?\n)*+")
_DOCSTRING: Final = re.compile(
    rb'[rRuU]?(?:"""(?:[^"\\]|\\.|"(?!""))*+"""|\'\'\'(?:[^\'\\]|\\.|\'(?!\'\'))*+\'\'\'|"[^"\n]*"|\'[^\'\n]*\')',
    re.DOTALL,
)
_STATEMENT: Final = re.compile(
    rb"import [A-Za-z_][\w.]*(?: as \w+)?(?:, *[A-Za-z_][\w.]*(?: as \w+)?)*[ \t]*(?:[#;\r\n]|\Z)"
    rb"|from [.\w]+ import [\w*(]"
    rb"|(?:async )?def [A-Za-z_]\w*\("
    rb"|class [A-Za-z_]\w*(?:\([^\n]*\))?:[ \t]*(?:[#\r\n.\"']|pass\b|\Z)"
    rb"|@[A-Za-z_][\w.]*(?:\([^\n]*\))?[ \t]*\r?\n(?:@|async |def |class )"
    rb"|(?:exec|eval|print|__import__)\("
    rb"|__all__\b|if __name__\b|try:[ \t]*\r?\n"
)


def text_kind(head: bytes, size_bytes: int) -> FileFormat | None:
    """The kind of a text that begins with `head`, of a file of `size_bytes`; `None` when it is no text."""
    if head.startswith(_UTF_16_MARKS):
        return FileFormat.TEXT if len(head) % 2 == 0 or len(head) < size_bytes else None
    if len(head.translate(None, _NO_TEXT)) < len(head) or not _is_utf_8(head, cut=len(head) < size_bytes):
        return None
    text = head.removeprefix(_UTF_8_MARK).lstrip()
    if size_bytes <= _MAX_LFS_BYTES and _LFS.match(text):
        return FileFormat.LFS_POINTER
    if _JSON.match(text):
        return FileFormat.JSON
    if _HTML.match(text):
        return FileFormat.HTML
    if _PYTHON_SHEBANG.match(text):
        return FileFormat.PYTHON
    if _SCRIPT.match(text):
        return FileFormat.SCRIPT
    return FileFormat.PYTHON if _is_python(text) else FileFormat.TEXT


def _is_utf_8(head: bytes, *, cut: bool) -> bool:
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        # A head may end inside a character; the longest has four bytes.
        return cut and error.reason == "unexpected end of data" and error.start > len(head) - 4
    return True


def _is_python(text: bytes) -> bool:
    at = _end(_BLANK, text, 0)
    documented = _end(_DOCSTRING, text, at)
    if documented > at:
        at = _end(_BLANK, text, documented)
    return _STATEMENT.match(text, at) is not None


def _end(pattern: re.Pattern[bytes], text: bytes, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()
