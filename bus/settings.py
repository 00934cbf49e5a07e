"""Configuration: TOML and a short declared list of variables, into frozen structs that forbid unknown fields.

Order: defaults, file, variables, flags. Every value keeps its origin, so that `modelforge config show` can print it.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec
import platformdirs

from bus.errors import ErrorCode, ModelForgeError
from bus.files import read_bounded

APP: Final = "modelforge"
CONFIG_VARIABLE: Final = "MODELFORGE_CONFIG"
# More than every key there is, with room for comments.
MAX_FILE_BYTES: Final = 1_048_576
_BEYOND: Final = 2**63
STATE_VARIABLE: Final = "MODELFORGE_STATE"
# The whole file is checked by everybody; a section of another process is allowed, an unknown one is not.
SECTIONS: Final = ("client", "server", "controller", "node", "up")
# variable -> (section, key). Nothing else in the process environment is ever read as configuration.
VARIABLES: Final[dict[str, tuple[str, str]]] = {
    "MODELFORGE_URL": ("client", "url"),
    "MODELFORGE_CREDENTIALS": ("client", "credentials"),
    "MODELFORGE_USER": ("client", "user"),
    "MODELFORGE_ARTIFACT_ROOT": ("node", "artifact_root"),
}

T = TypeVar("T", bound=msgspec.Struct)


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every section."""


class ClientSettings(Settings, frozen=True, kw_only=True):
    """How to reach the bus.

    Attributes:
        url: the NATS server; empty means: what `modelforge up` wrote into the state folder.
        credentials: file that holds an NKey seed; empty as above.
        user: the name in the API subjects; it must be the one that the key's permissions name.
        js_prefix: subject prefix of JetStream's API; a leaf node with a domain has another one.
        timeout_s: how long one request may take.
    """

    url: str = ""
    credentials: str = ""
    user: str = ""
    js_prefix: str = "$JS.API"
    timeout_s: float = 10.0


class Loaded(Generic[T]):
    """A section and where each of its values came from: `default`, `file PATH`, `variable NAME` or `flag`."""

    def __init__(self, value: T, origins: dict[str, str]) -> None:
        self.value = value
        self.origins = origins


def state_folder() -> Path:
    """Where state lives: the variable, else the platform's state folder."""
    chosen = os.environ.get(STATE_VARIABLE)
    return Path(chosen).expanduser() if chosen else Path(platformdirs.user_state_dir(APP))


def config_file() -> Path | None:
    """The configuration file in use: the variable (must exist), else the platform's, if there is one."""
    chosen = os.environ.get(CONFIG_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    default = Path(platformdirs.user_config_dir(APP)) / "modelforge.toml"
    return default if default.exists() else None


def read_toml(path: Path) -> dict[str, Any]:
    """The document in a TOML file of at most `MAX_FILE_BYTES`; the one way in which the product reads one.

    Numbers have at most 64 bits, as TOML promises: nothing can be made of a longer one, not even a message that shows it.

    Raises:
        ModelForgeError: CONFIG_UNREADABLE (with line and column for a syntax error, with the key for a number).
    """
    try:
        document = tomllib.loads(read_bounded(path, MAX_FILE_BYTES).decode())
        _check_numbers(document)
    except OSError as error:
        raise ModelForgeError(ErrorCode.CONFIG_UNREADABLE, f"{path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelForgeError(ErrorCode.CONFIG_UNREADABLE, f"{path}: {error}") from error
    except ValueError as error:
        # The interpreter's own: it makes no number of thousands of digits, and tells its programmer how it would.
        raise ModelForgeError(ErrorCode.CONFIG_UNREADABLE, f"{path}: a number has more than 64 bits") from error
    return document


def _check_numbers(document: dict[str, Any]) -> None:
    waiting: list[tuple[str, Any]] = list(document.items())
    while waiting:
        where, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [(f"{where}.{key}", inner) for key, inner in value.items()]
        elif isinstance(value, list):
            waiting += [(where, inner) for inner in value]
        elif isinstance(value, int) and not -_BEYOND <= value < _BEYOND:
            raise tomllib.TOMLDecodeError(f"{where}: the number has more than 64 bits")


def read_file(path: Path) -> dict[str, Any]:
    """The sections of a configuration file.

    Raises:
        ModelForgeError: CONFIG_UNREADABLE (with line and column for a syntax error), CONFIG_INVALID for an unknown
            section.
    """
    document = read_toml(path)
    for section, content in document.items():
        if section not in SECTIONS or not isinstance(content, dict):
            known = ", ".join(SECTIONS)
            message = f"{path}: unknown section {section!r}; the sections are {known}"
            raise ModelForgeError(ErrorCode.CONFIG_INVALID, message)
    return document


def load(
    type_: type[T],
    section: str,
    *,
    file: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    variables: Mapping[str, str] | None = None,
) -> Loaded[T]:
    """One section, from all four places. A flag that is `None` was not given.

    Raises:
        ModelForgeError: CONFIG_UNREADABLE, or CONFIG_INVALID naming section, key and rule.
    """
    values: dict[str, Any] = {}
    origins = dict.fromkeys(type_.__struct_fields__, "default")

    def put(key: str, value: Any, origin: str) -> None:
        values[key] = value
        origins[key] = origin

    if file is not None:
        for key, value in read_file(file).get(section, {}).items():
            put(key, value, f"file {file}")
    for variable, (target, key) in VARIABLES.items():
        text = (os.environ if variables is None else variables).get(variable)
        if text and target == section:
            put(key, text, f"variable {variable}")
    for key, value in (flags or {}).items():
        if value is not None:
            put(key, value, "flag")
    try:
        return Loaded(msgspec.convert(values, type_), origins)
    except msgspec.ValidationError as error:
        unknown = [key for key in values if key not in type_.__struct_fields__]
        detail = f"unknown key {unknown[0]!r}" if unknown else str(error)
        known = ", ".join(type_.__struct_fields__)
        where = f" in {file}" if file is not None else ""
        message = f"[{section}]{where}: {detail}; the keys are {known}"
        raise ModelForgeError(ErrorCode.CONFIG_INVALID, message) from error
