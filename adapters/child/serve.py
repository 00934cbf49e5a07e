"""One child's life: isolate, prepare, load, probe, health, unload, exit. One frame up for each step."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from adapters import registry
from adapters.base import ModelRequest, RuntimeAdapter
from adapters.child import barrier, guard, limits
from adapters.child.channel import Channel, ParentGone
from adapters.child.environment import folders, foreign_names, offline_faults
from adapters.child.failures import normalise
from adapters.child.file_rules import FileRules
from adapters.child.protocol import (
    Bootstrap,
    Checked,
    Isolated,
    Loaded,
    Prepared,
    Probed,
    Proceed,
    Stage,
    Unloaded,
    UpFrame,
    Violation,
)
from adapters.child.template_protocol import ChildOptions
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.evidence import Layer, Output

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_PARENT_GONE: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Inherited:
    """What a forked child has from its template.

    Attributes:
        watch: the guard.
        environment_faults: what the template's first environment was wrong in.
        import_barrier: what stood while the template imported the libraries.
    """

    watch: guard.Guard
    environment_faults: tuple[str, ...]
    import_barrier: Layer


class Session:
    """The steps of one probe, each started by a `Proceed`."""

    def __init__(self, channel: Channel, options: ChildOptions, bootstrap: Bootstrap, watch: guard.Guard) -> None:
        self._channel, self._options, self._bootstrap, self._guard = channel, options, bootstrap, watch
        self._adapter: RuntimeAdapter | None = None
        self._output: Output | None = None
        self._repeatable = True
        self.stage: Stage = "prepare"

    @property
    def opened_outside(self) -> bool:
        """Was a file outside the set refused, and nothing of the network?"""
        return self._guard.file_attempts > 0 and self._guard.network_attempts == 0

    def run(self) -> None:
        """All steps in order. Raises whatever a step raises."""
        for step in (self._prepare, self._load, self._probe, self._health, self._unload):
            if not isinstance(self._channel.receive(), Proceed):
                raise ModelForgeError(ErrorCode.MALFORMED_MESSAGE, "a second bootstrap")
            frame = step()
            if self._guard.network_attempts:
                # The library swallowed the refusal, or made the call in a thread of its own.
                raise ModelForgeError(ErrorCode.OFFLINE_LOAD_VIOLATION, "the network was used and refused")
            if self._guard.file_attempts:
                raise outside_the_set()
            self._channel.send(frame)

    def _prepare(self) -> UpFrame:
        begin = time.perf_counter()
        profile = self._bootstrap.profile
        _show_devices(profile.gpu_uuid if profile.device == "cuda" else "")
        adapter = registry.make(self._bootstrap.adapter, test_double=self._options.test_double)
        problems = adapter.inspect_support(profile)
        if problems:
            raise ModelForgeError(ErrorCode.RUNTIME_INCOMPATIBLE, "; ".join(problems))
        self.stage = "import"
        request = ModelRequest(
            model_path=Path(self._bootstrap.model_path),
            scratch_path=Path(self._bootstrap.scratch_path),
            profile=profile,
        )
        adapter.prepare(request)
        self._adapter = adapter
        return Prepared(import_ms=_elapsed_ms(begin))

    def _load(self) -> UpFrame:
        self.stage = "load"
        # Not before: a fresh child has just imported its libraries, from wherever they lie.
        self._guard.confine(FileRules.of(Path(self._bootstrap.model_path), Path(self._bootstrap.scratch_path)))
        begin = time.perf_counter()
        report = self._ready_adapter().start()
        load_ms = _elapsed_ms(begin)
        return Loaded(
            load_ms=load_ms,
            device=report.device,
            max_sequence_length=report.max_sequence_length,
            allocator_bytes=report.allocator_bytes,
            facts=self._ready_adapter().collect_runtime_facts(),
        )

    def _probe(self) -> UpFrame:
        self.stage = "probe"
        report = self._ready_adapter().probe()
        self._output, self._repeatable = report.output, report.repeatable
        return Probed(
            output=report.output,
            inference_ms=report.inference_ms,
            repeat_inference_ms=report.repeat_inference_ms,
            allocator_peak_bytes=report.allocator_peak_bytes,
        )

    def _health(self) -> UpFrame:
        self.stage = "health"
        _refuse_bad_output(self._output, repeatable=self._repeatable)
        return Checked(health=self._ready_adapter().health())

    def _unload(self) -> UpFrame:
        self.stage = "unload"
        begin = time.perf_counter()
        adapter = self._ready_adapter()
        adapter.stop()
        adapter.unload()
        return Unloaded(unload_ms=_elapsed_ms(begin))

    def _ready_adapter(self) -> RuntimeAdapter:
        if self._adapter is None:
            raise ModelForgeError(ErrorCode.INTERNAL, "the adapter was not prepared")
        return self._adapter


def serve(channel: Channel, options: ChildOptions, inherited: Inherited | None = None) -> int:
    """Run one probe and return the exit code.

    Args:
        channel: the stream to the agent.
        options: the bounds of this child.
        inherited: what the template passes on, when this process was forked from one.
    """
    stage: Stage = "isolate"
    session: Session | None = None
    try:
        isolated, watch = isolate(channel, options, inherited)
        bootstrap = channel.receive()
        if not isinstance(bootstrap, Bootstrap):
            raise ModelForgeError(ErrorCode.MALFORMED_MESSAGE, "the first frame is no bootstrap")  # noqa: TRY301 -- the converter below is the edge
        channel.send(isolated)
        session = Session(channel, options, bootstrap, watch)
        session.run()
    except ParentGone:
        return EXIT_PARENT_GONE
    except BaseException as error:  # noqa: BLE001 -- the edge of the process: whatever it is becomes a code here
        refused = session is not None and session.opened_outside and not isinstance(error, guard.GuardRefusal)
        told = outside_the_set() if refused else error
        failed = normalise(told, session.stage if session is not None else stage)
        _log_exception(error)
        try:
            channel.send(failed)
        except ParentGone:
            return EXIT_PARENT_GONE
        return EXIT_FAILED
    return EXIT_OK


def outside_the_set() -> ModelForgeError:
    """The error of a model that wants files beside its own; it names none of them."""
    message = "the runtime tried to open a file outside the approved set; it was refused"
    return ModelForgeError(ErrorCode.MODEL_LOAD_FAILED, message)


def isolate(channel: Channel, options: ChildOptions, inherited: Inherited | None) -> tuple[Isolated, guard.Guard]:
    """Put every layer up, in the one order that works, and say which of them really stand.

    The namespace needs a process with one thread; it and nothing later may change credentials, which would disarm
    the parent-death signal; the filter forbids what the namespace needs.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a Python handler does not run inside one long C call
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable(file=2, all_threads=True)
    layers = [limits.own_session(), limits.close_inherited({channel.descriptor}), limits.no_core_files()]
    _use_scratch(options)
    # A library sets variables of its own when it is imported; so a forked child asks what its template started with.
    foreign = foreign_names(os.environ) if inherited is None else inherited.environment_faults
    faults = [*offline_faults(os.environ), *foreign]
    layers.append(
        Layer(
            name="scrubbed_environment",
            active=not faults,
            detail="; ".join(faults) or "allow-listed, offline variables set",
        )
    )
    limits.die_with_parent(options.parent_pid)
    layers.append(barrier.enter_network_namespace())
    layers.append(limits.die_with_parent(options.parent_pid))
    layers.append(limits.limit_memory(options.memory_limit_bytes))
    layers.extend(barrier.install_filter(processes=True))
    watch, layer = _put_guard(channel, inherited)
    layers.append(layer)
    layers.append(barrier.imported_behind(layers) if inherited is None else inherited.import_barrier)
    return barrier.summarise(os.getpid(), tuple(layers)), watch


