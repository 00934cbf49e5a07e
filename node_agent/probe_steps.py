"""The steps of one probe with its child, from the manifest to the child's own end (design section 3, steps 5 and 6)."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from adapters.child.protocol import (
    Bootstrap,
    Checked,
    ChildFailed,
    Isolated,
    Loaded,
    Prepared,
    Probed,
    Proceed,
    Unloaded,
    UpFrame,
    Violation,
)
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.artifacts import Manifest
from bus.messages.evidence import SamplePoint
from bus.messages.jobs import ProbeJob
from bus.messages.profiles import RuntimeEnvironment
from bus.states import ProbeState
from node_agent.artifact_hash import Watch
from node_agent.artifact_root import Listing, check_relative
from node_agent.artifact_verify import still_the_same, verify_manifest
from node_agent.attempt import in_thread
from node_agent.byte_words import size_of
from node_agent.job_check import check_job
from node_agent.probe_record import ProbeRecord
from node_agent.probe_sampler import ProbeSampler
from node_agent.worker import Child, ChildFactory, ChildGone

_MIB: Final = 1024 * 1024
# A violation is the verdict; this long the child may still say what else it tried, and write its log.
VIOLATION_GRACE_S: Final = 1.0
START_GRACE_S: Final = 1.0
# A library that tries again and again says nothing new.
MAX_REFUSED_ATTEMPTS: Final = 100
_log = logging.getLogger(__name__)


class VerifyWatch(Watch):
    """The reins of a verification, which know how far it is."""

    def __init__(self, threads: int, total_bytes: int) -> None:
        super().__init__(threads)
        self.total_bytes = total_bytes
        self.verified_bytes = 0
        self._lock = threading.Lock()

    def advance(self, *, files: int = 0, size_bytes: int = 0) -> None:  # noqa: ARG002 -- only bytes are told of here
        """See `Watch.advance`."""
        with self._lock:
            self.verified_bytes += size_bytes


F = TypeVar("F", Isolated, Prepared, Loaded, Probed, Checked, Unloaded)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an attempt works on this node; no path of it is ever reported. `environment` may block for a moment."""

    artifact_root: Path
    scratch: Path
    hash_threads: int
    environment: Callable[[], RuntimeEnvironment]


