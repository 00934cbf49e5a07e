"""docs/reference/messages.md: every message and verb, with its fields, read from the types themselves."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Final

import msgspec
from msgspec import inspect as mi

from bus import subjects, verbs
from bus.errors import Failure
from bus.messages import api, artifacts, base, blobs, events, evidence, gates, inventory, jobs, profiles
from docs.generators import markdown as md

_MODULES: Final[tuple[tuple[str, ModuleType], ...]] = (
    ("Jobs and commands", jobs),
    ("Evidence", evidence),
    ("Inventory", inventory),
    ("Events", events),
    ("Artifacts", artifacts),
    ("Environments and profiles", profiles),
    ("Gates", gates),
    ("Large payloads", blobs),
    ("API", api),
)
_ABSTRACT: Final = (base.Record, base.Message, evidence.Evidence)
_TRAFFIC: Final[tuple[tuple[str, str, Any], ...]] = (
    (subjects.JOBS_ALL, subjects.JOBS_STREAM, jobs.AnyJob),
    (subjects.EVIDENCE_ALL, subjects.EVIDENCE_STREAM, evidence.AnyEvidence),
    (subjects.INVENTORY_ALL, subjects.INVENTORY_STREAM, inventory.NodeInventory),
    (subjects.EVENTS_ALL, subjects.EVENTS_STREAM, events.Event),
    (subjects.COMMANDS_ALL, "not stored", jobs.AnyCommand),
)
_PLAIN: Final[dict[type[mi.Type], str]] = {
    mi.AnyType: "any JSON",
    mi.BoolType: "boolean",
    mi.BytesType: "bytes, as base64",
    mi.DateTimeType: "time",
    mi.NoneType: "null",
    mi.RawType: "any JSON",
}


def render() -> str:
    """The page."""
    intro = (
        "JSON, UTF-8. Times are RFC 3339 in UTC, sizes are bytes, durations carry their unit in the name. A message's "
        "`kind` carries its version; a new field always has a default; unknown fields are ignored by a reader; an unknown "
        "kind is refused with `UNKNOWN_KIND` and never lost silently."
    )
    blocks = [intro, "## What travels where", _traffic(), "## Verbs", _verbs_intro(), _verbs()]
    for title, module in _MODULES:
        blocks.append(f"## {title}")
        blocks.append(md.summary(module))
        if module is evidence:
            blocks.append("Every kind of evidence begins with the same head: " + md.summary(evidence.Evidence))
        for type_ in _structs(module):
            blocks.extend(_struct(type_))
    blocks.extend(_struct(Failure))
    return md.page("Messages", *blocks)


def _traffic() -> str:
    rows = [
        (md.code(subject), md.code(stream) if stream.startswith("MF_") else stream, type_words(mi.type_info(type_)))
        for subject, stream, type_ in _TRAFFIC
    ]
    return md.table(("subject", "stream", "messages"), rows)


def _verbs_intro() -> str:
    return (
        f"The micro service `{subjects.SERVICE}`. A user calls `mf.api.user.<user>.<verb>`, a node calls "
        "`mf.api.node.<node>.<verb>`; the server lets nobody use another's name. Each reply is "
        f"{_link(api.Ok)} with the reply below as `data`, or {_link(api.Failed)}. A viewer may use the queries only."
    )


def _verbs() -> str:
    rows = [
        (
            md.code(verb.name),
            verb.role,
            verb.effect,
            type_words(mi.type_info(verb.request)),
            type_words(mi.type_info(verb.reply)),
            verb.description,
        )
        for verb in verbs.VERBS
    ]
    return md.table(("verb", "caller", "effect", "request", "reply", "what it does"), rows)


def _structs(module: ModuleType) -> list[type[msgspec.Struct]]:
    return [
        thing
        for thing in vars(module).values()
        if isinstance(thing, type)
        and issubclass(thing, msgspec.Struct)
        and thing.__module__ == module.__name__
        and thing not in _ABSTRACT
    ]


def _struct(type_: type[msgspec.Struct]) -> list[str]:
    info = mi.type_info(type_)
    if not isinstance(info, mi.StructType):
        message = f"{type_} is no struct"
        raise TypeError(message)
    blocks = [f"### {type_.__name__}", md.summary(type_)]
    rows = [(md.code(field.encode_name), type_words(field.type), _default(field)) for field in info.fields]
    if info.tag is not None:
        rows.insert(0, (md.code(info.tag_field), md.code(info.tag), "always"))
    if rows:
        blocks.append(md.table(("field", "type", "default"), rows))
    return blocks


def _default(field: mi.Field) -> str:
    if field.required:
        return "required"
    if field.default_factory is not msgspec.NODEFAULT:
        return md.code(msgspec.json.encode(field.default_factory()).decode())
    if isinstance(field.default, msgspec.Struct):
        return "its defaults"
    return md.code(msgspec.json.encode(field.default).decode())


def type_words(type_: mi.Type) -> str:  # noqa: C901, PLR0911 -- one flat branch for each kind of type
    """A type in words, with links to the structs that it holds."""
    plain = _PLAIN.get(type(type_))
    if plain is not None:
        return plain
    match type_:
        case mi.UnionType():
            return " or ".join(type_words(member) for member in type_.types)
        case mi.StructType():
            return _link(type_.cls)
        case mi.EnumType():
            return "one of " + ", ".join(md.code(member.value) for member in type_.cls)
        case mi.LiteralType():
            values = [md.code(msgspec.json.encode(value).decode()) for value in type_.values]
            return f"always {values[0]}" if len(values) == 1 else "one of " + ", ".join(values)
        case mi.VarTupleType() | mi.ListType():
            return f"list of {type_words(type_.item_type)}"
        case mi.DictType():
            return f"object of {type_words(type_.value_type)}"
        case mi.IntType():
            return "integer" + _bound(type_)
        case mi.FloatType():
            return "number" + _bound(type_)
        case mi.StrType():
            return "string" if type_.pattern is None else f"string matching {md.code(type_.pattern)}"
        case mi.Metadata():
            return type_words(type_.type)
    message = f"no words for {type_!r}"
    raise TypeError(message)


def _bound(type_: mi.IntType | mi.FloatType) -> str:
    limits = ((">", type_.gt), ("≥", type_.ge), ("<", type_.lt), ("≤", type_.le))
    return "".join(f" {sign} {limit:g}" for sign, limit in limits if limit is not None)


def _link(type_: type) -> str:
    return f"[{type_.__name__}](#{md.anchor(type_.__name__)})"
