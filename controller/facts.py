"""The facts that evidence rests on, each singly named, and what differs between two readings of them (spec A1, A18).

All of it is a pure function of snapshots. Every fact is a short text. What a node declares by the hundred (the model
types of an adapter) is folded to a count and a digest; what came and went is then said from the environments
themselves, which the ledger keeps. Liveness and free memory are no facts: they move all the time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from adapters.inspect.subject import PROBE_CAPABILITY
from bus.codec import decode
from bus.digest import PREFIX, digest_of, sha256_hex
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.artifacts import Quarantine, SetLocation
from bus.messages.inventory import HardwareFacts, NodeInventory, NodeView
from bus.messages.profiles import AdapterFacts, RuntimeEnvironment
from bus.text import clean_line

# Raised when a fact is added, dropped or put into other words: an older map then says nothing about the facts now.
RULES: Final = "2"
RULES_FACT: Final = "fingerprint rules"
NONE: Final = "none"
ABSENT: Final = "absent"
ENVIRONMENT: Final = "environment"
LOCATION: Final = "set location"
INTEGRITY: Final = "set integrity"
VERIFIED: Final = "verified"
MAX_FACT_CHARS: Final = 300
MAX_NAME_CHARS: Final = 160
MAX_SINGLE_PACKAGES: Final = 100
MAX_SHOWN_CHARS: Final = 160
_DIGEST_HEX: Final = 12
_GIB: Final = 1024**3
_FOLDED: Final = re.compile(r"\d+ \(sha256:[0-9a-f]{64}\)\Z")
_LONG_DIGEST: Final = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}")
# The parts of an adapter's declaration that are lists; each is one fact.
LISTS: Final = {
    "adapter tasks": "tasks",
    "adapter modalities": "modalities",
    "adapter formats": "formats",
    "adapter quantizations": "quantizations",
    "adapter model types": "model_types",
}
_PARTS: Final = {
    "set documents": "documents",
    "set weight headers": "weights",
    "set notes": "notes",
    "set formats": "formats",
    "set pickles": "pickles",
    "set problems": "problems",
}
_FIRST_SCANNER: Final = "scan.1"

Detail = Callable[[str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSnapshot:
    """What the ledger knows of a set, for one node.

    Attributes:
        evidence: the facts of `evidence_facts`.
        place: where it lies on the node, if it does.
    """

    digest: str
    evidence: Mapping[str, str]
    place: SetLocation | None
    pickle_approved: bool = False
    quarantined: tuple[Quarantine, ...] = ()


def facts_of(
    set_: SetSnapshot, profile_id: str, node_facts: Mapping[str, str], adapter_facts: Mapping[str, str]
) -> dict[str, str]:
    """The fact map of a set under a profile on a node: each fact by its name, as text."""
    return {
        RULES_FACT: RULES,
        **set_facts(set_),
        "profile": profile_id,
        **node_facts,
        **adapter_facts,
    }


def set_facts(set_: SetSnapshot) -> dict[str, str]:
    """What is known of the set and of its place."""
    return {
        "set": set_.digest,
        **set_.evidence,
        LOCATION: place_fact(set_.place),
        INTEGRITY: integrity(set_.place),
        "quarantine": _quarantine(set_.quarantined),
        "pickle approval": "approved" if set_.pickle_approved else NONE,
    }


def place_fact(place: SetLocation | None) -> str:
    """The place as a fact; a folder that is really called `none` is not taken for no place."""
    if place is None:
        return NONE
    return f"./{NONE}" if place.path == NONE else place.path


def path_of(fact: str) -> str | None:
    """The path that a fact of `place_fact` names."""
    return None if fact == NONE else fact.removeprefix("./")


def integrity(place: SetLocation | None) -> str:
    """`verified` while nothing speaks against the place; `corrupt: FILE: PROBLEM` after a read that found other bytes."""
    if place is None:
        return NONE
    if place.state != "corrupt":
        return VERIFIED
    return bounded_text(f"corrupt: {corruption(place)}")


def corruption(place: SetLocation) -> str:
    """`FILE: PROBLEM` of a corrupt place, whichever of both is known."""
    known = [part for part in (place.file, place.problem) if part]
    return clean_line(": ".join(known)) or "other bytes than those of the set"


def _quarantine(quarantined: Iterable[Quarantine]) -> str:
    return bounded_text(
        ", ".join(sorted(f"{one.path} released" if one.released_by else one.path for one in quarantined)) or NONE
    )


class _RawEvidence(msgspec.Struct, frozen=True):
    """`SetEvidence` as bytes: what it holds is counted and digested, not read."""

    documents: msgspec.Raw = msgspec.Raw(b"{}")
    weights: msgspec.Raw = msgspec.Raw(b"[]")
    notes: msgspec.Raw = msgspec.Raw(b"[]")
    formats: msgspec.Raw = msgspec.Raw(b"{}")
    pickles: msgspec.Raw = msgspec.Raw(b"[]")
    problems: msgspec.Raw = msgspec.Raw(b"{}")
    scanner: str = ""


def evidence_facts(text: str) -> dict[str, str]:
    """Which rules read the set's files, and each part of what they read: its size and its digest.

    The set's bytes never change, so a part changes only when other rules, or another opinion, read them again.

    Args:
        text: the evidence as the ledger holds it, canonical JSON.

    Raises:
        ModelForgeError: STORE_SCHEMA_MISMATCH when it is no evidence.
    """
    try:
        raw = decode(text.encode(), _RawEvidence)
        parts = {name: _counted(bytes(getattr(raw, part))) for name, part in _PARTS.items()}
    except ModelForgeError as error:
        message = f"the ledger holds evidence that cannot be read: {error.message}"
        raise ModelForgeError(ErrorCode.STORE_SCHEMA_MISMATCH, message) from error
    return {"scan rules": clean_line(raw.scanner, MAX_NAME_CHARS) or _FIRST_SCANNER, **parts}


def _counted(part: bytes) -> str:
    return _fold(len(decode(part, dict[str, msgspec.Raw] | list[msgspec.Raw])), PREFIX + sha256_hex(part))


def node_facts_of(node: NodeView) -> dict[str, str]:
    """What is known of the node, whatever is to run there.

    Raises:
        ModelForgeError: NODE_UNKNOWN when the node has no inventory yet.
    """
    inventory = inventory_of(node)
    return {
        "node": node.name,
        "node enabled": _word(node.enabled),
        "node lab-eligible": _word(node.lab_eligible),
        "node probes": _word(PROBE_CAPABILITY in inventory.capabilities),
        ENVIRONMENT: node.environment_id or inventory.environment.digest(),
        "python": bounded_text(inventory.environment.python),
        "platform": bounded_text(inventory.environment.platform),
        "image": bounded_text(inventory.environment.image or NONE),
        **_packages(inventory.environment.packages),
        **_hardware(inventory.hardware),
    }


def inventory_of(node: NodeView) -> NodeInventory:
    """The node's newest word.

    Raises:
        ModelForgeError: NODE_UNKNOWN when it has sent none.
    """
    if node.inventory is None:
        raise ModelForgeError(ErrorCode.NODE_UNKNOWN, f"the node {node.name} has sent no inventory yet")
    return node.inventory


def _packages(packages: Mapping[str, str]) -> dict[str, str]:
    if len(packages) > MAX_SINGLE_PACKAGES:
        return {"packages": folded(f"{name} {version}" for name, version in packages.items())}
    return {bounded_text(f"package {name}", MAX_NAME_CHARS): bounded_text(packages[name]) for name in sorted(packages)}


def _hardware(hardware: HardwareFacts) -> dict[str, str]:
    cards: dict[str, list[str]] = {}
    for card in hardware.gpus:
        words = f"{card.name} {card.memory_total_bytes or '?'} B cc {card.compute_capability or '?'}"
        cards.setdefault(bounded_text(f"gpu {card.uuid}", MAX_NAME_CHARS), []).append(words)
    return {
        "cpu model": bounded_text(hardware.cpu_model),
        # Static analysis compares an estimate with it. In whole GiB: a kernel may keep a little more or less.
        "host memory": f"{round(hardware.memory_total_bytes / _GIB)} GiB",
        "driver": bounded_text(hardware.driver_version or NONE),
        "cuda": bounded_text(hardware.cuda_version or NONE),
        **{uuid: bounded_text("; ".join(sorted(cards[uuid]))) for uuid in sorted(cards)},
    }


def adapter_facts_of(environment: RuntimeEnvironment, name: str) -> dict[str, str]:
    """What the node declares of one adapter; `none` throughout where it declares no such adapter."""
    found = declared(environment, name)
    lists = {fact: NONE if found is None else folded(getattr(found, part)) for fact, part in LISTS.items()}
    return {
        "adapter": name,
        "adapter version": bounded_text(found.version if found else NONE),
        "adapter executable": _executable(found),
        **lists,
    }


def declared(environment: RuntimeEnvironment, name: str) -> AdapterFacts | None:
    """The environment's declaration of one adapter."""
    return next((facts for facts in environment.adapters if facts.name == name), None)