class ProbeSteps:
    """One attempt. `run` goes through the steps; after it, whatever came of it, call `end_child` and look at `child`."""

    def __init__(
        self,
        job: ProbeJob,
        factory: ChildFactory,
        place: Place,
        record: ProbeRecord,
        sampler: ProbeSampler,
        enter: Callable[[ProbeState], None],
        fetch: Callable[[], Awaitable[Manifest]],
    ) -> None:
        """`enter` is told of each phase as it begins; `fetch` gets the manifest when the job is without it."""
        self.child: Child | None = None
        self._job = job
        self._factory = factory
        self._place = place
        self._record = record
        self._sampler = sampler
        self._enter = enter
        self._fetch = fetch
        self._listing: Listing | None = None
        self._starting: asyncio.Future[Child] | None = None
        self._violation: Violation | None = None
        self._phase_ends_s = 0.0
        # While every byte is read again.
        self._verifying: VerifyWatch | None = None

    async def run(self) -> None:
        """All steps in order, each phase within its budget.

        Raises:
            ModelForgeError: the failure of the first step that failed (spec P9).
        """
        budgets = self._job.profile.budgets
        async with self._phase("preparing", budgets.preparing_s):
            await self._verify()
            await self._sampler.take(SamplePoint.BASELINE, None)
            child = await self._start_child()
            await self._sampler.take(SamplePoint.BEFORE_LOAD, child.pid)
        self._enter(ProbeState.LOADING)
        async with self._phase("loading", budgets.loading_s):
            self._record.loaded = await self._step(child, Loaded)
            await self._sampler.take(SamplePoint.AFTER_LOAD, child.pid)
        self._enter(ProbeState.HEALTHCHECKING)
        async with self._phase("healthchecking", budgets.healthchecking_s):
            await self._sampler.take(SamplePoint.BEFORE_INFERENCE, child.pid)
            self._record.probed = await self._step(child, Probed)
            await self._sampler.take(SamplePoint.AFTER_INFERENCE, child.pid)
            self._record.checked = await self._step(child, Checked)
            # The files may have been replaced between their digests and the load.
            await self._verify_again()
        self._enter(ProbeState.READY)
        self._enter(ProbeState.UNLOADING)
        async with self._phase("unloading", budgets.unloading_s):
            self._record.unloaded = await self._step(child, Unloaded)
            await self._see_it_exit(child)

    async def end_child(self, grace_s: float) -> None:
        """End the child, if there is one, also one that is just being started; afterwards it is reaped.

        Raises:
            ModelForgeError: NODE_FAULT when not even SIGKILL ended it.
        """
        starting, self._starting = self._starting, None
        if starting is not None and self.child is None:
            # A process comes within milliseconds; only a template's first imports take longer, and have no child yet.
            await asyncio.wait((starting,), timeout=START_GRACE_S)
            starting.cancel()
            await asyncio.wait((starting,))
            if not starting.cancelled() and starting.exception() is None:
                self.child = starting.result()
        if self.child is not None:
            await self.child.terminate(grace_s)

    async def _verify(self) -> None:
        began = time.perf_counter()
        job, root = self._job, self._place.artifact_root
        manifest = job.manifest if job.manifest is not None else await self._fetch()
        check_job(job, manifest, await asyncio.to_thread(self._place.environment))
        # Every byte is read again: what a scan remembers of a file is no proof of what lies there now (spec P5).
        watch = self._verifying = VerifyWatch(self._place.hash_threads, manifest.size_bytes)
        self._listing = await in_thread(watch, lambda: verify_manifest(root, job.location, manifest, watch))
        self._verifying = None
        self._record.verify_ms = _elapsed_ms(began)

    async def _verify_again(self) -> None:
        if self._listing is None:
            raise ModelForgeError(ErrorCode.INTERNAL, "the files were not verified")
        await asyncio.to_thread(still_the_same, self._place.artifact_root, self._job.location, self._listing)

    async def _start_child(self) -> Child:
        profile = self._job.profile
        if profile.device == "cuda" and self._sampler.gpu_uuid is None:
            reason = self._sampler.gpu_reason or "no card"
            raise ModelForgeError(ErrorCode.RUNTIME_INCOMPATIBLE, f"the profile needs a GPU: {reason}")
        began = time.perf_counter()
        self._starting = asyncio.ensure_future(
            self._factory.start(
                profile.adapter,
                start_method=self._job.start_method,
                scratch=self._place.scratch,
                memory_limit_bytes=profile.memory_limit_mib * _MIB,
                threads=profile.threads,
            )
        )
        # Shielded: a child that is born while the attempt is being ended must not be lost, see `end_child`.
        child = self.child = await asyncio.shield(self._starting)
        self._record.start_method = child.start_method
        self._record.fallback_reason = child.fallback_reason
        model = self._place.artifact_root / check_relative(self._job.location)
        await child.send(
            Bootstrap(
                adapter=profile.adapter,
                probe_type=self._job.probe_type,
                model_path=str(model),
                scratch_path=str(self._place.scratch),
                # The very card that is sampled: "the first one" may be another in the driver's order than in CUDA's.
                profile=msgspec.structs.replace(profile, gpu_uuid=self._sampler.gpu_uuid),
            )
        )
        self._record.isolated = await self._frame(child, Isolated)
        await self._step(child, Prepared)
        self._record.start_ms = _elapsed_ms(began)
        return child

    async def _see_it_exit(self, child: Child) -> None:
        """Process death is the unload boundary (spec P6), and the child's own orderly one is a part of the proof."""
        status = await child.wait(self._phase_ends_s - time.monotonic())
        if status is None:
            raise TimeoutError
        if status.code != 0 or status.sent_by_us:
            raise ModelForgeError(
                ErrorCode.RUNTIME_CRASH,
                f"the child ended with {status.text} after it had unloaded",
                exit_status=status.text,
            )
        self._record.clean_exit = True

    async def _step(self, child: Child, kind: type[F]) -> F:
        """Let the child do the next step and return its answer."""
        try:
            await child.send(Proceed())
        except ChildGone:
            # It may have said why before it left; the reader of frames knows.
            _log.debug("the child left before the next step")
        return await self._frame(child, kind)

    async def _frame(self, child: Child, kind: type[F]) -> F:
        while True:
            frame = await self._next(child)
            match frame:
                case Violation():
                    self._note(frame)
                case _ if self._violation is not None:
                    raise self._offline_violation(self._violation)
                case ChildFailed():
                    raise _failure_of(frame)
                case _ if isinstance(frame, kind):
                    return frame
                case _:
                    got = type(frame).__name__
                    raise ModelForgeError(ErrorCode.NODE_FAULT, f"the child answered {got} instead of {kind.__name__}")

    async def _next(self, child: Child) -> UpFrame:
        left_s = max(0.0, self._phase_ends_s - time.monotonic())
        try:
            return await child.receive(left_s)
        except (TimeoutError, ChildGone) as error:
            if self._violation is not None:
                raise self._offline_violation(self._violation) from error
            if isinstance(error, TimeoutError):
                raise
            raise await self._crash(child) from error

    def _note(self, violation: Violation) -> None:
        if len(self._record.refused_attempts) < MAX_REFUSED_ATTEMPTS:
            self._record.refused_attempts.append(f"{violation.call} ({violation.family})")
        if violation.breaks_offline and self._violation is None:
            self._violation = violation
            self._phase_ends_s = min(self._phase_ends_s, time.monotonic() + VIOLATION_GRACE_S)

    def _offline_violation(self, violation: Violation) -> ModelForgeError:
        message = f"the runtime tried to use the network: {violation.call} ({violation.family}); it was refused"
        return ModelForgeError(ErrorCode.OFFLINE_LOAD_VIOLATION, message, call=violation.call)

    async def _crash(self, child: Child) -> ModelForgeError:
        """The child closed its channel without a word: how did it end?"""
        status = await child.wait(VIOLATION_GRACE_S)
        self._record.died = True
        how = status.text if status is not None else "a closed channel"
        return ModelForgeError(
            ErrorCode.RUNTIME_CRASH, f"the child process ended with {how}, without a report", exit_status=how
        )

    @asynccontextmanager
    async def _phase(self, name: str, budget_s: float) -> AsyncIterator[None]:
        self._phase_ends_s = time.monotonic() + budget_s
        try:
            async with asyncio.timeout(budget_s):
                yield
        except TimeoutError as error:
            raise _too_long(name, budget_s, self._verifying) from error


def _too_long(phase: str, budget_s: float, verifying: VerifyWatch | None) -> ModelForgeError:
    """A phase's time is up; when the set was still being read, how much of it was."""
    message = f"{phase} took longer than {budget_s:g} s"
    if verifying is None:
        return ModelForgeError(ErrorCode.TIMEOUT, message, phase=phase, budget_s=budget_s)
    done = size_of(verifying.verified_bytes, verifying.total_bytes)
    return ModelForgeError(
        ErrorCode.TIMEOUT,
        f"{message}: {done} were verified by then; give the profile more preparing_s",
        phase=phase,
        budget_s=budget_s,
        verified_bytes=verifying.verified_bytes,
        total_bytes=verifying.total_bytes,
    )


def _failure_of(frame: ChildFailed) -> ModelForgeError:
    """The child's own report; a code that this version does not know is a defect of the node, and kept."""
    try:
        code = ErrorCode(frame.code)
    except ValueError:
        code = ErrorCode.NODE_FAULT
    return ModelForgeError(code, frame.message, stage=frame.stage, exception=frame.exception, child_code=frame.code)


def _elapsed_ms(began: float) -> float:
    return (time.perf_counter() - began) * 1_000
