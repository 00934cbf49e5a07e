"""What travels down to a node: jobs in the stream, and hints as core messages.

A job names an adapter and a registered relative location, never a command, a module or a path outside the
artifact root (spec P5, B4).
"""

from __future__ import annotations

from typing import Final, Literal

from bus.messages.artifacts import Digest, Manifest, Name
from bus.messages.base import Message, Moment, Natural, Positive
from bus.messages.gates import StartMethod
from bus.messages.profiles import RuntimeProfile

# The stream takes no larger job, and the gate queues none. Also the bound of evidence: a set that a scan could report
# is one that a probe can be sent.
MAX_JOB_BYTES: Final = 512 * 1024


class ScanJob(Message, tag="scan.job.v1", frozen=True, kw_only=True):
    """Hash every file of a folder below the node's artifact root. `fresh`: use no digest that was computed before."""

    job_id: str
    node: Name
    path: str
    max_files: Positive
    deadline_at: Moment
    fresh: bool = False


class ProbeJob(Message, tag="probe.job.v1", frozen=True, kw_only=True):
    """Run the fixed-input probe on exactly these files (spec P5).

    A manifest that is too large for the message is left out: `manifest_bytes` says how long its canonical JSON is, and
    `blob.get` gives it under the set's digest.
    """

    job_id: str
    node: Name
    probe_type: Literal["embedding_fixed_input"]
    location: str
    set_digest: Digest
    manifest: Manifest | None = None
    manifest_bytes: Natural = 0
    profile: RuntimeProfile
    profile_id: Digest
    environment_id: Digest
    assessment_id: str
    approval_id: str
    fingerprint: Digest
    start_method: StartMethod
    deadline_at: Moment


AnyJob = ScanJob | ProbeJob


class CancelCommand(Message, tag="command.cancel.v1", frozen=True, kw_only=True):
    """A hint that a job is to be cancelled; the renew reply repeats it."""

    job_id: str


class ProveCommand(Message, tag="command.prove.v1", frozen=True, kw_only=True):
    """Asks the agent with this boot id to say hello again: a second one knocks under the same key."""

    boot_id: str


AnyCommand = CancelCommand | ProveCommand
