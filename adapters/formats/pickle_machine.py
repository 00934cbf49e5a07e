"""Follows a pickle instruction by instruction and never does what it says: the stack and the memo hold descriptions.

Two things end a reading. What is on no list is `code`, and the reading goes on, so that every import is named. What
cannot be followed any further is `Unreadable`; code that stands before it stays code, because an unpickler runs it
before it meets the error.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import IO, Any, ClassVar, Final, cast

from adapters.formats.pickle_findings import Budget, Findings
from adapters.formats.pickle_names import JOBLIB_ARRAY
from adapters.formats.pickle_source import Source, Unreadable
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

MAX_MEMO: Final = 1_000_000
MAX_MARKS: Final = 10_000
_MAX_INT_BITS: Final = 128
_NEWEST_PROTOCOL: Final = 5


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

    def run(self) -> Any:
        """Read to the STOP; gives what the stream stands for.

        Raises:
            Unreadable: with the reason.
        """
        source = self._source
        spend = self._budget.spend
        source.begin()
        for opcode, argument, _position in pickletools.genops(cast("IO[bytes]", source)):
            spend()
            step = self._steps.get(opcode.name)
            if step is None:
                self._findings.refuse(f"it uses the instruction {opcode.name}")
                raise Unreadable(f"the instruction {opcode.name} is not followed")
            step(self, OTHER if source.skipped else argument)
            source.begin()
        return self._pop()

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
            raise Unreadable(f"it has more than {MAX_MARKS} marks at once")
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
        known = isinstance(argument, str) and not self._source.altered
        self._push(self._budget.text(argument) if known else OTHER)

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
            self._findings.refuse(f"it changes {target.dotted} itself")

    # The memo.

    def _memoize(self, _argument: Any) -> None:
        self._put(len(self._memo))

    def _put(self, index: Any) -> None:
        if not isinstance(index, int) or not 0 <= index < MAX_MEMO:
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

    def _global(self, _argument: Any) -> None:
        self._push(self._import(self._named_in_lines()))

    def _named_in_lines(self) -> Name:
        """The two lines as an unpickler reads them: UTF-8, nothing undone."""
        try:
            module, name = (line[:-1].decode() for line in self._source.lines)
        except UnicodeDecodeError as error:
            raise Unreadable("the name of an import is not UTF-8") from error
        return Name(module, name)

    def _stack_global(self, _argument: Any) -> None:
        name, module = self._pop(), self._pop()
        if isinstance(name, str) and isinstance(module, str):
            self._push(self._import(Name(module, name)))
        else:
            self._findings.refuse("it imports a name that cannot be told before it runs")
            self._push(OTHER)

    def _extension(self, _argument: Any) -> None:
        self._findings.refuse("it imports a name by its number in the extension registry")
        self._push(OTHER)

    def _call(self, callee: Any, arguments: Any) -> None:
        self._findings.called = True
        self._findings.refuse(problem_of_call(callee, arguments))
        followed = isinstance(callee, Name) and isinstance(arguments, tuple)
        self._push(Made(callee, arguments) if followed else OTHER)

    def _reduce(self, _argument: Any) -> None:
        arguments, callee = self._pop(), self._pop()
        self._call(callee, arguments)

    def _inst(self, _argument: Any) -> None:
        self._call(self._import(self._named_in_lines()), tuple(self._pop_mark()[: MAX_TUPLE + 1]))

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
            target.state = state
            if target.maker.key == JOBLIB_ARRAY:
                self._pass_joblib_array(target)

    def _pass_joblib_array(self, wrapper: Made) -> None:
        sizes = joblib_array_bytes(wrapper)
        if sizes is None:
            raise Unreadable("it holds a joblib array whose bytes cannot be told from instructions")
        array_bytes, alignment = sizes
        padding = self._source.read(1)[0]
        if padding > alignment:
            raise Unreadable("a joblib array is aligned otherwise than it says")
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

    def _frame(self, argument: Any) -> None:
        if argument > self._source.left:
            raise Unreadable("it claims more bytes than there are")

    def _stop(self, _argument: Any) -> None:
        self._top()

    # One step for each instruction on the list; the others are not followed.
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
    }
    # fmt: on
