"""A scan from the operator's side: what the folder is expected to be, how far it is, and what came of it."""

from __future__ import annotations

import shlex
import time
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bus import verbs
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.api import ById, ExpectedManifest
from bus.states import JOB, JobState
from bus.text import clean_line
from modelforge import format as text
from modelforge.cli.session import wait_until
from modelforge.cli.uploads import upload

if TYPE_CHECKING:
    from bus.errors import Failure
    from bus.messages.artifacts import ArtifactSet, ScanProgress, ScanView
    from bus.operator import Operator
    from modelforge.cli.command import App
    from modelforge.cli.output import Progress
    from modelforge.expectation import Expected

# How far a scan is comes without an event: it is asked for.
REFRESH_S: Final = 0.5
_SHOWN_MAX: Final = 5


def read_expected(sums: Path | None, signature: Path | None, public_key: Path | None) -> Expected | None:
    """What the operator's files say that the folder holds; read before anything is sent.

    Raises:
        ModelForgeError: INVALID_ARGUMENT for options that do not go together or a malformed list, SIGNATURE_INVALID,
            DEPENDENCY_MISSING.
    """
    if sums is not None and signature is not None:
        message = "`--expect` and `--expect-signature` are two answers to one question"
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, message, hint="Give one of them.")
    if (signature is None) != (public_key is None):
        message = "a signature is checked with a key: `--expect-signature` and `--public-key` go together"
        raise ModelForgeError(ErrorCode.INVALID_ARGUMENT, message, hint="Give both, or neither.")
    if sums is not None:
        from modelforge.expectation import read_sums  # noqa: PLC0415 -- lazy: most scans expect nothing

        return read_sums(sums)
    if signature is not None and public_key is not None:
        from modelforge.signature import read_signature  # noqa: PLC0415 -- the same

        return read_signature(signature, public_key)
    return None


def check_path(path: str) -> None:
    """A node is told a path below its artifact root; where that root lies is the node's own affair.

    Raises:
        ModelForgeError: PATH_OUTSIDE_ROOT for an absolute path, before anything is sent.
    """
    if not path.startswith("/"):
        return
    example = PurePosixPath(path).name or "NAME"
    message = f"{path!r} is an absolute path: it must be relative to the node's artifact root"
    hint = f"For the folder {example} in that root: `modelforge artifact scan {shlex.quote(example)}`."
    raise ModelForgeError(ErrorCode.PATH_OUTSIDE_ROOT, message, hint=hint)


async def send_expected(operator: Operator, expected: Expected, progress: Progress) -> ExpectedManifest:
    """Upload the list and name it."""
    words = f"sending the list of {text.count(len(expected.entries), 'expected file')}"

    def told(sent_bytes: int) -> None:
        progress.measure(words, sent_bytes, len(expected.blob), text.size(sent_bytes))

    blob = await upload(operator, expected.blob, progress, told=told)
    return ExpectedManifest(kind=expected.kind, blob=blob, source_sha256=expected.source_sha256, key=expected.key)


async def follow_scan(operator: Operator, app: App, queued: ScanView, timeout_s: float | None) -> ScanView:
    """Wait for a scan's end, naming each state once and showing how far it is.

    Without `timeout_s` until the scan's own end: its job has a deadline, so there is always one.

    Raises:
        ModelForgeError: WAIT_TIMEOUT.
    """
    gauge = Gauge(app.out.progress)

    async def read() -> ScanView:
        view = await operator.call(verbs.SCANS_SHOW, ById(id=queued.id))
        gauge.tell(view)
        return view

    return await wait_until(
        operator,
        "scan",
        queued.id,
        read=read,
        done=lambda view: JOB.is_terminal(view.state),
        progress=app.out.progress,
        timeout_s=timeout_s,
        refresh_s=REFRESH_S,
    )


def state_words(view: ScanView) -> str:
    """The state as an operator thinks of it: whoever holds the job's lease runs it."""
    return f"running on {view.node}" if view.state == JobState.LEASED else str(view.state)


