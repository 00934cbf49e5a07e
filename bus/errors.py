"""Every error code of the product, in one table, and the one exception that carries a code.

A code is an API: it is never renamed or reused, only added (spec P9). The table says, for each code, what it
means, what the operator does next, whether the same request may simply be tried again, what happens to the
message that caused it, and the exit code of the command line. `docs/reference/errors.md` is generated from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

import msgspec

from bus.text import clean_line

MAX_MESSAGE_CHARS: Final = 2_000


class Exit(IntEnum):
    """Exit codes of the command line; scripts rely on them."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    REFUSED = 4
    NOT_FOUND = 5
    TIMEOUT = 124
    INTERRUPTED = 130


class Retry(StrEnum):
    """May the same request be sent again, unchanged?"""

    NEVER = "never"
    AFTER_FIX = "after_fix"
    LATER = "later"


class AckAction(StrEnum):
    """What becomes of the JetStream message that ended in this error."""

    ACK = "ack"
    NAK = "nak"
    TERM = "term"
    NONE = "none"


class ErrorCode(StrEnum):
    """Append-only list of codes."""

    # Failures of a probe, produced on the node (spec P9).
    MODEL_LOAD_FAILED = "MODEL_LOAD_FAILED"
    GPU_OOM = "GPU_OOM"
    RUNTIME_CRASH = "RUNTIME_CRASH"
    TIMEOUT = "TIMEOUT"
    INVALID_OUTPUT = "INVALID_OUTPUT"
    HEALTHCHECK_FAILED = "HEALTHCHECK_FAILED"
    OFFLINE_LOAD_VIOLATION = "OFFLINE_LOAD_VIOLATION"
    GPU_MEMORY_NOT_RECLAIMED = "GPU_MEMORY_NOT_RECLAIMED"
    RUNTIME_INCOMPATIBLE = "RUNTIME_INCOMPATIBLE"
    ARTIFACT_CHANGED = "ARTIFACT_CHANGED"
    NODE_FAULT = "NODE_FAULT"
    ATTEMPTS_EXHAUSTED = "ATTEMPTS_EXHAUSTED"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    CANCELLED = "CANCELLED"
    # Scan.
    PATH_OUTSIDE_ROOT = "PATH_OUTSIDE_ROOT"
    PATH_NOT_FOUND = "PATH_NOT_FOUND"
    PATH_NOT_A_FOLDER = "PATH_NOT_A_FOLDER"
    ARTIFACT_EMPTY = "ARTIFACT_EMPTY"
    ARTIFACT_UNREADABLE = "ARTIFACT_UNREADABLE"
    ARTIFACT_UNSUPPORTED_FILE = "ARTIFACT_UNSUPPORTED_FILE"
    SCAN_TOO_LARGE = "SCAN_TOO_LARGE"
    # Gates.
    UNKNOWN_ID = "UNKNOWN_ID"
    AMBIGUOUS_ID = "AMBIGUOUS_ID"
    NOT_APPROVED = "NOT_APPROVED"
    ASSESSMENT_BLOCKED = "ASSESSMENT_BLOCKED"
    ASSESSMENT_STALE = "ASSESSMENT_STALE"
    NODE_UNKNOWN = "NODE_UNKNOWN"
    NODE_OFFLINE = "NODE_OFFLINE"
    PROFILE_CONFLICT = "PROFILE_CONFLICT"
    ILLEGAL_TRANSITION = "ILLEGAL_TRANSITION"
    # Leases and identities.
    BOOT_CONFLICT = "BOOT_CONFLICT"
    BOOT_SUPERSEDED = "BOOT_SUPERSEDED"
    LEASE_FENCED = "LEASE_FENCED"
    JOB_TERMINAL = "JOB_TERMINAL"
    EVIDENCE_REFUSED = "EVIDENCE_REFUSED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    # Wire.
    MALFORMED_MESSAGE = "MALFORMED_MESSAGE"
    UNKNOWN_KIND = "UNKNOWN_KIND"
    MESSAGE_TOO_LARGE = "MESSAGE_TOO_LARGE"
    NOT_CONNECTED = "NOT_CONNECTED"
    AUTH_FAILED = "AUTH_FAILED"
    NO_CONTROLLER = "NO_CONTROLLER"
    REQUEST_TIMEOUT = "REQUEST_TIMEOUT"
    STREAM_DRIFT = "STREAM_DRIFT"
    # Store, configuration, front door.
    STORE_UNAVAILABLE = "STORE_UNAVAILABLE"
    STORE_SCHEMA_MISMATCH = "STORE_SCHEMA_MISMATCH"
    CONFIG_UNREADABLE = "CONFIG_UNREADABLE"
    CONFIG_INVALID = "CONFIG_INVALID"
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    PORT_IN_USE = "PORT_IN_USE"
    STATE_LOCKED = "STATE_LOCKED"
    SERVER_START_FAILED = "SERVER_START_FAILED"
    DEPENDENCY_MISSING = "DEPENDENCY_MISSING"
    WAIT_TIMEOUT = "WAIT_TIMEOUT"
    INTERNAL = "INTERNAL"
    QUEUE_FULL = "QUEUE_FULL"
    INTERRUPTED = "INTERRUPTED"
    # Assessment plane.
    EXPECTED_MANIFEST_MISMATCH = "EXPECTED_MANIFEST_MISMATCH"
    SIGNATURE_INVALID = "SIGNATURE_INVALID"
    SCAN_LIMIT_EXCEEDED = "SCAN_LIMIT_EXCEEDED"
    BLOB_REFUSED = "BLOB_REFUSED"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeInfo:
    """What a code means and what to do about it."""

    meaning: str
    remedy: str
    retry: Retry
    ack: AckAction
    exit: Exit


