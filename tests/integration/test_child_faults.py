"""Children that misbehave, by both ways of starting: every end is known, nothing leaves, nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from adapters.child.limits import open_descriptors
from adapters.child.protocol import Isolated, Loaded, Prepared, Probed, Proceed, Violation
from adapters.payloads import EMBEDDING_INPUT
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.gates import StartMethod
from node_agent.template_host import TemplateHost
from node_agent.template_process import NotForkableError
from node_agent.worker import ChildFactory, ChildGone, WorkerSettings
from tests.support.children import Story, begin, faulty_model, play, profile
from tests.support.listener import listening
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
WAYS: tuple[StartMethod, ...] = ("fresh", "template")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def factory() -> AsyncIterator[ChildFactory]:
    made = ChildFactory(WorkerSettings(test_double=True))
    yield made
    await made.close()


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> StartMethod:
    found: StartMethod = request.param
    return found


async def run(
    factory: ChildFactory, tmp_path: Path, way: StartMethod, *faults: dict[str, object], **changes: Any
) -> Story:
    model = faulty_model(tmp_path / "model", *faults)
    return await play(factory, model, tmp_path / "scratch", run=profile("faulty"), start_method=way, **changes)


def fault(stage: str, kind: str, amount: int = 0, text: str = "") -> dict[str, object]:
    return {"stage": stage, "kind": kind, "amount": amount, "text": text}


@pytest.mark.req("P6")
async def test_a_good_child_ends_by_itself(factory: ChildFactory, tmp_path: Path, way: StartMethod) -> None:
    story = await run(factory, tmp_path, way)
    assert story.kinds == ["Isolated", "Prepared", "Loaded", "Probed", "Checked", "Unloaded"]
    assert story.child.start_method == way
    assert story.child.fallback_reason is None
    assert story.status is not None
    assert (story.status.text, story.status.sent_by_us) == ("exit 0", False)
    assert story.child.gone
    isolated = story.one(Isolated)
    assert isolated.pid == story.child.pid
    layers = {layer.name: layer for layer in isolated.layers}
    expected = {
        "own_session",
        "closed_descriptors",
        "no_core_file",
        "scrubbed_environment",
        "parent_death_signal",
        "memory_limit",
        "seccomp_sockets",
        "seccomp_processes",
        "audit_guard",
        "import_barrier",
    }
    assert {name for name, layer in layers.items() if layer.active} >= expected
    assert isolated.containment == "seccomp_processes"
    assert "seccomp_sockets" in isolated.egress_barrier.split("+")
    assert ("network_namespace" in isolated.egress_barrier.split("+")) == layers["network_namespace"].active


@pytest.mark.req("P6")
@pytest.mark.parametrize(
    ("kind", "amount", "text"),
    [
        ("crash", int(signal.SIGSEGV), "signal 11 (SIGSEGV)"),
        ("crash", int(signal.SIGKILL), "signal 9 (SIGKILL)"),
        ("exit", 7, "exit 7"),
    ],
)
async def test_a_crash_is_an_end_without_report(
    factory: ChildFactory, tmp_path: Path, way: StartMethod, kind: str, amount: int, text: str
) -> None:
    story = await run(factory, tmp_path, way, fault("load", kind, amount))
    assert story.kinds == ["Isolated", "Prepared"]
    assert story.status is not None
    assert (story.status.text, story.status.sent_by_us) == (text, False)
    if amount == signal.SIGSEGV:
        assert "Fatal Python error: Segmentation fault" in story.child.log.text()


@pytest.mark.req("P10")
@pytest.mark.parametrize(("kind", "text"), [("hang", "signal 15 (SIGTERM)"), ("hang_deaf", "signal 9 (SIGKILL)")])
async def test_a_child_that_hangs_is_ended(
    factory: ChildFactory, tmp_path: Path, way: StartMethod, kind: str, text: str
) -> None:
    model = faulty_model(tmp_path / "model", fault("load", kind))
    child = await begin(factory, model, tmp_path / "scratch", run=profile("faulty"), start_method=way)
    for expected in (Isolated, Prepared):
        assert isinstance(await child.receive(20), expected)
        await child.send(Proceed())
    with pytest.raises(TimeoutError):
        await child.receive(0.3)
    assert await child.wait(0.01) is None
    status = await child.terminate(0.3)
    assert (status.text, status.sent_by_us) == (text, True)
    assert child.gone
    assert await child.terminate(0.3) == status
    with pytest.raises(ChildGone):
        await child.send(Proceed())


@pytest.mark.req("P9")
@pytest.mark.req("P12")
async def test_exception_text_stays_in_the_cleaned_log(factory: ChildFactory, tmp_path: Path, way: StartMethod) -> None:
    token = "hf_" + "k" * 30
    story = await run(
        factory, tmp_path, way, fault("load", "leak_input"), fault("load", "raise", text=f"bad token={token} here")
    )
    assert (story.failure.code, story.failure.stage) == ("MODEL_LOAD_FAILED", "load")
    assert story.failure.message == "RuntimeError while the model was loaded"
    log = story.child.log.text()
    assert "RuntimeError: bad token=[redacted] here" in log
    assert "could not tokenize [probe input]" in log
    assert token not in log
    assert EMBEDDING_INPUT not in log
    assert story.status is not None
    assert story.status.text == "exit 1"


@pytest.mark.req("P12")
async def test_noise_on_stdout_breaks_no_frame_and_is_bounded(
    factory: ChildFactory, tmp_path: Path, way: StartMethod
) -> None:
    story = await run(factory, tmp_path, way, fault("load", "noisy", 2_000_000), fault("health", "noisy", 200_000))
    assert story.kinds[-1] == "Unloaded"
    assert len(story.child.log.text()) <= 70_000
    assert story.child.log.dropped_bytes > 1_900_000


async def test_too_much_memory_is_a_typed_end(factory: ChildFactory, tmp_path: Path, way: StartMethod) -> None:
    story = await run(factory, tmp_path, way, fault("load", "memory", 600 * 1024**2), memory_limit_bytes=300 * 1024**2)
    assert (story.failure.code, story.failure.stage) == ("RUNTIME_CRASH", "load")
    assert "host_memory" in story.failure.message


@pytest.mark.req("P9")
@pytest.mark.parametrize("kind", ["nan", "zero", "unstable"])
async def test_an_answer_that_means_nothing_is_invalid(factory: ChildFactory, tmp_path: Path, kind: str) -> None:
    story = await run(factory, tmp_path, "template", fault("probe", kind))
    assert story.failure.code == "INVALID_OUTPUT"
    assert story.one(Probed).output.repeat_identical == (kind != "unstable")


@pytest.mark.req("P11")
@pytest.mark.parametrize("stage", ["import", "load", "probe"])
@pytest.mark.parametrize(
    ("kind", "seen"),
    [
        ("connect", ["socket.getaddrinfo name"]),
        ("connect_swallowed", ["socket.getaddrinfo name"]),
        ("connect_in_thread", ["socket.getaddrinfo name"]),
        ("resolve", ["socket.getaddrinfo name"]),
    ],
)
async def test_network_calls_of_python_are_a_violation_whatever_the_library_makes_of_it(
    factory: ChildFactory, tmp_path: Path, stage: str, kind: str, seen: list[str]
) -> None:
    with listening() as listener:
        story = await run(factory, tmp_path, "template", fault(stage, kind, listener.port))
        assert listener.visitors() == 0
    assert story.violations == seen
    assert all(frame.breaks_offline for frame in story.frames if isinstance(frame, Violation))
    assert (story.failure.code, story.failure.stage) == ("OFFLINE_LOAD_VIOLATION", stage)
    assert "refused socket.getaddrinfo" in story.child.log.text()


@pytest.mark.req("P11")
@pytest.mark.parametrize("kind", ["connect", "connect_native", "subprocess", "fork_native"])
async def test_nothing_arrives_from_a_child(factory: ChildFactory, tmp_path: Path, way: StartMethod, kind: str) -> None:
    """Also not by a C library's own connect, nor by another process."""
    with listening() as listener:
        story = await run(factory, tmp_path, way, fault("load", kind, listener.port))
        assert listener.visitors() == 0
    log = story.child.log.text()
    if kind == "connect_native":
        assert "native socket -1" in log
        assert story.kinds[-1] == "Unloaded"
    if kind == "subprocess":
        assert "subprocess.Popen process" in story.violations
        assert not any(frame.breaks_offline for frame in story.frames if isinstance(frame, Violation))
        assert "subprocess refused" in log
    if kind == "fork_native":
        assert "native fork -1" in log
    assert story.child.gone