def _put_guard(channel: Channel, inherited: Inherited | None) -> tuple[guard.Guard, Layer]:
    """Install or take over the guard, try it once with nobody listening, then connect it to the channel."""

    def report(call: str, family: str) -> None:
        os.write(2, f"refused {call} ({family})\n".encode())
        channel.send(Violation(call=call, family=family))

    def unheard(_call: str, _family: str) -> None:
        """The trial is no attempt of a library."""

    if inherited is None:
        watch = guard.install(unheard, processes=True)
    else:
        watch = inherited.watch
        watch.retarget(unheard, processes=True)
    active = False
    try:
        sys.audit("socket.getaddrinfo", "guard.invalid", 0, 0, 0, 0)
    except guard.GuardRefusal:
        active = True
    watch.retarget(report, processes=True)
    return watch, Layer(name="audit_guard", active=active, detail="refuses and reports network calls of Python code")


def _use_scratch(options: ChildOptions) -> None:
    os.chdir(options.scratch_path)
    os.environ.update(folders(options.scratch_path))
    os.environ["OMP_NUM_THREADS"] = str(options.threads)  # a forked child has its libraries already; see the adapter
    tempfile.tempdir = None


def _show_devices(uuid: str | None) -> None:
    """Make exactly one card visible by its UUID, or none; `None` leaves the choice to the driver.

    An index would name another card in another library's order. It must be set before CUDA is first touched.
    """
    if uuid is None:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = uuid


def _refuse_bad_output(output: Output | None, *, repeatable: bool) -> None:
    if output is None or output.vector_length == 0:
        raise ModelForgeError(ErrorCode.INVALID_OUTPUT, "the vector is empty")
    if not output.finite:
        raise ModelForgeError(ErrorCode.INVALID_OUTPUT, "the vector holds a value that is not finite")
    if output.norm == 0.0:
        raise ModelForgeError(ErrorCode.INVALID_OUTPUT, "the vector is zero")
    if not repeatable:
        raise ModelForgeError(ErrorCode.INVALID_OUTPUT, "the same input gave another vector the second time")


def _log_exception(error: BaseException) -> None:
    """The whole story goes to the bounded, redacted log; the frame has the code only."""
    if not isinstance(error, ModelForgeError):
        os.write(2, "".join(traceback.format_exception(error)).encode(errors="backslashreplace"))


def _elapsed_ms(begin: float) -> float:
    return (time.perf_counter() - begin) * 1_000
