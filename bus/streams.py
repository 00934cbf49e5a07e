"""The streams and consumers: declared here, and made or mended on the server (design, "The wire").

Declarations are JetStream's own JSON; durations in it are nanoseconds. `docs/reference/streams.md` comes from here.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec

from bus import subjects
from bus.client import BusClient
from bus.errors import ErrorCode, ModelForgeError
from bus.js_replies import JsError
from bus.messages.jobs import MAX_JOB_BYTES
from bus.stream_plan import Config, Plan, merged, plan_consumer, plan_stream
from bus.subjects import Lane

_KIB: Final = 1024
_MIB: Final = 1024 * _KIB
_SECOND_NS: Final = 1_000_000_000
_DAY_NS: Final = 86_400 * _SECOND_NS
_NO_STREAM: Final = 10059
_NO_CONSUMER: Final = 10014
_NO_MESSAGE: Final = (10037, 10057)
_MAX_SUBJECT_PAGES: Final = 1_000
MAX_EVIDENCE_BYTES: Final = 512 * _KIB
# Shorter than a lease: what a killed controller had pulled must come back before its job is run again.
EVIDENCE_ACK_WAIT_S: Final = 10.0
CONTROL_PENDING: Final = 8
INVOKE_PENDING: Final = 256


def _stream(name: str, description: str, stream_subjects: list[str], **config: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": description,
        "metadata": {"product": subjects.SERVICE},
        "subjects": stream_subjects,
        "storage": "file",
        "max_msgs": -1,
        "max_age": 0,
        "max_consumers": -1,
        # Inspection: `nats stream view` of a work queue needs direct reads (spec D4).
        "allow_direct": True,
        **config,
    }


STREAMS: Final[tuple[Config, ...]] = (
    _stream(
        subjects.JOBS_STREAM,
        "Jobs, waiting or leased; one for each job id",
        [subjects.JOBS_ALL],
        # The guard against a second copy is one message per subject, not a dedupe id: a job that is published again
        # after its message was lost would be swallowed inside the window.
        retention="workqueue",
        discard="new",
        discard_new_per_subject=True,
        max_msgs_per_subject=1,
        # The server's default of 1,000 is three lanes of 333 nodes.
        max_consumers=10_000,
        max_bytes=512 * _MIB,
        max_msg_size=MAX_JOB_BYTES,
        duplicate_window=120 * _SECOND_NS,
    ),
    _stream(
        subjects.EVIDENCE_STREAM,
        "Evidence from the nodes, until the controller has committed it",
        [subjects.EVIDENCE_ALL],
        # The bound per subject is a bound per node: one node's flood cannot shut out another's evidence.
        retention="workqueue",
        discard="new",
        discard_new_per_subject=True,
        max_msgs_per_subject=512,
        max_consumers=8,
        max_bytes=2_048 * _MIB,
        max_msg_size=MAX_EVIDENCE_BYTES,
        duplicate_window=3_600 * _SECOND_NS,
    ),
    _stream(
        subjects.INVENTORY_STREAM,
        "The last inventory of each node",
        [subjects.INVENTORY_ALL],
        retention="limits",
        discard="old",
        max_msgs_per_subject=1,
        max_consumers=64,
        max_bytes=256 * _MIB,
        max_msg_size=256 * _KIB,
        duplicate_window=120 * _SECOND_NS,
    ),
    _stream(
        subjects.EVENTS_STREAM,
        "One event for each committed change",
        [subjects.EVENTS_ALL],
        retention="limits",
        discard="old",
        max_msgs_per_subject=-1,
        max_age=7 * _DAY_NS,
        max_consumers=256,
        max_bytes=512 * _MIB,
        max_msg_size=512 * _KIB,
        duplicate_window=600 * _SECOND_NS,
    ),
    _stream(
        subjects.ADVISORIES_STREAM,
        "What JetStream gave up on, and streams that were deleted",
        [
            "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>",
            "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>",
            "$JS.EVENT.ADVISORY.STREAM.DELETED.>",
        ],
        retention="limits",
        discard="old",
        max_msgs_per_subject=-1,
        max_age=30 * _DAY_NS,
        max_consumers=64,
        max_bytes=64 * _MIB,
        max_msg_size=64 * _KIB,
        duplicate_window=120 * _SECOND_NS,
    ),
)


@dataclass(slots=True)
class StreamReport:
    """What was done: names of streams, and `STREAM/consumer` for consumers.

    Attributes:
        created: made because missing.
        updated: changed without harm.
        drift: left as it is, because mending it would lose messages; one line each.
    """

    created: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    drift: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message as the stream holds it; `headers` is the raw block, empty when there is none."""

    subject: str
    sequence: int
    data: bytes
    headers: bytes
    stored_at: datetime