@pytest.mark.req("P14")
@pytest.mark.parametrize("adapter", ["vllm", "nothing"])
async def test_an_adapter_that_cannot_run_starts_nothing(
    factory: ChildFactory, tmp_path: Path, way: StartMethod, adapter: str
) -> None:
    with pytest.raises(ModelForgeError) as caught:
        await factory.start(adapter, start_method=way, scratch=tmp_path, memory_limit_bytes=1 << 30, threads=1)
    assert caught.value.code == ErrorCode.RUNTIME_INCOMPATIBLE


async def test_the_double_is_unknown_where_it_was_not_asked_for(tmp_path: Path) -> None:
    strict = ChildFactory(WorkerSettings())
    with pytest.raises(ModelForgeError) as caught:
        await strict.start("faulty", start_method="fresh", scratch=tmp_path, memory_limit_bytes=1 << 30, threads=1)
    assert caught.value.code == ErrorCode.RUNTIME_INCOMPATIBLE
    await strict.close()


async def test_nothing_is_left_open(factory: ChildFactory, tmp_path: Path, way: StartMethod) -> None:
    await run(factory, tmp_path / "warm", way)
    before = open_descriptors()
    for number, kind in enumerate(("crash", "raise", "exit")):
        await run(factory, tmp_path / str(number), way, fault("load", kind))
    assert open_descriptors() == before


