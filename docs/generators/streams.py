"""docs/reference/streams.md: every stream and consumer, as it is declared to the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bus import streams, subjects
from docs.generators import markdown as md

_EXAMPLE_NODE: Final = "gpu-1"
_EXAMPLE_TTL_S: Final = 30.0
_EXAMPLE_SLOTS: Final = 2
_NS: Final = 1_000_000_000
_UNITS: Final = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_SPANS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def render() -> str:
    """The page."""
    intro = (
        "Declared in `bus/streams.py`, made at the controller's start and compared with the server's own configuration ever "
        "after. What can be mended without loss is mended; what would destroy messages is left as it is and reported as "
        "`STREAM_DRIFT`. Numbers are for one server; a cluster keeps the number of replicas that a stream was given."
    )
    example = (
        f"Three for each node, here for a node `{_EXAMPLE_NODE}` with {_EXAMPLE_SLOTS} slots and leases of "
        f"{_EXAMPLE_TTL_S:g} s, and one for the controller. An unacknowledged delivery is half of a lease (the other half is a "
        "row in the ledger, see [the decision](../adr/0002-leases-in-the-ledger.md)), so there is no back-off, no limit of "
        "deliveries and no end by inactivity."
    )
    consumers: list[tuple[str, Mapping[str, Any]]] = [(subjects.EVIDENCE_STREAM, streams.evidence_consumer())]
    lanes = streams.lane_consumers(_EXAMPLE_NODE, ack_wait_s=_EXAMPLE_TTL_S, slots=_EXAMPLE_SLOTS)
    consumers.extend((subjects.JOBS_STREAM, lane) for lane in lanes)
    return md.page(
        "Streams and consumers",
        intro,
        "## Streams",
        *map(_stream, streams.STREAMS),
        "## Consumers",
        example,
        _consumers(consumers),
    )


def _stream(config: Mapping[str, Any]) -> str:
    rows = [
        ("subjects", ", ".join(md.code(subject) for subject in config["subjects"])),
        ("retention", config["retention"]),
        ("when full", "the oldest message is dropped" if config["discard"] == "old" else "a new message is refused"),
        ("kept", _kept(config)),
        ("size", _size(config["max_bytes"])),
        ("messages per subject", _bound(config["max_msgs_per_subject"])),
        ("size of a message", _size(config["max_msg_size"])),
        ("consumers", f"{config['max_consumers']:,} at most"),
        ("duplicates are known for", _span(config["duplicate_window"])),
    ]
    return f"### {config['name']}\n\n{config['description']}.\n\n" + md.table(("what", "value"), rows)


def _consumers(consumers: list[tuple[str, Mapping[str, Any]]]) -> str:
    rows = [
        (
            md.code(stream),
            md.code(config["name"]),
            md.code(config["filter_subject"]),
            _span(config["ack_wait"]),
            str(config["max_ack_pending"]),
            config["description"],
        )
        for stream, config in consumers
    ]
    return md.table(("stream", "consumer", "sees", "ack wait", "unacknowledged at most", "what it is"), rows)


def _kept(config: Mapping[str, Any]) -> str:
    if config["max_age"]:
        return _span(config["max_age"])
    return "until it is acknowledged" if config["retention"] == "workqueue" else "until a newer one takes its place"


def _bound(number: int) -> str:
    return "no bound of its own" if number < 0 else f"{number:,} at most"


def _size(size_bytes: int) -> str:
    for unit, factor in _UNITS:
        if size_bytes >= factor and size_bytes % factor == 0:
            return f"{size_bytes // factor:,} {unit} at most"
    return f"{size_bytes:,} bytes at most"


def _span(nanoseconds: int) -> str:
    seconds = nanoseconds // _NS
    for unit, factor in _SPANS:
        if seconds >= factor and seconds % factor == 0:
            return f"{seconds // factor} {unit}"
    return f"{seconds} s"