class Gauge:
    """A scan's progress in words."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._first: tuple[float, int] | None = None

    def tell(self, view: ScanView) -> None:
        """The state, or the step that the node is at."""
        at = view.progress
        if at is None or JOB.is_terminal(view.state):
            self._progress.phase(f"scan {view.id} of {view.node}:{view.path} {state_words(view)}")
            return
        words = str(at.step)  # the line above names the scan; this one must fit beside a bar
        if at.bytes_total:
            self._progress.measure(words, at.bytes_done, at.bytes_total, self._detail(at))
        else:
            self._progress.measure(words, at.files_done, at.files_total, text.count(at.files_done, "file"))

    def _detail(self, at: ScanProgress) -> str:
        files = f"{at.files_done}/{at.files_total} files"
        return f"{files} {text.size(at.bytes_done)}/{text.size(at.bytes_total)}{self._rate(at.bytes_done)}"

    def _rate(self, done_bytes: int) -> str:
        moment = time.monotonic()
        if self._first is None or done_bytes < self._first[1]:
            self._first = (moment, done_bytes)
        since, before = self._first
        if moment - since < REFRESH_S:
            return ""
        return f" {text.size(int((done_bytes - before) / (moment - since)))}/s"


async def scanned_set(operator: Operator, view: ScanView) -> ArtifactSet | None:
    """The set that came of a scan; `None` when there is none, or it cannot be read now."""
    if view.set_digest is None:
        return None
    try:
        return await operator.call(verbs.ARTIFACTS_SHOW, ById(id=view.set_digest))
    except ModelForgeError:
        return None


def scan_record(view: ScanView, found: ArtifactSet | None) -> dict[str, Any]:
    """The scan as data, with the size of what it found."""
    sizes = {"file_count": found.file_count, "size_bytes": found.size_bytes} if found is not None else {}
    return {**msgspec.to_builtins(view), **sizes}


def left_out(expected: Expected) -> str:
    """What a signature says nothing of; the names are the signer's, so they are cleaned and counted."""
    shown = [clean_line(name) for name in expected.ignored[:_SHOWN_MAX]]
    more = len(expected.ignored) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def scan_error(failure: Failure, expected: Expected | None) -> ModelForgeError:
    """Why a scan failed; of a signature that leaves files out, what can be done about those."""
    error = ModelForgeError.from_failure(failure)
    if error.code is not ErrorCode.EXPECTED_MANIFEST_MISMATCH or expected is None or not expected.ignored:
        return error
    hint = f"{error.hint} The signature leaves out {left_out(expected)}: what it says nothing of must not be there."
    return ModelForgeError(error.code, error.message, hint=hint, **error.context)


def scan_card(view: ScanView, found: ArtifactSet | None) -> str:
    """A scan on the screen."""
    pairs: list[tuple[str, object]] = [
        ("scan", view.id),
        ("node", view.node),
        ("path", view.path),
        ("state", state_words(view)),
        ("set", view.set_digest or text.NOTHING),
    ]
    if view.progress is not None and not JOB.is_terminal(view.state):
        at = view.progress
        files = f"{at.files_done} of {text.count(at.files_total, 'file')}"
        amount = f"{text.size(at.bytes_done)} of {text.size(at.bytes_total)}"
        pairs.append(("progress", f"{at.step}: {files}, {amount}"))
    if found is not None:
        pairs.append(("holds", f"{text.count(found.file_count, 'file')}, {text.size(found.size_bytes)}"))
        held = [one for one in found.quarantined if one.released_by is None]
        if held:
            pairs.append(("quarantined", "\n".join(f"{one.path}: {one.reason}" for one in held[:_SHOWN_MAX])))
    if view.expected_sha256 is not None:
        outcome = "equals" if view.set_digest else "to be compared with"
        pairs.append(("expected", f"{outcome} the list {text.short(view.expected_sha256)}"))
    if view.failure is not None:
        pairs.append(("failure", f"{view.failure.code}: {view.failure.message}"))
    return text.card(pairs, indent=0)