async def test_an_interpreter_that_is_not_there_is_a_fault_of_the_node(tmp_path: Path, way: StartMethod) -> None:
    before = open_descriptors()
    broken = ChildFactory(WorkerSettings(test_double=True), python=str(tmp_path / "python"))
    with pytest.raises(ModelForgeError) as caught:
        await broken.start("faulty", start_method=way, scratch=tmp_path, memory_limit_bytes=1 << 30, threads=1)
    assert caught.value.code == ErrorCode.NODE_FAULT
    await broken.close()
    assert open_descriptors() == before


async def test_a_template_that_dies_at_once_is_a_fault_of_the_node(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = open_descriptors()
    broken = ChildFactory(WorkerSettings(test_double=True), python="/bin/ls")
    with pytest.raises(ModelForgeError) as caught:
        await broken.start("faulty", start_method="template", scratch=tmp_path, memory_limit_bytes=1 << 30, threads=1)
    assert caught.value.code == ErrorCode.NODE_FAULT
    assert "ls: " in caplog.text  # what it said is not lost
    await broken.close()
    assert open_descriptors() == before


@pytest.mark.req("P6")
async def test_where_forking_is_not_safe_a_fresh_interpreter_is_started_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise NotForkableError("the libraries started 3 threads while they were imported")

    monkeypatch.setattr(TemplateHost, "fork", refuse)
    own = ChildFactory(WorkerSettings(test_double=True))
    story = await run(own, tmp_path, "template")
    assert story.kinds[-1] == "Unloaded"
    assert story.child.start_method == "fresh"
    assert story.child.fallback_reason == "the libraries started 3 threads while they were imported"
    await own.close()


BLIND = """
import os, sys
from adapters.child import seccomp
real = seccomp.install
def install(*, processes):
    if not processes:
        raise OSError(38, "this kernel has no filter")
    real(processes=processes)
seccomp.install = install
from adapters.child.__main__ import main
os._exit(main(sys.argv[4:]))
"""


@pytest.mark.req("P11")
async def test_libraries_that_were_imported_without_a_filter_are_said_to_be(tmp_path: Path) -> None:
    python = tmp_path / "python"
    (tmp_path / "blind.py").write_text(BLIND)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -P {tmp_path}/blind.py "$@"\n')
    python.chmod(0o755)
    own = ChildFactory(WorkerSettings(test_double=True), python=str(python))
    story = await run(own, tmp_path, "template")
    await own.close()
    assert story.kinds[-1] == "Unloaded"
    layers = {layer.name: layer for layer in story.one(Isolated).layers}
    assert not layers["import_barrier"].active
    assert "this kernel has no filter" in layers["import_barrier"].detail
    assert layers["seccomp_sockets"].active


async def test_an_idle_template_ends_and_a_wanted_one_comes_back(tmp_path: Path) -> None:
    short = ChildFactory(WorkerSettings(test_double=True, template_idle_s=0.2))
    model = faulty_model(tmp_path / "model", fault("load", "slow", 600))
    first = await play(short, model, tmp_path / "a", run=profile("faulty"), start_method="template")
    assert first.kinds[-1] == "Unloaded"  # not ended while it had a child
    await until(lambda: short.template_pid("faulty") is None, "the idle template is let go")
    second = await play(
        short, faulty_model(tmp_path / "model"), tmp_path / "b", run=profile("faulty"), start_method="template"
    )
    assert second.kinds[-1] == "Unloaded"
    await short.close()
    assert short.template_pid("faulty") is None


async def test_children_die_with_their_template_and_the_next_one_gets_a_new_template(tmp_path: Path) -> None:
    own = ChildFactory(WorkerSettings(test_double=True))
    model = faulty_model(tmp_path / "model", fault("load", "hang"))
    child = await begin(own, model, tmp_path / "scratch", run=profile("faulty"), start_method="template")
    assert isinstance(await child.receive(20), Isolated)
    template = own.template_pid("faulty")
    assert template is not None
    os.kill(template, signal.SIGKILL)
    status = await child.wait(10)
    assert status is not None
    assert (status.text, status.sent_by_us) == ("ended, status unknown", False)
    await child.terminate(1)
    assert child.gone
    story = await play(
        own, faulty_model(tmp_path / "good"), tmp_path / "scratch", run=profile("faulty"), start_method="template"
    )
    assert story.kinds[-1] == "Unloaded"
    assert own.template_pid("faulty") not in {None, template}
    await own.close()


async def test_a_start_that_is_given_up_leaves_no_child(tmp_path: Path) -> None:
    own = ChildFactory(WorkerSettings(test_double=True))
    start = asyncio.create_task(
        own.start("faulty", start_method="template", scratch=tmp_path, memory_limit_bytes=1 << 30, threads=1)
    )
    await until(lambda: own.template_pid("faulty") is not None, "the template is started")
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    template = own.template_pid("faulty")
    children = Path(f"/proc/{template}/task/{template}/children")
    await own.warm("faulty")
    await until(lambda: not children.read_text().strip(), "no child is left of the template")
    await own.close()


async def test_two_children_at_once_do_not_meet(factory: ChildFactory, tmp_path: Path, way: StartMethod) -> None:
    stories = await asyncio.gather(
        run(factory, tmp_path / "a", way), run(factory, tmp_path / "b", way, fault("load", "crash"))
    )
    assert stories[0].kinds[-1] == "Unloaded"
    assert stories[1].status is not None
    assert stories[1].status.text == "signal 11 (SIGSEGV)"


@pytest.mark.req("P7")
async def test_the_double_can_play_a_process_on_a_card(factory: ChildFactory, tmp_path: Path, way: StartMethod) -> None:
    target = tmp_path / "scratch" / "0_{pid}"
    story = await run(factory, tmp_path, way, fault("load", "write_file", 5, str(target)))
    assert (tmp_path / "scratch" / f"0_{story.child.pid}").read_text() == "5"
    assert story.one(Loaded).device == "cpu"


@pytest.mark.req("P5")
@pytest.mark.parametrize(
    ("stage", "kind"), [("load", "read_swallowed"), ("load", "write_file"), ("probe", "read_swallowed")]
)
async def test_a_file_outside_the_set_is_refused_reported_and_ends_it(
    factory: ChildFactory, tmp_path: Path, way: StartMethod, stage: str, kind: str
) -> None:
    """A document of a model's folder may name files elsewhere: bytes that nobody hashed or approved."""
    target = tmp_path / "elsewhere.txt"
    target.write_text("x")
    story = await run(factory, tmp_path, way, fault(stage, kind, 5, str(target)))
    assert (story.failure.code, story.failure.stage) == ("MODEL_LOAD_FAILED", stage)
    assert "outside the approved set" in story.failure.message
    assert story.violations == ["open outside the set file"]
    assert target.read_text() == "x"
    assert str(tmp_path) not in repr(story.frames)


@pytest.mark.req("P11")
async def test_a_use_of_the_network_is_the_graver_word(factory: ChildFactory, tmp_path: Path, way: StartMethod) -> None:
    target = tmp_path / "elsewhere.txt"
    target.write_text("x")
    faults = (fault("load", "read_swallowed", 0, str(target)), fault("load", "connect_swallowed", 9))
    story = await run(factory, tmp_path, way, *faults)
    assert story.failure.code == "OFFLINE_LOAD_VIOLATION"
