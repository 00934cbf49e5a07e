"""docs/reference/configuration.md: every section, key, default and variable."""

from __future__ import annotations

import inspect
import re
from typing import Any, Final

import msgspec
from msgspec import inspect as mi

from bus.settings import CONFIG_VARIABLE, SECTIONS, STATE_VARIABLE, VARIABLES, ClientSettings, Settings
from controller.settings import ControllerSettings
from docs.generators import markdown as md
from docs.generators.messages import type_words
from modelforge.settings import ServerSettings, UpSettings
from node_agent.settings import NodeSettings

_SECTIONS: Final[dict[str, type[Settings]]] = {
    "client": ClientSettings,
    "server": ServerSettings,
    "controller": ControllerSettings,
    "node": NodeSettings,
    "up": UpSettings,
}
_ATTRIBUTE: Final = re.compile(r"^    (\w[\w, ]*): (.*(?:\n        .*)*)", re.MULTILINE)


def render() -> str:
    """The page."""
    intro = (
        "TOML, one section for each program; a file may hold them all. An unknown section or key is an error, never ignored. "
        "Order: defaults, then the file, then the variables below, then flags. `modelforge config show` prints every value "
        "with the place that it came from."
    )
    places = [
        (md.code(CONFIG_VARIABLE), "the configuration file"),
        (md.code(STATE_VARIABLE), "the state folder"),
        *((md.code(name), f"`{section}.{key}`") for name, (section, key) in VARIABLES.items()),
    ]
    if set(_SECTIONS) != set(SECTIONS):
        message = f"the loader admits the sections {SECTIONS}, this page explains {tuple(_SECTIONS)}"
        raise ValueError(message)
    blocks = [
        intro,
        "## Variables",
        "Nothing else in the environment is read as configuration.",
        md.table(("variable", "sets"), places),
    ]
    for section, type_ in _SECTIONS.items():
        blocks.extend((f"## [{section}]", _section(type_)))
    return md.page("Configuration", *blocks)


def _section(type_: type[Settings]) -> str:
    info = mi.type_info(type_)
    if not isinstance(info, mi.StructType):
        message = f"{type_} is no struct"
        raise TypeError(message)
    explained = _explained(type_)
    missing = [field.name for field in info.fields if field.name not in explained]
    if missing:
        message = f"{type_.__name__} does not say what {', '.join(missing)} means"
        raise ValueError(message)
    rows = [
        (md.code(field.name), type_words(field.type), _default(field), explained[field.name]) for field in info.fields
    ]
    return md.table(("key", "value", "default", "what it does"), rows)


def _explained(type_: type[Settings]) -> dict[str, str]:
    """The attributes section of a docstring."""
    text = "    " + (inspect.getdoc(type_) or "").replace("\n", "\n    ")
    body = text.partition("Attributes:")[2].replace("\n    ", "\n")
    return {name.strip(): md.one_line(words) for names, words in _ATTRIBUTE.findall(body) for name in names.split(",")}


def _default(field: mi.Field) -> str:
    if field.required:
        return "required"
    value: Any = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return md.code(msgspec.json.encode(value).decode())
