"""What JetStream answers, as results and typed errors."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from bus.errors import ErrorCode, ModelForgeError

_MAX_EXCERPT_BYTES: Final = 200
_UNAVAILABLE: Final = 503
# Error codes of the JetStream API. One code stands for several bounds, so the text decides between them.
_ERR_BOUND: Final = 10077
_ERR_TOO_LARGE: Final = 10054
_ERR_OTHER_STREAM: Final = 10060
_PER_SUBJECT: Final = "maximum messages per subject exceeded"
_ONE_PER_SUBJECT: Final = "mf.jobs."


@dataclass(frozen=True, slots=True)
class StoredAck:
    """The stream has the message on its disk."""

    stream: str
    sequence: int
    duplicate: bool


class AlreadyQueued(Exception):  # noqa: N818 -- an outcome that the caller expects, not a fault
    """A job with this very subject is in the stream, queued or leased: nothing was added."""


class JsError(ModelForgeError):
    """JetStream answered a request with an error.

    Attributes:
        status: like HTTP's (404, 503).
        err_code: JetStream's own, such as 10059 (no such stream) or 10014 (no such consumer).
        description: JetStream's words.
    """

    def __init__(self, status: int, err_code: int, description: str) -> None:
        code = ErrorCode.NOT_CONNECTED if status == _UNAVAILABLE else ErrorCode.INTERNAL
        super().__init__(code, f"JetStream: {description}", err_code=err_code)
        self.status = status
        self.err_code = err_code
        self.description = description


def read_reply(reply: bytes) -> dict[str, Any]:
    """The document of a reply.

    Raises:
        JsError: the document is an error.
        ModelForgeError: INTERNAL when it is no JSON object.
    """
    try:
        document = json.loads(reply)
    except ValueError as error:
        excerpt = reply[:_MAX_EXCERPT_BYTES].decode(errors="replace")
        raise ModelForgeError(ErrorCode.INTERNAL, f"JetStream's reply is not JSON: {excerpt}") from error
    if not isinstance(document, dict):
        raise ModelForgeError(ErrorCode.INTERNAL, "JetStream's reply is not a JSON object")
    if "error" in document:
        fault = document["error"]
        raise JsError(int(fault.get("code", 0)), int(fault.get("err_code", 0)), str(fault.get("description", "")))
    return document


def read_ack(reply: bytes, subject: str, size_bytes: int) -> StoredAck:
    """The outcome of a publish into a stream.

    Raises:
        AlreadyQueued: the subject is a job's, and the stream has it.
        ModelForgeError: QUEUE_FULL, MESSAGE_TOO_LARGE, STREAM_DRIFT; a JsError for anything else.
    """
    try:
        document = read_reply(reply)
    except JsError as error:
        _raise_refused(subject, size_bytes, error)
    return StoredAck(str(document["stream"]), int(document["seq"]), bool(document.get("duplicate", False)))


def too_large(subject: str, size_bytes: int) -> ModelForgeError:
    """The error for a message that the server or the stream does not carry."""
    return ModelForgeError(ErrorCode.MESSAGE_TOO_LARGE, f"{size_bytes} bytes are too large for {subject}")


def _raise_refused(subject: str, size_bytes: int, error: JsError) -> NoReturn:
    if error.err_code == _ERR_BOUND and error.description == _PER_SUBJECT and subject.startswith(_ONE_PER_SUBJECT):
        raise AlreadyQueued(subject) from error
    if error.err_code == _ERR_BOUND:
        raise ModelForgeError(ErrorCode.QUEUE_FULL, f"{subject}: {error.description}") from error
    if error.err_code == _ERR_TOO_LARGE:
        raise too_large(subject, size_bytes) from error
    if error.err_code == _ERR_OTHER_STREAM:
        raise ModelForgeError(ErrorCode.STREAM_DRIFT, f"another stream takes {subject}") from error
    raise error