def _consumer(name: str, description: str, filter_subject: str, **config: Any) -> dict[str, Any]:
    """A durable pull consumer that is a lease: no back-off, no attempt limit, no end by inactivity."""
    return {
        "durable_name": name,
        "name": name,
        "description": description,
        "filter_subject": filter_subject,
        "ack_policy": "explicit",
        "deliver_policy": "all",
        "replay_policy": "instant",
        "max_deliver": -1,
        **config,
    }


def evidence_consumer() -> Config:
    """The controller's consumer of evidence (design, "The wire")."""
    return _consumer(
        subjects.EVIDENCE_CONSUMER,
        "The controller reads evidence, and acknowledges after its commit",
        subjects.EVIDENCE_ALL,
        ack_wait=int(EVIDENCE_ACK_WAIT_S * _SECOND_NS),
        max_ack_pending=256,
        metadata={"product": subjects.SERVICE, "role": "controller"},
    )


def lane_consumers(node: str, *, ack_wait_s: float, slots: int) -> tuple[Config, ...]:
    """The three lanes of a node. `ack_wait_s` is the lease's TTL; `slots` bounds the leases of the work lane."""
    pending = {Lane.WORK: slots, Lane.CONTROL: CONTROL_PENDING, Lane.INVOKE: INVOKE_PENDING}
    return tuple(
        _consumer(
            subjects.lane_consumer(node, lane),
            f"Node {node}, lane {lane}: an unacknowledged delivery is a lease",
            subjects.lane_filter(node, lane),
            ack_wait=int(ack_wait_s * _SECOND_NS),
            max_ack_pending=pending[lane],
            metadata={"product": subjects.SERVICE, "node": node, "lane": lane.value},
        )
        for lane in Lane
    )


async def ensure_streams(client: BusClient, first_sequences: Mapping[str, int], *, replicas: int = 1) -> StreamReport:
    """Make the missing streams and the controller's consumer, and mend what can be mended without loss.

    Args:
        client: the controller's connection.
        first_sequences: by stream, the number of its first message if it has to be made. It must lie above every
            sequence that the ledger ever recorded: an acknowledgement captured before the store was lost would
            delete another job otherwise.
        replicas: for streams that are made; an existing stream keeps its own.

    Raises:
        ModelForgeError: NOT_CONNECTED, REQUEST_TIMEOUT, PERMISSION_DENIED; JsError when the server refuses.
    """
    report = StreamReport()
    for declared in STREAMS:
        name = declared["name"]
        actual = await _config(client, f"STREAM.INFO.{name}", _NO_STREAM)
        if actual is None:
            first = max(1, first_sequences.get(name, 1))
            await client.js(f"STREAM.CREATE.{name}", {**declared, "num_replicas": replicas, "first_seq": first})
            report.created.append(name)
            continue
        plan = plan_stream(declared, actual)
        if _note(report, name, plan):
            await client.js(f"STREAM.UPDATE.{name}", merged(declared, actual))
    await _ensure_consumer(client, subjects.EVIDENCE_STREAM, evidence_consumer(), report)
    return report


