"""What a pickle's stack holds while it is followed, and which calls on it are harmless.

Only what decides something is known exactly: short strings, whole numbers, short tuples, names. The rest is `OTHER`.
"""

from __future__ import annotations

import re
from typing import Any, Final

from adapters.formats.pickle_names import ALLOWED, DTYPE, ENCODE, JOBLIB_ARRAY, NDARRAY, STORAGE_SUFFIX, Allowed

MAX_TUPLE: Final = 16
MAX_TABLE: Final = 16
# The padding's length is one byte, and up to here no such byte is an instruction.
MAX_ALIGNMENT_BYTES: Final = 32
_SIZED_DTYPE: Final = re.compile(r"([biufcSUMm])(\d{1,6})")
# Called with a number, these make so many bytes.
_SIZED: Final = frozenset({"bytearray", "bytes"})
_LATIN: Final = frozenset({"latin1", "latin-1"})
_SIMPLE_DTYPE: Final = re.compile(r"[?bBhHiIlLqQefdgFDGcuSUVMmO]\d{0,6}")
_STATE_ITEMS: Final = (8, 9)
_STATE_NONE: Final = slice(2, 5)
_STATE_ITEM_BYTES: Final = 5
_ARRAY_KEYS: Final = frozenset({"subclass", "shape", "order", "dtype", "allow_mmap", "numpy_array_alignment_bytes"})
_OBJECT_FLAGS: Final = 63
_TEXT_FLAGS: Final = 8


class Other:
    """A value that decides nothing."""


OTHER: Final = Other()


class Name:
    """A name that was imported: `allowed` is what may be done with it, `None` when it is on no list."""

    __slots__ = ("allowed", "module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name
        self.allowed: Allowed | None = ALLOWED.get((module, name))

    @property
    def key(self) -> tuple[str, str]:
        """Module and name."""
        return self.module, self.name

    @property
    def dotted(self) -> str:
        """`module.name`."""
        return f"{self.module}.{self.name}"

    @property
    def is_storage(self) -> bool:
        """Is it one of the storage classes that a persistent id of torch names?"""
        return self.allowed is not None and self.name.endswith(STORAGE_SUFFIX)


class Made:
    """What a call of an allowed name gave; `state` is what a later BUILD put into it."""

    __slots__ = ("arguments", "maker", "state")

    def __init__(self, maker: Name, arguments: tuple[Any, ...] = ()) -> None:
        self.maker = maker
        self.arguments = arguments
        self.state: Any = None


class Table:
    """A small dict with string keys; followed only where joblib's arrays need it.

    Attributes:
        told: is all of it known? Not with a key that cannot be told, that comes twice, or that is one too many.
    """

    __slots__ = ("items", "told")

    def __init__(self) -> None:
        self.items: dict[str, Any] = {}
        self.told = True

    def put(self, key: Any, value: Any) -> None:
        """Keep a pair, as long as there are few."""
        if isinstance(key, str) and key not in self.items and len(self.items) < MAX_TABLE:
            self.items[key] = value
        else:
            self.told = False


def problem_of_call(callee: Any, arguments: Any) -> str | None:
    """Why this call is not harmless; `None` when it is."""
    if not isinstance(callee, Name):
        return "it calls something that is no name"
    if callee.allowed is None:
        return f"it calls {callee.dotted}"
    if not callee.allowed.call:
        return f"it calls {callee.dotted}, which is only ever mentioned"
    if not isinstance(arguments, tuple):
        return f"it calls {callee.dotted} with arguments that cannot be told before it runs"
    if any(isinstance(argument, Name) for argument in arguments) and not callee.allowed.takes_names:
        return f"it gives a name to {callee.dotted}"
    return _problem_of_arguments(callee, arguments)


def _problem_of_arguments(callee: Name, arguments: tuple[Any, ...]) -> str | None:
    if callee.key == ENCODE and not _is_latin(arguments):
        return f"it calls {callee.dotted} for another encoding than Latin-1"
    if callee.name in _SIZED and any(isinstance(argument, int) for argument in arguments):
        return f"it calls {callee.dotted} with a size instead of bytes"
    if callee.key == DTYPE and not (
        arguments and isinstance(arguments[0], str) and _SIMPLE_DTYPE.fullmatch(arguments[0])
    ):
        return f"it calls {callee.dotted} for something that is no plain number type"
    return None


def _is_latin(arguments: tuple[Any, ...]) -> bool:
    match arguments:
        case (_, str(encoding)):
            return encoding in _LATIN
    return False


def problem_of_build(target: Any, state: Any) -> str | None:
    """Why putting `state` into `target` is not harmless; `None` when it is."""
    if isinstance(target, Name):
        return f"it changes {target.dotted} itself"
    if not isinstance(target, Made):
        return "it changes something that is no object of a listed kind"
    if target.maker.key == DTYPE:
        return _problem_of_dtype(target, state)
    return None


def _problem_of_dtype(target: Made, state: Any) -> str | None:
    """Flags that do not belong to a dtype make NumPy take plain bytes for pointers to objects."""
    if (
        not isinstance(state, tuple)
        or len(state) not in _STATE_ITEMS
        or any(item is not None for item in state[_STATE_NONE])
    ):
        return "it makes a dtype of several fields, or one that cannot be told before it runs"
    kind = target.arguments[0][:1]
    flags = {"O": (_OBJECT_FLAGS,), "U": (0, _TEXT_FLAGS)}.get(kind, (0,))
    if type(state[7]) is not int or state[7] not in flags:
        return "it makes a dtype with flags that its kind does not have"
    return None


def problem_of_persistent_id(identity: Any) -> str | None:
    """Why a persistent id is none of a torch storage; `None` when it is one: `("storage", class, key, device, n)`."""
    match identity:
        case ("storage", Name() as storage, *_) if storage.is_storage:
            return None
    return "it asks its reader for an object that is no torch storage"


def joblib_array_bytes(wrapper: Made) -> tuple[int, int] | None:
    """Size of the array that follows joblib's wrapper, and its alignment; `None` when they cannot be told.

    Only aligned arrays can: in front of one stands its padding's length, which is no instruction. Elsewhere the
    array's own bytes would be instructions for whoever reads the file with `pickle.load`.
    """
    if wrapper.maker.key != JOBLIB_ARRAY or not isinstance(wrapper.state, Table):
        return None
    if not wrapper.state.told or not wrapper.state.items.keys() <= _ARRAY_KEYS:
        return None
    match wrapper.state.items:
        case {
            "subclass": Name() as subclass,
            "shape": tuple() as shape,
            "dtype": Made() as dtype,
            "numpy_array_alignment_bytes": int() as alignment,
        } if subclass.key == NDARRAY and dtype.maker.key == DTYPE:
            pass
        case _:
            return None
    item_bytes = _item_bytes(dtype)
    if not item_bytes or not 1 <= alignment <= MAX_ALIGNMENT_BYTES:
        return None
    for length in shape:
        if type(length) is not int or length < 0:
            return None
        item_bytes *= length
    return item_bytes, alignment


def _item_bytes(dtype: Made) -> int | None:
    """By its name, when what was put into it later says the same or nothing."""
    match = _SIZED_DTYPE.fullmatch(str(dtype.arguments[0]))
    if match is None:
        return None
    item_bytes = int(match[2]) * (4 if match[1] == "U" else 1)
    if dtype.state is None:
        return item_bytes
    if not isinstance(dtype.state, tuple) or len(dtype.state) not in _STATE_ITEMS:
        return None
    said = dtype.state[_STATE_ITEM_BYTES]
    return item_bytes if type(said) is int and said in (-1, item_bytes) else None
