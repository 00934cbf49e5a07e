"""Requests and replies of the controller's service. The caller's identity is in the subject, never in the body."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from bus.errors import Failure
from bus.messages.artifacts import ArtifactSet, BlobRef, Digest, ExpectationKind, FileEntry, Name, Sha256
from bus.messages.base import Line, Message, Moment, Natural, Positive, Record, Token
from bus.messages.events import AuditEntry
from bus.messages.gates import Approval, Assessment, Candidate, ProbeView, Purpose, StartMethod
from bus.messages.inventory import NodeInventory, NodeView
from bus.messages.profiles import EnvironmentView, ProfileView, RuntimeProfile

# The acknowledgement subject of a message: nine or more tokens, nothing that a subject cannot hold.
AckSubject = Annotated[str, msgspec.Meta(pattern=r"^\$JS\.ACK\.[!-~]{1,400}\Z")]


class Ok(Message, tag="api.ok.v1", frozen=True, kw_only=True):
    """The request was carried out; `data` has the verb's reply type."""

    data: msgspec.Raw


class Failed(Message, tag="api.failed.v1", frozen=True, kw_only=True):
    """The request was refused or failed; nothing was changed."""

    failure: Failure


AnyReply = Ok | Failed

# --- operators ---------------------------------------------------------------------------------------------------


