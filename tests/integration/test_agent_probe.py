"""Probes with real children and the test double, over a real nats-server: phases, evidence, failures, cancellation."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from adapters.faulty import Fault
from adapters.payloads import EMBEDDING_INPUT
from bus.codec import encode
from bus.digest import sha256_hex
from bus.errors import ErrorCode, ModelForgeError
from bus.messages.api import Fenced
from bus.messages.evidence import MemorySource, ProbeFinished, SamplePoint
from bus.messages.jobs import CancelCommand
from bus.messages.profiles import Budgets
from node_agent import artifact_hash
from node_agent.artifact_root import Member
from tests.support.probes import NO_CARD, ProbeBench, no_place_of_this_host, probe_bench
from tests.support.waiting import until

ALL_PHASES = ["loading", "healthchecking", "ready", "unloading"]


@pytest.fixture
async def probes(tmp_path: Path) -> AsyncIterator[ProbeBench]:
    async with probe_bench(tmp_path) as bench:
        yield bench


@pytest.mark.parametrize("start_method", ["fresh", "template"])
@pytest.mark.req("P3", "P5", "P6", "P13")
async def test_a_probe_goes_through_every_phase_and_proves_what_it_measured(
    probes: ProbeBench, start_method: str
) -> None:
    job = probes.job(Fault(stage="load", kind="noisy", text="loading weights\n"), start_method=start_method)
    message = await probes.run(job)
    assert (message.outcome, message.failure) == ("completed", None)
    assert [mark.state.value for mark in message.timeline] == ALL_PHASES
    assert {mark.attempt for mark in message.timeline} == {1}
    evidence = message.evidence
    assert evidence is not None
    assert [sample.point for sample in evidence.samples] == list(SamplePoint)
    assert evidence.output is not None
    assert evidence.output.input_sha256 == sha256_hex(EMBEDDING_INPUT.encode())
    assert (evidence.health.process, evidence.health.runtime, evidence.health.model) == ("healthy",) * 3
    assert evidence.health.capability == "not_routed_in_m4"
    assert evidence.isolation is not None
    assert evidence.isolation.start_method == start_method
    assert evidence.reclaim is not None
    assert (evidence.reclaim.verdict, evidence.reclaim.process_gone) == ("not_applicable", True)
    assert evidence.reclaim.exit_status == "exit 0"
    assert message.log_ref == f"runtime-worker://local/{job.job_id}/attempt/1"
    assert "loading weights" in message.log_text
    assert EMBEDDING_INPUT not in encode(message).decode()
    no_place_of_this_host(probes, message)
    probes.nothing_is_left()


@pytest.mark.req("P6")
async def test_the_memory_of_a_probe_on_the_cpu_is_the_childs_own(probes: ProbeBench) -> None:
    evidence = (await probes.run(probes.job())).evidence
    assert evidence is not None
    memory = evidence.memory
    assert memory.source is MemorySource.PROCESS_RSS
    assert memory.gpu_reason == "the profile asks for the CPU"
    assert 0 < (memory.before_bytes or 0) <= (memory.after_load_bytes or 0) <= (memory.peak_bytes or 0)
    assert memory.after_exit_bytes == 0
    assert {sample.gpu for sample in evidence.samples} == {None}
    assert evidence.samples[0].host.reason == "there is no child yet"
    assert evidence.samples[-1].host.reason == "the child has ended"


FAILURES: dict[str, tuple[Fault, str, str]] = {
    "import": (Fault(stage="import", kind="raise", text="no such library"), "NODE_FAULT", "preparing"),
    "load": (Fault(stage="load", kind="raise", text="/secret/place"), "MODEL_LOAD_FAILED", "loading"),
    "segfault": (Fault(stage="load", kind="crash"), "RUNTIME_CRASH", "loading"),
    "exit": (Fault(stage="probe", kind="exit", amount=7), "RUNTIME_CRASH", "healthchecking"),
    "nan": (Fault(stage="probe", kind="nan"), "INVALID_OUTPUT", "healthchecking"),
    "unstable": (Fault(stage="probe", kind="unstable"), "INVALID_OUTPUT", "healthchecking"),
    "unhealthy": (Fault(stage="health", kind="unhealthy"), "HEALTHCHECK_FAILED", "unloading"),
    "unload": (Fault(stage="unload", kind="crash"), "RUNTIME_CRASH", "ready"),
    "network": (Fault(stage="load", kind="connect", amount=9), "OFFLINE_LOAD_VIOLATION", "loading"),
    "network, swallowed": (
        Fault(stage="probe", kind="connect_swallowed", amount=9),
        "OFFLINE_LOAD_VIOLATION",
        "healthchecking",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.req("P9", "P13")
async def test_a_failure_is_typed_and_still_goes_through_unloading(probes: ProbeBench, name: str) -> None:
    fault, code, phase = FAILURES[name]
    message = await probes.run(probes.job(fault))
    assert message.failure is not None
    assert (message.outcome, message.failure.code) == ("failed", code)
    reached = ["preparing", *ALL_PHASES]
    expected = reached[1 : reached.index(phase) + 1]
    assert [mark.state.value for mark in message.timeline] == [*(p for p in expected if p != "unloading"), "unloading"]
    assert message.evidence is not None
    assert message.evidence.reclaim is not None
    assert message.evidence.reclaim.process_gone
    assert "/secret/place" not in message.failure.message
    no_place_of_this_host(probes, message)
    probes.nothing_is_left()


@pytest.mark.req("P11")
async def test_every_refused_attempt_is_in_the_evidence(probes: ProbeBench) -> None:
    message = await probes.run(
        probes.job(
            Fault(stage="load", kind="connect_swallowed", amount=9),
            Fault(stage="load", kind="connect_swallowed", amount=9),
        )
    )
    assert message.evidence is not None
    assert message.evidence.isolation is not None
    assert len(message.evidence.isolation.refused_attempts) >= 2


@pytest.mark.req("P5")
async def test_a_file_outside_the_set_is_no_use_of_the_network(probes: ProbeBench, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.txt").write_text("x")
    fault = Fault(stage="load", kind="read_swallowed", text=str(tmp_path / "elsewhere.txt"))
    message = await probes.run(probes.job(fault))
    assert message.failure is not None
    assert (message.outcome, message.failure.code) == ("failed", "MODEL_LOAD_FAILED")
    assert message.evidence is not None
    assert message.evidence.isolation is not None
    assert message.evidence.isolation.refused_attempts == ("open outside the set (file)",)
    no_place_of_this_host(probes, message)


STAGES = {"import": "preparing", "load": "loading", "probe": "healthchecking", "unload": "unloading"}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.req("P9")
async def test_a_phase_that_outlasts_its_budget_ends_typed(probes: ProbeBench, stage: Any) -> None:
    phase = STAGES[stage]
    budgets = Budgets(**{f"{phase}_s": 3 if phase == "preparing" else 1})
    message = await probes.run(probes.job(Fault(stage=stage, kind="hang_deaf"), budgets=budgets))
    assert message.failure is not None
    assert (message.failure.code, message.failure.context["phase"]) == ("TIMEOUT", phase)
    assert message.evidence is not None
    assert message.evidence.reclaim is not None
    assert message.evidence.reclaim.exit_status == "signal 9 (SIGKILL)"
    probes.nothing_is_left()


async def test_a_set_that_cannot_be_read_in_time_says_how_much_of_it_was(
    probes: ProbeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, slow_disk = artifact_hash.read_into, threading.Event()

    def slowly(fd: int, member: Member, buffer: memoryview) -> int:
        if member.path == "large.bin":
            slow_disk.wait(0.1)
        return plain(fd, member, buffer)

    with (probes.model / "large.bin").open("wb") as file:
        file.truncate(40 * 1024 * 1024)
    job = probes.job(budgets=Budgets(preparing_s=2))
    monkeypatch.setattr(artifact_hash, "read_into", slowly)
    failure = (await probes.run(job)).failure
    assert failure is not None
    assert (failure.code, failure.context["phase"]) == ("TIMEOUT", "preparing")
    assert re.fullmatch(
        r"preparing took longer than 2 s: \d+\.\d of 4[12]\.\d MB were verified by then;"
        r" give the profile more preparing_s",
        failure.message,
    )
    verified, total = (int(failure.context[name]) for name in ("verified_bytes", "total_bytes"))
    assert 1024 * 1024 <= verified < total
    probes.nothing_is_left()


async def test_the_whole_probe_has_a_deadline_of_its_own(probes: ProbeBench) -> None:
    message = await probes.run(probes.job(Fault(stage="load", kind="hang"), budgets=Budgets(total_s=3)))
    assert message.failure is not None
    assert (message.failure.code, message.failure.context["phase"]) == ("TIMEOUT", "all")


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.req("P10", "P6")
async def test_a_cancel_at_any_moment_ends_the_child_and_checks_reclaim(probes: ProbeBench, stage: Any) -> None:
    job = probes.job(Fault(stage=stage, kind="hang"))
    await probes.controller.put(job)
    if STAGES[stage] == "preparing":
        await until(lambda: probes.factory.children, "a child")
    else:
        await probes.reaches(job, STAGES[stage])
    await probes.controller.command(CancelCommand(job_id=job.job_id))
    message = await probes.finished(job)
    assert message.failure is not None
    assert (message.outcome, message.failure.code) == ("cancelled", "CANCELLED")
    assert message.timeline[-1].state.value == "unloading"
    assert message.evidence is not None
    assert message.evidence.reclaim is not None
    assert (message.evidence.reclaim.verdict, message.evidence.reclaim.process_gone) == ("not_applicable", True)
    probes.nothing_is_left()


@pytest.mark.req("P10")
async def test_a_cancel_before_the_child_was_started_starts_none(probes: ProbeBench) -> None:
    job = probes.job()
    probes.controller.cancel.add(job.job_id)
    message = await probes.run(job)
    assert message.outcome == "cancelled"
    assert [mark.state.value for mark in message.timeline] == ["unloading"]
    assert message.evidence is not None
    assert message.evidence.reclaim is None
    assert probes.factory.children == []


@pytest.mark.req("P6")
async def test_the_parent_answers_while_its_child_is_deaf(probes: ProbeBench) -> None:
    """A child in one long call: the lease is renewed all the same, and a cancel ends it by force."""
    job = probes.job(Fault(stage="load", kind="hang_deaf"))
    await probes.controller.put(job)
    await probes.reaches(job, "loading")
    await probes.controller.until(lambda: len(probes.controller.renewals) >= 4)
    await probes.controller.command(CancelCommand(job_id=job.job_id))
    message = await probes.finished(job)
    assert message.evidence is not None
    assert message.evidence.reclaim is not None
    assert message.evidence.reclaim.exit_status == "signal 9 (SIGKILL)"


@pytest.mark.req("P6", "P9")
async def test_a_child_that_somebody_kills_is_a_crash(probes: ProbeBench) -> None:
    job = probes.job(Fault(stage="load", kind="hang"))
    await probes.controller.put(job)
    await probes.reaches(job, "loading")
    os.kill(probes.factory.children[0].pid, signal.SIGKILL)
    message = await probes.finished(job)
    assert message.failure is not None
    assert message.failure.code == "RUNTIME_CRASH"
    assert message.failure.context["exit_status"] == "signal 9 (SIGKILL)"
    assert message.evidence is not None
    assert message.evidence.health.process == "unhealthy"


def add_a_file(model: Path) -> None:
    (model / "late.py").write_text("import os")


def change_a_file(model: Path) -> None:
    (model / "config.json").write_text('{"other": 1}')


@pytest.mark.parametrize("change", [add_a_file, change_a_file])
@pytest.mark.req("P5", "A3")
async def test_files_that_are_not_the_approved_ones_start_no_child(
    probes: ProbeBench, change: Callable[[Path], None]
) -> None:
    job = probes.job()
    change(probes.model)
    message = await probes.run(job)
    assert message.failure is not None
    assert message.failure.code == "ARTIFACT_CHANGED"
    assert message.failure.context["file"] in {"late.py", "config.json"}
    assert probes.factory.children == []


@pytest.mark.req("P5")
async def test_files_that_change_while_they_are_loaded_prove_nothing(probes: ProbeBench) -> None:
    job = probes.job(Fault(stage="load", kind="slow", amount=500))
    await probes.controller.put(job)
    await probes.reaches(job, "loading")
    change_a_file(probes.model)
    message = await probes.finished(job)
    assert message.failure is not None
    assert (message.outcome, message.failure.code) == ("failed", "ARTIFACT_CHANGED")


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        ({"adapter": "transformers"}, "no executable part"),
        ({"adapter": "os.system"}, "knows no adapter"),
        ({"device": "cuda"}, NO_CARD),
        ({"device": "cuda", "gpu_uuid": "GPU-0"}, NO_CARD),
    ],
)
@pytest.mark.req("P14", "B4")
async def test_what_this_node_cannot_run_is_incompatible(
    probes: ProbeBench, profile: dict[str, Any], words: str
) -> None:
    message = await probes.run(probes.job(**profile))
    assert message.failure is not None
    assert message.failure.code == "RUNTIME_INCOMPATIBLE"
    assert words in message.failure.message
    assert probes.factory.children == []


@pytest.mark.req("P4")
async def test_an_attempt_that_was_fenced_ends_its_child_and_is_silent(probes: ProbeBench) -> None:
    async def fence(_: Any) -> Fenced:
        return Fenced(failure=ModelForgeError(ErrorCode.LEASE_FENCED, "a newer attempt").to_failure())

    job = probes.job(Fault(stage="load", kind="hang"))
    await probes.controller.put(job)
    await probes.reaches(job, "loading")
    probes.controller.answers["renew"] = fence
    await until(lambda: probes.factory.children[0].gone, "the end of the child")
    assert not [message for message in probes.controller.evidence if isinstance(message, ProbeFinished)]


@pytest.mark.req("P12")
async def test_a_noisy_child_fills_neither_the_message_nor_the_pipe(probes: ProbeBench) -> None:
    noise = Fault(stage="load", kind="noisy", amount=4 * 1024 * 1024, text='\x1b[2J\x00 noise \\" \n')
    message = await probes.run(probes.job(noise))
    assert message.outcome == "completed"
    assert message.log_dropped_bytes > 3 * 1024 * 1024
    assert len(encode(message)) < 512 * 1024
    assert "\x1b" not in message.log_text
