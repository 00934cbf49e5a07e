"""What an agent and its template process say to each other, and what a child is told at its start.

One datagram-like message each over a UNIX socket (SOCK_SEQPACKET); descriptors travel beside it as SCM_RIGHTS.
"""

from __future__ import annotations

from typing import Final

from bus.messages.base import Message, Record

MAX_MESSAGE_BYTES: Final = 64 * 1024


class ChildOptions(Record, frozen=True, kw_only=True):
    """How a child is to be bounded. `parent_pid` is the process whose death must be the child's."""

    parent_pid: int
    scratch_path: str
    memory_limit_bytes: int
    threads: int
    test_double: bool = False


class TemplateOptions(Record, frozen=True, kw_only=True):
    """What a template imports, and whose death must be its own."""

    parent_pid: int
    adapter: str
    test_double: bool = False


class ForkRequest(Message, tag="template.fork.v1", frozen=True, kw_only=True):
    """Make a child. Two descriptors come along: its channel and its log."""

    request_id: int
    options: ChildOptions


class TemplateReady(Message, tag="template.ready.v1", frozen=True, kw_only=True):
    """The libraries are imported; the process has one thread and has not touched CUDA."""

    pid: int
    import_ms: float


class TemplateFailed(Message, tag="template.failed.v1", frozen=True, kw_only=True):
    """No child can be forked from here; the template ends. `importable`: a fresh interpreter may still do."""

    code: str
    message: str
    importable: bool


class Forked(Message, tag="template.forked.v1", frozen=True, kw_only=True):
    """The child is there. A descriptor of the process itself (pidfd) comes along."""

    request_id: int
    pid: int


class ForkRefused(Message, tag="template.refused.v1", frozen=True, kw_only=True):
    """The kernel gave no new process."""

    request_id: int
    message: str


class ChildExited(Message, tag="template.exited.v1", frozen=True, kw_only=True):
    """The child was reaped; the status is the one of `wait(2)`."""

    pid: int
    wait_status: int


FromTemplate = TemplateReady | TemplateFailed | Forked | ForkRefused | ChildExited
