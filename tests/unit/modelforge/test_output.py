from __future__ import annotations

import io
import json
from dataclasses import dataclass

import pytest

from bus.messages.api import Nodes
from modelforge.cli.output import Output, Progress, render_json, wants_color


@dataclass(frozen=True)
class Bounded:
    truncated: bool


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_needs_a_terminal_and_nobody_who_declines() -> None:
    assert wants_color(Terminal(), no_color=False, variables={})
    assert not wants_color(io.StringIO(), no_color=False, variables={})
    assert not wants_color(Terminal(), no_color=True, variables={})
    assert not wants_color(Terminal(), no_color=False, variables={"NO_COLOR": "1"})
    assert not wants_color(Terminal(), no_color=False, variables={"TERM": "dumb"})
    assert wants_color(Terminal(), no_color=False, variables={"NO_COLOR": ""})


def test_the_envelope_names_its_schema_first() -> None:
    assert render_json("probe", {"id": "x"}) == '{"schema":"modelforge.probe/v1","data":{"id":"x"}}'


def test_results_go_to_stdout_and_talk_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output()
    out.note("talk")
    out.result("thing", {"a": 1}, lambda: "text")
    out.next("modelforge tui")
    captured = capsys.readouterr()
    assert captured.out == "text\n"
    assert captured.err == "talk\nnext: modelforge tui\n"


def test_json_is_one_document_and_lines_are_one_each(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(as_json=True)
    out.result("thing", [1, 2], lambda: "text")
    assert json.loads(capsys.readouterr().out) == {"schema": "modelforge.thing/v1", "data": [1, 2]}
    out.line("thing", 1, lambda: "text")
    out.line("thing", 2, lambda: "text")
    assert [json.loads(line)["data"] for line in capsys.readouterr().out.splitlines()] == [1, 2]


def test_a_cut_list_is_never_silent(capsys: pytest.CaptureFixture[str]) -> None:
    nodes, bounded = Nodes(nodes=()), Bounded(truncated=True)
    Output().truncated(nodes, 3, 5)
    assert capsys.readouterr().err == ""
    Output().truncated(nodes, 0, 5)
    assert capsys.readouterr().err == "there is none yet\n"
    Output().truncated(bounded, 1, 1)
    assert capsys.readouterr().err == "the newest one is shown; --limit shows more\n"
    Output().truncated(bounded, 5, 5)
    assert capsys.readouterr().err == "the newest 5 are shown; --limit shows more\n"
    Output().truncated(bounded, 3, 5)
    assert capsys.readouterr().err == "the newest 3 are shown; this is as much as one answer holds\n"


def test_an_aside_is_told_even_where_no_phase_is_and_leaves_the_running_line() -> None:
    plain, terminal = io.StringIO(), Terminal()
    for stream, animate in ((plain, False), (terminal, True)):
        progress = Progress(stream, animate=animate, passing=True)
        progress.phase("loading")
        progress.aside("the controller is away")
    assert plain.getvalue() == "the controller is away\n"
    before, after = terminal.getvalue().split("the controller is away\n")
    assert before.endswith("\x1b[2K")
    assert "loading" in after


def test_without_a_terminal_each_phase_is_one_plain_line() -> None:
    stream = io.StringIO()
    progress = Progress(stream, animate=False)
    for words in ("queued", "queued", "loading"):
        progress.phase(words)
        progress.tick()
    progress.finish()
    assert stream.getvalue() == "queued\nloading\n"


def test_on_a_terminal_a_phase_is_rewritten_and_kept_when_it_ends() -> None:
    stream = Terminal()
    progress = Progress(stream, animate=True)
    progress.phase("queued")
    progress.tick()
    progress.phase("loading")
    progress.finish()
    lines = stream.getvalue().split("\n")
    assert len(lines) == 3
    assert "queued" in lines[0].rpartition("\x1b[2K")[2]
    assert "loading" in lines[1].rpartition("\x1b[2K")[2]
    assert lines[2] == ""


def test_a_passing_line_leaves_no_trace() -> None:
    plain, terminal = io.StringIO(), Terminal()
    for stream, animate in ((plain, False), (terminal, True)):
        progress = Progress(stream, animate=animate, passing=True)
        progress.phase("loading")
        progress.finish()
    assert plain.getvalue() == ""
    assert terminal.getvalue().endswith("\r\x1b[2K")


def test_a_measured_phase_is_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    stream = Terminal()
    progress = Progress(stream, animate=True)
    progress.measure("scan hashing", 1, 4, "1/4 files")
    progress.measure("scan hashing", 3, 4, "x" * 100)
    drawn = stream.getvalue().split("\x1b[2K")
    assert "scan hashing [####............] 25% 1/4 files" in drawn[-2]
    assert "75%" in drawn[-1]
    assert len(drawn[-1].rstrip("\r")) < 60  # a line that wraps could not be rewritten
    assert drawn[-1].rstrip("\r").endswith("… 0.0 s")  # what is too long gives way, the time does not
    progress.measure("scan listing", 7, 0, "7 files")
    assert "scan listing 7 files" in stream.getvalue().rpartition("\x1b[2K")[2]
    progress.finish()
    assert stream.getvalue().endswith("s\n")


def test_a_sentence_wraps_at_the_terminal_and_a_command_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    out = Output(no_color=True)
    out.note("  the sentence " + "of words " * 10)
    out.next("modelforge assess " + "a" * 60)
    *lines, command = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert all(len(line) <= 50 for line in lines)
    assert lines[1].startswith("    of ")
    assert command == "next: modelforge assess " + "a" * 60


def test_without_a_terminal_each_tenth_is_one_plain_line() -> None:
    stream = io.StringIO()
    progress = Progress(stream, animate=False)
    for done in (0, 5, 10, 12, 19, 20, 100, 100):
        progress.measure("hashing", done, 100, f"{done} files")
    progress.measure("reporting", 0, 0, "")
    assert stream.getvalue().splitlines() == [
        "hashing",
        "hashing: 10% 10 files",
        "hashing: 20% 20 files",
        "hashing: 100% 100 files",
        "reporting",
    ]


def test_no_talk_drives_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "local:m\x1b]0;owned\x07\u202e"
    Output().note(f"one\n{hostile}")
    Output().next(hostile)
    plain, terminal = io.StringIO(), Terminal()
    for stream, animate in ((plain, False), (terminal, True)):
        progress = Progress(stream, animate=animate)
        progress.measure(hostile, 1, 2, "half")
        progress.finish()
    said = capsys.readouterr().err
    assert said.startswith("one\nlocal:m")
    for shown in (said, plain.getvalue(), terminal.getvalue().replace("\x1b[2K", "")):
        assert not set("\x1b\x07\u202e") & set(shown)
