"""Is this the beginning of a pickle? Protocols 0 and 1 have no magic: their first bytes are tried as opcodes.

A stream that an unpickler would follow counts as a pickle from the moment where it could have called something, even
when it makes no sense after that: the harm would be done by then. Text is no such stream after a few letters.
"""

from __future__ import annotations

import io
import pickletools
import re
from typing import Any, Final

from adapters.formats.pickle_opcodes import READS
from adapters.formats.pickle_source import CUT_SHORT, Source, Unreadable

PROTO: Final = 0x80
_HIGHEST_PROTOCOL: Final = 5
_PROTO_BYTES: Final = 2
_BY_CODE: Final = {ord(op.code): op for op in pickletools.opcodes}
_OPCODES: Final = frozenset(ord(op.code) for op in pickletools.opcodes)
# What can stand first: it needs nothing on the stack.
_FIRST: Final = frozenset(ord(op.code) for op in pickletools.opcodes if not op.stack_before)
_IMPORTS: Final = frozenset({"GLOBAL", "INST", "STACK_GLOBAL", "EXT1", "EXT2", "EXT4"})
_CALLS: Final = frozenset({"REDUCE", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "BUILD"})
_STRUCTURE: Final = frozenset({"MARK", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"})
# Of a whole stream, and of one that goes on behind the bytes at hand.
_MIN_OPCODES: Final = 4
_NAME: Final = re.compile(r"[A-Za-z_][\w.]* [A-Za-z_][\w.]*\Z")


def is_pickle(head: bytes, size_bytes: int) -> bool:
    """Whether a file of `size_bytes` that begins with `head` is a pickle of any protocol."""
    if head[:1] == bytes([PROTO]) and head[1:2] <= bytes([_HIGHEST_PROTOCOL]):
        # The third byte begins the first value; a file that ends before it is a pickle cut short.
        return head[2] in _OPCODES if len(head) > _PROTO_BYTES else size_bytes <= _PROTO_BYTES
    return bool(head) and head[0] in _FIRST and runs(head, size_bytes)


def runs(head: bytes, size_bytes: int) -> bool:
    """Whether an unpickler would follow `head` to a call, to its end, or to the end of the bytes at hand."""
    source = Source(io.BytesIO(head), len(head))
    stack: list[object] = []
    seen: set[str] = set()
    count = 0
    try:
        while True:
            op = _BY_CODE.get(source.instruction())
            if op is None or not _apply(op, stack):
                return False
            read = READS.get(op.name)
            argument: Any = None if read is None else read(source)
            if op.name in ("GLOBAL", "INST") and not _NAME.match(" ".join(argument)):
                return False
            count += 1
            seen.add(op.name)
            if op.name in _CALLS and seen & _IMPORTS:
                return True
            if op.name == "STOP":
                whole = not source.left and len(head) == size_bytes
                return whole and count >= _MIN_OPCODES and bool(seen & (_STRUCTURE | _IMPORTS))
    except Unreadable as problem:
        # An argument that goes on behind the head is as good as none; anything else ends every unpickler.
        cut = str(problem) in CUT_SHORT and len(head) < size_bytes
        return cut and count >= _MIN_OPCODES and bool(seen & (_STRUCTURE | _IMPORTS))


def _apply(op: pickletools.OpcodeInfo, stack: list[object]) -> bool:
    """Move the stack as `op` does; false when it cannot."""
    mark = pickletools.markobject
    before = op.stack_before
    if mark in before:
        if mark not in stack:
            return False
        while stack.pop() is not mark:
            continue
        before = before[: before.index(mark)]
    if len(stack) < len(before):
        return False
    del stack[len(stack) - len(before) :]
    stack.extend(op.stack_after)
    return True
