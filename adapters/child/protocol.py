"""The channel between an agent and its child: length-prefixed JSON frames over one socket.

Down: one `Bootstrap`, then one `Proceed` for each step, so that the parent can take its sample exactly between two
steps. Up: one frame for each step. A frame is a 4-byte big-endian length and that many bytes of JSON.
"""

from __future__ import annotations

import struct
from typing import Final, Literal

from bus.messages.base import Message
from bus.messages.evidence import Health, Layer, Output
from bus.messages.profiles import RuntimeProfile

HEADER: Final = struct.Struct(">I")
MAX_FRAME_BYTES: Final = 256 * 1024

PROCESS_FAMILY: Final = "process"
FILE_FAMILY: Final = "file"
# What is said of a refused file; never its path, which is the host's.
FILE_CALL: Final = "open outside the set"

Stage = Literal["isolate", "import", "prepare", "load", "probe", "health", "unload"]


class Bootstrap(Message, tag="child.bootstrap.v1", frozen=True, kw_only=True):
    """All that a child is told. `model_path` is absolute on this node and was verified by the parent."""

    adapter: str
    probe_type: Literal["embedding_fixed_input"]
    model_path: str
    scratch_path: str
    profile: RuntimeProfile


class Proceed(Message, tag="child.proceed.v1", frozen=True, kw_only=True):
    """The parent has taken its sample: go on with the next step."""


class Isolated(Message, tag="child.isolated.v1", frozen=True, kw_only=True):
    """Barrier and guard stand; the next step imports the libraries (a forked child has them already)."""

    pid: int
    layers: tuple[Layer, ...]
    egress_barrier: str
    containment: str


class Prepared(Message, tag="child.prepared.v1", frozen=True, kw_only=True):
    """Libraries are imported, the adapter is made, nothing is loaded."""

    import_ms: float


class Loaded(Message, tag="child.loaded.v1", frozen=True, kw_only=True):
    """The model is in memory."""

    load_ms: float
    device: str
    max_sequence_length: int
    allocator_bytes: int | None
    facts: dict[str, str]


class Probed(Message, tag="child.probed.v1", frozen=True, kw_only=True):
    """The fixed input was run, twice."""

    output: Output
    inference_ms: float
    repeat_inference_ms: float
    allocator_peak_bytes: int | None


class Checked(Message, tag="child.checked.v1", frozen=True, kw_only=True):
    """The health layers as the child sees them; the parent adds the process layer."""

    health: Health


class Unloaded(Message, tag="child.unloaded.v1", frozen=True, kw_only=True):
    """The model was dropped; the child exits next. Process death is the unload boundary, not this."""

    unload_ms: float


class Violation(Message, tag="child.violation.v1", frozen=True, kw_only=True):
    """The guard refused a call. Sent at once, whatever the library makes of the refusal.

    `family` is `inet`, `inet6`, `raw`, `netlink`, `other`, `name` (a name look-up), or one that is refused and recorded,
    but is no use of the network: `process`, an attempt to start one (a library may ask `ldconfig` or `uname`), and
    `file`, an attempt to open a file outside the set, with which the child itself fails.
    """

    call: str
    family: str

    @property
    def breaks_offline(self) -> bool:
        """Is this an OFFLINE_LOAD_VIOLATION, whatever else happened?"""
        return self.family not in {PROCESS_FAMILY, FILE_FAMILY}


class ChildFailed(Message, tag="child.failed.v1", frozen=True, kw_only=True):
    """A step failed. `message` is normalised: a class and a stage, never the exception's own text."""

    code: str
    stage: Stage
    exception: str
    message: str


UpFrame = Isolated | Prepared | Loaded | Probed | Checked | Unloaded | Violation | ChildFailed
DownFrame = Bootstrap | Proceed