async def ensure_node_consumers(client: BusClient, node: str, *, ack_wait_s: float, slots: int) -> StreamReport:
    """Make or mend the three consumers of a node.

    Raises:
        ModelForgeError: as `ensure_streams`; a JsError 10059 when the stream of jobs is not there.
    """
    report = StreamReport()
    for declared in lane_consumers(node, ack_wait_s=ack_wait_s, slots=slots):
        await _ensure_consumer(client, subjects.JOBS_STREAM, declared, report)
    return report


async def _ensure_consumer(client: BusClient, stream: str, declared: Config, report: StreamReport) -> None:
    name = f"{stream}/{declared['name']}"
    actual = await _config(client, f"CONSUMER.INFO.{stream}.{declared['name']}", _NO_CONSUMER)
    if actual is None:
        await _put_consumer(client, stream, declared, "create")
        report.created.append(name)
        return
    plan = plan_consumer(declared, actual)
    if _note(report, name, plan):
        await _put_consumer(client, stream, merged(declared, actual), "update")


async def _put_consumer(client: BusClient, stream: str, config: Config, action: str) -> None:
    request = {"stream_name": stream, "config": dict(config), "action": action}
    await client.js(f"CONSUMER.CREATE.{stream}.{config['name']}", request)


def _note(report: StreamReport, name: str, plan: Plan) -> bool:
    """Record a plan; is there something to update? With drift nothing is touched: a person looks at the whole."""
    if plan.drift:
        report.drift += [f"{name}: {line}" for line in plan.drift]
        return False
    if plan.changes:
        report.updated.append(name)
    return bool(plan.changes)


async def _config(client: BusClient, api: str, missing: int) -> Config | None:
    try:
        config = (await client.js(api))["config"]
    except JsError as error:
        if error.err_code == missing:
            return None
        raise
    if not isinstance(config, dict):
        raise ModelForgeError(ErrorCode.INTERNAL, f"JetStream's reply to {api} holds no configuration")
    return config


async def list_subjects(client: BusClient, stream: str, filter_subject: str) -> dict[str, int]:
    """How many messages the stream holds, by subject, of those that match the filter.

    Raises:
        ModelForgeError: as `ensure_streams`; a JsError 10059 when the stream is not there.
    """
    found: dict[str, int] = {}
    for _ in range(_MAX_SUBJECT_PAGES):
        reply = await client.js(f"STREAM.INFO.{stream}", {"subjects_filter": filter_subject, "offset": len(found)})
        page: dict[str, int] = reply["state"].get("subjects") or {}
        found |= page
        if not page or len(found) >= int(reply.get("total", 0)):
            return found
    raise ModelForgeError(ErrorCode.INTERNAL, f"{stream} holds more subjects than can be listed")


async def last_message(client: BusClient, stream: str, subject: str) -> StoredMessage | None:
    """The last message of a subject, or `None`.

    Raises:
        ModelForgeError: as `ensure_streams`; a JsError 10059 when the stream is not there.
    """
    try:
        reply = await client.js(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})
    except JsError as error:
        if error.err_code in _NO_MESSAGE:
            return None
        raise
    message = reply["message"]
    return StoredMessage(
        subject=str(message["subject"]),
        sequence=int(message["seq"]),
        data=base64.b64decode(message.get("data", "")),
        headers=base64.b64decode(message.get("hdrs", "")),
        stored_at=msgspec.convert(message["time"], datetime),
    )


async def delete_message(client: BusClient, stream: str, sequence: int) -> bool:
    """Delete one message; `False` when it is not there (any more).

    Raises:
        ModelForgeError: as `ensure_streams`; a JsError 10059 when the stream is not there.
    """
    try:
        await client.js(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence, "no_erase": True})
    except JsError as error:
        if error.err_code in _NO_MESSAGE:
            return False
        raise
    return True
