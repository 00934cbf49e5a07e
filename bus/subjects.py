"""The only place where a subject is built or taken apart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from bus.errors import ErrorCode, ModelForgeError
from bus.ids import NAME, check_name, is_id

JOBS_STREAM: Final = "MF_JOBS"
EVIDENCE_STREAM: Final = "MF_EVIDENCE"
INVENTORY_STREAM: Final = "MF_INVENTORY"
EVENTS_STREAM: Final = "MF_EVENTS"
ADVISORIES_STREAM: Final = "MF_ADVISORIES"

JOBS_ALL: Final = "mf.jobs.*.*.*"
EVIDENCE_ALL: Final = "mf.evidence.*"
INVENTORY_ALL: Final = "mf.inventory.*"
COMMANDS_ALL: Final = "mf.cmd.*"
EVENTS_ALL: Final = "mf.events.>"
NODE_API_ALL: Final = "mf.api.node.>"

SERVICE: Final = "modelforge"
EVIDENCE_CONSUMER: Final = "controller"
JS_PREFIX: Final = "$JS.API"
ACK_PREFIX: Final = "$JS.ACK"
# The whole subject, token by token: a node's claim ends up as the subject of a request that the controller sends with
# its own rights, so nothing may pass that the server did not make. Version 2 has domain and account hash in front,
# and may have a random token behind.
_WORD: Final = "[A-Za-z0-9_-]{1,64}"
_NUMBER: Final = "[0-9]{1,18}"
_ACK_PARTS: Final = (
    rf"(?P<stream>{_WORD})\.(?P<consumer>{_WORD})\.(?P<delivered>{_NUMBER})\.(?P<sequence>{_NUMBER})"
    rf"\.{_NUMBER}\.[0-9]{{1,20}}\.{_NUMBER}"
)
_ACK_V1: Final = re.compile(rf"^\$JS\.ACK\.{_ACK_PARTS}\Z")
_ACK_V2: Final = re.compile(rf"^\$JS\.ACK\.{_WORD}\.{_WORD}\.{_ACK_PARTS}(?:\.{_WORD})?\Z")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")
_MAX_TOKEN_CHARS: Final = 80


class Lane(StrEnum):
    """A node's queues: a long load never holds up an invoke."""

    WORK = "work"
    CONTROL = "control"
    INVOKE = "invoke"


_LANES: Final = frozenset(lane.value for lane in Lane)


@dataclass(frozen=True, slots=True)
class JobAddress:
    """The parts of a job's subject."""

    node: str
    lane: Lane
    job_id: str


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls an endpoint, as the subject (and so the server's permissions) says."""

    role: str  # "node" or "user"
    name: str
    verb: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """The parts of an acknowledgement subject (`$JS.ACK`, version 1 or 2) that anybody looks at."""

    stream: str
    consumer: str
    num_delivered: int
    stream_sequence: int


def job(node: str, lane: Lane, job_id: str) -> str:
    """Where a job is published: `mf.jobs.<node>.<lane>.<job>`."""
    return f"mf.jobs.{check_name(node, 'node')}.{lane}.{job_id}"


def lane_filter(node: str, lane: Lane) -> str:
    """What the consumer of one lane sees."""
    return f"mf.jobs.{check_name(node, 'node')}.{lane}.*"


def lane_consumer(node: str, lane: Lane) -> str:
    """The durable consumer of one lane of one node."""
    return f"{check_name(node, 'node')}-{lane}"


def evidence(node: str) -> str:
    """Where a node publishes evidence."""
    return f"mf.evidence.{check_name(node, 'node')}"


def inventory(node: str) -> str:
    """Where a node publishes its inventory."""
    return f"mf.inventory.{check_name(node, 'node')}"


def command(node: str) -> str:
    """Where the controller publishes hints for a node."""
    return f"mf.cmd.{check_name(node, 'node')}"


def event(entity: str, entity_id: str, what: str) -> str:
    """Where an event is published; the id is made safe as one token (a digest holds a colon, a refused id anything)."""
    return f"mf.events.{entity}.{_UNSAFE.sub('-', entity_id)[:_MAX_TOKEN_CHARS] or '-'}.{what}"


def node_api(node: str, verb: str) -> str:
    """Where a node calls the controller."""
    return f"mf.api.node.{check_name(node, 'node')}.{verb}"


def user_api(user: str, verb: str) -> str:
    """Where an operator calls the controller."""
    return f"mf.api.user.{check_name(user, 'user')}.{verb}"


def endpoint(role: str, verb: str) -> str:
    """What the service subscribes to for one verb: any name, this verb."""
    return f"mf.api.{role}.*.{verb}"


def next_message(stream: str, consumer: str, prefix: str = JS_PREFIX) -> str:
    """Where a pull is asked for; `prefix` is a setting, because a leaf node's JetStream has another."""
    return f"{prefix}.CONSUMER.MSG.NEXT.{stream}.{consumer}"


def parse_job(subject: str) -> JobAddress:
    """The address of a job message.

    Raises:
        ModelForgeError: MALFORMED_MESSAGE when the subject is not a job's.
    """
    match subject.split("."):
        case ["mf", "jobs", node, lane, job_id] if NAME.match(node) and lane in _LANES and is_id(job_id):
            return JobAddress(node, Lane(lane), job_id)
    raise ModelForgeError(ErrorCode.MALFORMED_MESSAGE, f"{subject!r} is not the subject of a job")


def parse_node(subject: str) -> str:
    """The node that an evidence or inventory subject names.

    Raises:
        ModelForgeError: MALFORMED_MESSAGE otherwise.
    """
    match subject.split("."):
        case ["mf", "evidence" | "inventory", node] if NAME.match(node):
            return node
    raise ModelForgeError(ErrorCode.MALFORMED_MESSAGE, f"{subject!r} is not a node's evidence or inventory subject")


def parse_caller(subject: str) -> Caller:
    """Who called, from an API subject.

    Raises:
        ModelForgeError: MALFORMED_MESSAGE otherwise.
    """
    match subject.split(".", 4):
        case ["mf", "api", "node" | "user" as role, name, verb] if NAME.match(name):
            return Caller(role, name, verb)
    raise ModelForgeError(ErrorCode.MALFORMED_MESSAGE, f"{subject!r} is not an API subject")


def parse_delivery(reply: str) -> Delivery:
    """The parts of a delivery's acknowledgement subject, version 1 (nine tokens) or 2 (eleven or twelve tokens).

    Raises:
        ModelForgeError: MALFORMED_MESSAGE otherwise.
    """
    match = _ACK_V1.match(reply) or _ACK_V2.match(reply)
    if match is not None:
        return Delivery(match["stream"], match["consumer"], int(match["delivered"]), int(match["sequence"]))
    raise ModelForgeError(ErrorCode.MALFORMED_MESSAGE, "not an acknowledgement subject")
