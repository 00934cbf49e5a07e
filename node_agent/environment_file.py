"""The environment file of a node: what its owner declares beside what is read (`[node] environment`)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from adapters import registry
from adapters.declared import AdapterDeclaration, EnvironmentDeclaration
from bus.errors import ErrorCode, ModelForgeError
from bus.settings import read_toml

_HINT: Final = "Mend the file; `modelforge environment validate FILE` checks it without an agent."


def load(path: Path) -> EnvironmentDeclaration:
    """The declarations in the TOML file `path`.

    Raises:
        ModelForgeError: CONFIG_UNREADABLE when it cannot be read or is no TOML; CONFIG_INVALID, naming the key and the
            rule, for an unknown key, a wrong value or an adapter that this version does not have.
    """
    document = read_toml(path)
    _refuse_unknown(path, "", document, EnvironmentDeclaration)
    try:
        declared = msgspec.convert(document, EnvironmentDeclaration)
    except msgspec.ValidationError as error:
        for name, table in document.get("adapters", {}).items() if isinstance(document.get("adapters"), dict) else ():
            if isinstance(table, dict):
                _refuse_unknown(path, f"[adapters.{name}] ", table, AdapterDeclaration)
        raise _invalid(path, str(error)) from error
    known = [entry.name for entry in registry.entries()]
    for name in declared.adapters:
        if name not in known:
            raise _invalid(path, f"there is no adapter {name!r}; the adapters are {', '.join(known)}")
    return declared


def _refuse_unknown(path: Path, where: str, table: dict[str, object], type_: type[msgspec.Struct]) -> None:
    """A key that nobody reads is most likely a misspelt one: say so, and which there are."""
    for key in table:
        if key in type_.__struct_fields__:
            continue
        if key in {"python", "platform", "packages"}:
            raise _invalid(path, f"{where}{key!r} is read from this machine and cannot be declared")
        raise _invalid(path, f"{where}unknown key {key!r}; the keys are {', '.join(type_.__struct_fields__)}")


def _invalid(path: Path, what: str) -> ModelForgeError:
    return ModelForgeError(ErrorCode.CONFIG_INVALID, f"{path}: {what}", hint=_HINT)
