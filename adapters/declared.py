"""What the installed libraries declare, read from their own files without importing them, and what a node adds to it.

Importing transformers to ask for its model types costs seconds and runs its code in the agent. The tables are plain
literals of its source, so they are read as text: a file is parsed, never executed.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from bus.files import read_bounded
from bus.messages.base import Record
from bus.messages.profiles import Task

MAX_SOURCE_BYTES: Final = 4 * 1024 * 1024
# A message with the inventory carries no more of them.
MAX_NAMES: Final = 2_000
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# Where the tables stand, in the older releases and in the newer ones.
_MODEL_TYPE_FILES: Final = ("models/auto/auto_mappings.py", "models/auto/configuration_auto.py")
_MODEL_TYPES: Final = "CONFIG_MAPPING_NAMES"
_QUANTIZER_FILES: Final = ("quantizers/auto.py",)
_QUANTIZERS: Final = "AUTO_QUANTIZER_MAPPING"

Word = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")]
Words = Annotated[tuple[Word, ...], msgspec.Meta(max_length=MAX_NAMES)]
Modality = Literal["text", "image", "audio"]
WeightFormat = Literal["safetensors", "gguf", "pickle", "onnx"]


class AdapterDeclaration(Record, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What a node's owner declares of one adapter; what is `None` stays as the product declares it."""

    tasks: tuple[Task, ...] | None = None
    modalities: tuple[Modality, ...] | None = None
    model_types: Words | None = None
    formats: tuple[WeightFormat, ...] | None = None
    quantizations: Words | None = None


class EnvironmentDeclaration(Record, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The environment file of a node (`[node] environment`).

    Packages and interpreter have no field here: they are read from this machine, never declared.

    Attributes:
        image: the container image in which the agent runs, by its digest where it has one.
        adapters: declarations by the adapter's name.
    """

    image: Annotated[str, msgspec.Meta(min_length=1, max_length=512, pattern=r"^[!-~]+\Z")] | None = None
    adapters: dict[Word, AdapterDeclaration] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Names that a library declares, sorted; `reason` says why there are none."""

    names: tuple[str, ...] = ()
    reason: str | None = None


def transformers_model_types() -> Names:
    """The `model_type` values that the installed transformers knows."""
    return _of_package("transformers", _MODEL_TYPE_FILES, _MODEL_TYPES)


def transformers_quantizations() -> Names:
    """The quantization methods that the installed transformers has a loader for."""
    return _of_package("transformers", _QUANTIZER_FILES, _QUANTIZERS)


def read_table(folder: Path, files: tuple[str, ...], table: str) -> Names:
    """The keys of `table` in these files of a package; a file that an older or newer release lacks is skipped.

    A file that did not change since it was last read is not read again.
    """
    found: set[str] = set()
    read = 0
    for name in files:
        path = folder / name
        try:
            status = path.stat()
            keys = _keys(path, table, status.st_mtime_ns, status.st_size)
        except FileNotFoundError:
            continue
        except _Unreadable as problem:
            return Names(reason=f"{name}: {problem}")
        except OSError as error:
            return Names(reason=f"{name}: {error.strerror or 'cannot be read'}")
        read += 1
        found |= keys
    if not found:
        return Names(
            reason=f"{table} stands in none of its files" if read else "its files are not where they should be"
        )
    if len(found) > MAX_NAMES:
        return Names(reason=f"{table} has more than {MAX_NAMES} names")
    return Names(names=tuple(sorted(found)))


def _of_package(package: str, files: tuple[str, ...], table: str) -> Names:
    try:
        spec = importlib.util.find_spec(package)  # a top-level name: this looks for the file, and runs nothing
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.origin:
        return Names(reason=f"{package} is not installed")
    return read_table(Path(spec.origin).parent, files, table)


class _Unreadable(Exception):  # noqa: N818 -- a reason on its way into `Names`, never an error to anybody
    """The source is not one that this parser reads."""


@lru_cache(maxsize=16)
def _keys(path: Path, table: str, _mtime_ns: int, _size_bytes: int) -> frozenset[str]:
    try:
        tree = ast.parse(read_bounded(path, MAX_SOURCE_BYTES))
        return frozenset(key for key in _table_keys(tree, table) if _NAME.fullmatch(key))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _Unreadable(f"not read as Python source ({type(error).__name__})") from error


def _table_keys(tree: ast.Module, table: str) -> Iterator[str]:
    """The keys of every assignment to `table` and of every `table.update(...)` at the top of the module."""
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == table:
                yield from _mapping_keys(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if name == table:
                yield from _mapping_keys(value)
            case ast.Expr(
                value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="update"), args=arguments)
            ) if name == table:
                for argument in arguments:
                    yield from _mapping_keys(argument)


def _mapping_keys(value: ast.expr) -> Iterator[str]:
    """Literal keys of `{...}`, of `[(key, value), ...]`, and of a call such as `OrderedDict(...)` around either."""
    keys: list[ast.expr | None] = []
    inner: list[ast.expr] = []
    match value:
        case ast.Dict():
            keys = value.keys
        case ast.List(elts=items) | ast.Tuple(elts=items):
            keys = [item.elts[0] for item in items if isinstance(item, ast.Tuple) and item.elts]
        case ast.Call(args=arguments, keywords=keywords):
            inner = [*arguments, *(keyword.value for keyword in keywords if keyword.arg is None)]
    for key in keys:
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value
    for part in inner:
        yield from _mapping_keys(part)