def _info(meaning: str, remedy: str, retry: Retry, ack: AckAction, exit_: Exit) -> CodeInfo:
    return CodeInfo(meaning=meaning, remedy=remedy, retry=retry, ack=ack, exit=exit_)


_FIX, _LATER, _NEVER = Retry.AFTER_FIX, Retry.LATER, Retry.NEVER
_ACK, _NAK, _TERM, _NONE = AckAction.ACK, AckAction.NAK, AckAction.TERM, AckAction.NONE

# One entry a paragraph, so that the table reads as one.
# fmt: off
CODES: Final[dict[ErrorCode, CodeInfo]] = {
    ErrorCode.MODEL_LOAD_FAILED: _info(
        "The runtime could not load the model from its files.",
        "Read the log with `modelforge probe log ID`; scan again if the files were replaced.",
        _FIX, _ACK, Exit.FAILED),
    ErrorCode.GPU_OOM: _info(
        "The GPU ran out of memory during load or inference.",
        "Free memory on the GPU, or use a profile with a smaller dtype, batch or sequence length.",
        _FIX, _ACK, Exit.FAILED),
    ErrorCode.RUNTIME_CRASH: _info(
        "The child process died by a signal or left without a report.",
        "Read the log with `modelforge probe log ID`; look for host memory limits and native crashes.",
        _FIX, _ACK, Exit.FAILED),
    ErrorCode.TIMEOUT: _info(
        "A phase took longer than the profile's budget and the child was ended.",
        "Look for a busy node; or give the phase longer in a new profile with everything else of the old one: "
        "`modelforge profile create NEWNAME --from PROFILE --loading-s N`, then assess again.",
        _FIX, _ACK, Exit.FAILED),
    ErrorCode.INVALID_OUTPUT: _info(
        "The model answered, but the answer is not a finite, non-empty, repeatable vector.",
        "Check that the weights belong to this configuration; scan and assess again.",
        _FIX, _ACK, Exit.FAILED),
    ErrorCode.HEALTHCHECK_FAILED: _info(
        "The loaded model did not pass its health layers.",
        "Read the log with `modelforge probe log ID`.",
        _FIX, _ACK, Exit.FAILED),
    ErrorCode.OFFLINE_LOAD_VIOLATION: _info(
        "The runtime tried to use the network while it loaded or ran the model.",
        "The set is not self-contained: add the missing files, then scan, assess and approve the new set.",
        _FIX, _ACK, Exit.FAILED),
    ErrorCode.GPU_MEMORY_NOT_RECLAIMED: _info(
        "GPU memory stayed above the baseline plus tolerance after the child had ended.",
        "Look for leftover processes on the GPU; raise the tolerance only if the rest is explained.",
        _FIX, _ACK, Exit.FAILED),
    ErrorCode.RUNTIME_INCOMPATIBLE: _info(
        "The node cannot run the profile: no executable adapter, package or device for it, or others than were assessed.",
        "`modelforge environment show NODE` says what it can run; choose another profile or node, then assess again.",
        _FIX, _ACK, Exit.REFUSED),
    ErrorCode.ARTIFACT_CHANGED: _info(
        "A file on the node differs from the manifest of the approved set.",
        "Restore the file and scan again, or scan and approve the new set.",
        _FIX, _ACK, Exit.FAILED),
    ErrorCode.NODE_FAULT: _info(
        "The node itself failed (imports, sandbox, disk), not the model.",
        "Run `modelforge doctor` on the node.",
        _FIX, _ACK, Exit.FAILED),
    ErrorCode.ATTEMPTS_EXHAUSTED: _info(
        "Every allowed attempt lost its lease before it finished.",
        "Look at the node's agent (`modelforge doctor`), then queue the job again.",
        _FIX, _ACK, Exit.FAILED),
    ErrorCode.DEADLINE_EXCEEDED: _info(
        "The job did not finish before its overall deadline.",
        "Check that the node's agent runs, then queue the job again.",
        _FIX, _ACK, Exit.FAILED),
    ErrorCode.CANCELLED: _info(
        "An operator cancelled the job.", "Queue it again when wanted.", _FIX, _ACK, Exit.FAILED),
    ErrorCode.PATH_OUTSIDE_ROOT: _info(
        "The path, or a link inside it, leads out of the node's artifact root.",
        "Give a path relative to the artifact root, and copy linked files into it.",
        _FIX, _ACK, Exit.USAGE),
    ErrorCode.PATH_NOT_FOUND: _info(
        "There is nothing at this path below the node's artifact root.",
        "Check the spelling; `modelforge config show` prints the artifact root.",
        _FIX, _ACK, Exit.NOT_FOUND),
    ErrorCode.PATH_NOT_A_FOLDER: _info(
        "The path is not a folder.", "Give the folder that holds the model files.", _FIX, _ACK, Exit.USAGE),
    ErrorCode.ARTIFACT_EMPTY: _info(
        "The folder holds no file.", "Put the model files there, then scan again.", _FIX, _ACK, Exit.USAGE),
    ErrorCode.ARTIFACT_UNREADABLE: _info(
        "A file could not be read.", "Give the agent's user read access to it, then scan again.",
        _FIX, _ACK, Exit.FAILED),
    ErrorCode.ARTIFACT_UNSUPPORTED_FILE: _info(
        "The folder holds something that is neither a file nor a folder, or a name that cannot be recorded.",
        "Remove it, then scan again.", _FIX, _ACK, Exit.FAILED),
    ErrorCode.SCAN_TOO_LARGE: _info(
        "The folder holds more files than one scan may record.",
        "Scan a folder that holds one model only.", _FIX, _ACK, Exit.USAGE),
    ErrorCode.UNKNOWN_ID: _info(
        "Nothing is known under this id.", "List what exists with the noun's `list` command.",
        _FIX, _NONE, Exit.NOT_FOUND),
    ErrorCode.AMBIGUOUS_ID: _info(
        "Several things begin with this id, or it is too short to tell.", "Type more characters of the id.", _FIX, _NONE, Exit.USAGE),
    ErrorCode.NOT_APPROVED: _info(
        "There is no valid approval for exactly this set and purpose.",
        "Review the assessment, then `modelforge approve add SET --reason …`.",
        _FIX, _NONE, Exit.REFUSED),
    ErrorCode.ASSESSMENT_BLOCKED: _info(
        "The assessment found blockers.", "Read them with `modelforge assess show ID` and fix each.",
        _FIX, _NONE, Exit.REFUSED),
    ErrorCode.ASSESSMENT_STALE: _info(
        "Facts that the assessment rests on have changed since it was made.",
        "Assess again: `modelforge assess SET --profile P --node N`.", _FIX, _NONE, Exit.REFUSED),
    ErrorCode.NODE_UNKNOWN: _info(
        "No node of this name has ever said hello.", "Start its agent; `modelforge node list` names the known ones.",
        _FIX, _NONE, Exit.NOT_FOUND),
    ErrorCode.NODE_OFFLINE: _info(
        "The node has not been heard of lately.", "Start its agent, or wait for it to reconnect.",
        _LATER, _NONE, Exit.UNREACHABLE),
    ErrorCode.PROFILE_CONFLICT: _info(
        "A profile of this name exists with other contents; profiles are immutable.",
        "Choose another name.", _FIX, _NONE, Exit.REFUSED),
    ErrorCode.ILLEGAL_TRANSITION: _info(
        "The thing is not in a state from which this is possible.",
        "Look at its state with the noun's `list` command.", _FIX, _NONE, Exit.REFUSED),
    ErrorCode.BOOT_CONFLICT: _info(
        "Another live agent already runs under this node's key.",
        "Stop the other agent, or give this machine a node and key of its own.", _FIX, _NONE, Exit.REFUSED),
    ErrorCode.BOOT_SUPERSEDED: _info(
        "A newer agent of this node was admitted; this one no longer speaks for the node.",
        "Let it end; if it should be the one, stop the newer agent and start this one again.",
        _NEVER, _NONE, Exit.REFUSED),
    ErrorCode.LEASE_FENCED: _info(
        "The lease of this attempt is over; a newer attempt or an end took its place.",
        "Nothing: the attempt ends itself and its words are refused.", _NEVER, _NONE, Exit.FAILED),
    ErrorCode.JOB_TERMINAL: _info(
        "The job has already ended.", "Look at its result with the noun's `show` command.",
        _NEVER, _ACK, Exit.FAILED),
    ErrorCode.EVIDENCE_REFUSED: _info(
        "Evidence did not match the node, lease, attempt or order on record.",
        "Read the audit trail; it names the message and the reason.", _NEVER, _ACK, Exit.FAILED),
    ErrorCode.PERMISSION_DENIED: _info(
        "The caller's role does not allow this.", "Use an operator's key instead of a viewer's.",
        _FIX, _NONE, Exit.REFUSED),
    ErrorCode.MALFORMED_MESSAGE: _info(
        "A message could not be decoded.", "Send JSON as documented in docs/reference/messages.md.",
        _NEVER, _TERM, Exit.USAGE),
    ErrorCode.UNKNOWN_KIND: _info(
        "The message's kind is not known to this version.", "Upgrade the older side.", _NEVER, _TERM, Exit.USAGE),
    ErrorCode.MESSAGE_TOO_LARGE: _info(
        "A message is larger than the bus carries.", "Shorten the input.", _NEVER, _TERM, Exit.USAGE),
    ErrorCode.NOT_CONNECTED: _info(
        "There is no NATS server at this address.", "Start one with `modelforge up`, or set `client.url`.",
        _LATER, _NONE, Exit.UNREACHABLE),
    ErrorCode.AUTH_FAILED: _info(
        "The NATS server refused the key, or there is no usable key file.", "Check `client.credentials` in `modelforge config show`.",
        _FIX, _NONE, Exit.UNREACHABLE),
    ErrorCode.NO_CONTROLLER: _info(
        "The NATS server answers, but no controller does.", "Start the controller, then try again.",
        _LATER, _NONE, Exit.UNREACHABLE),
    ErrorCode.REQUEST_TIMEOUT: _info(
        "The controller did not answer in time; whether it acted is unknown.",
        "Look at the state with `list` or `show` before trying again.", _LATER, _NONE, Exit.UNREACHABLE),
    ErrorCode.STREAM_DRIFT: _info(
        "A stream on the server differs from its declaration in a way that would destroy data to mend.",
        "Compare with docs/reference/streams.md and mend it by hand.", _FIX, _NONE, Exit.FAILED),
    ErrorCode.STORE_UNAVAILABLE: _info(
        "The ledger could not be written; nothing was committed.",
        "Check space and permissions of the state folder; the request may be sent again.",
        _LATER, _NAK, Exit.UNREACHABLE),
    ErrorCode.STORE_SCHEMA_MISMATCH: _info(
        "The ledger file was made by a newer or a foreign version.",
        "Start the version that wrote it, or name another state folder.", _FIX, _NONE, Exit.USAGE),
    ErrorCode.CONFIG_UNREADABLE: _info(
        "The configuration file cannot be read.", "Check that the file exists, is readable and is UTF-8 TOML.",
        _FIX, _NONE, Exit.USAGE),
    ErrorCode.CONFIG_INVALID: _info(
        "The configuration holds an unknown key or a wrong value.",
        "Compare with docs/reference/configuration.md; unknown keys are never ignored.", _FIX, _NONE, Exit.USAGE),
    ErrorCode.INVALID_ARGUMENT: _info(
        "An argument has a wrong form or value.", "See the command's `--help`.", _FIX, _NONE, Exit.USAGE),
    ErrorCode.PORT_IN_USE: _info(
        "Another process listens on this port.", "Stop it, or choose another with `--port`.",
        _FIX, _NONE, Exit.USAGE),
    ErrorCode.STATE_LOCKED: _info(
        "Another `modelforge up` or `demo` uses this state folder.",
        "Stop it, or choose another folder with `--state`.", _FIX, _NONE, Exit.USAGE),
    ErrorCode.SERVER_START_FAILED: _info(
        "A part of the stack did not come up.", "Read the log file named in the message.",
        _FIX, _NONE, Exit.FAILED),
    ErrorCode.DEPENDENCY_MISSING: _info(
        "A Python package that this command needs is not installed.", "In the clone: `make setup`, or `.venv/bin/pip install '.[EXTRA]'`.",
        _FIX, _NONE, Exit.USAGE),
    ErrorCode.WAIT_TIMEOUT: _info(
        "The wait is over, but the work goes on.", "Look again with the noun's `show` or `watch` command.",
        _LATER, _NONE, Exit.TIMEOUT),
    ErrorCode.INTERNAL: _info(
        "A defect in ModelForge.", "Report it with the log file named in the message.",
        _NEVER, _NAK, Exit.FAILED),
    ErrorCode.QUEUE_FULL: _info(
        "The stream holds as many messages as it may and takes no more.",
        "Wait until the controller has worked them off; `modelforge doctor` shows the streams.",
        _LATER, _NONE, Exit.UNREACHABLE),
    ErrorCode.INTERRUPTED: _info(
        "The operator interrupted the command.",
        "What was queued goes on while a stack runs; look at it with the noun's `list` or `show` command.", _LATER, _NONE, Exit.INTERRUPTED),
    ErrorCode.EXPECTED_MANIFEST_MISMATCH: _info(
        "The folder does not hold exactly the files that the given list of digests names.",
        "Copy what is missing or different again from where the list comes from and take away what is surplus; "
        "or give the list of this very folder, with its paths as seen from inside.",
        _FIX, _ACK, Exit.REFUSED),
    ErrorCode.SIGNATURE_INVALID: _info(
        "The model's signature is not one of this key, or cannot be read.",
        "Check that signature and key belong together; take both from where the model comes from.",
        _FIX, _NONE, Exit.REFUSED),
    ErrorCode.SCAN_LIMIT_EXCEEDED: _info(
        "The scan's own process needed more memory, processor time or time than a scan may take.",
        "Look for a file that is made to exhaust whoever reads it: the message names the last one; remove it, scan again.",
        _FIX, _ACK, Exit.FAILED),
    ErrorCode.BLOB_REFUSED: _info(
        "A large payload was not taken: its size, its digest or its place in the upload is wrong.",
        "Send it again from the beginning.", _FIX, _NONE, Exit.FAILED),
}
# fmt: on


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A failure as it travels and is stored.

    Attributes:
        code: a value of `ErrorCode` (a plain string on the wire, so that an older reader survives a newer code).
        message: what happened, one line, cleaned; never a path of the host, a secret or an input.
        context: short facts (which file, which state); string values only.
    """

    code: str
    message: str
    context: dict[str, str] = {}


class ModelForgeError(Exception):
    """The one exception of the product: a code, what happened, and facts about it.

    Raised everywhere; turned into text, JSON or a `Failure` only at the edge of a process.
    """

    def __init__(self, code: ErrorCode, message: str, /, *, hint: str | None = None, **context: object) -> None:
        self.code = code
        self.message = clean_line(message, MAX_MESSAGE_CHARS)
        self.hint = hint if hint is not None else CODES[code].remedy
        self.context = {key: clean_line(str(value), MAX_MESSAGE_CHARS) for key, value in context.items()}
        super().__init__(f"{code}: {self.message}")

    @property
    def info(self) -> CodeInfo:
        """The code's row of the table."""
        return CODES[self.code]

    def to_failure(self) -> Failure:
        """The wire form."""
        return Failure(code=self.code.value, message=self.message, context=self.context)

    @classmethod
    def from_failure(cls, failure: Failure) -> ModelForgeError:
        """The exception of a received failure; a code that this version does not know becomes INTERNAL.

        The unknown code is kept in the context, so that no reason gets lost.
        """
        try:
            return cls(ErrorCode(failure.code), failure.message, **failure.context)
        except ValueError:
            context = {**failure.context, "unknown_code": failure.code}
            return cls(ErrorCode.INTERNAL, failure.message, **context)