class Nothing(Record, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A request without arguments."""


class ById(Record, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A request about one thing: its id, an unambiguous beginning of it, or a profile's name."""

    id: Line


class Page(Record, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A request for a list, newest first."""

    limit: Positive = 200


class ExpectedManifest(Record, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A list of digests that the scanned folder must have, no file more and none less (spec A3).

    Attributes:
        kind: where the list came from. A signature was checked by the caller, with `key`.
        blob: the list in the form of `sha256sum`, sent before with `blobs.put`.
        source_sha256: of the file that the operator named; a member with these bytes is the list itself, and no surplus.
    """

    kind: ExpectationKind
    blob: BlobRef
    source_sha256: Sha256
    key: Line | None = None


class ScanRequest(Record, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Scan a folder, relative to the node's artifact root. `request_id` makes a repeat harmless.

    `fresh`: every byte is read again, whatever was read before.
    """

    node: Name
    path: Line
    request_id: Token
    fresh: bool = False
    expected: ExpectedManifest | None = None


class FilesRequest(Record, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Some members of a set, in the manifest's order, from number `offset` on."""

    id: Line
    offset: Natural = 0
    limit: Positive = 2_000


class QuarantineRequest(Record, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Quarantine the bytes of one member, in every set that has them, with a reason."""

    set_digest: Line
    path: Line
    reason: Line


class ProfileRequest(Record, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Store a profile; the same contents under the same name give the same profile.

    `new_version`: other contents may follow under a name that is taken; the older ones stay as they are.
    """

    profile: RuntimeProfile
    new_version: bool = False


class AssessRequest(Record, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Assess a set under a profile on a node, at one of its places there; the first by name when none is given."""

    set_digest: Line
    profile: Line
    node: Name
    location: Line | None = None


class AssessmentsRequest(Record, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Assessments, newest first; only those that went stale, if wished."""

    limit: Positive = 200
    stale_only: bool = False


class ApproveRequest(Record, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Approve one exact set for one purpose, with a reason."""

    set_digest: Line
    purpose: Purpose
    reason: Line


class RevokeRequest(Record, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Take an approval back, with a reason."""

    id: Line
    reason: Line


class QueueProbeRequest(Record, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Queue the fixed-input probe for an assessment. `request_id` makes a repeat harmless."""

    assessment_id: Line
    request_id: Token
    start_method: StartMethod = "template"


class CancelRequest(Record, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Cancel a probe, with a reason."""

    id: Line
    reason: Line = ""


class LogRequest(Record, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The bounded log of one attempt; the newest when no attempt is named."""

    id: Line
    attempt: Positive | None = None


class AuditRequest(Record, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The audit trail, newest first, of one thing or of everything."""

    id: Line | None = None
    limit: Positive = 200


class NodeFlagsRequest(Record, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """May this node be used at all, and for probes? A flag that is absent stays as it is; a reason is needed.

    Assessments rest on both flags: changing one makes the evidence on this node stale until it is changed back.
    """

    name: Name
    enabled: bool | None = None
    lab_eligible: bool | None = None
    reason: Line


class LogView(Record, frozen=True, kw_only=True):
    """A bounded log (spec P12). `text` is cleaned for terminals and redacted."""

    ref: str
    attempt: int
    text: str
    dropped_bytes: Natural
    at: Moment


class ProbePicture(Record, frozen=True, kw_only=True):
    """All recent probes, and the last event that is in them. `truncated`: there are older probes, or more nodes."""

    as_of_sequence: int
    at: Moment
    probes: tuple[ProbeView, ...]
    nodes: tuple[NodeView, ...]
    truncated: bool = False


class Status(Record, frozen=True, kw_only=True):
    """The controller's own health, for `doctor` and the status line.

    `faults` counts the faults of each of its loops, `bus_events` what its connections lived through (a message that
    nobody could read, a delivery given back, a pull asked again); both since this process started.
    """

    version: str
    boot_id: str
    started_at: Moment
    at: Moment
    schema_version: int
    event_sequence: int
    open_jobs: int
    outbox_waiting: int
    streams: dict[str, str]
    metrics_url: str | None = None
    faults: dict[str, int] = {}
    bus_events: dict[str, int] = {}


class ArtifactSets(Record, frozen=True, kw_only=True):
    """Reply of `artifacts.list`; `truncated`: there are more than these."""

    sets: tuple[ArtifactSet, ...]
    truncated: bool = False


class ArtifactFiles(Record, frozen=True, kw_only=True):
    """Reply of `artifacts.files`: members from `offset` on, and how many the set has in all."""

    digest: Digest
    offset: Natural
    files: tuple[FileEntry, ...]
    total: Natural


class Environments(Record, frozen=True, kw_only=True):
    """Reply of `environments.list`; `truncated`: there are more than these."""

    environments: tuple[EnvironmentView, ...]
    truncated: bool = False


class Profiles(Record, frozen=True, kw_only=True):
    """Reply of `profiles.list`; `truncated`: there are more than these."""

    profiles: tuple[ProfileView, ...]
    truncated: bool = False


class Assessments(Record, frozen=True, kw_only=True):
    """Reply of `assessments.list`; `truncated`: there are more than these."""

    assessments: tuple[Assessment, ...]
    truncated: bool = False


class Approvals(Record, frozen=True, kw_only=True):
    """Reply of `approvals.list`; `truncated`: there are more than these."""

    approvals: tuple[Approval, ...]
    truncated: bool = False


class Candidates(Record, frozen=True, kw_only=True):
    """Reply of `candidates.list`; `truncated`: there are more than these."""

    candidates: tuple[Candidate, ...]
    truncated: bool = False


class Nodes(Record, frozen=True, kw_only=True):
    """Reply of `nodes.list`; `truncated`: there are more than these."""

    nodes: tuple[NodeView, ...]
    truncated: bool = False


class AuditTrail(Record, frozen=True, kw_only=True):
    """Reply of `audit.list`; `truncated`: there are more than these."""

    entries: tuple[AuditEntry, ...]
    truncated: bool = False


# --- nodes -------------------------------------------------------------------------------------------------------


class HelloRequest(Record, frozen=True, kw_only=True):
    """An agent introduces this life of it."""

    inventory: NodeInventory


class HelloReply(Record, frozen=True, kw_only=True):
    """The agent was admitted, under these rules."""

    lease_ttl_s: float
    inventory_interval_s: float


class ClaimRequest(Record, frozen=True, kw_only=True):
    """May I work on this delivery? `delivery` is the acknowledgement subject of the message as the agent sees it."""

    boot_id: Token
    job_id: Token
    delivery: AckSubject
    num_delivered: Natural


class ClaimGranted(Message, tag="claim.granted.v1", frozen=True, kw_only=True):
    """Yes: a new attempt. The token appears here and nowhere else."""

    lease_id: Token
    attempt: Positive
    token: Token
    ttl_s: float
    cancel_requested: bool = False


class ClaimAlreadyYours(Message, tag="claim.already_yours.v1", frozen=True, kw_only=True):
    """This boot works on it under this lease: drop the second delivery, go on, keep the new delivery alive."""

    lease_id: Token
    attempt: Positive


class ClaimTerminal(Message, tag="claim.terminal.v1", frozen=True, kw_only=True):
    """The job has ended; the controller acknowledges this delivery itself."""

    state: str


class ClaimRetryAfter(Message, tag="claim.retry_after.v1", frozen=True, kw_only=True):
    """Somebody's lease still runs: give the message back and pull again after this long."""

    delay_s: float


class ClaimRefused(Message, tag="claim.refused.v1", frozen=True, kw_only=True):
    """No, and never for this caller."""

    failure: Failure


AnyClaim = ClaimGranted | ClaimAlreadyYours | ClaimTerminal | ClaimRetryAfter | ClaimRefused


class RenewRequest(Record, frozen=True, kw_only=True):
    """I still work on it."""

    boot_id: Token
    lease_id: Token
    token: Token


class Renewed(Message, tag="renew.ok.v1", frozen=True, kw_only=True):
    """The lease runs on for this long from now."""

    ttl_s: float
    cancel_requested: bool


class Fenced(Message, tag="renew.fenced.v1", frozen=True, kw_only=True):
    """The lease is over: end the operation."""

    failure: Failure


AnyRenewal = Renewed | Fenced


class RefuseRequest(Record, frozen=True, kw_only=True):
    """This job cannot be done here, whatever its message says (unknown kind, undecodable)."""

    boot_id: Token
    job_id: Token
    delivery: AckSubject
    failure: Failure


class Refused(Record, frozen=True, kw_only=True):
    """What became of the refused job."""

    state: Literal["failed", "unknown", "terminal"]
