"""Follows a pickle instruction by instruction and never does what it says: the stack and the memo hold descriptions.

Two things end a reading. What is on no list is `code`, and the reading goes on, so that every import is named. What
cannot be followed any further is `Unreadable`; code that stands before it stays code, because an unpickler runs it
before it meets the error.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any, ClassVar, Final

from adapters.formats import pickle_opcodes as op
from adapters.formats.pickle_findings import Budget, Findings
from adapters.formats.pickle_names import JOBLIB_ARRAY
from adapters.formats.pickle_source import Exhausted, Source, Unreadable
from adapters.formats.pickle_values import (
    MAX_TUPLE,
    OTHER,
    Made,
    Name,
    Table,
    joblib_array_bytes,
    problem_of_build,
    problem_of_call,
    problem_of_persistent_id,
)

MAX_MARKS: Final = 10_000
_MAX_INT_BITS: Final = 128
_NEWEST_PROTOCOL: Final = 5


_REGISTRY: Final = "extension registry"


class Machine:
    """One stream, from its first instruction to its STOP."""

    def __init__(self, source: Source, findings: Findings, budget: Budget) -> None:
        self._source = source
        self._findings = findings
        self._budget = budget
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        self._follows_tables = False
        # How much is left where the last frame ends; below nothing for none.
        self._edge = -1

    def run(self) -> Any:
        """Read to the STOP; gives what the stream stands for.

        Raises:
            Unreadable: with the reason.
        """
        source = self._source
        spend = self._budget.spend
        while True:
            read, step = _TABLE[source.instruction()]
            spend()
            if read is None:
                step(self, None)
            else:
                before = source.left
                try:
                    argument = read(source)
                finally:
                    if source.left < self._edge < before:
                        self._part_ways()
                step(self, argument)
            if step is Machine._stop:
                if source.left > self._edge >= 0:
                    self._part_ways()
                return self._pop()

    def _part_ways(self) -> None:
        """The frame ends inside an instruction, or behind the STOP.

        Of a file without `peek`, C's unpickler has lost what was left of the frame by then: it reads other instructions
        than it reads of a file with `peek`, and than are followed here.
        """
        self._findings.parted = True
        self._edge = -1

    # The stack.

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _pop(self) -> Any:
        if not self._stack:
            raise Unreadable("it takes from an empty stack")
        return self._stack.pop()

    def _top(self) -> Any:
        if not self._stack:
            raise Unreadable("it looks at an empty stack")
        return self._stack[-1]

    def _pop_mark(self) -> list[Any]:
        if not self._below:
            raise Unreadable("it looks for a mark that is not there")
        items = self._stack
        self._stack = self._below.pop()
        return items

    def _mark(self, _argument: Any) -> None:
        if len(self._below) >= MAX_MARKS:
            raise Exhausted(f"it has more than {MAX_MARKS} marks at once")
        self._below.append(self._stack)
        self._stack = []

    def _drop(self, _argument: Any) -> None:
        if self._stack:
            self._stack.pop()
        else:
            self._pop_mark()

    def _drop_mark(self, _argument: Any) -> None:
        self._pop_mark()

    def _copy(self, _argument: Any) -> None:
        self._push(self._top())

    # Plain values.

    def _number(self, argument: Any) -> None:
        known = isinstance(argument, int) and argument.bit_length() <= _MAX_INT_BITS
        self._push(argument if known else OTHER)

    def _text(self, argument: Any) -> None:
        self._push(self._budget.text(argument) if isinstance(argument, str) else OTHER)

    def _other(self, _argument: Any) -> None:
        self._push(OTHER)

    def _none(self, _argument: Any) -> None:
        self._push(None)

    def _true(self, _argument: Any) -> None:
        self._push(True)  # noqa: FBT003 -- a value of the pickle

    def _false(self, _argument: Any) -> None:
        self._push(False)  # noqa: FBT003 -- a value of the pickle

    def _tuple0(self, _argument: Any) -> None:
        self._push(())

    def _tuple1(self, _argument: Any) -> None:
        self._push((self._pop(),))

    def _tuple2(self, _argument: Any) -> None:
        last, first = self._pop(), self._pop()
        self._push((first, last))

    def _tuple3(self, _argument: Any) -> None:
        last, middle, first = self._pop(), self._pop(), self._pop()
        self._push((first, middle, last))

    def _marked_tuple(self, _argument: Any) -> None:
        items = self._pop_mark()
        self._push(tuple(items) if len(items) <= MAX_TUPLE else OTHER)

    def _marked_other(self, _argument: Any) -> None:
        self._pop_mark()
        self._push(OTHER)

    def _table(self, _argument: Any) -> None:
        self._push(Table() if self._follows_tables else OTHER)

    # Filling a container.

    def _append(self, _argument: Any) -> None:
        self._pop()
        self._filled(self._top())

    def _set_item(self, _argument: Any) -> None:
        value, key = self._pop(), self._pop()
        self._filled(self._top())
        if isinstance(self._top(), Table):
            self._top().put(key, value)

    def _append_marked(self, _argument: Any) -> None:
        self._pop_mark()
        self._filled(self._top())

    def _set_marked(self, _argument: Any) -> None:
        items = self._pop_mark()
        if len(items) % 2:
            raise Unreadable("it has a key without a value")
        target = self._top()
        self._filled(target)
        if isinstance(target, Table):
            for key, value in zip(items[::2], items[1::2], strict=True):
                target.put(key, value)

    def _filled(self, target: Any) -> None:
        if isinstance(target, Name):
            self._findings.called = True
            self._findings.refuse(f"it changes {target.dotted} itself")

    # The memo.

    def _memoize(self, _argument: Any) -> None:
        self._put(len(self._memo))

    def _put(self, index: Any) -> None:
        if index < 0:
            raise Unreadable("it uses an impossible place of the memo")
        self._memo[index] = self._top()

    def _get(self, index: Any) -> None:
        if index not in self._memo:
            raise Unreadable("it asks the memo for what was never put there")
        self._push(self._memo[index])

    # Names and calls.

    def _import(self, name: Name) -> Name:
        self._findings.name(name)
        self._follows_tables |= name.key == JOBLIB_ARRAY
        return name

    def _global(self, named: tuple[str, str]) -> None:
        self._push(self._import(Name(*named)))

    def _stack_global(self, _argument: Any) -> None:
        name, module = self._pop(), self._pop()
        if isinstance(name, str) and isinstance(module, str):
            self._push(self._import(Name(module, name)))
        elif any(value is None or isinstance(value, int | tuple | Name | Table) for value in (name, module)):
            raise Unreadable("the name of an import is no text")
        else:
            self._findings.imported = True
            self._findings.refuse("it imports a name that cannot be told before it runs")
            self._push(OTHER)

    def _extension(self, argument: Any) -> None:
        self._findings.numbered = True
        self._findings.refuse("it imports a name by its number in the extension registry")
        # Whose name, only the process that loads it knows; what is done with it counts as with any other.
        self._push(Name(_REGISTRY, f"number {argument}"))

    def _call(self, callee: Any, arguments: Any) -> None:
        self._findings.called = True
        self._findings.refuse(problem_of_call(callee, arguments))
        followed = isinstance(callee, Name) and isinstance(arguments, tuple)
        self._push(Made(callee, arguments) if followed else OTHER)

    def _reduce(self, _argument: Any) -> None:
        arguments, callee = self._pop(), self._pop()
        self._call(callee, arguments)

    def _inst(self, named: tuple[str, str]) -> None:
        self._call(self._import(Name(*named)), tuple(self._pop_mark()[: MAX_TUPLE + 1]))

    def _obj(self, _argument: Any) -> None:
        items = self._pop_mark()
        if not items:
            raise Unreadable("it calls nothing")
        self._call(items[0], tuple(items[1 : MAX_TUPLE + 1]))

    def _new_with_names(self, _argument: Any) -> None:
        self._pop()
        self._pop()
        callee = self._pop()
        self._findings.called = True
        name = callee.dotted if isinstance(callee, Name) else "something"
        self._findings.refuse(f"it calls {name} with named arguments")
        self._push(OTHER)

    def _build(self, _argument: Any) -> None:
        state, target = self._pop(), self._top()
        self._findings.called = True
        self._findings.refuse(problem_of_build(target, state))
        if isinstance(target, Made):
            # What is filled twice holds something of both, which is not followed.
            target.state = state if target.state is None else OTHER
            if target.maker.key == JOBLIB_ARRAY:
                self._pass_joblib_array(target)

    def _pass_joblib_array(self, wrapper: Made) -> None:
        sizes = joblib_array_bytes(wrapper)
        if sizes is None:
            raise Exhausted("it holds a joblib array whose bytes cannot be told from instructions")
        array_bytes, alignment = sizes
        padding = self._source.take(1)[0]
        if padding > alignment:
            raise Exhausted("a joblib array is aligned otherwise than it says")
        self._source.skip(padding)
        self._source.skip(array_bytes)

    def _persistent(self, _argument: Any) -> None:
        self._findings.refuse(problem_of_persistent_id(self._pop()))
        self._push(OTHER)

    def _persistent_text(self, _argument: Any) -> None:
        self._findings.refuse("it asks its reader for an object that is no torch storage")
        self._push(OTHER)

    # What changes nothing.

    def _protocol(self, argument: Any) -> None:
        if argument > _NEWEST_PROTOCOL:
            raise Unreadable(f"it has protocol {argument}, the newest is {_NEWEST_PROTOCOL}")

    def _frame(self, length: int) -> None:
        """A frame that is longer than the file is none for C's unpickler, and cut off for Python's."""
        left = self._source.left
        edge = max(left - length, -1)
        if left > self._edge >= 0:
            if edge >= self._edge:
                return  # it is part of the frame that is read already
            self._part_ways()
        self._edge = edge

    def _buffer(self, _argument: Any) -> None:
        self._findings.refuse("it uses the instruction NEXT_BUFFER")
        self._push(OTHER)

    def _read_only(self, _argument: Any) -> None:
        self._top()

    def _unknown(self, _argument: Any) -> None:
        raise Unreadable("a byte of it is no instruction")

    def _stop(self, _argument: Any) -> None:
        self._top()

    # One step for each instruction.
    # fmt: off
    _steps: ClassVar[dict[str, Callable[[Machine, Any], None]]] = {
        **dict.fromkeys(("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"), _number),
        **dict.fromkeys(
            ("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
            _text),
        **dict.fromkeys(
            ("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8", "FLOAT", "BINFLOAT", "EMPTY_LIST", "EMPTY_SET"),
            _other),
        **dict.fromkeys(("LIST", "DICT", "FROZENSET"), _marked_other),
        **dict.fromkeys(("APPENDS", "ADDITEMS"), _append_marked),
        **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _put),
        **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _get),
        **dict.fromkeys(("REDUCE", "NEWOBJ"), _reduce),
        "NONE": _none, "NEWTRUE": _true, "NEWFALSE": _false,
        "EMPTY_TUPLE": _tuple0,
        "TUPLE1": _tuple1,
        "TUPLE2": _tuple2,
        "TUPLE3": _tuple3,
        "TUPLE": _marked_tuple, "EMPTY_DICT": _table,
        "APPEND": _append, "SETITEM": _set_item, "SETITEMS": _set_marked,
        "MARK": _mark, "POP": _drop, "POP_MARK": _drop_mark, "DUP": _copy,
        "MEMOIZE": _memoize,
        "GLOBAL": _global, "STACK_GLOBAL": _stack_global,
        **dict.fromkeys(("EXT1", "EXT2", "EXT4"), _extension),
        "INST": _inst, "OBJ": _obj, "NEWOBJ_EX": _new_with_names, "BUILD": _build,
        "PERSID": _persistent_text, "BINPERSID": _persistent,
        "PROTO": _protocol, "FRAME": _frame, "STOP": _stop,
        "NEXT_BUFFER": _buffer, "READONLY_BUFFER": _read_only,
    }
    # fmt: on


def _table() -> list[tuple[op.Read | None, Callable[[Machine, Any], None]]]:
    """For each byte, how its argument is read and what it does."""
    table: list[tuple[op.Read | None, Callable[[Machine, Any], None]]] = [(None, Machine._unknown)] * 256  # noqa: SLF001 -- the machine's own table
    for known in pickletools.opcodes:
        table[ord(known.code)] = (op.READS.get(known.name), Machine._steps[known.name])  # noqa: SLF001 -- the machine's own table
    return table


_TABLE: Final = _table()
