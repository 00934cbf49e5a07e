"""Compare what a stream or consumer should be with what it is. Pure: dictionaries in, a plan out.

Both sides are JetStream's own JSON. nats-py's classes would drop the fields that they do not know, and an update
written through them would wipe those on the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Config = Mapping[str, Any]

# A smaller bound than the present one may delete messages.
_BOUNDS: Final = frozenset({"max_bytes", "max_msgs", "max_age", "max_msgs_per_subject", "max_consumers"})
# What the server never changes on a living stream or consumer, or what cannot be changed without loss.
_STREAM_FIXED: Final = frozenset({"retention", "storage"})
_CONSUMER_FIXED: Final = frozenset({"ack_policy", "deliver_policy", "replay_policy"})
# Each of these, when somebody set it, loses or duplicates messages behind our back; no update of ours takes it off.
_STREAM_FOREIGN: Final = frozenset(
    {
        "sealed",
        "no_ack",
        "mirror",
        "sources",
        "subject_transform",
        "republish",
        "persist_mode",
        "deny_delete",
        "deny_purge",
        "allow_msg_ttl",
        "allow_rollup_hdrs",
    }
)
_CONSUMER_FOREIGN: Final = frozenset({"deliver_subject", "headers_only", "pause_until", "sample_freq"})
# These would end a lease by themselves; an update puts them out (design, "Leases").
_CONSUMER_OFF: Final = frozenset({"backoff", "inactive_threshold", "max_batch", "max_expires", "max_bytes"})


@dataclass(slots=True)
class Plan:
    """What is to be done about one stream or consumer.

    Attributes:
        changes: keys whose declared value is to be put into force, harmlessly.
        drift: differences that only a person may mend, each as one line.
    """

    changes: set[str] = field(default_factory=set)
    drift: list[str] = field(default_factory=list)


def plan_stream(declared: Config, actual: Config) -> Plan:
    """Compare a stream: a wider bound or a new subject is a change; what would delete messages is drift."""
    plan = Plan()
    for key, want in declared.items():
        have = actual.get(key)
        if _same(key, want, have):
            continue
        if key in _STREAM_FIXED or (key == "subjects" and not set(have or ()) <= set(want)):
            plan.drift.append(f"{key} is {have!r}, declared {want!r}")
        elif key in _BOUNDS and _bound(want) < _bound(have):
            plan.drift.append(f"{key} is {have!r}, and the declared {want!r} may delete messages")
        else:
            plan.changes.add(key)
    plan.drift += [f"{key} is set to {actual[key]!r}" for key in sorted(_STREAM_FOREIGN) if actual.get(key)]
    return plan


def plan_consumer(declared: Config, actual: Config) -> Plan:
    """Compare a consumer: nearly everything can be changed, but not how it acknowledges or where it starts."""
    plan = Plan()
    for key, want in declared.items():
        have = actual.get(key)
        if _same(key, want, have):
            continue
        if key in _CONSUMER_FIXED:
            plan.drift.append(f"{key} is {have!r}, declared {want!r}")
        else:
            plan.changes.add(key)
    plan.changes |= {key for key in _CONSUMER_OFF if actual.get(key)}
    plan.drift += [f"{key} is set to {actual[key]!r}" for key in sorted(_CONSUMER_FOREIGN) if actual.get(key)]
    return plan


def merged(declared: Config, actual: Config) -> dict[str, Any]:
    """The configuration of an update: the present one, so that unknown fields survive, with ours laid over it."""
    metadata = {**actual.get("metadata", {}), **declared.get("metadata", {})}
    kept = {key: value for key, value in actual.items() if key not in _CONSUMER_OFF or key in declared}
    return {**kept, **declared, "metadata": metadata}


def _same(key: str, want: Any, have: Any) -> bool:
    if key == "metadata":
        # The server adds keys of its own.
        return all((have or {}).get(name) == value for name, value in want.items())
    if key == "subjects":
        return set(want) == set(have or ())
    # The server leaves out what is off, empty or zero.
    return bool(want == have) or (not want and not have)


def _bound(value: Any) -> float:
    """A bound as a number; 0, -1 and absent all mean that there is none."""
    return float(value) if value is not None and value > 0 else float("inf")
