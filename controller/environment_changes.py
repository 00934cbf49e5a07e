"""What differs between two runtime environments, in words: the long lists of a declaration and other adapters (A18).

The fact map holds such a list as a count and a digest. The environments themselves are kept in the ledger, so what
came and what went can still be named, a few of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bus.messages.profiles import AdapterFacts, RuntimeEnvironment
from bus.text import clean_line
from controller.facts import ENVIRONMENT, LISTS, NONE, declared

MAX_NAMED: Final = 8
MAX_WORD_CHARS: Final = 60
MAX_ADAPTERS: Final = 4


def of_fact(name: str, before: RuntimeEnvironment, after: RuntimeEnvironment, adapter: str) -> str:
    """What to add to the sentence of a folded fact; empty when its own words say all."""
    if name == "packages":
        return _moved(_packages(before), _packages(after))
    if name in LISTS:
        return _moved(*(_entries(environment, adapter, LISTS[name]) for environment in (before, after)))
    if name == ENVIRONMENT:
        return _said(_other_adapters(before, after, adapter))
    return ""


def _packages(environment: RuntimeEnvironment) -> set[str]:
    return {f"{name} {version}" for name, version in environment.packages.items()}


def _entries(environment: RuntimeEnvironment, adapter: str, part: str) -> set[str]:
    found = declared(environment, adapter)
    return set() if found is None else set(getattr(found, part))


def _moved(before: set[str], after: set[str]) -> str:
    came, went = _named(after - before), _named(before - after)
    return _said(part for part in (came and f"{came} came", went and f"{went} went") if part)


def _named(words: set[str]) -> str:
    shown = [clean_line(word, MAX_WORD_CHARS) for word in sorted(words)[:MAX_NAMED]]
    more = len(words) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _said(parts: Iterable[str]) -> str:
    text = "; ".join(parts)
    return f": {text}" if text else ""


def _other_adapters(before: RuntimeEnvironment, after: RuntimeEnvironment, adapter: str) -> Iterable[str]:
    """The adapters whose declarations differ, beside the one whose declaration is a fact of its own."""
    names = dict.fromkeys(facts.name for facts in (*before.adapters, *after.adapters) if facts.name != adapter)
    differing = [name for name in names if declared(before, name) != declared(after, name)]
    for name in differing[:MAX_ADAPTERS]:
        yield f"adapter {clean_line(name, MAX_WORD_CHARS)} {_difference(declared(before, name), declared(after, name))}"
    if len(differing) > MAX_ADAPTERS:
        yield f"{len(differing) - MAX_ADAPTERS} adapters more"


def _difference(before: AdapterFacts | None, after: AdapterFacts | None) -> str:
    if before is None or after is None:
        return "came" if before is None else "went"
    name = next(field for field in AdapterFacts.__struct_fields__ if getattr(before, field) != getattr(after, field))
    old, new = getattr(before, name), getattr(after, name)
    words = name.replace("_", " ")
    if isinstance(old, tuple):
        return words + (_moved(set(old), set(new)) or " in another order")
    return f"{words} changed from {_shown(old)} to {_shown(new)}"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return clean_line(str(value), MAX_WORD_CHARS) if value is not None else NONE
