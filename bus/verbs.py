"""The controller's service as one table: verb, who may call it, command or query, request and reply.

The service's endpoints, the callers' permissions (a viewer gets the queries), the operator client and
docs/reference/messages.md come from this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar

from bus.messages import api, artifacts, blobs, gates, inventory, profiles

Req = TypeVar("Req")
Rep = TypeVar("Rep")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb(Generic[Req, Rep]):
    """One endpoint."""

    name: str
    role: Literal["node", "user"]
    effect: Literal["command", "query"]
    request: type[Req]
    reply: Any  # a Struct type or a union of tagged Structs
    description: str


def _command(name: str, request: type[Req], reply: type[Rep], description: str) -> Verb[Req, Rep]:
    return Verb(name=name, role="user", effect="command", request=request, reply=reply, description=description)


def _query(name: str, request: type[Req], reply: type[Rep], description: str) -> Verb[Req, Rep]:
    return Verb(name=name, role="user", effect="query", request=request, reply=reply, description=description)


STATUS = _query("status", api.Nothing, api.Status, "The controller's own health")
ARTIFACTS_SCAN = _command("artifacts.scan", api.ScanRequest, artifacts.ScanView, "Hash a folder on a node")
SCANS_SHOW = _query("scans.show", api.ById, artifacts.ScanView, "One scan")
ARTIFACTS_LIST = _query("artifacts.list", api.Page, api.ArtifactSets, "Known artifact sets")
ARTIFACTS_SHOW = _query("artifacts.show", api.ById, artifacts.ArtifactSet, "One set with its manifest")
ARTIFACTS_FILES = _query("artifacts.files", api.FilesRequest, api.ArtifactFiles, "Members of a set, page by page")
ARTIFACTS_QUARANTINE = _command(
    "artifacts.quarantine", api.QuarantineRequest, artifacts.Quarantine, "Quarantine the bytes of one member"
)
BLOBS_PUT = _command("blobs.put", blobs.BlobPut, blobs.BlobState, "Send a chunk of a large payload")
ENVIRONMENTS_LIST = _query("environments.list", api.Page, api.Environments, "Known runtime environments")
ENVIRONMENTS_SHOW = _query(
    "environments.show", api.ById, profiles.EnvironmentView, "One environment, by id or by the node that has it"
)
PROFILES_CREATE = _command("profiles.create", api.ProfileRequest, profiles.ProfileView, "Store a runtime profile")
PROFILES_LIST = _query("profiles.list", api.Page, api.Profiles, "Known profiles")
PROFILES_SHOW = _query("profiles.show", api.ById, profiles.ProfileView, "One profile, by name or id")
NODES_LIST = _query("nodes.list", api.Page, api.Nodes, "Known nodes")
NODES_SHOW = _query("nodes.show", api.ById, inventory.NodeView, "One node with its inventory")
NODES_SET = _command(
    "nodes.set", api.NodeFlagsRequest, inventory.NodeView, "Enable or disable a node, for work or for the lab"
)
ASSESSMENTS_CREATE = _command("assessments.create", api.AssessRequest, gates.Assessment, "Assess a set")
ASSESSMENTS_LIST = _query("assessments.list", api.AssessmentsRequest, api.Assessments, "Assessments, newest first")
ASSESSMENTS_SHOW = _query("assessments.show", api.ById, gates.Assessment, "One assessment")
APPROVALS_ADD = _command("approvals.add", api.ApproveRequest, gates.Approval, "Approve one exact set")
APPROVALS_LIST = _query("approvals.list", api.Page, api.Approvals, "Approvals, newest first")
APPROVALS_REVOKE = _command("approvals.revoke", api.RevokeRequest, gates.Approval, "Take an approval back")
PROBES_QUEUE = _command("probes.queue", api.QueueProbeRequest, gates.ProbeView, "Queue the fixed-input probe")
PROBES_LIST = _query("probes.list", api.Page, api.ProbePicture, "Probes, newest first, and the nodes")
PROBES_SHOW = _query("probes.show", api.ById, gates.ProbeView, "One probe with its evidence")
PROBES_CANCEL = _command("probes.cancel", api.CancelRequest, gates.ProbeView, "Cancel a probe")
PROBES_LOG = _query("probes.log", api.LogRequest, api.LogView, "The bounded log of an attempt")
CANDIDATES_LIST = _query("candidates.list", api.Page, api.Candidates, "Deployment candidates")
CANDIDATES_SHOW = _query("candidates.show", api.ById, gates.Candidate, "One candidate")
AUDIT_LIST = _query("audit.list", api.AuditRequest, api.AuditTrail, "The audit trail")

HELLO: Final[Verb[api.HelloRequest, api.HelloReply]] = Verb(
    name="hello",
    role="node",
    effect="command",
    request=api.HelloRequest,
    reply=api.HelloReply,
    description="Admit this life of a node's agent",
)
CLAIM: Final[Verb[api.ClaimRequest, api.AnyClaim]] = Verb(
    name="claim",
    role="node",
    effect="command",
    request=api.ClaimRequest,
    reply=api.AnyClaim,
    description="Claim a delivered job",
)
RENEW: Final[Verb[api.RenewRequest, api.AnyRenewal]] = Verb(
    name="renew",
    role="node",
    effect="command",
    request=api.RenewRequest,
    reply=api.AnyRenewal,
    description="Extend a lease",
)
REFUSE: Final[Verb[api.RefuseRequest, api.Refused]] = Verb(
    name="refuse",
    role="node",
    effect="command",
    request=api.RefuseRequest,
    reply=api.Refused,
    description="End a job that this node cannot do",
)
BLOB_PUT: Final[Verb[blobs.NodeBlobPut, blobs.BlobState]] = Verb(
    name="blob.put",
    role="node",
    effect="command",
    request=blobs.NodeBlobPut,
    reply=blobs.BlobState,
    description="Send a chunk of a large payload",
)
BLOB_GET: Final[Verb[blobs.NodeBlobGet, blobs.BlobChunk]] = Verb(
    name="blob.get",
    role="node",
    effect="query",
    request=blobs.NodeBlobGet,
    reply=blobs.BlobChunk,
    description="Fetch the manifest of a leased job, by range",
)
PROGRESS: Final[Verb[blobs.ProgressReport, blobs.Noted]] = Verb(
    name="progress",
    role="node",
    effect="command",
    request=blobs.ProgressReport,
    reply=blobs.Noted,
    description="Say how far a leased scan is",
)

USER_VERBS: Final[tuple[Verb[Any, Any], ...]] = (
    STATUS,
    ARTIFACTS_SCAN,
    SCANS_SHOW,
    ARTIFACTS_LIST,
    ARTIFACTS_SHOW,
    ARTIFACTS_FILES,
    ARTIFACTS_QUARANTINE,
    BLOBS_PUT,
    ENVIRONMENTS_LIST,
    ENVIRONMENTS_SHOW,
    PROFILES_CREATE,
    PROFILES_LIST,
    PROFILES_SHOW,
    NODES_LIST,
    NODES_SHOW,
    NODES_SET,
    ASSESSMENTS_CREATE,
    ASSESSMENTS_LIST,
    ASSESSMENTS_SHOW,
    APPROVALS_ADD,
    APPROVALS_LIST,
    APPROVALS_REVOKE,
    PROBES_QUEUE,
    PROBES_LIST,
    PROBES_SHOW,
    PROBES_CANCEL,
    PROBES_LOG,
    CANDIDATES_LIST,
    CANDIDATES_SHOW,
    AUDIT_LIST,
)
NODE_VERBS: Final[tuple[Verb[Any, Any], ...]] = (HELLO, CLAIM, RENEW, REFUSE, BLOB_PUT, BLOB_GET, PROGRESS)
VERBS: Final = USER_VERBS + NODE_VERBS