def _executable(found: AdapterFacts | None) -> str:
    if found is None:
        return NONE
    if found.executable:
        return "yes"
    return "inspect only" if found.inspect_only else bounded_text(f"no: {found.reason or 'no reason given'}")


def _word(value: bool) -> str:  # noqa: FBT001 -- the value is what is put into words
    return "yes" if value else "no"


def folded(entries: Iterable[str]) -> str:
    """A set of words as one fact: the words in order, or how many and their digest where they would be too long."""
    words = sorted({clean_line(entry) for entry in entries})
    text = ", ".join(words)
    return (text or NONE) if len(text) <= MAX_FACT_CHARS else _fold(len(words), digest_of(words))


def _fold(count: int, digest: str) -> str:
    return f"{count} ({digest})"


def is_folded(text: str) -> bool:
    """Is this fact a count and a digest, so that its words say that something changed, but not what?"""
    return _FOLDED.match(text) is not None


def bounded_text(text: str, limit: int = MAX_FACT_CHARS) -> str:
    """Foreign text as a fact: one clean line; one that is too long keeps its beginning and its digest."""
    line = clean_line(text)
    if len(text) <= limit and len(line) <= limit:
        return line
    digest = PREFIX + sha256_hex(text.encode(errors="surrogatepass"))
    return f"{line[: limit - len(digest) - 2]}… {digest}"


