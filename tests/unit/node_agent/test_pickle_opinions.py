"""Other scanners are asked in processes of their own; what they say is kept, and decides nothing."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import pytest
import torch

from adapters.formats.pickles import pickle_facts
from bus.codec import decode
from bus.messages.artifacts import Opinion
from node_agent import pickle_opinions
from node_agent.pickle_opinions import TOOLS, OpinionHost, Opinions
from tests.support import pickles
from tests.support.waiting import until

RUN_S: Final = 50


@pytest.fixture(scope="module")
def host() -> Iterator[OpinionHost]:
    with OpinionHost() as running:
        yield running


@contextmanager
def opened(data: bytes) -> Iterator[BinaryIO]:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        yield cast("BinaryIO", file)


def asked(host: OpinionHost, data: bytes) -> dict[str, Opinion]:
    with opened(data) as file:
        return {opinion.tool: opinion for opinion in host(file)}


def state_dict(*, zipped: bool) -> bytes:
    target = io.BytesIO()
    torch.save(torch.nn.Linear(2, 2).state_dict(), target, _use_new_zipfile_serialization=zipped)
    return target.getvalue()


@pytest.mark.req("A4")
def test_every_installed_scanner_says_something_with_its_version(host: OpinionHost) -> None:
    opinions = asked(host, pickles.EVIL)

    assert set(opinions) == set(TOOLS)
    assert {opinion.verdict for opinion in opinions.values()} == {"dangerous"}
    assert opinions["picklescan"].detail == "os.mkdir"
    assert {tool: opinion.version for tool, opinion in opinions.items()} == pickle_opinions.installed()


@pytest.mark.parametrize("zipped", [True, False])
def test_ordinary_weights_are_clean_to_picklescan(host: OpinionHost, zipped: bool) -> None:
    """Fickling says of every tensor that it is likely unsafe, which is one more reason why it decides nothing."""
    opinions = asked(host, state_dict(zipped=zipped))

    assert opinions["picklescan"].verdict == "clean"
    assert opinions["fickling"].verdict != "unavailable"


@pytest.mark.parametrize(
    ("data", "verdict"),
    [
        (b"\x80\x02}.", "clean"),
        (pickles.torch_zip(b"\x80\x02" + pickles.EVIL), "dangerous"),
        (pickles.legacy_torch(pickles.EVIL), "dangerous"),
    ],
)
def test_both_scanners_read_all_forms_of_a_pickle(host: OpinionHost, data: bytes, verdict: str) -> None:
    assert {opinion.verdict for opinion in asked(host, data).values()} == {verdict}


@pytest.mark.req("A4")
def test_a_clean_opinion_does_not_change_the_verdict(host: OpinionHost, tmp_path: Path) -> None:
    """A pickle in an entry of another name does its harm, and picklescan finds nothing to look at."""
    (case,) = [case for case in pickles.hostile() if case.name == "entry of another name"]
    opinions = asked(host, case.data)

    assert pickles.really_loaded((case,), tmp_path) == {case.name}
    assert opinions["picklescan"].verdict == "clean"
    assert pickle_facts("w.bin", io.BytesIO(case.data), len(case.data))[0].verdict == "code"


def test_the_files_position_is_left_as_it_was(host: OpinionHost) -> None:
    with opened(pickles.EVIL) as file:
        file.seek(7)
        assert host(file)
        assert file.tell() == 7


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"PK\x03\x04", b"\x93NUMPY", b"\x80\x04\x8e" + b"\xff" * 8, os.urandom(4_000)]
)
def test_whatever_a_scanner_does_the_answer_is_an_opinion(host: OpinionHost, data: bytes) -> None:
    assert set(asked(host, data)) == set(TOOLS)


def test_a_file_without_a_descriptor_is_unavailable(host: OpinionHost) -> None:
    assert {opinion.verdict for opinion in host(io.BytesIO(pickles.EVIL))} == {"unavailable"}
    assert {opinion.verdict for opinion in asked(host, pickles.EVIL).values()} == {"dangerous"}


def test_a_scanner_that_is_not_installed_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickle_opinions, "TOOLS", ("picklescan", "no_such_scanner_exists"))
    with OpinionHost() as host:
        assert set(asked(host, pickles.EVIL)) == {"picklescan"}

    monkeypatch.setattr(pickle_opinions, "TOOLS", ("no_such_scanner_exists",))
    with OpinionHost() as host, opened(pickles.EVIL) as file:
        assert host.descriptor is None
        assert host(file) == ()


def test_no_scanner_is_imported_by_the_agent() -> None:
    code = "import sys, node_agent.pickle_opinions as o; o.installed(); print([t for t in o.TOOLS if t in sys.modules])"
    ran = subprocess.run([sys.executable, "-P", "-c", code], check=True, capture_output=True, timeout=RUN_S)

    assert ran.stdout.strip() == b"[]"


def test_the_time_for_all_files_is_bounded(host: OpinionHost) -> None:
    with OpinionHost(budget_s=0.000_001) as short:
        first, second = asked(short, pickles.EVIL), asked(short, pickles.EVIL)

    assert {opinion.verdict for opinion in first.values()} == {"dangerous"}
    assert {(opinion.verdict, opinion.detail) for opinion in second.values()} == {
        ("unavailable", "not asked: the scan has used up its time for other scanners")
    }


def test_a_host_that_is_gone_makes_everything_unavailable() -> None:
    with OpinionHost() as host:
        assert host._process is not None
        os.killpg(host._process.pid, signal.SIGKILL)
        host._process.wait()
        details = [{opinion.detail for opinion in asked(host, pickles.EVIL).values()} for _ in range(2)]

        assert all("its process" in detail for each in details for detail in each)


async def test_the_host_ends_with_its_scan() -> None:
    host = OpinionHost()
    assert host._process is not None
    pid = host._process.pid
    host.close()

    await until(lambda: not Path(f"/proc/{pid}").exists(), "the host's end")
    host.close()


# What a scanner may do while it reads a hostile file.


def behaving(body: str, *, wall_s: float = 20.0, before: str = "") -> Opinion:
    """What is said of a scanner that does this instead of scanning."""
    code = f"""
        import os, socket, sys, time
        from bus.codec import encode
        from node_agent import opinion_host
        {before}
        def scanner(file):
            {body}
            return opinion_host.Answer("clean", "it came to its end")
        opinion_host._TOOLS["picklescan"] = scanner
        with open(os.devnull, "rb") as file:
            print(encode(opinion_host.answer_for(file.fileno(), ["picklescan"], {wall_s})).decode())
    """
    command = [sys.executable, "-P", "-c", textwrap.dedent(code)]
    ran = subprocess.run(command, check=True, capture_output=True, timeout=RUN_S)
    (opinion,) = decode(ran.stdout, Opinions).opinions
    return opinion


def test_a_scanner_that_ends_is_believed() -> None:
    assert behaving("pass").detail == "it came to its end"


@pytest.mark.parametrize(
    ("body", "options", "detail"),
    [
        ("time.sleep(1_000)", {"wall_s": 0.5}, "it took too long"),
        ("while True: pass", {"before": "opinion_host.CPU_S = 1"}, "its process ended: it took too much processor time"),
        ("bytearray(4 * 1024**3)", {}, "it ended in MemoryError"),
        ("raise SystemExit", {}, "it ended in SystemExit"),
        ("os._exit(3)", {}, "its process ended: exit 3"),
        ("os.abort()", {}, "its process ended: signal 6"),
        ("os.fork()", {}, "it ended in PermissionError"),
        ("os.posix_spawn('/bin/true', ['true'], {})", {}, "it ended in PermissionError"),
        ("socket.socket(socket.AF_INET)", {}, "it ended in PermissionError"),
        ("os.write(os.memfd_create('x'), b'x')", {}, "it ended in OSError"),
        ("[os.dup(0) for _ in range(100)]", {}, "it ended in OSError"),
    ],
)  # fmt: skip
def test_a_scanner_is_bounded(body: str, options: dict[str, Any], detail: str) -> None:
    opinion = behaving(body, **options)

    assert (opinion.verdict, opinion.detail) == ("unavailable", detail)


def test_what_a_scanner_says_is_cleaned_and_bounded() -> None:
    opinion = behaving("return opinion_host.Answer('clean', '\\x1b[2J' + 'x' * 5_000)")

    assert opinion.detail == "x" * 296


@pytest.mark.parametrize("answer", ["b'nonsense'", 'b\'{"tool":"other","version":"0","verdict":"fine"}\''])
def test_an_answer_that_is_none_is_not_believed(answer: str) -> None:
    """The process that wrote it has read a hostile file with somebody else's code."""
    opinion = behaving(f"os.write(pipes[-1][1], {answer}); os._exit(0)", before=textwrap.dedent(_KEEP_PIPES))

    assert (opinion.tool, opinion.verdict) == ("picklescan", "unavailable")
    assert opinion.detail == "its process gave no answer that can be read"


# Where the scanner finds the pipe that its own process would answer on.
_KEEP_PIPES: Final = "pipes = []; pipe = os.pipe; os.pipe = lambda: pipes.append(pipe()) or pipes[-1]"


def test_the_host_answers_a_scan_that_may_start_nothing_itself() -> None:
    """A scan's process shuts its doors after the host was started; behind them only the socket is left."""
    code = """
        import os, sys, tempfile
        from adapters.child import limits, seccomp
        from bus.codec import encode
        from node_agent.pickle_opinions import OpinionHost
        from tests.support.pickles import EVIL
        file = tempfile.TemporaryFile()
        file.write(EVIL)
        file.flush()
        host = OpinionHost()
        limits.close_inherited({host.descriptor, file.fileno()})
        seccomp.install(processes=True)
        print(encode([host(file), OpinionHost()(file)]).decode())
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    ran = subprocess.run(command, check=True, capture_output=True, timeout=RUN_S, cwd=Path(__file__).parents[3])
    by_host, by_itself = decode(ran.stdout, list[list[Opinion]])

    assert [opinion.verdict for opinion in by_host] == ["dangerous", "dangerous"]
    assert {opinion.detail for opinion in by_itself} == {"its process could not be started: Operation not permitted"}
