"""A profile from what a person wrote: a TOML file and flags, every mistake named together with what would be right."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, get_args

import msgspec
from msgspec import inspect

from bus import settings
from bus.errors import ErrorCode, ModelForgeError
from bus.ids import check_name
from bus.messages.profiles import AudioSemantics, Budgets, Preprocessing, RuntimeProfile
from bus.profile_rules import NO_FALLBACK, problems

# Tables of a profile's file, and of which struct their fields are.
TABLES: Final[dict[str, type[msgspec.Struct]]] = {
    "budgets": Budgets,
    "preprocessing": Preprocessing,
    "audio": AudioSemantics,
}
_SHOWN_CHARS: Final = 60


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One mistake.

    Attributes:
        field: where it is, such as `budgets.loading_s`; empty when it is about how the fields go together.
    """

    code: str = ErrorCode.INVALID_ARGUMENT.value
    field: str = ""
    message: str


def read_toml(file: Path) -> dict[str, Any]:
    """The fields of a profile file.

    Raises:
        ModelForgeError: CONFIG_UNREADABLE, with line and column for a syntax error.
    """
    return settings.read_toml(file)


def gather(name: str | None, document: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """A file's fields with the flags that were given put over them; flags of a table's fields go into that table."""
    given = {key: value for key, value in flags.items() if value is not None}
    fields = dict(document)
    for table, type_ in TABLES.items():
        own = {key: given.pop(key) for key in type_.__struct_fields__ if key in given}
        before = fields.get(table, {})
        if own and isinstance(before, dict):
            fields[table] = {**before, **own}
    fields.update(given)
    if name is not None:
        fields["name"] = name
    return fields


def over(stored: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """A stored profile's fields with a file's put over them, tables field by field."""
    fields = {**stored, **document}
    for table in TABLES:
        before, after = stored.get(table), document.get(table)
        if isinstance(before, dict) and isinstance(after, dict):
            fields[table] = {**before, **after}
    return fields


def build_profile(name: str | None, document: Mapping[str, Any], flags: Mapping[str, Any]) -> RuntimeProfile:
    """A profile from a file's fields and the flags that were given; a flag wins.

    Raises:
        ModelForgeError: INVALID_ARGUMENT for a missing name, unknown fields, wrong values, or values that do not go
            together; all that is wrong is in the message.
    """
    profile, wrong = examine(gather(name, document, flags))
    if profile is None:
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, "; ".join(told(problem) for problem in wrong))
    return profile


def told(problem: Problem) -> str:
    """A mistake in words."""
    return f"{problem.field}: {problem.message}" if problem.field else problem.message


def examine(
    fields: Mapping[str, Any], *, adapters: Collection[str] = ()
) -> tuple[RuntimeProfile | None, tuple[Problem, ...]]:
    """The profile, or everything that is wrong with it; with `adapters`, another one than those is wrong too."""
    wrong = [*_name_problems(fields), *_value_problems(fields, RuntimeProfile, "")]
    named = fields.get("adapter")
    if adapters and isinstance(named, str) and named not in adapters:
        wrong.append(Problem(field="adapter", message=unknown_adapter(named, adapters)))
    if wrong:
        return None, tuple(wrong)
    profile = msgspec.convert(fields, RuntimeProfile)
    broken = tuple(Problem(message=rule) for rule in problems(profile))
    return (None, broken) if broken else (profile, ())


def unknown_adapter(named: str, adapters: Collection[str]) -> str:
    """Why an adapter's name is refused; a runner of one's own has a name in the list, too."""
    return f"{named!r} is not one of {', '.join(adapters)}; a runner of your own is `custom`"


def _name_problems(fields: Mapping[str, Any]) -> Iterator[Problem]:
    """A name in words, before msgspec says the same with a regular expression."""
    if "name" not in fields:
        yield Problem(message="a profile needs a NAME, as an argument or in the file")
        return
    try:
        check_name(str(fields["name"]), "profile")
    except ModelForgeError as error:
        yield Problem(field="name", message=error.message)


def _value_problems(fields: Mapping[str, Any], type_: type[msgspec.Struct], prefix: str) -> Iterator[Problem]:
    known = {field.name: field.type for field in msgspec.structs.fields(type_)}
    for key, value in fields.items():
        where = f"{prefix}{key}"
        if key not in known:
            what = prefix.rstrip(".") or "profile"
            # A message from the wire may hold more than we know; a file that a person wrote may not.
            yield Problem(message=f"{what}: unknown field {key!r}; the fields are {', '.join(known)}")
        elif not prefix and key in TABLES:
            if isinstance(value, dict):
                yield from _value_problems(value, TABLES[key], f"{key}.")
            else:
                yield Problem(field=key, message=f"must be a table; its fields are {_names(TABLES[key])}")
        elif key != "name" or prefix:
            yield from _value_problem(where, value, known[key])


def _names(type_: type[msgspec.Struct]) -> str:
    return ", ".join(type_.__struct_fields__)


def _value_problem(where: str, value: object, type_: object) -> Iterator[Problem]:
    try:
        msgspec.convert(value, type_)
    except msgspec.ValidationError:
        shown = repr(value)
        if len(shown) > _SHOWN_CHARS:
            shown = f"{shown[:_SHOWN_CHARS]}…"
        fallback = f"; {NO_FALLBACK}" if where == "device" and "cuda" in shown else ""
        yield Problem(field=where, message=f"{shown} is not {_expected(inspect.type_info(type_))}{fallback}")


def _expected(type_: inspect.Type) -> str:
    """What a field takes, in words."""
    match type_:
        case inspect.UnionType():
            return " or ".join(_expected(one) for one in type_.types if not isinstance(one, inspect.NoneType))
        case inspect.LiteralType():
            return f"one of {', '.join(str(value) for value in type_.values)}"
        case inspect.IntType():
            return f"a whole number from {type_.ge or 0} to {type_.le}"
        case inspect.BoolType():
            return "true or false"
        case inspect.StrType():
            return "a text" + (f" of at most {type_.max_length} characters" if type_.max_length else "")
        case _:
            return f"a {type(type_).__name__.removesuffix('Type').lower()}"


def choices(type_: type[msgspec.Struct], field: str) -> tuple[str, ...]:
    """What a field with a closed list of values takes."""
    return get_args(next(one.type for one in msgspec.structs.fields(type_) if one.name == field))