def fingerprint_of(facts: Mapping[str, str]) -> str:
    """`sha256:<hex>` of the canonical fact map."""
    return digest_of(dict(facts))


def changes(recorded: Mapping[str, str], current: Mapping[str, str], detail: Detail | None = None) -> tuple[str, ...]:
    """Which facts differ, each as one sentence: what changed, from what, to what. Empty only for equal maps.

    Facts made by other rules cannot be compared: then the rules are the one fact that changed. A fact that moves
    with another one (a place's integrity with the place, an environment's digest with what is in it) is not named
    beside that one.

    Args:
        recorded: the map on record.
        current: the map now.
        detail: what to add to the sentence of a folded fact; it gets the fact's name.
    """
    before, after = recorded.get(RULES_FACT, "1"), current.get(RULES_FACT, "1")
    if before != after:
        return (_sentence(RULES_FACT, before, after),)
    names = [*recorded, *(name for name in current if name not in recorded)]
    differing = [name for name in names if recorded.get(name) != current.get(name)]
    told = (name for name in differing if not _follows(name, differing, recorded, current))
    return tuple(_told(name, recorded.get(name, ABSENT), current.get(name, ABSENT), detail) for name in told)


def _told(name: str, before: str, after: str, detail: Detail | None) -> str:
    sentence = _sentence(name, before, after)
    if detail is not None and (name == ENVIRONMENT or is_folded(before) or is_folded(after)):
        return sentence + detail(name)
    return sentence


def _follows(name: str, differing: Iterable[str], recorded: Mapping[str, str], current: Mapping[str, str]) -> bool:
    if name == INTEGRITY:
        moved = recorded.get(LOCATION) != current.get(LOCATION)
        return moved and NONE in (recorded.get(name), current.get(name))
    if name == ENVIRONMENT:
        return any(_is_of_environment(other) for other in differing)
    return False


def _is_of_environment(name: str) -> bool:
    return name in {"python", "platform", "image", "packages"} or name.startswith(("package ", "adapter "))


def _sentence(name: str, before: str, after: str) -> str:
    """The difference is always to be seen: of two long texts that begin alike, the beginning is left out."""
    old, new = _LONG_DIGEST.sub(r"\1", before), _LONG_DIGEST.sub(r"\1", after)
    if old == new:
        old, new = before, after
    if max(len(old), len(new)) > MAX_SHOWN_CHARS:
        common = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        skipped = max(0, common - _DIGEST_HEX) if common > MAX_SHOWN_CHARS // 2 else 0
        old, new = (("…" if skipped else "") + text[skipped : skipped + MAX_SHOWN_CHARS] for text in (old, new))
    return f"{clean_line(name, MAX_NAME_CHARS)} changed from {clean_line(old)} to {clean_line(new)}"
